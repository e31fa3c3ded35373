"""What each call needs: the verbs of which its user must have one, and the table.

A call that is not listed needs `admin`, so a new call is closed until somebody decides about it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from acid_platform.gateway.external_writes import is_deletes
from acid_platform.gateway.protocol import Call
from acid_platform.gateway.shapes import LOCK_TYPES, OPERATIONS
from acid_platform.metastore.records import WriteReport
from acid_platform.transactions import RowOperation
from acid_platform.transactions.locks import LockType


class Verb(StrEnum):
    """What may be done to a table. `admin` stands for what belongs to no table."""

    READ = "read"
    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"
    CREATE = "create"
    ALTER = "alter"
    DROP = "drop"
    ADMIN = "admin"


ANY = "*"
SEE = tuple(verb for verb in Verb if verb is not Verb.ADMIN)
"""Declarations and write ids are shown to everybody who may do something to the table."""
_CHANGE = (Verb.ALTER, Verb.DROP, Verb.CREATE)
_WRITE = (Verb.INSERT, Verb.UPDATE, Verb.DELETE)
_ADD_PARTITIONS = (Verb.INSERT, Verb.ALTER)
_STATISTICS = (*_WRITE, Verb.ALTER)
_VERBS = {
    RowOperation.SELECT: (Verb.READ,),
    RowOperation.INSERT: (Verb.INSERT,),
    RowOperation.UPDATE: (Verb.UPDATE,),
    RowOperation.DELETE: (Verb.DELETE,),
}


@dataclass(frozen=True, slots=True)
class Need:
    """One of the verbs, on `database.table`; `*` is every table or database."""

    verbs: tuple[Verb, ...]
    table: str


_ADDS, _REPLACES = (Verb.INSERT, Verb.UPDATE), (Verb.UPDATE, Verb.DELETE)
"""New rows come from an INSERT or an UPDATE; delete events, and bases that hide what was there,
from an UPDATE or a DELETE."""


def _named(database: str | None, table: str | None) -> str:
    return f"{(database or ANY).lower()}.{(table or ANY).lower()}"


DATABASE_FIELDS = ("dbName", "dbname", "db_name", "databaseName")
"""The fields of requests that name a database."""
_TABLE = ("tblName", "tablename", "tbl_name", "tableName")


def _of_request(request: Any) -> str:
    """The table that a struct names."""

    def first(names: Sequence[str]) -> str | None:
        return next(filter(None, (getattr(request, name, None) for name in names)), None)

    return _named(first(DATABASE_FIELDS), first(_TABLE))


def _table(arguments: Sequence[Any]) -> str:
    """The table that the arguments name: in a struct, or as database and table."""
    first = arguments[0] if arguments else None
    if isinstance(first, str):
        second = arguments[1] if len(arguments) > 1 else None
        return _named(first, second if isinstance(second, str) else None)
    return _of_request(first)


@dataclass(frozen=True, slots=True)
class Rule:
    """What a call needs, and the same in words for docs/rights.md."""

    needs: Callable[..., Iterable[Need]]
    """By the call's arguments."""
    words: str
    at_commit: str = ""
    """What is checked again when the transaction commits."""


def _words(verbs: Sequence[Verb], what: str) -> str:
    names = "any verb" if tuple(verbs) == SEE else " or ".join(f"`{verb}`" for verb in verbs)
    return f"{names} on {what}"


def _one(*verbs: Verb) -> Rule:
    return Rule(lambda *arguments: [Need(verbs, _table(arguments))], _words(verbs, "the table"))


def _each(verbs: Sequence[Verb], structs: Callable[..., Iterable[Any]], what: str) -> Rule:
    """One of the verbs on the table of each struct that `structs` takes out of the arguments."""

    def needs(*arguments: Any) -> list[Need]:
        tables = {_of_request(one) for one in structs(*arguments)}
        return [Need(tuple(verbs), table) for table in sorted(tables)]

    return Rule(needs, _words(verbs, what))


def _several(database: str, names: Sequence[str] | None) -> list[Need]:
    """get_table_objects_by_name: a database and tables in it."""
    return [Need(SEE, _named(database, name)) for name in names or ()]


def _several_req(request: Any) -> list[Need]:
    if request.tblNames is None:
        return [Need(SEE, _named(request.dbName, None))]
    return _several(request.dbName, request.tblNames)


