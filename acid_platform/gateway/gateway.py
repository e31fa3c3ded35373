"""Answers the calls of Hive's Metastore protocol from a warehouse's metastore.

Calls about sessions and compactions are here too: our queue and our Workers do the latter.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from acid_platform import errors
from acid_platform.errors import (
    AcidError,
    AlreadyScheduled,
    InvalidDefinition,
    NoSuchTable,
    NotAuthorized,
)
from acid_platform.gateway import shapes
from acid_platform.gateway.call_handler import CallHandler, always, always_struct
from acid_platform.gateway.caller import Caller
from acid_platform.gateway.catalog_calls import CatalogCalls
from acid_platform.gateway.constraint_calls import ConstraintCalls
from acid_platform.gateway.definition_calls import DefinitionCalls
from acid_platform.gateway.needs import DATABASE_FIELDS
from acid_platform.gateway.partition_calls import PartitionCalls
from acid_platform.gateway.protocol import (
    PROTOCOL_ERROR,
    UNKNOWN_METHOD,
    Call,
    Undecodable,
    known_calls,
    load,
)
from acid_platform.gateway.shapes import CATALOG, CompactionType
from acid_platform.gateway.statistics_calls import StatisticsCalls
from acid_platform.gateway.transaction_calls import TransactionCalls
from acid_platform.metastore import operations as ops


class CompactionCalls(CallHandler):
    """Compactions."""

    def compact2(self, request: Any) -> Any:
        """Queues a compaction; one that is queued already is not accepted, which is no error."""
        if request.type not in set(CompactionType):
            raise InvalidDefinition(f"compactions of type {request.type} are not built")
        kind = CompactionType(request.type).name.lower()
        entity = (f"{request.dbname}.{request.tablename}", request.partitionname or None)
        try:
            number = self._metastore.request_compaction(
                *entity, kind, request.properties or {}, request.initiatorId or "gateway"
            )
        except AlreadyScheduled as error:
            queue = self._metastore.call(ops.GetQueue())
            return load().CompactionResponse(
                id=next((task.id for task in queue if (task.table, task.partition) == entity), 0),
                state="refused",
                accepted=False,
                errormessage=str(error),
            )
        return load().CompactionResponse(id=number, state="initiated", accepted=True)

    def compact(self, request: Any) -> None:
        self.compact2(request)

    def show_compact(self, _request: Any) -> Any:
        m = load()
        return m.ShowCompactResponse(
            compacts=[
                m.ShowCompactResponseElement(
                    id=row["compactionid"],
                    dbname=row["dbname"],
                    tablename=row["tabname"],
                    partitionname=_or_none(row["partname"]),
                    type=CompactionType[row["type"]],
                    state=row["state"],
                    workerid=_or_none(row["workerid"]),
                    start=_number(row["starttime"]),
                    endTime=_number(row["committime"]),
                    hightestTxnId=_number(row["highestwriteid"]),
                    hadoopJobId=_or_none(row["hadoopjobid"]),
                    errorMessage=_or_none(row["errormessage"]),
                    enqueueTime=_number(row["enqueuetime"]),
                    initiatorId=_or_none(row["initiatorid"]),
                )
                for row in self._metastore.compactions()
            ]
        )


def _or_none(value: Any) -> str | None:
    """The listing says `None` for an empty field (C62)."""
    return None if value == "None" else str(value)


def _number(value: Any) -> int | None:
    return None if value == "None" else int(value)


class SessionCalls(CallHandler):
    """What clients ask besides. It grants no privileges: engines that check them themselves have to
    be told to allow all."""

    def get_config_value(self, name: str, default: str | None) -> str:
        """A setting; `metastore.x` is another name of `hive.x`. `default` if it is unknown."""
        settings = self._metastore.settings()
        other = f"hive.{name.removeprefix('metastore.')}"
        return settings.get(name) or settings.get(other) or default or ""

    def getMetaConf(self, name: str) -> str:
        return self.get_config_value(name, "")

    def set_ugi(self, user: str, _groups: Sequence[str]) -> list[str]:
        return [user]

    def get_metastore_db_uuid(self) -> str:
        return self._metastore.call(ops.GetIdentity()).id

    def get_privilege_set(self, _thing: Any, _user: str, _groups: Sequence[str]) -> Any:
        return shapes.nobody()

    def get_function(self, database: str, name: str) -> Any:
        raise NoSuchTable(f"there is no function {database}.{name}")

    flushCache = always()
    get_role_names = always(["admin", "public"])
    list_roles = always([])
    list_privileges = always([])

    # --- there are no functions, notifications and runtime statistics ---------------------------

    get_functions = always([])
    get_functions_req = always_struct("GetFunctionsResponse", function_names=[], functions=[])
    get_all_functions = always_struct("GetAllFunctionsResponse", functions=[])
    get_current_notificationEventId = always_struct("CurrentNotificationEventId", eventId=0)
    get_next_notification = always_struct("NotificationEventResponse", events=[])
    get_notification_events_count = always_struct("NotificationEventsCountResponse", eventsCount=0)
    fire_listener_event = always_struct("FireEventResponse", eventIds=[])
    """What an engine reports here, its commit says too."""
    get_runtime_stats = always([])
    add_runtime_stats = always()


_LOG = logging.getLogger(__name__)
_EMPTY_NAME = "!"
_OBJECT = ("NoSuchObjectException", "UnknownTableException", "UnknownDBException")
_REFUSED = (
    "InvalidOperationException",
    "InvalidObjectException",
    "TxnOpenException",
    "MetaException",
)
_ABORTED = ("TxnAbortedException", "NoSuchTxnException", "MetaException")
_EXCEPTIONS: tuple[tuple[type[AcidError], tuple[str, ...]], ...] = (
    (errors.NoSuchTable, _OBJECT),
    (errors.NoSuchPartition, _OBJECT),
    (errors.TableExists, ("AlreadyExistsException",)),
    (errors.NoSuchTxn, ("NoSuchTxnException",)),
    (errors.NoSuchLock, ("NoSuchLockException",)),
    (errors.TxnAborted, _ABORTED),
    (errors.SnapshotExpired, _ABORTED),
    (errors.DeclarationChanged, _ABORTED),
    (errors.UnsupportedStatement, _REFUSED),
    (errors.InvalidDefinition, _REFUSED),
    (errors.WrongType, _REFUSED),
)
"""The protocol's exceptions for an error: the first one that the call declares is used. Other
errors are MetaException."""


class Gateway(
    CatalogCalls,
    ConstraintCalls,
    DefinitionCalls,
    PartitionCalls,
    SessionCalls,
    TransactionCalls,
    CompactionCalls,
    StatisticsCalls,
):
    """All calls. It may be used from several threads."""

    def answer(self, payload: bytes, peer: Caller) -> bytes:
        """The answer to one message, also to one that is wrong, fails or is not allowed.

        It is empty for a call that wants none: Hive's clients say `shutdown` before they go.
        """
        self._present.caller = peer
        try:
            call = Call.decode(payload)
        except Undecodable as error:
            _LOG.warning("%s: a call that can't be decoded: %s", peer, error)
            return Call("", 0, []).failed(f"the call can't be decoded: {error}", PROTOCOL_ERROR)
        method = getattr(self, call.name, None) if call.name in known_calls() else None
        if call.oneway and method is None:
            return b""
        if method is None:
            _LOG.warning("%s: unknown call %s", peer, call.name)
            text = f"the gateway has no call {call.name}; docs/gateway.md lists its calls"
            return call.failed(text, UNKNOWN_METHOD)
        try:
            call.arguments = _plain_names(call.arguments)
            self._guard.admit(call, peer)
            answer = method(*call.arguments)
            self._guard.answered(call, peer, answer)
            return call.answer(answer)
        except NotAuthorized as error:
            _LOG.warning("%s: %s", peer, error)
            return _exception(call, error)
        except AcidError as error:
            _LOG.info("%s: %s: %s: %s", peer, call.name, type(error).__name__, error)
            return _exception(call, error)
        except Exception as error:
            _LOG.exception("%s: %s failed", peer, call.name)
            return call.failed(f"{call.name} failed: {type(error).__name__}: {error}")

    def refuse(self, payload: bytes, reason: str) -> bytes:
        """The answer to a call of which only the name is looked at; empty if it is none."""
        call = Call.named(payload)
        return b"" if call is None else call.failed(reason)

    def leave(self) -> None:
        """Ends this thread's connection to the metastore."""
        self._metastore.disconnect()


