"""Answers the calls of Hive's Metastore protocol from a warehouse's metastore.

All calls that the gateway knows have a row: the function that answers it, what it needs, and the
transactions and locks that have to be the caller's own. A call without a row is an unknown one, so
a new call is closed until somebody decides about it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from acid_platform import errors
from acid_platform.errors import (
    AcidError,
    InvalidDefinition,
    NoSuchTable,
    NotAuthorized,
    shortened,
)
from acid_platform.gateway import needs
from acid_platform.gateway.authorization import Caller, CallHandler, Waits
from acid_platform.gateway.catalog_calls import CatalogCalls, SessionCalls
from acid_platform.gateway.definition_calls import ConstraintCalls, DefinitionCalls, of_kind
from acid_platform.gateway.needs import DATABASE_FIELDS, MAY_WAIT, CallRow, Rule, one_txn, txn_range
from acid_platform.gateway.partition_calls import PartitionCalls, StatisticsCalls
from acid_platform.gateway.protocol import (
    CATALOG,
    PROTOCOL_ERROR,
    UNKNOWN_METHOD,
    Call,
    Undecodable,
    load,
)
from acid_platform.gateway.transaction_calls import CompactionCalls, TransactionCalls
from acid_platform.layout.types import ConstraintKind

CallMethod = Callable[..., Any]


def of_request(call: CallMethod, fields: str, answer: str = "", name: str = "") -> CallMethod:
    """A call of Hive 4, which gets in the fields of one struct what `call` gets as arguments.

    `answer`: the struct, and its field, in which the answer is sent, such as `Result.partitions`.
    It is called `name`, or as `call` with `_req` behind it.
    """
    struct, _, field = answer.partition(".")
    names = fields.split()

    def method(self: CallHandler, request: Any) -> Any:
        value = call(self, *(getattr(request, name) for name in names))
        if not struct:
            return value
        return getattr(load(), struct)(**({field: value} if field else {}))

    method.__name__ = name or f"{call.__name__}_req"
    return method


def leading(call: CallMethod, count: int, more: str) -> CallMethod:
    """A call with more arguments than `call` has: only the first `count` matter here.

    It is called as `call`, with `more` behind it.
    """

    def method(self: CallHandler, *arguments: Any) -> Any:
        return call(self, *arguments[:count])

    method.__name__ = f"{call.__name__}_{more}"
    return method


def always(answer: Any = None) -> CallMethod:
    """A call that has the same answer at all times."""

    def method(_self: CallHandler, *_arguments: Any) -> Any:
        return answer

    return method


def always_struct(struct: str, **fields: Any) -> CallMethod:
    """A call that is answered with this struct at all times."""

    def method(_self: CallHandler, *_arguments: Any) -> Any:
        return getattr(load(), struct)(**fields)

    return method


def _needing(rule: Rule, *calls: CallMethod) -> dict[str, CallRow]:
    """Calls that are named after the functions that answer them, and use no transaction or lock."""
    return {call.__name__: CallRow(call, rule) for call in calls}


_ENVIRONMENT = "with_environment_context"

# fmt: off
CALLS: dict[str, CallRow] = {
    # --- declarations: databases, tables, partitions
    **_needing(
        needs.NOTHING,
        CatalogCalls.get_all_databases, CatalogCalls.get_databases, CatalogCalls.get_databases_req,
        CatalogCalls.get_database, of_request(CatalogCalls.get_database, "name"),
        CatalogCalls.get_catalogs, CatalogCalls.get_catalog, CatalogCalls.get_all_tables,
        CatalogCalls.get_tables, CatalogCalls.get_tables_by_type, CatalogCalls.get_table_meta,
        CatalogCalls.get_table_names_by_filter, CatalogCalls.partition_name_to_vals,
        CatalogCalls.partition_name_to_spec),
    "get_materialized_views_for_rewriting": CallRow(always([]), needs.NOTHING),
    "get_all_materialized_view_objects_for_rewriting": CallRow(always([]), needs.NOTHING),
    # Every text may be a partition's value: its name escapes what a path can't have.
    "partition_name_has_valid_characters": CallRow(always(True), needs.NOTHING),
    **_needing(needs.SEE_NAMED, CatalogCalls.get_table_objects_by_name),
    **_needing(needs.SEE_REQUESTED, CatalogCalls.get_table_objects_by_name_req),
    **_needing(
        needs.SEE_TABLE,
        CatalogCalls.get_table, CatalogCalls.get_table_req, CatalogCalls.get_fields,
        of_request(CatalogCalls.get_fields, "dbName tblName", "GetFieldsResponse.fields"),
        CatalogCalls.get_schema,
        of_request(CatalogCalls.get_schema, "dbName tblName", "GetFieldsResponse.fields"),
        CatalogCalls.get_partition_names,
        of_request(CatalogCalls.get_partition_names, "dbName tblName maxParts",
            name="fetch_partition_names_req"),
        CatalogCalls.get_partition_names_ps,
        of_request(CatalogCalls.get_partition_names_ps, "dbName tblName partValues maxParts",
            "GetPartitionNamesPsResponse.names"),
        CatalogCalls.get_partitions, leading(CatalogCalls.get_partitions, 3, "with_auth"),
        of_request(CatalogCalls.get_partitions, "dbName tblName maxParts",
            "PartitionsResponse.partitions"),
        CatalogCalls.get_partitions_ps, leading(CatalogCalls.get_partitions_ps, 4, "with_auth"),
        of_request(CatalogCalls.get_partitions_ps, "dbName tblName partVals maxParts",
            "GetPartitionsPsWithAuthResponse.partitions", "get_partitions_ps_with_auth_req"),
        CatalogCalls.get_partition_by_name, CatalogCalls.get_partition,
        leading(CatalogCalls.get_partition, 3, "with_auth"),
        of_request(CatalogCalls.get_partition, "dbName tblName partVals",
            "GetPartitionResponse.partition"),
        CatalogCalls.get_partitions_by_names,
        of_request(CatalogCalls.get_partitions_by_names, "db_name tbl_name names",
            "GetPartitionsByNamesResult.partitions"),
        CatalogCalls.get_partitions_by_expr, CatalogCalls.get_partitions_spec_by_expr,
        CatalogCalls.get_partitions_by_filter,
        of_request(CatalogCalls.get_partitions_by_filter, "dbName tblName filter maxParts"),
        CatalogCalls.get_num_partitions_by_filter, ConstraintCalls.get_all_table_constraints,
        StatisticsCalls.get_table_statistics_req, StatisticsCalls.get_partitions_statistics_req,
        TransactionCalls.get_max_allocated_table_write_id),
    # --- constraints
    "get_primary_keys": CallRow(of_kind(ConstraintKind.PRIMARY_KEY), needs.SEE_TABLE),
    "get_unique_constraints": CallRow(of_kind(ConstraintKind.UNIQUE), needs.SEE_TABLE),
    "get_not_null_constraints": CallRow(of_kind(ConstraintKind.NOT_NULL), needs.SEE_TABLE),
    "get_default_constraints": CallRow(of_kind(ConstraintKind.DEFAULT), needs.SEE_TABLE),
    "get_check_constraints": CallRow(of_kind(ConstraintKind.CHECK), needs.SEE_TABLE),
    **_needing(needs.SEE_KEYS, ConstraintCalls.get_foreign_keys),
    # --- changes of declarations
    **_needing(
        needs.CREATE_DATABASE,
        DefinitionCalls.create_database, DefinitionCalls.create_database_req),
    **_needing(needs.ALTER_DATABASE, DefinitionCalls.alter_database),
    **_needing(
        needs.DROP_DATABASE, DefinitionCalls.drop_database, DefinitionCalls.drop_database_req),
    **_needing(
        needs.CREATE_TABLE,
        DefinitionCalls.create_table, leading(DefinitionCalls.create_table, 1, _ENVIRONMENT)),
    **_needing(needs.CREATE_REQUESTED, DefinitionCalls.create_table_req),
    **_needing(
        needs.DROP_TABLE,
        DefinitionCalls.drop_table, leading(DefinitionCalls.drop_table, 3, _ENVIRONMENT),
        of_request(DefinitionCalls.drop_table, "dbName tableName deleteData")),
    **_needing(
        needs.EMPTY_TABLE, DefinitionCalls.truncate_table_req, DefinitionCalls.truncate_table),
    **_needing(
        needs.ALTER_TABLE,
        DefinitionCalls.alter_table, leading(DefinitionCalls.alter_table, 3, _ENVIRONMENT),
        leading(DefinitionCalls.alter_table, 3, "with_cascade"), DefinitionCalls.alter_table_req),
    # --- changes of partitions
    **_needing(needs.ADD_PARTITIONS, PartitionCalls.add_partitions),
    **_needing(needs.ADD_REQUESTED, PartitionCalls.add_partitions_req),
    **_needing(
        needs.ADD_PARTITION,
        PartitionCalls.add_partition, PartitionCalls.append_partition,
        PartitionCalls.append_partition_by_name, PartitionCalls.append_partition_req),
    **_needing(
        needs.DROP_PARTITION,
        PartitionCalls.drop_partition, leading(PartitionCalls.drop_partition, 4, _ENVIRONMENT),
        PartitionCalls.drop_partition_by_name, PartitionCalls.drop_partition_req,
        PartitionCalls.drop_partitions_req),
    **_needing(
        needs.KEEP_STATISTICS,
        PartitionCalls.alter_partition, leading(PartitionCalls.alter_partition, 3, _ENVIRONMENT),
        PartitionCalls.alter_partitions, leading(PartitionCalls.alter_partitions, 3, _ENVIRONMENT),
        of_request(PartitionCalls.alter_partitions, "dbName tableName partitions",
            "AlterPartitionsResponse"),
        StatisticsCalls.delete_table_column_statistics,
        StatisticsCalls.delete_partition_column_statistics),
    # --- statistics
    **_needing(
        needs.SET_STATISTICS,
        StatisticsCalls.update_table_column_statistics,
        StatisticsCalls.update_partition_column_statistics, StatisticsCalls.set_aggr_stats_for,
        StatisticsCalls.update_table_column_statistics_req),
    "update_partition_column_statistics_req": CallRow(
        StatisticsCalls.update_table_column_statistics_req, needs.SET_STATISTICS),
    # Hive then plans without the statistics of several partitions together.
    "get_aggr_stats_for": CallRow(
        always_struct("AggrStats", colStats=[], partsFound=0), needs.SEE_TABLE),
    # --- transactions, snapshots and locks
    **_needing(
        needs.NOTHING,
        TransactionCalls.open_txns, TransactionCalls.get_open_txns,
        # Types to leave out are not needed: the list has no READ_ONLY transactions.
        leading(TransactionCalls.get_open_txns, 0, "req"), TransactionCalls.get_open_txns_info,
        TransactionCalls.show_locks),
    **_needing(needs.SEE_LISTED, TransactionCalls.get_valid_write_ids),
    "commit_txn": CallRow(TransactionCalls.commit_txn, needs.COMMIT, one_txn),
    "abort_txn": CallRow(TransactionCalls.abort_txn, needs.NOTHING, one_txn),
    "abort_txns": CallRow(
        TransactionCalls.abort_txns, needs.NOTHING, lambda request: request.txn_ids or ()),
    "heartbeat": CallRow(TransactionCalls.heartbeat, needs.NOTHING, one_txn, own_lock=True),
    "heartbeat_txn_range": CallRow(TransactionCalls.heartbeat_txn_range, needs.NOTHING, txn_range),
    "allocate_table_write_ids": CallRow(
        TransactionCalls.allocate_table_write_ids, needs.WRITE,
            lambda request: request.txnIds or ()),
    # Says what a reader needs; its locks have said that already.
    "add_write_ids_to_min_history": CallRow(always(), needs.NOTHING, lambda txn: [txn]),
    "get_latest_txnid_in_conflict": CallRow(
        TransactionCalls.get_latest_txnid_in_conflict, needs.NOTHING, lambda txn: [txn]),
    "lock": CallRow(TransactionCalls.lock, needs.LOCK, one_txn),
    "check_lock": CallRow(TransactionCalls.check_lock, needs.NOTHING, one_txn, own_lock=True),
    "unlock": CallRow(TransactionCalls.unlock, needs.NOTHING, own_lock=True),
    "add_dynamic_partitions": CallRow(
        TransactionCalls.add_dynamic_partitions, needs.NOTHING, one_txn),
    # --- compactions
    **_needing(needs.COMPACT, CompactionCalls.compact, CompactionCalls.compact2),
    # --- what clients ask besides
    **_needing(
        needs.NOTHING,
        CompactionCalls.show_compact, SessionCalls.get_config_value, SessionCalls.getMetaConf,
        SessionCalls.set_ugi, SessionCalls.get_metastore_db_uuid, SessionCalls.get_privilege_set,
        SessionCalls.get_function),
    "flushCache": CallRow(always(), needs.NOTHING),
    "get_role_names": CallRow(always(["admin", "public"]), needs.NOTHING),
    "list_roles": CallRow(always([]), needs.NOTHING),
    "list_privileges": CallRow(always([]), needs.NOTHING),
    "get_functions": CallRow(always([]), needs.NOTHING),
    "get_functions_req": CallRow(
        always_struct("GetFunctionsResponse", function_names=[], functions=[]), needs.NOTHING),
    "get_all_functions": CallRow(
        always_struct("GetAllFunctionsResponse", functions=[]), needs.NOTHING),
    "get_current_notificationEventId": CallRow(
        always_struct("CurrentNotificationEventId", eventId=0), needs.NOTHING),
    "get_next_notification": CallRow(
        always_struct("NotificationEventResponse", events=[]), needs.NOTHING),
    "get_notification_events_count": CallRow(
        always_struct("NotificationEventsCountResponse", eventsCount=0), needs.NOTHING),
    # What an engine reports here, its commit says too.
    "fire_listener_event": CallRow(always_struct("FireEventResponse", eventIds=[]), needs.NOTHING),
    "get_runtime_stats": CallRow(always([]), needs.NOTHING),
    "add_runtime_stats": CallRow(always(), needs.NOTHING),
    "get_partition_names_req": CallRow(None, needs.SEE_TABLE),
    "setMetaConf": CallRow(None, needs.ADMIN),
}
# fmt: on


_LOG = logging.getLogger(__name__)
_EMPTY_NAME = "!"
MOST_PARTS = 10_000
"""Elements of a list in a call."""
_LACKS = "{} needs an argument or a field that the client left out ({}); send it"
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


@dataclass(frozen=True, slots=True)
class Later:
    """A call that waits without a thread: `go_on` after so many seconds tells how it goes on."""

    pause: float
    go_on: Callable[[], bytes | Later]


def waited(answer: bytes | Later) -> bytes:
    """The answer, for which this thread waits."""
    while isinstance(answer, Later):
        time.sleep(answer.pause)
        answer = answer.go_on()
    return answer


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

    observe: Callable[[str, float, str], None] | None = None
    """Gets the name, the seconds and the error of each known call."""

    def answer(self, payload: bytes, peer: Caller) -> bytes:
        """As `begin`; a call that waits holds this thread."""
        return waited(self.begin(payload, peer))

    def begin(self, payload: bytes, peer: Caller) -> bytes | Later:
        """The answer to one message, also to one that is wrong, fails or is not allowed.

        It is empty for a call that wants none: Hive's clients say `shutdown` before they go.
        """
        try:
            call = Call.decode(payload)
        except Undecodable as error:
            _LOG.warning("%s: a call that can't be decoded: %s", peer, error)
            return Call("", 0, []).failed(f"the call can't be decoded: {error}", PROTOCOL_ERROR)
        row = CALLS.get(call.name)
        if row is None or row.answer is None:
            if call.oneway:
                return b""
            _LOG.warning("%s: unknown call %s", peer, call.name)
            text = f"the gateway has no call {call.name}; docs/internal/rights.md lists its calls"
            return call.failed(text, UNKNOWN_METHOD)
        answer = row.answer

        def asked() -> Any:
            _require_few(call)
            call.arguments = _plain_names(call.arguments)
            self._guard.admit(row, call, peer)
            return answer(self, *call.arguments)

        return self._answered(call, peer, asked, time.perf_counter())

    def _answered(
        self, call: Call, peer: Caller, asked: Callable[[], Any], began: float
    ) -> bytes | Later:
        """What `asked` returns or raises, as the protocol says it."""
        self._present.caller = peer
        failed = ""
        try:
            answer = asked()
            self._guard.answered(call, peer, answer)
            written = call.answer(answer)
        except Waits as waits:
            return Later(waits.pause, partial(self._answered, call, peer, waits.again, began))
        except NotAuthorized as error:
            failed = type(error).__name__
            _LOG.warning("%s: %s", peer, error)
            written = _exception(call, error)
        except AcidError as error:
            failed = type(error).__name__
            _LOG.info("%s: %s: %s: %s", peer, call.name, type(error).__name__, error)
            written = _exception(call, error)
        except Exception as error:
            failed = type(error).__name__
            if isinstance(error, AttributeError | TypeError) and "NoneType" in str(error):
                _LOG.info("%s: %s lacks something: %s", peer, call.name, error)
                written = _exception(call, InvalidDefinition(_LACKS.format(call.name, error)))
            else:
                _LOG.exception("%s: %s failed", peer, call.name)
                written = call.failed(f"{call.name} failed: {failed}: {shortened(str(error))}")
        if self.observe is not None:
            self.observe(call.name, time.perf_counter() - began, failed)
        return written

    def may_wait(self, payload: bytes) -> bool:
        """Whether the call may wait long for a lock, by its name."""
        call = Call.named(payload)
        row = CALLS.get(call.name) if call is not None else None
        return row is not None and row.rule in MAY_WAIT

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


def _require_few(call: Call) -> None:
    """Raises InvalidDefinition for a list of more parts than the metastore, which does one thing at
    a time, decides in a moment (P78)."""
    for argument in call.arguments:
        spec = getattr(argument, "thrift_spec", None) or {}
        fields = {part[1]: getattr(argument, part[1]) for part in spec.values()}
        for name, value in (fields or {"an argument": argument}).items():
            if isinstance(value, list | set | dict) and len(value) > MOST_PARTS:
                raise InvalidDefinition(
                    f"{call.name}: {name} has {len(value):,} parts; a call may have"
                    f" {MOST_PARTS:,}: make several calls"
                )


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