def _database(*verbs: Verb) -> Rule:
    def needs(first: Any, *_arguments: Any) -> list[Need]:
        name = first if isinstance(first, str) else getattr(first, "name", None)
        name = name or getattr(first, "databaseName", None)
        return [Need(verbs, _named(name, None))]

    return Rule(needs, _words(verbs, "all tables of the database"))


def _altered(*arguments: Any) -> list[Need]:
    """alter_table: a new name is a table that is made."""
    table, first = _table(arguments), arguments[0]
    new = arguments[2] if isinstance(first, str) else first.table
    renamed = _of_request(new)
    made = [Need((Verb.CREATE,), renamed)] if renamed != table else []
    return [Need((Verb.ALTER,), table), *made]


def _keys(request: Any) -> list[Need]:
    """get_foreign_keys: without a table that has them, the keys of all tables are told."""
    table = request.foreign_tbl_name
    return [Need(SEE, _named(request.foreign_db_name if table else None, table))]


def _listed(request: Any) -> list[Need]:
    """get_valid_write_ids: names with their databases."""
    return [
        Need(SEE, name.lower())
        for name in request.fullTableNames or ()
        if not name.startswith("_dummy_database.")
    ]


def _locked(request: Any) -> list[Need]:
    """lock: what each part of the request is for, and whom its lock keeps out."""
    return [
        Need(verbs, _named(part.dbname, part.tablename))
        for part in request.component or ()
        if part.dbname != "_dummy_database"
        for verbs in _verbs_of_lock(part)
    ]


def _verbs_of_lock(part: Any) -> list[tuple[Verb, ...]]:
    """The verbs of the operation, and of the lock if it is stronger than that operation's own."""
    lock, operation = LOCK_TYPES.get(part.type), OPERATIONS.get(part.operationType)
    own: list[tuple[Verb, ...]] = [_VERBS[operation]] if operation is not None else []
    if operation in (RowOperation.UPDATE, RowOperation.DELETE):
        return own  # Hive's INSERT OVERWRITE is an update that may keep all others out
    if lock is LockType.SHARED_READ:
        # Without operation and table it is a statement that works in the database.
        return own or ([SEE] if part.tablename else [])
    if lock is LockType.SHARED_WRITE and operation is RowOperation.INSERT:
        return own
    return [*own, _CHANGE if lock is LockType.EXCLUSIVE else (Verb.UPDATE,)]


def _described(first: Any) -> Iterable[Any]:
    """The descriptions, which name the table, of statistics that an engine sets."""
    several = getattr(first, "colStats", None)
    return [one.statsDesc for one in (several if several is not None else [first])]


_EVERYTHING = Need((Verb.ADMIN,), f"{ANY}.{ANY}")