def _exception(call: Call, error: AcidError) -> bytes:
    """The answer that reports the error."""
    declared = call.declared()
    message = " ".join(str(error).split())
    kinds = next((names for kind, names in _EXCEPTIONS if isinstance(error, kind)), ())
    for kind in (*kinds, "MetaException"):
        if kind in declared:
            return call.raised(declared[kind], kind, message)
    return call.failed(f"{type(error).__name__}: {message}")


def _plain_name(name: str) -> str | None:
    """The database of `@hive#database`, and every other text as it is.

    `@hive#` names none, and `@hive#!` the empty text. Raises NoSuchTable for another catalog.
    """
    if not name.startswith("@") or "#" not in name:
        return name
    catalog, _, database = name[1:].partition("#")
    if catalog.lower() != CATALOG:
        raise NoSuchTable(f"there is no catalog {catalog}; the only one is {CATALOG}")
    if database == _EMPTY_NAME:
        return ""
    return database or None


def _plain_names(arguments: Sequence[Any]) -> list[Any]:
    """A call's arguments with plain names: its first text, and the fields of its structs.

    Raises NoSuchTable.
    """
    plain = list(arguments)
    for number, argument in enumerate(plain):
        if isinstance(argument, str):
            plain[number] = _plain_name(argument) if number == 0 else argument
            continue
        for each in argument if isinstance(argument, list) else [argument]:
            for field in DATABASE_FIELDS:
                name = getattr(each, field, None)
                if isinstance(name, str):
                    setattr(each, field, _plain_name(name))
    return plain
