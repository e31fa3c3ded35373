"""Running the statements that steer the session and operate the warehouse.

What is SET is stored in the metastore and holds for the whole warehouse. What a setting of Hive
would change here decides: one that would change an answer is among those of `base.config`, and any
other is ignored, with a note when a session sets it first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from acid_platform.base.config import REGISTRY, setting
from acid_platform.compaction.states import CompactionKind
from acid_platform.errors import AlreadyScheduled, NoSuchTxn, OutcomeUnknown, UnsupportedStatement
from acid_platform.layout.table_properties import check_request
from acid_platform.layout.types import require_columns
from acid_platform.metastore import operations as ops
from acid_platform.metastore.operations.listings import Shown
from acid_platform.sql.answers import Done
from acid_platform.sql.column_lists import PartitionSpec, fixed_values, matching
from acid_platform.sql.statements import ALTER, ONE, SPEC, TABLE, TEXT, CommandRun, Commands
from acid_platform.tables.record_layout import all_columns_of
from acid_platform.transactions import Isolation

if TYPE_CHECKING:
    from acid_platform.handles.transaction import Transaction
    from acid_platform.sql.answers import Outcome

OPERATIONS = Commands()


@OPERATIONS("USE", rf"use (?:database )?(?P<database>{ONE})")
def use(run: CommandRun, database: str) -> None:
    run.session.current_database = run.catalog.require_database(database)


# --- transactions ---------------------------------------------------------------------------------


@OPERATIONS(
    "START TRANSACTION",
    r"(?:start transaction|begin)(?: isolation level (?P<isolation>snapshot|serializable))?"
    rf"(?: comment (?P<comment>{TEXT}))?",
)
def start(run: CommandRun, isolation: str = "snapshot", comment: str = "") -> Done:
    """The comment is what the histories of its tables say of the transaction."""
    if run.session.transaction is not None:
        raise UnsupportedStatement(
            f"transaction {run.session.transaction.id} is already open; COMMIT or ROLLBACK ends it"
        )
    level: Isolation = "serializable" if isolation.lower() == "serializable" else "snapshot"
    run.session.transaction = run.warehouse.transaction(isolation=level, message=comment)
    return Done("START TRANSACTION", f"transaction {run.session.transaction.id} is open")


@OPERATIONS("COMMIT", r"commit(?: work)?")
def commit(run: CommandRun) -> Done:
    txn = _open_transaction(run, "COMMIT")
    try:
        txn.commit()
    except OutcomeUnknown:
        run.session.transaction = None  # after any other error the session rolls back
        raise
    run.session.transaction = None
    return Done("COMMIT", f"transaction {txn.id} is committed")


@OPERATIONS("ROLLBACK", r"rollback(?: work)?")
def roll_back(run: CommandRun) -> Done:
    txn, run.session.transaction = _open_transaction(run, "ROLLBACK"), None
    txn.abort("ROLLBACK")
    return Done("ROLLBACK", f"transaction {txn.id} is rolled back")


def _open_transaction(run: CommandRun, statement: str) -> Transaction:
    if run.session.transaction is None:
        raise NoSuchTxn(f"{statement}: no transaction is open; START TRANSACTION opens one")
    return run.session.transaction


@OPERATIONS("ABORT TRANSACTIONS", r"abort transactions (?P<ids>\d+(?:[ ,]+\d+)*)")
def abort_transactions(run: CommandRun, ids: tuple[int, ...]) -> Done:
    return Done("ABORT TRANSACTIONS", run.warehouse.abort_transactions(ids))


# --- compactions ----------------------------------------------------------------------------------


@OPERATIONS("ABORT COMPACTIONS", r"abort compactions (?P<ids>\d+(?:[ ,]+\d+)*)")
def abort_compactions(run: CommandRun, ids: tuple[int, ...]) -> Shown:
    messages = run.metastore.call(ops.AbortCompactions(ids))
    rows = ({"compactionid": id_, "status": message} for id_, message in messages.items())
    return Shown(("compactionid", "status"), tuple(rows))


@OPERATIONS(
    "ALTER TABLE COMPACT",
    rf"{ALTER}(?: {SPEC})? compact '(?P<kind>minor|major)'(?P<wait> and wait)?"
    r"(?: pool '(?P<pool>[^']*)')?"
    r"(?: with overwrite tblproperties ?\((?P<properties>.+)\))?",
    alone=True,
)
def compact(
    run: CommandRun,
    table: str,
    kind: CompactionKind,
    spec: PartitionSpec | None = None,
    wait: bool = False,
    pool: str = "",
    properties: Mapping[str, str] | None = None,
) -> Done:
    """Without a spec, each partition; with `properties`, which win over the table's.

    Raises InvalidDefinition for a property that no compaction reads.
    """
    record, warehouse = run.catalog.target(table), run.warehouse
    ignored = [*check_request(f"compaction of {record.name}", properties or {})]
    if pool:
        ignored.append(f"POOL {pool!r}, since any Worker takes the compaction")
    targets: list[str | None] = [None]
    if record.partitioned or spec is not None:
        names = warehouse.metastore.partitions(record.name)
        targets = [*(sorted(names) if spec is None else matching(names, record, spec))]
    rows = warehouse.compact(record.name, targets, kind, wait, properties)
    ids = tuple(int(row["compactionid"]) for row in rows)
    messages = [f"Compaction enqueued with id {id_}" for id_ in ids] or ["nothing to compact"]
    if wait:
        messages += [
            f"Compaction with id {row['compactionid']} finished with status: {row['state']}"
            for row in rows
        ]
    messages += [f"without effect: {text}" for text in ignored]
    return Done("COMPACT", "\n".join(messages), ids=ids)


@OPERATIONS("ALTER TABLE CONCATENATE", rf"{ALTER}(?: {SPEC})? concatenate", alone=True)
def concatenate(run: CommandRun, table: str, spec: PartitionSpec | None = None) -> Done:
    """A major compaction, which makes one file of many; it waits for it unless
    `hive.transactional.concatenate.noblock` is set."""
    in_force = run.metastore.in_force
    wait = not in_force.flag("hive.transactional.concatenate.noblock")
    try:
        return compact(run, table, CompactionKind.MAJOR, spec, wait)
    except AlreadyScheduled as error:
        return Done("CONCATENATE", f"nothing was queued: {error}")


# --- statistics -----------------------------------------------------------------------------------

_RECORDED = (
    "OK, but without effect: each commit records its rows, bytes and files, and files have the"
    " least and the greatest value of their columns"
)


@OPERATIONS(
    "ANALYZE TABLE",
    rf"analyze table {TABLE}(?: {SPEC})? compute statistics"
    r"(?: for (?:all )?columns(?: (?P<fields>[^ ].*?))?)?"
    r"(?: (?:noscan|partialscan|cache metadata))?",
)
@OPERATIONS(
    "ALTER TABLE UPDATE STATISTICS",
    rf"{ALTER}(?: {SPEC})? update statistics (?:for column (?P<fields>{ONE}) )?"
    r"set ?\(.+\)(?: comment '[^']*')?",
)
def statistics(
    run: CommandRun,
    table: str,
    spec: PartitionSpec | None = None,
    fields: str = "",
) -> Done:
    """Nothing is computed or changed. Raises NoSuchTable, NoSuchPartition, UnknownColumn."""
    record = run.catalog.target(table)
    if spec is not None:
        fixed_values(spec, record)
    names = [name.strip(" `").lower() for name in fields.split(",") if name.strip()]
    require_columns(names, all_columns_of(record), record.name)
    return Done("STATISTICS", _RECORDED)


_KEY = r"(?P<key>[\w.-]*\w)"
_USED_HERE = ("acid.", "spark.")
"""Settings of what runs here begin so: an unknown one is misspelt, or would be lost."""


@OPERATIONS("SET", rf"set(?: -v| (?:hiveconf ?: ?)?{_KEY}(?: ?=(?P<value>.*))?)?")
def set_value(run: CommandRun, key: str = "", value: str | None = None) -> Outcome:
    """Changes a setting of the whole warehouse; shows it without a value, all without a key."""
    if not key:
        return Shown.lines("set", [f"{name}={text}" for name, text in _settings(run).items()])
    known = _is_known(key)
    if value is None:
        shown = _settings(run).get(key, REGISTRY[key].default if known else None)
        return Shown.lines("set", [f"{key} is undefined" if shown is None else f"{key}={shown}"])
    if known:
        _store(run, key, value)
    ignored = not known and key not in run.session.settings
    run.session.settings[key] = value
    return Done("SET", f"OK, but {key} is unknown here and ignored" if ignored else "OK")


@OPERATIONS("SET", r"set (?P<space>hivevar|system|env|metaconf) ?:.*")
def set_variable(_run: CommandRun, space: str) -> Outcome:
    raise UnsupportedStatement(
        f"SET {space}: is not supported, since no variable is replaced in SQL;"
        " write :day in the statement, and wh.sql(statement, {'day': …})"
    )


@OPERATIONS("RESET", rf"reset(?: (?:-d )?{_KEY})?")
def reset(run: CommandRun, key: str = "") -> None:
    """Gives a setting its default value for the whole warehouse; without a key, all settings that
    this session has SET, the last one first."""
    for name in (key,) if key else tuple(reversed(run.session.settings)):
        if _is_known(name):
            _store(run, name, REGISTRY[name].default)
        run.session.settings.pop(name, None)


def _is_known(key: str) -> bool:
    """Raises SettingRefused for an unknown setting of what runs here."""
    if key.startswith(_USED_HERE):
        setting(key)
    return key in REGISTRY


def _settings(run: CommandRun) -> dict[str, str]:
    """All settings of the warehouse, then Hive's that this session has SET."""
    stored = run.metastore.settings()
    own = {name: text for name, text in run.session.settings.items() if name not in stored}
    return {**stored, **own}


def _store(run: CommandRun, key: str, value: str) -> None:
    """Raises SettingRefused."""
    run.metastore.set(key, value)
    if run.session.transaction is not None:
        run.session.transaction.learn_settings()