_BY_CALLS = {
    "getMetaConf get_config_value set_ugi flushCache get_metastore_db_uuid get_databases"
    " get_all_databases get_database get_database_req get_catalogs get_catalog get_tables"
    " get_tables_by_type get_all_tables get_table_meta get_table_names_by_filter"
    " get_materialized_views_for_rewriting partition_name_to_vals partition_name_to_spec"
    " partition_name_has_valid_characters get_databases_req get_functions_req"
    " get_functions get_function get_all_functions get_role_names list_roles"
    " get_privilege_set list_privileges get_open_txns get_open_txns_req get_open_txns_info"
    " open_txns abort_txn abort_txns check_lock unlock show_locks heartbeat"
    " heartbeat_txn_range add_dynamic_partitions add_write_ids_to_min_history"
    " get_latest_txnid_in_conflict show_compact get_next_notification"
    " get_current_notificationEventId get_notification_events_count fire_listener_event"
    " get_runtime_stats add_runtime_stats"
    " get_all_materialized_view_objects_for_rewriting": Rule(lambda *_arguments: (), "nothing"),
    "commit_txn": Rule(
        lambda *_arguments: (),
        "nothing",
        "for each directory, the verbs of what it holds, now; a lock of an operation that announced"
        " it; the transaction's write id",
    ),
    "get_fields get_fields_req get_schema get_schema_req get_partition_req"
    " get_partitions_by_filter_req get_table get_table_req get_partition"
    " get_partition_with_auth"
    " get_partition_by_name get_partitions get_partitions_with_auth get_partition_names"
    " fetch_partition_names_req get_partition_names_ps get_partition_names_req"
    " get_partition_names_ps_req get_partitions_ps get_partitions_ps_with_auth"
    " get_partitions_ps_with_auth_req get_partitions_req get_partitions_by_filter"
    " get_num_partitions_by_filter get_partitions_by_expr get_partitions_spec_by_expr"
    " get_partitions_by_names get_partitions_by_names_req get_primary_keys"
    " get_unique_constraints get_not_null_constraints get_default_constraints"
    " get_check_constraints get_all_table_constraints get_table_statistics_req"
    " get_partitions_statistics_req get_aggr_stats_for get_max_allocated_table_write_id": _one(
        *SEE
    ),
    "get_foreign_keys": Rule(_keys, _words(SEE, "the table that has the keys")),
    "get_table_objects_by_name": Rule(_several, _words(SEE, "each table")),
    "get_table_objects_by_name_req": Rule(_several_req, _words(SEE, "each table")),
    "get_valid_write_ids": Rule(_listed, _words(SEE, "each table")),
    "lock": Rule(
        _locked,
        "the verb of each part's operation on its table, and for a stronger lock than that"
        " takes itself `update`, or for EXCLUSIVE `alter` or `drop` or `create`",
        "that no more was written than it was for",
    ),
    "allocate_table_write_ids": replace(
        _one(*_WRITE), at_commit="that all directories have this write id"
    ),
    "create_table create_table_with_environment_context": _one(Verb.CREATE),
    "create_table_req": _each((Verb.CREATE,), lambda request: [request.table], "the table"),
    "create_database create_database_req": _database(Verb.CREATE),
    "alter_database": _database(Verb.ALTER),
    "drop_database drop_database_req": _database(Verb.DROP),
    "drop_table drop_table_req drop_table_with_environment_context": _one(Verb.DROP),
    "truncate_table truncate_table_req": _one(Verb.DELETE),
    "alter_table alter_table_with_environment_context alter_table_with_cascade"
    " alter_table_req": Rule(
        _altered, "`alter` on the table; for another name also `create` on that"
    ),
    "add_partition append_partition append_partition_by_name append_partition_req": _one(
        *_ADD_PARTITIONS
    ),
    "add_partitions_req": _each(
        _ADD_PARTITIONS,
        # The request names the table, and each partition again.
        lambda request: (request, *(request.parts or ())),
        "the table of each partition",
    ),
    "add_partitions": _each(
        _ADD_PARTITIONS, lambda parts: parts or (), "the table of each partition"
    ),
    "drop_partition drop_partition_with_environment_context drop_partition_by_name"
    " drop_partition_req drop_partitions_req": _one(Verb.DROP, Verb.ALTER),
    "alter_partition alter_partition_with_environment_context alter_partitions"
    " alter_partitions_with_environment_context alter_partitions_req"
    " delete_table_column_statistics delete_partition_column_statistics": _one(*_STATISTICS),
    "update_table_column_statistics update_partition_column_statistics"
    " update_table_column_statistics_req update_partition_column_statistics_req"
    " set_aggr_stats_for": _each(_STATISTICS, _described, "the table of each description"),
    "compact compact2": _one(Verb.ALTER),
    "setMetaConf": Rule(lambda *_arguments: [_EVERYTHING], "`admin` on everything"),
}
RULES = {name: rule for names, rule in _BY_CALLS.items() for name in names.split()}


def needs_of_commit(writes: Iterable[WriteReport]) -> list[Need]:
    """What a commit needs for the directories that it publishes, whatever was locked for them."""
    needs = {
        Need(_REPLACES if one.overwrite or is_deletes(one.directory) else _ADDS, one.table)
        for one in writes
    }
    return sorted(needs, key=lambda need: (need.table, need.verbs))


def needs_of(call: Call) -> Iterable[Need]:
    """What the call needs; a struct that lacks a field needs the right to all it could name."""
    rule = RULES.get(call.name)
    if rule is None:
        return [_EVERYTHING]
    try:
        return list(rule.needs(*call.arguments))
    except (AttributeError, TypeError, ValueError):  # a required argument is missing
        return [_EVERYTHING]
