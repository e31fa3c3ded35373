"""What the routes of Iceberg's REST catalog answer: read-only, and each table as it is now.

Only tables in Parquet are listed. To load one is to tell readers of Iceberg the commits that they
don't know yet; grants are those of the gateway, and to load a table needs `read`."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from acid_platform.base.first_use import Recent
from acid_platform.errors import (
    AcidError,
    InvalidDefinition,
    LeaseHeld,
    MalformedName,
    NoSuchBranch,
    NoSuchTable,
    NotAuthorized,
    Transient,
    UnsupportedLayout,
    UnsupportedStatement,
)
from acid_platform.gateway.authorization import Authorizer, Caller, Guard
from acid_platform.gateway.load_leases import LoadLeases
from acid_platform.gateway.needs import Need, Verb
from acid_platform.layout.formats import FileFormat
from acid_platform.layout.names import table_name
from acid_platform.metastore import operations as ops
from acid_platform.metastore.branches import BranchRow
from acid_platform.metastore.client.metastore import Metastore

_MOST_PAGE = 1000
"""Names of a page."""
_KEPT_BYTES = 32 << 20
"""Answers to loads that are kept, since a reader loads a table several times for a query."""
_PAUSES = (0.1, 0.3, 1.0, 3.0)
"""Seconds to wait for another process that tells the same table."""
_READS = (
    "GET /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
)
"""What clients are told that there is."""
_BRANCH = "branch."
"""How a prefix begins that names a branch; its name has no point, and has one for each slash."""


@dataclass(frozen=True, slots=True)
class CatalogRequest:
    method: str
    path: str
    """As it was sent, without the query."""
    query: Mapping[str, str]

    @property
    def parts(self) -> list[str]:
        """The parts of the path below /v1, decoded. Raises NoSuchTable for another path."""
        first, version, *rest = self.path.rstrip("/").split("/")
        if first or version != "v1" or not rest:
            raise NoSuchTable(f"there is nothing at {self.path}; the catalog is below /v1")
        return [unquote(part) for part in rest]


@dataclass(frozen=True, slots=True)
class CatalogAnswer:
    status: int
    body: bytes = b""
    """JSON, or nothing."""
    headers: tuple[tuple[str, str], ...] = ()


def failed(status: int, kind: str, why: str, *headers: tuple[str, str]) -> CatalogAnswer:
    """An error in the catalog's form."""
    error = {"message": " ".join(why.split()), "type": kind, "code": status}
    return CatalogAnswer(status, json.dumps({"error": error}).encode(), headers)


def _answer(value: Mapping[str, Any]) -> CatalogAnswer:
    return CatalogAnswer(200, json.dumps(value).encode())


_FAILURES: tuple[tuple[type[AcidError], int, str], ...] = (
    (NotAuthorized, 403, "ForbiddenException"),
    (NoSuchTable, 404, "NoSuchTableException"),
    (NoSuchBranch, 404, "NoSuchWarehouseException"),
    (MalformedName, 404, "NoSuchTableException"),
    (UnsupportedLayout, 400, "BadRequestException"),
    (UnsupportedStatement, 400, "BadRequestException"),
    (InvalidDefinition, 400, "BadRequestException"),
    (Transient, 503, "ServiceUnavailableException"),
    (AcidError, 500, "InternalServerError"),
)


