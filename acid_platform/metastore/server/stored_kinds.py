"""What a snapshot keeps of the state: each kind of record declared once (P8).

A declaration names a table, its key and its record, and says where the records are in the state.
The table's columns, the rows of a snapshot, and the state that a start reads follow from it.
Columns are named after the fields that they hold; fields without a type of SQL become JSON text.

LIVE tables hold the state that is in memory. KEPT tables hold what has ended, until it is older
than the retention. RECORDED tables hold the files of the directories that exist. Times are
milliseconds UTC.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, make_dataclass
from operator import itemgetter
from typing import Any

from acid_platform.compaction.states import CompactionState
from acid_platform.metastore.branches import Branch, BranchCommit
from acid_platform.metastore.messages import FLAT, columns_of, decode, encode, left_out, ranges
from acid_platform.metastore.operations.compaction import (
    CompactionTask,
    DropTask,
    ErasureTask,
    QueuedTask,
)
from acid_platform.metastore.pasts import Cursor, Sink, TableCommit, Tag
from acid_platform.metastore.places import Occupied
from acid_platform.metastore.records import (
    DatabaseRecord,
    EntityDirectory,
    HistoryRow,
    Identity,
    PartitionRecord,
    TableRecord,
    ViewRecord,
)
from acid_platform.metastore.rules import write_set
from acid_platform.metastore.rules.declared import directories
from acid_platform.metastore.rules.state import (
    Component,
    Departed,
    Earlier,
    EarlierView,
    Ended,
    LockEntry,
    Outcome,
    Retry,
    State,
    TableState,
    Txn,
    WriteIdRow,
    add_lock,
)
from acid_platform.transactions.concurrency import Looked, WriteSetRow

Columns = dict[str, str]
"""Columns with their types: BIGINT, BOOLEAN, VARCHAR, or JSON, which is text."""
Key = tuple[Any, ...]
Row = dict[str, Any]
Rows = dict[str, list[Row]]

_I, _S = "BIGINT", "VARCHAR"
_KEYS: Columns = {"table_id": _I, "partition": _S, "name": _S, "location": _S}
"""Key columns that are no fields of the record."""


@dataclass(frozen=True, slots=True)
class StoredKind:
    """A kind of record.

    `every` finds the records in the state by their keys. A record is never changed in place:
    another value is another record. `put` puts one into an empty state; `order` are the columns by
    which they have to come.
    """

    name: str
    key: tuple[str, ...]
    record: type
    every: Callable[[State], Mapping[Key, Any]]
    put: Callable[[State, Key, Any], object]
    order: tuple[str, ...] = ()

    @property
    def columns(self) -> Columns:
        own = columns_of(self.record)
        return {**{key: own.get(key) or _KEYS[key] for key in self.key}, **own}


# --- records of what the state keeps in another form ----------------------------------------------


@dataclass(frozen=True, slots=True)
class SetSetting:
    value: str


@dataclass(frozen=True, slots=True)
class TableRow:
    """The fields of TableState that are stored; sets of ids as ranges."""

    record: TableRecord = field(metadata=FLAT)
    next_write_id: int
    purged: int
    forgotten: int
    cleaned_upto: int
    aborted: list[tuple[int, int]]
    floors: dict[str, tuple[int, ...]]
    doubtful: list[tuple[int, int]]
    since: int
    since_at: int
    since_write: int
    anchor: int
    held: dict[str, tuple[int, ...]]
    ended: dict[str, tuple[int, int]]
    dropped: int

    @classmethod
    def of(cls, table: TableState) -> TableRow:
        values = {each.name: getattr(table, each.name) for each in fields(cls)}
        return cls(**values | {name: ranges(values[name]) for name in _RANGES})

    def table(self) -> TableState:
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return TableState(**values | {name: _ids(values[name]) for name in _RANGES})


_RANGES = ("aborted", "doubtful")


def _ids(spans: Iterable[tuple[int, int]]) -> set[int]:
    return {write_id for low, high in spans for write_id in range(low, high + 1)}


# --- where records are in the state ---------------------------------------------------------------


def _mapping(name: str, key: str, record: type, attribute: str, order: str = "") -> StoredKind:
    """Records that a dictionary of the state has by their keys."""
    keys, alone = tuple(key.split()), " " not in key

    def every(state: State) -> Mapping[Key, Any]:
        records: dict[Any, Any] = getattr(state, attribute)
        return {(key,): value for key, value in records.items()} if alone else records

    def put(state: State, key: Key, value: Any) -> None:
        getattr(state, attribute)[key[0] if alone else key] = value

    return StoredKind(name, keys, record, every, put, tuple(order.split()))


def _numbers(name: str, key: str, column: str, attribute: str) -> StoredKind:
    """Numbers that a dictionary of the state has by their keys; the record has one field."""
    record = make_dataclass(column.title(), [(column, int)], frozen=True)
    kind = _mapping(name, key, record, attribute)
    return StoredKind(
        name,
        kind.key,
        record,
        lambda state: {key: record(number) for key, number in kind.every(state).items()},
        lambda state, key, value: kind.put(state, key, getattr(value, column)),
    )


def _of_tables(
    name: str,
    key: str,
    record: type,
    every: Callable[[TableState], Iterable[tuple[Key, Any]]],
    put: Callable[[TableState, Any], object],
    order: str = "",
) -> StoredKind:
    """Records that each table has, also one that was dropped; the key begins with its id."""
    return StoredKind(
        name,
        ("table_id", *key.split()),
        record,
        lambda state: {
            (table.record.table_id, *own): value
            for table in state.known_tables()
            for own, value in every(table)
        },
        lambda state, key, value: put(
            state.tables.get(key[0]) or state.dropped_tables[key[0]], value
        ),
        tuple(order.split()),
    )


def _tables(name: str, attribute: str) -> StoredKind:
    def put(state: State, key: Key, row: TableRow) -> None:
        getattr(state, attribute)[key[0]] = table = row.table()
        if not table.dropped:
            state.names[table.record.name] = key[0]

    return StoredKind(
        name,
        ("table_id",),
        TableRow,
        lambda state: {
            (key,): TableRow.of(table) for key, table in getattr(state, attribute).items()
        },
        put,
        ("table_id",),
    )


def _directories(name: str, attribute: str) -> StoredKind:
    def put(state: State, key: Key, directory: EntityDirectory) -> None:
        getattr(state, attribute).setdefault(key[:2], {})[directory.name] = directory

    return StoredKind(
        name,
        ("table_id", "partition", "name"),
        EntityDirectory,
        lambda state: {
            (*entity, directory): value
            for entity, by_name in getattr(state, attribute).items()
            for directory, value in by_name.items()
        },
        put,
    )


_QUEUED = {CompactionState.INITIATED, CompactionState.WORKING, CompactionState.READY_FOR_CLEANING}


def _tasks(name: str, record: type[QueuedTask], past: str) -> StoredKind:
    def put(state: State, _key: Key, task: Any) -> None:
        if task.state in _QUEUED:
            state.queue[task.id] = task
        else:
            getattr(state, past).setdefault((task.table_id, task.partition), []).append(task)

    return StoredKind(
        name,
        ("id",),
        record,
        lambda state: {
            (task.id,): task
            for task in (*state.queue.values(), *state.past_tasks())
            if isinstance(task, record)
        },
        put,
    )


def _put_identity(state: State, _key: Key, identity: Identity) -> None:
    state.identity = identity


def _put_setting(state: State, key: Key, setting: SetSetting) -> None:
    state.settings = state.settings.with_stored(key[0], setting.value)


def _put_write_id(table: TableState, row: WriteIdRow) -> None:
    table.writes.append(row)
    table.by_txn[row.txn_id] = row.write_id


def _named(records: Mapping[str, Any]) -> list[tuple[Key, Any]]:
    return [((name,), record) for name, record in records.items()]


# fmt: off
KINDS: tuple[StoredKind, ...] = (
    StoredKind("settings", ("name",), SetSetting,
         lambda state: {(key,): SetSetting(text) for key, text in state.settings.overrides.items()},
         _put_setting),
    StoredKind("identity", ("id",), Identity,
         lambda state: {(state.identity.id,): state.identity} if state.identity else {},
         _put_identity),
    _mapping("databases", "name", DatabaseRecord, "databases"),
    _tables("tables", "tables"),
    _tables("dropped_tables", "dropped_tables"),
    _of_tables("earlier_tables", "version", Earlier,
               lambda table: (((old.record.version,), old) for old in table.earlier),
               lambda table, earlier: table.earlier.append(earlier), "until"),
    _mapping("views", "name", ViewRecord, "views"),
    StoredKind("earlier_views", ("name", "version"), EarlierView,
         lambda state: {(old.view.name, old.view.version): old for old in state.earlier_views},
         lambda state, _key, view: state.earlier_views.append(view), ("until",)),
    _of_tables("table_commits", "moment write_id", TableCommit,
               lambda table: (((one.moment, one.write_id), one) for one in table.commits),
               lambda table, commit: table.commits.append(commit), "moment write_id"),
    _of_tables("tags", "name", Tag, lambda table: _named(table.tags),
               lambda table, tag: table.tags.__setitem__(tag.name, tag)),
    _mapping("cursors", "consumer table_id", Cursor, "cursors"),
    _mapping("sinks", "sink table_id", Sink, "sinks"),
    _mapping("branches", "name", Branch, "branches", "txn"),
    StoredKind("branch_commits", ("txn",), BranchCommit,
         lambda state: {(txn,): commit for commits in state.branch_commits.values()
                        for txn, commit in commits.items()},
         lambda state, key, commit: state.branch_commits.setdefault(commit.branch, {}).update(
             {key[0]: commit}), ("commit_id", "at", "txn")),
    _numbers("locations", "location", "floor", "locations"),
    _of_tables("partitions", "name", PartitionRecord, lambda table: _named(table.partitions),
               lambda table, record: table.partitions.__setitem__(record.name, record)),
    _of_tables("dropped_partitions", "name dropped", PartitionRecord,
               lambda table: (((old.name, old.dropped), old) for old in table.dropped_partitions),
               lambda table, record: table.dropped_partitions.append(record), "dropped"),
    _mapping("open_txns", "txn_id", Txn, "txns", "txn_id"),
    StoredKind("departed_txns", ("txn_id",), Departed,
         lambda state: {(member.txn_id,): member for member in state.departed},
         lambda state, _key, departed: state.departed.append(departed), ("gone",)),
    StoredKind("txn_components",
         ("txn_id", "table_id", "partition", "operation", "write_id", "dynamic", "cleaned"),
         Component,
         lambda state: {
             (one.txn_id, one.table_id, one.partition, one.operation.value, one.write_id,
              one.dynamic, one.cleaned): one
             for rows in state.components.values() for one in rows},
         lambda state, key, one: state.components.setdefault(key[0], []).append(one)),
    _of_tables("txn_to_write_id", "write_id", WriteIdRow,
               lambda table: (((row.write_id,), row) for row in table.writes), _put_write_id),
    StoredKind("write_set", ("table_id", "partition", "operation", "txn_id"), WriteSetRow,
         lambda state: {(row.table_id, row.partition, row.operation.value, row.txn_id): row
                        for row in write_set.every_row(state)},
         lambda state, _key, row: write_set.restore(state, row), ("commit_id", "txn_id")),
    StoredKind("looked", ("txn_id",), Looked,
         lambda state: {(looker.txn_id,): looker for looker in state.looked},
         lambda state, _key, one: write_set.add_looked(state, one), ("commit_id", "txn_id")),
    StoredKind("locks", ("ext",), LockEntry,
         lambda state: {(ext,): entry for ext, entry in state.locks.items()},
         lambda state, _key, entry: add_lock(state, entry), ("ext",)),
    _tasks("compactions", CompactionTask, "past"),
    _tasks("drops", DropTask, "past_drops"),
    _mapping("erasures", "id", ErasureTask, "erasures", "id"),
    _directories("directories", "directories"),
    _directories("dropped_directories", "dropped_directories"),
    _numbers("cleaning", "table_id partition", "started", "cleaning"),
    _mapping("retries", "table_id partition", Retry, "retries"),
)
# fmt: on
"""What a snapshot holds of memory, in the order in which a start needs it."""

ENDED: dict[str, type] = {"txns": Ended, "outcomes": Outcome, "writes": HistoryRow}
"""What leaves memory once a snapshot has it; kept until it is older than the retention."""


META: Columns = {"key": "VARCHAR", "value": "VARCHAR"}

LIVE: dict[str, Columns] = {kind.name: kind.columns for kind in KINDS}

KEPT: dict[str, Columns] = {name: columns_of(record) for name, record in ENDED.items()}

RECORDED: dict[str, Columns] = {
    "manifests": {
        "table_id": "BIGINT",
        "partition": "VARCHAR",
        "directory": "VARCHAR",
        "contents": "VARCHAR",
    }
}
"""Files of each row of `directories` (P26): `contents` is the text form of
`layout.file_entries.RecordedFiles`."""

PAST = {**KEPT, **RECORDED}
"""What leaves memory once a snapshot has it."""

EVERY = {**LIVE, **PAST}

COUNTERS = (
    "next_txn",
    "next_lock",
    "next_table",
    "next_compaction",
    "next_moment",
    "longest_timeout",
)
"""Numbers that belong to the whole state; the `next_` numbers are never used twice."""

_LEFT_OUT = {kind.name: left_out(kind.record) for kind in KINDS}
_LEFT_OUT_OF_ENDED = {name: left_out(record) for name, record in ENDED.items()}


def counters(state: State) -> dict[str, int]:
    return {name: getattr(state, name) for name in COUNTERS}


def live_rows(state: State, names: Container[str] = LIVE) -> Rows:
    """The rows of these live tables: all of them are the state except counters, heartbeats and
    what has ended."""
    return {
        kind.name: [
            {**_LEFT_OUT[kind.name], **dict(zip(kind.key, key, strict=True)), **encode(record)}
            for key, record in kind.every(state).items()
        ]
        for kind in KINDS
        if kind.name in names
    }


def ended_rows(state: State) -> Rows:
    """What has ended since the last snapshot, for the KEPT tables."""
    return {
        name: [{**_LEFT_OUT_OF_ENDED[name], **encode(record)} for record in records]
        for name, records in (
            ("txns", state.ended.values()),
            ("outcomes", state.outcomes.values()),
            ("writes", state.written),
        )
    }


def recorded_rows(state: State) -> list[Row]:
    """The files of directories that were recorded since the last snapshot and still exist (P26)."""
    return [
        {"table_id": table_id, "partition": partition, "directory": name, "contents": contents}
        for (table_id, partition), by_name in state.contents.items()
        for name, contents in by_name.items()
        if name in directories(state, (table_id, partition))
    ]


def restore(rows: Rows, numbers: dict[str, int]) -> State:
    """The state that has these `live_rows` and `counters`."""
    state = State(databases={})
    for name, number in numbers.items():
        setattr(state, name, number)
    for kind in KINDS:
        listed = rows[kind.name]
        if kind.order:
            listed = sorted(listed, key=itemgetter(*kind.order))
        key_of = itemgetter(*kind.key)
        for row in listed:
            key = key_of(row) if len(kind.key) > 1 else (row[kind.key[0]],)
            kind.put(state, key, decode(kind.record, row))
    state.queue = dict(sorted(state.queue.items()))  # compactions and drops
    placed = state.tables.items()
    state.occupied = Occupied((table.record.location, key) for key, table in placed)
    return state


def sql_type(column_type: str) -> str:
    return "VARCHAR" if column_type == "JSON" else column_type


def sizes(prefix: str) -> str:
    """A query whose column `size` has the approximate bytes in memory of each table's rows. DuckDB
    adds up the lengths of texts without making room for them."""
    queries = []
    for name, columns in LIVE.items():
        texts = [key for key, kind in columns.items() if sql_type(kind) == "VARCHAR"]
        row = " + ".join([str(_ROW), *(f'coalesce(strlen("{key}"), 0)' for key in texts)])
        queries.append(f'SELECT sum({row}) AS size FROM {prefix}."{name}"')
    return " UNION ALL ".join(queries)


_ROW = 512
"""Bytes of a row besides its texts."""


def create(name: str, columns: Columns) -> str:
    """The statement that makes the table of this name, which is quoted where need be."""
    listed = ", ".join(f'"{column}" {sql_type(kind)}' for column, kind in columns.items())
    return f"CREATE TABLE {name} ({listed})"


VIEWS = (
    """CREATE VIEW v_txns AS
    SELECT txn_id, state, kind, started, ended, commit_id, "user", host, agent, run_id, description,
        reason FROM txns
    UNION ALL
    SELECT txn_id, state, kind, started, ended, 0, "user", host, agent, run_id, description, reason
    FROM open_txns WHERE state = 'o'""",
    "CREATE VIEW v_open_txns AS SELECT * FROM open_txns WHERE state = 'o'",
    """CREATE VIEW v_write_ids AS
    SELECT t.name AS "table", w.write_id, w.txn_id, coalesce(o.state, 'c') AS state
    FROM txn_to_write_id w JOIN tables t USING (table_id) LEFT JOIN open_txns o USING (txn_id)""",
    """CREATE VIEW v_locks AS
    SELECT ext, txn_id, acquired, c->>'$.db' AS db, c->>'$.table' AS "table",
        c->>'$.partition' AS "partition", c->>'$.lock' AS lock, c->>'$.operation' AS operation
    FROM (SELECT ext, txn_id, acquired, unnest(from_json(components, '["JSON"]')) AS c
        FROM locks)""",
    """CREATE VIEW v_files AS
    SELECT t.name AS "table", f."partition", f.directory, file->>'$[0]' AS file,
        (file->>'$[1]')::BIGINT AS bytes, (file->>'$[2]')::BIGINT AS "rows"
    FROM (SELECT table_id, "partition", directory,
        unnest(from_json(contents, '["JSON"]')) AS file FROM manifests) f
    JOIN tables t USING (table_id)""",
)
"""What people see of the tables, in the file of a snapshot and in queries."""

MIGRATIONS: tuple[Sequence[str], ...] = (
    ("""ALTER TABLE cursors ADD COLUMN "table" VARCHAR DEFAULT ''""",),
    ("CREATE TABLE looked (txn_id BIGINT, commit_id BIGINT, sought VARCHAR, inserted VARCHAR)",),
    (
        *(
            f"ALTER TABLE {name} ADD COLUMN {column}"
            for name in ("tables", "dropped_tables", "earlier_tables")
            for column in (
                "column_ids VARCHAR DEFAULT '[]'",
                "last_column_id BIGINT DEFAULT 0",
                "retyped BIGINT DEFAULT 0",
            )
        ),
        "ALTER TABLE writes ADD COLUMN message VARCHAR DEFAULT ''",
    ),
    (
        "CREATE TABLE branches (name VARCHAR, txn BIGINT, created BIGINT, until BIGINT,"
        ' "user" VARCHAR)',
        'CREATE TABLE branch_commits (txn BIGINT, branch BIGINT, commit_id BIGINT, "at" BIGINT,'
        " touched VARCHAR, placed VARCHAR, written VARCHAR, looked VARCHAR)",
        "DROP VIEW v_open_txns",
        "ALTER TABLE open_txns ADD COLUMN branch BIGINT DEFAULT 0",
        "ALTER TABLE open_txns ADD COLUMN sees VARCHAR DEFAULT '[]'",
        "ALTER TABLE open_txns ADD COLUMN joined BOOLEAN DEFAULT false",
        "CREATE VIEW v_open_txns AS SELECT * FROM open_txns WHERE state = 'o'",
    ),
)
"""The statements that lead a snapshot from version 1 to 2, from 2 to 3 and so on. Who changes the
tables above adds a migration, and a file that the version before made to the tests."""

VERSION = 1 + len(MIGRATIONS)
