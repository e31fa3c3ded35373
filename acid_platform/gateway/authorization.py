"""Who may do what: asked before each call, per table and verb.

The rules are a file of grants, or a function of the user's own. What a transaction does is asked
when it locks a table or gets a write id; its other calls have to come from the user who opened it.
"""

from __future__ import annotations

import importlib
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from acid_platform.errors import InvalidDefinition, NotAuthorized
from acid_platform.gateway.caller import Caller
from acid_platform.gateway.needs import ANY, SEE, Need, Verb, needs_of
from acid_platform.gateway.protocol import Call
from acid_platform.gateway.watched import Watched
from acid_platform.metastore.client.metastore import Metastore

_LOG = logging.getLogger(__name__)
_KNOWN = 100_000
"""Transactions whose users are remembered; those of others are asked from the metastore."""
_FOR = " for "


@dataclass(frozen=True, slots=True)
class Request:
    """What an authorizer decides about. `table` is `database.table`, and `*` stands for all."""

    user: str
    """Empty if nobody has to log in."""
    address: str
    verb: str
    table: str
    call: str


Authorizer = Callable[[Request], bool]


@dataclass(frozen=True, slots=True)
class Grant:
    """A line of the file of grants."""

    user: str
    verbs: frozenset[str]
    tables: tuple[tuple[str, str], ...]

    def gives(self, asked: Request) -> bool:
        database, _, table = asked.table.partition(".")
        return (
            self.user in (ANY, asked.user)
            and asked.verb in self.verbs
            and any(
                first in (ANY, database) and second in (ANY, table) for first, second in self.tables
            )
        )


def parse_grants(text: str, where: str) -> list[Grant]:
    """Lines `USER VERBS TABLES`, such as `ann read,insert sales.*`. Raises InvalidDefinition."""
    return [
        _grant(line.split(), f"{where}, line {number}")
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.strip().startswith("#")
    ]


def _grant(words: list[str], where: str) -> Grant:
    if len(words) != 3:
        raise InvalidDefinition(
            f"{where}: a line is USER VERBS TABLES, such as: ann read,insert sales.*"
        )
    user, verbs, tables = words
    given = frozenset([*Verb] if verbs == "all" else verbs.split(","))
    unknown = sorted(given - {*Verb})
    if unknown:
        raise InvalidDefinition(
            f"{where}: there is no verb {unknown[0]!r}; verbs are {', '.join(Verb)}, or all"
        )
    pairs = []
    for table in tables.lower().split(","):
        database, dot, name = (table if table != ANY else f"{ANY}.{ANY}").partition(".")
        if not (database and dot and name) or any(
            ANY in part and part != ANY for part in (database, name)
        ):
            raise InvalidDefinition(f"{where}: {table!r} is not database.table, database.*, or *")
        pairs.append((database, name))
    return Grant(user, given, tuple(pairs))


def grants(path: str) -> Authorizer:
    """An authorizer that reads a file, again when it changes. Raises InvalidDefinition."""
    file = Watched(path, parse_grants, "the file of grants")
    file.content()
    return lambda asked: any(grant.gives(asked) for grant in file.content())


def imported(name: str) -> Authorizer:
    """The function `package.module:function`. Raises InvalidDefinition."""
    module, _, attribute = name.partition(":") if ":" in name else name.rpartition(".")
    try:
        found: Any = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidDefinition(
            f"acid.gateway.authorizer: {name!r} can't be imported ({error}); give"
            " package.module:function of a module that Python finds"
        ) from error
    if not callable(found):
        raise InvalidDefinition(f"acid.gateway.authorizer: {name!r} is no function")

    def asks(asked: Request) -> bool:
        return found(asked) is True

    return asks


class Guard:
    """Asks the authorizer before each call, and keeps users out of others' transactions."""

    def __init__(self, metastore: Metastore, authorizer: Authorizer | None = None) -> None:
        self._metastore, self._authorizer = metastore, authorizer
        self._lock = threading.Lock()
        self._owners: OrderedDict[int, str] = OrderedDict()

    def admit(self, call: Call, caller: Caller) -> None:
        """Raises NotAuthorized unless the caller may make the call.

        A transaction that is opened gets the name of the user who has logged in.
        """
        if self._authorizer is not None:
            for need in needs_of(call):
                self._require(need, call, caller)
        if caller.user:
            for txn in _transactions_of(call):
                self._require_own(txn, call, caller)
            if call.name == "open_txns":
                request = call.arguments[0]
                request.user = _recorded(caller.user, request.user)

    def opened(self, call: Call, caller: Caller, answer: Any) -> None:
        """Remembers whose transactions these are."""
        if call.name == "open_txns" and caller.user:
            with self._lock:
                self._owners.update(dict.fromkeys(answer.txn_ids, caller.user))
                while len(self._owners) > _KNOWN:
                    self._owners.popitem(last=False)

    def _require(self, need: Need, call: Call, caller: Caller) -> None:
        assert self._authorizer is not None
        try:
            for verb in need.verbs:
                asked = Request(caller.user, caller.address, verb.value, need.table, call.name)
                if self._authorizer(asked):
                    return
        except Exception as error:  # the function is not ours, and a failure must not let in
            _LOG.exception("the authorizer failed for %s", caller)
            raise NotAuthorized(
                f"{_user(caller)} may not {_words(need)}: the authorizer failed:"
                f" {type(error).__name__}: {error}"
            ) from error
        raise NotAuthorized(f"{_user(caller)} may not {_words(need)} ({call.name})")

    def _require_own(self, txn: int, call: Call, caller: Caller) -> None:
        owner = self._owner(txn)
        if owner not in (None, caller.user):
            raise NotAuthorized(
                f"{_user(caller)} may not use transaction {txn} of {owner} ({call.name})"
            )

    def _owner(self, txn: int) -> str | None:
        """Whose transaction it is; None if it is not there, which the call itself will say."""
        with self._lock:
            if txn in self._owners:
                return self._owners[txn]
        for row in self._metastore.transactions():
            if row["txnid"] == txn:
                return str(row["user"]).partition(_FOR)[0]
        return None


def _user(caller: Caller) -> str:
    return f"user {caller.user}" if caller.user else f"the client at {caller.host}"


def _words(need: Need) -> str:
    verbs = need.verbs[:1] if need.verbs == SEE else need.verbs
    return f"{' or '.join(verb.value for verb in verbs)} {need.table}"


def _recorded(user: str, claimed: str | None) -> str:
    """The user of a transaction: who logged in, and for whom, if the engine names somebody."""
    return user if claimed in (None, "", user) else f"{user}{_FOR}{claimed}"


def _transactions_of(call: Call) -> Iterable[int]:
    """The transactions that a call names and would change."""
    request = call.arguments[0] if call.arguments else None
    match call.name:
        case "commit_txn" | "abort_txn":
            return [request.txnid] if request else []
        case "lock" | "check_lock" | "heartbeat" | "add_dynamic_partitions":
            return [request.txnid] if request and request.txnid else []
        case "abort_txns":
            return request.txn_ids or [] if request else []
        case "allocate_table_write_ids":
            return request.txnIds or [] if request else []
    return []