class RestCatalog:
    """Answers requests, from any thread."""

    def __init__(
        self,
        metastore: Metastore,
        tell: Callable[[str, str], tuple[str, bytes]],
        authorizer: Authorizer | None = None,
        leases: LoadLeases | None = None,
    ) -> None:
        """`tell` brings the metadata of a table up to date, as a branch shows it (empty: everybody
        sees it so); it returns the metadata file's place and content, and raises as
        `Warehouse.export_iceberg`. `authorizer` None allows everything. `leases` keep what was
        loaded, of all but branches, which keep their own."""
        self._metastore, self._tell = metastore, tell
        self.leases = leases or LoadLeases(metastore, 0)
        self._guard = Guard(metastore, authorizer)
        self._told: Recent[bytes, CatalogAnswer] = Recent(1000, _KEPT_BYTES)
        self._telling: dict[str, threading.Lock] = {}
        self._changing = threading.Lock()

    def leave(self) -> None:
        """Ends this thread's connection to the metastore."""
        self._metastore.disconnect()

    def answer(self, request: CatalogRequest, caller: Caller) -> CatalogAnswer:
        """The answer, which may be an error."""
        try:
            return self._route(request, caller)
        except AcidError as error:
            for kind, status, name in _FAILURES:
                if isinstance(error, kind):
                    return failed(status, name, str(error))
            raise

    def _route(self, request: CatalogRequest, caller: Caller) -> CatalogAnswer:
        parts, branch = request.parts, ""
        if parts[0].startswith(_BRANCH):
            branch = parts.pop(0).removeprefix(_BRANCH).replace(".", "/")
        match request.method, parts:
            case "POST", ["namespaces", _, "tables", _, "metrics"]:
                return CatalogAnswer(204)  # what a scan took: nobody asked
            case "GET" | "HEAD", ["config"]:
                own = self._overrides(request.query.get("warehouse", ""))
                return _answer({"defaults": {}, "overrides": own, "endpoints": _READS})
            case "GET" | "HEAD", ["namespaces"]:
                return self._namespaces(request, caller)
            case "GET" | "HEAD", ["namespaces", name]:
                self._require_namespace(name, caller)
                return _answer({"namespace": [name], "properties": {}})
            case "GET" | "HEAD", ["namespaces", name, "tables"]:
                return self._tables(request, name, caller)
            case "GET" | "HEAD", ["namespaces", name, "views"]:
                self._require_namespace(name, caller)
                return _answer({"identifiers": []})
            case "GET" | "HEAD", ["namespaces", name, "tables", table]:
                return self._table(request, f"{name}.{table}", branch, caller)
            case "GET" | "HEAD", ["namespaces", name, "views", view]:
                return failed(404, "NoSuchViewException", f"{name}.{view}: no view is told here")
            case "GET" | "HEAD", _:
                return failed(404, "NoSuchTableException", f"there is nothing at {request.path}")
        return failed(
            403,
            "ForbiddenException",
            f"{request.method} {request.path}: this catalog is read-only; write with this platform,"
            " or with Trino and Hive through `acid gateway`",
        )

    def _overrides(self, asked: str) -> dict[str, str]:
        """What a client is to take over that asks for this warehouse: the name counts only if it is
        that of a branch. Raises NoSuchBranch."""
        kind, slash, branch = asked.partition("/")
        if (kind, slash) != ("branch", "/"):
            return {}
        self._branch(branch)
        return {"prefix": _BRANCH + branch.replace("/", ".")}

    def _branch(self, name: str) -> BranchRow:
        """Raises NoSuchBranch, without the names of others."""
        with suppress(NoSuchBranch):
            (found,) = self._metastore.call(ops.GetBranches(name, judged=False))
            return found
        raise NoSuchBranch(f"there is no branch {name!r}; it may be merged or dropped")

    # --- names ----------------------------------------------------------------------------------

    def _namespaces(self, request: CatalogRequest, caller: Caller) -> CatalogAnswer:
        if request.query.get("parent"):
            self._require_namespace(request.query["parent"], caller)
            return _answer({"namespaces": []})
        seen = filter(self._guard.sight(caller).database, self._metastore.databases())
        return _page(request, seen, "namespaces", lambda name: [name])

    def _require_namespace(self, name: str, caller: Caller) -> None:
        """Raises NoSuchTable for a database that is not there, or that the caller may not see."""
        there = name in self._metastore.databases() and self._guard.sight(caller).database(name)
        if not there:
            raise NoSuchTable(f"there is no namespace {name}")

    def _tables(self, request: CatalogRequest, database: str, caller: Caller) -> CatalogAnswer:
        self._require_namespace(database, caller)
        sees = self._guard.sight(caller).table
        names = (
            record.name.removeprefix(f"{database}.")
            for record in self._metastore.tables()
            if record.name.startswith(f"{database}.")
            and FileFormat.of(record.properties).name == "parquet"
            and sees(record.name)
        )
        return _page(
            request, names, "identifiers", lambda name: {"namespace": [database], "name": name}
        )

    # --- a table --------------------------------------------------------------------------------

    def _table(
        self, request: CatalogRequest, name: str, branch: str, caller: Caller
    ) -> CatalogAnswer:
        full = table_name(name)
        self._guard.require([Need((Verb.READ,), full)], "load of a table", caller)
        record = self._metastore.table(full)
        if request.method == "HEAD":
            return CatalogAnswer(204)
        with self._alone(full):
            if not branch:
                self.leases.cover(record, caller.user)
            state = hashlib.sha256(repr((record, *self._states(full, branch))).encode()).digest()
            answer = self._told.get(state)
            if answer is None:
                file, document = self._up_to_date(full, branch)
                head = json.dumps({"metadata-location": file, "config": {}})
                body = b'%s, "metadata": %s}' % (head[:-1].encode(), document)
                answer = CatalogAnswer(200, body)
                self._told.put(state, answer, len(body))
        return answer

    def _states(self, table: str, branch: str) -> tuple[object, ...]:
        """What differs whenever something else is to be told of the table."""
        if branch:
            found = self._branch(branch)
            return found.txn, found.commits
        (kept,) = self._metastore.call(ops.GetKept(table))
        return self._metastore.call(ops.GetCommits(table)), kept.tags

    def _up_to_date(self, table: str, branch: str) -> tuple[str, bytes]:
        """Raises LeaseHeld if another process tells the table's commits for long."""
        for pause in _PAUSES:
            with suppress(LeaseHeld):
                return self._tell(table, branch)
            time.sleep(pause)
        return self._tell(table, branch)

    def _alone(self, table: str) -> threading.Lock:
        """The lock of a table: of several loads one tells, and the others find what it told."""
        with self._changing:
            return self._telling.setdefault(table, threading.Lock())


def _page(
    request: CatalogRequest, names: Iterable[str], what: str, shown: Callable[[str], object]
) -> CatalogAnswer:
    """All names in their order, or a page of them if the client asks for pages.

    Raises InvalidDefinition."""
    query, every = request.query, sorted(names)
    if not {"pageSize", "pageToken"} & query.keys():
        return _answer({what: [shown(name) for name in every]})
    size, after = query.get("pageSize", str(_MOST_PAGE)), query.get("pageToken", "")
    if not (size.isascii() and size.isdigit() and int(size[:9]) > 0):
        raise InvalidDefinition(f"pageSize={size!r} is no whole number above 0")
    most = min(int(size[:9]), _MOST_PAGE)
    rest: Sequence[str] = [name for name in every if name > after]
    page = {what: [shown(name) for name in rest[:most]]}
    return _answer(page | ({"next-page-token": rest[most - 1]} if len(rest) > most else {}))
