"""Declarations of databases, tables, partitions and views (P8, P22, P24)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache

from acid_platform.base.arguments import refuse_half_characters
from acid_platform.errors import (
    DeclarationChanged,
    InvalidDefinition,
    LockNotAcquired,
    NoSuchPartition,
    NoSuchTable,
    TableExists,
)
from acid_platform.layout import table_properties
from acid_platform.layout.names import (
    parse_partition,
    partition_name,
    refuse_path_trouble,
    refuse_shared_name,
    table_name,
)
from acid_platform.layout.sort_columns import check_sort_columns
from acid_platform.layout.table_properties import refuse_promises
from acid_platform.layout.types import folded
from acid_platform.metastore import operations as ops
from acid_platform.metastore.records import (
    PLATFORM_OWNER,
    DatabaseRecord,
    OwnerKind,
    PartitionRecord,
    RecordedDirectory,
    TableRecord,
    ViewRecord,
    refuse_names_of_views,
)
from acid_platform.metastore.rules import snapshots
from acid_platform.metastore.rules.declared import require_version
from acid_platform.metastore.rules.state import (
    Earlier,
    EarlierView,
    Entity,
    State,
    TableState,
    follow_rename,
)
from acid_platform.metastore.rules.timers import patience
from acid_platform.metastore.rules.turn import Event, Turn, handles


@handles(ops.DeclareDatabase)
def create_database(turn: Turn, operation: ops.DeclareDatabase) -> None:
    name = operation.name.lower()
    if name in turn.state.databases:
        if operation.if_not_exists:
            return
        raise TableExists(f"database {name} exists; use if_not_exists, or another name")
    refuse_shared_name("the name of a database", name)
    made = DatabaseCreated(
        name,
        operation.comment,
        dict(operation.properties),
        operation.owner or PLATFORM_OWNER,
        operation.owner_kind,
    )
    _refuse_half_texts_of(made)
    refuse_promises(f"database {made.name}", made.properties)
    turn.record(made)


@handles(ops.AlterDatabase)
def alter_database(turn: Turn, operation: ops.AlterDatabase) -> DatabaseRecord:
    """Raises NoSuchTable, InvalidDefinition."""
    record = database(turn.state, operation.name)
    if operation.comment is not None:
        record = replace(record, comment=operation.comment)
    if operation.properties is not None:
        refuse_promises(f"database {record.name}", operation.properties)
        record = replace(record, properties=_changed(record.properties, operation.properties))
    if operation.owner is not None:
        if not operation.owner:
            raise InvalidDefinition(f"database {record.name} needs an owner with a name")
        record = replace(record, owner=operation.owner, owner_kind=operation.owner_kind)
    _refuse_half_texts_of(record)
    turn.record(DatabaseAltered(record))
    return record


def _changed(properties: dict[str, str], change: dict[str, str | None]) -> dict[str, str]:
    """The properties after a change, which removes those that it sets to None."""
    merged = {**properties, **change}
    return {name: value for name, value in merged.items() if value is not None}


def database(state: State, name: str) -> DatabaseRecord:
    """Raises NoSuchTable."""
    record = state.databases.get(name.lower())
    if record is None:
        raise NoSuchTable(f"there is no database {name.lower()}; see databases()")
    return record


def _refuse_half_texts_of(declared: DatabaseRecord | DatabaseCreated) -> None:
    texts = {"comment": declared.comment, "owner": declared.owner, **declared.properties}
    refuse_half_texts(f"database {declared.name}", texts)


def refuse_half_texts(what: str, texts: Mapping[str, str]) -> None:
    """Raises InvalidDefinition for a text that can't be stored; `what` has these texts."""
    for name, text in texts.items():
        refuse_half_characters(f"{name}={text}", f"{what}:", InvalidDefinition)


@handles(ops.RemoveDatabase)
def drop_database(turn: Turn, operation: ops.RemoveDatabase) -> None:
    name = database(turn.state, operation.name).name
    names = (*turn.state.names, *turn.state.views)
    inside = sorted(member for member in names if member.startswith(f"{name}."))
    if name == "default" or inside:
        what = "is always there" if name == "default" else f"holds {', '.join(inside)}; drop them"
        raise InvalidDefinition(f"database {name} can't be dropped: it {what}")
    turn.record(DatabaseDropped(name=name))


class DatabaseCreated(Event, kind="database"):
    name: str
    comment: str = ""
    properties: dict[str, str] = field(default_factory=dict)
    owner: str = PLATFORM_OWNER
    owner_kind: OwnerKind = OwnerKind.USER

    def apply(self, state: State, at: int) -> None:
        state.databases[self.name] = DatabaseRecord(
            self.name, at, self.comment, self.properties, self.owner, self.owner_kind
        )


class DatabaseAltered(Event, kind="database_altered"):
    database: DatabaseRecord

    def apply(self, state: State, _at: int) -> None:
        state.databases[self.database.name] = self.database


class DatabaseDropped(Event, kind="database_dropped"):
    name: str

    def apply(self, state: State, _at: int) -> None:
        del state.databases[self.name]


@handles(ops.DeclareView)
def create_view(turn: Turn, operation: ops.DeclareView) -> None:
    """Raises TableExists, also for a view in the place of an external table or the other way round,
    InvalidDefinition, and DeclarationChanged unless it replaces what the change is based on."""
    record = operation.view
    name = table_name(record.name)
    database = name.partition(".")[0]
    kind = "view" if record.external is None else "table"
    if name in turn.state.names:
        if kind == "table" and operation.if_not_exists:
            return
        raise TableExists(f"{name} is a table; give the {kind} another name")
    if name in turn.state.views and not operation.or_replace:
        if operation.if_not_exists:
            return
        how = "CREATE OR REPLACE VIEW" if kind == "view" else "use if_not_exists"
        raise TableExists(f"{kind} {name} exists; {how}, or use another name")
    present = turn.state.views.get(name)
    if operation.read and (present is None or present.version != operation.read):
        raise DeclarationChanged(
            f"{name} was altered or made again since it was read; read it again"
        )
    if present is not None and (present.external is None) != (record.external is None):
        what = "a view" if present.external is None else "an external table"
        raise TableExists(f"{name} is {what}; drop it, or use another name")
    refuse_shared_name("the name of a view", name.partition(".")[2])
    if database not in turn.state.databases:
        raise InvalidDefinition(f"there is no database {database}; create_database({database!r})")
    refuse_half_texts(f"view {name}", {**record.properties, **record.comments})
    refuse_promises(record.name, record.properties, external=record.external is not None)
    turn.record(ViewCreated(replace(record, name=name, created=turn.now)))


@handles(ops.DropView)
def drop_view(turn: Turn, operation: ops.DropView) -> None:
    """Raises NoSuchTable."""
    name = table_name(operation.name)
    if name not in turn.state.views:
        raise NoSuchTable(f"there is no view {name}; SHOW TABLES lists tables and views")
    turn.record(ViewDropped(name=name))


class ViewCreated(Event, kind="view"):
    view: ViewRecord

    def apply(self, state: State, _at: int) -> None:
        record = replace(self.view, version=state.moment())
        _keep_earlier(state, record.name, record.version)
        state.views[record.name] = record


class ViewDropped(Event, kind="view_dropped"):
    name: str

    def apply(self, state: State, _at: int) -> None:
        _keep_earlier(state, self.name, state.moment())
        del state.views[self.name]


def _keep_earlier(state: State, name: str, moment: int) -> None:
    earlier = state.views.get(name)
    if earlier is not None:
        state.earlier_views.append(EarlierView(earlier, moment))


@handles(ops.DeclareTable)
def create_table(turn: Turn, operation: ops.DeclareTable) -> TableRecord:
    """Raises TableExists, InvalidDefinition, and LockNotAcquired while the location is being
    cleared."""
    name = table_name(operation.table.name)
    if operation.if_not_exists and name in turn.state.names:
        return turn.state.table(name).record
    return _create(turn, operation.table, turn.state.locations.get(operation.table.location, 0))


def _create(turn: Turn, record: TableRecord, floor: int) -> TableRecord:
    name = table_name(record.name)
    if name in turn.state.names:
        raise TableExists(f"table {name} exists; use if_not_exists, or another name")
    refuse_view(turn.state, name)
    _check_declaration(turn.state, name, record)
    table_properties.check(name, record.properties)
    check_comments(record)
    check_constraints(record)
    _check_cleaning(turn, record.location)
    record = replace(
        record, table_id=turn.state.next_table, name=name, created=turn.now, floor=floor
    )
    turn.record(TableCreated(record))
    return turn.state.tables[record.table_id].record


@handles(ops.AdoptTable)
def adopt_table(turn: Turn, operation: ops.AdoptTable) -> TableRecord:
    """Sets the counters above what the files hold. Raises TableExists, InvalidDefinition,
    LockNotAcquired."""
    where = operation.table.location
    if any(drop.location == where for drop in turn.state.drops()):
        raise LockNotAcquired(
            f"{where} still waits for the Cleaner after the drop of a table, and the Cleaner"
            " would remove the files; move them elsewhere and adopt them there"
        )
    record = _create(turn, operation.table, 0)
    reported = (report.partition for report in operation.directories if report.partition)
    turn.record(
        TableAdopted(
            record.table_id,
            operation.write_id,
            operation.txn_id,
            operation.aborted,
            tuple(sorted({*operation.partitions, *reported})),
            tuple(
                (report.partition, RecordedDirectory.of(report, 0))
                for report in operation.directories
            ),
        )
    )
    return record


def refuse_view(state: State, name: str) -> None:
    if name in state.views:
        raise TableExists(f"{name} is a view; drop it, or use another name")


def _check_declaration(state: State, name: str, record: TableRecord) -> None:
    db, _, short = name.partition(".")
    if db not in state.databases:
        raise InvalidDefinition(f"there is no database {db}; create_database({db!r}) first")
    refuse_shared_name("the name of a table", short)
    if not record.location:
        raise InvalidDefinition(f"table {name} needs a location")
    columns = check_columns(name, record)
    check_sort_columns(name, record.properties, record.columns)
    unknown = [column for column in record.bucket_columns if column.lower() not in columns]
    if unknown or bool(record.bucket_columns) != (record.bucket_count > 0):
        raise InvalidDefinition(
            f"{name}: buckets need columns of the table and a number of at least 1"
            f" (columns {list(record.bucket_columns)}, number {record.bucket_count})"
        )
    for table_id in state.occupied.near(record.location):
        other = state.tables[table_id].record
        if other.location == record.location:
            raise InvalidDefinition(f"{name}: {record.location} is the location of {other.name}")
        raise InvalidDefinition(
            f"{name}: {record.location} and {other.location}, where {other.name} is, enclose each"
            " other; give it a directory of its own"
        )


def overlap(one: str, other: str) -> bool:
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


def _check_cleaning(turn: Turn, location: str) -> None:
    """Raises LockNotAcquired while a Cleaner removes a dropped table there, and until it has
    removed one whose place encloses this one: it would take the new table's files too (P22)."""
    for drop in turn.state.drops():
        entity = (drop.table_id, drop.partition)
        if drop.location != location and drop.partition is None:
            if overlap(drop.location, location):
                raise LockNotAcquired(
                    f"{location} and {drop.location}, where {drop.table} was, enclose each other:"
                    " wait until the Cleaner has removed that"
                )
        elif drop.location == location and being_cleaned(turn.state, entity):
            raise LockNotAcquired(
                f"{location} is being removed after the drop of {drop.table}; try again in a moment"
            )


def being_cleaned(state: State, entity: Entity) -> bool:
    """Whether a Cleaner works there. If it has died, it counts for one transaction timeout more."""
    started = state.timers.cleaned_since.get(entity)
    return started is not None and state.timers.now - started < patience(state, started)


def check_columns(name: str, record: TableRecord) -> list[str]:
    """The names of all columns, in lower case. Raises InvalidDefinition."""
    columns = [name.lower() for name, _ in (*record.columns, *record.partition_columns)]
    if not record.columns or len(set(map(folded, columns))) < len(columns):
        raise InvalidDefinition(f"{name} needs columns, each with a name of its own: {columns}")
    for column in columns:
        refuse_path_trouble(f"{name}: the name of a column", column)
    return columns


def check_comments(record: TableRecord) -> None:
    """Raises InvalidDefinition for the comment of no column, and a text that can't be stored."""
    columns = dict((*record.columns, *record.partition_columns))
    for name in record.comments:
        if name not in columns:
            raise InvalidDefinition(
                f"{record.name} has no column {name!r} to comment; its columns are"
                f" {', '.join(columns)}"
            )
    refuse_half_texts(f"{record.name}: the comment of a column", record.comments)


def check_constraints(record: TableRecord) -> None:
    """Raises InvalidDefinition for a constraint on a column that is gone, and two of one name."""
    columns = dict((*record.columns, *record.partition_columns))
    names = [constraint.name for constraint in record.constraints]
    if len({*names}) < len(names) or "" in names:
        raise InvalidDefinition(f"{record.name}: each constraint needs a name of its own")
    for constraint in record.constraints:
        for column in constraint.columns:
            if column not in columns:
                raise InvalidDefinition(
                    f"{record.name}: column {column!r} can't go, since constraint"
                    f" {constraint.name} names it; ALTER TABLE … DROP CONSTRAINT first"
                )
        texts = {"name": constraint.name, "text": constraint.text}
        refuse_half_texts(f"{record.name}: a constraint", texts)


@handles(ops.AlterTable)
def alter_table(turn: Turn, operation: ops.AlterTable) -> TableRecord:
    """Raises NoSuchTable, TableExists, InvalidDefinition, DeclarationChanged."""
    record = turn.state.table(operation.name).record
    require_version(record, operation.read)
    if operation.rename is not None:
        name = table_name(operation.rename)
        if name in turn.state.names:
            raise TableExists(f"{record.name} can't become {name}: that table exists")
        refuse_view(turn.state, name)
        if name.partition(".")[0] not in turn.state.databases:
            raise InvalidDefinition(f"{record.name} can't become {name}: no such database")
        refuse_shared_name("the name of a table", name.partition(".")[2])
        record = replace(record, name=name)
    if operation.columns is not None:
        refuse_names_of_views(turn.state.views.values(), record, operation.columns)
        kinds = dict(record.columns)
        if any(kinds.get(name, kind) != kind for name, kind in operation.columns):
            last = turn.state.tables[record.table_id].last_write_id
            record = replace(record, retyped=last)
        record = record.with_columns(operation.columns)
        names = check_columns(record.name, record)
        comments = {name: text for name, text in record.comments.items() if name in names}
        record = replace(record, comments=comments)
    if operation.comments is not None:
        record = replace(record, comments=operation.comments)
        check_comments(record)
    if operation.properties is not None:
        table_properties.check_change(record.name, record.properties, operation.properties)
        record = replace(record, properties=_changed(record.properties, operation.properties))
    if operation.constraints is not None:
        record = replace(record, constraints=operation.constraints)
    check_constraints(record)
    check_sort_columns(record.name, record.properties, record.columns)
    turn.record(TableAltered(record))
    return turn.state.tables[record.table_id].record


@handles(ops.RegisterPartitions)
def add_partitions(turn: Turn, operation: ops.RegisterPartitions) -> list[str]:
    """Raises NoSuchPartition."""
    table = turn.state.table(operation.name)
    names = [normal_partition(table, partition) for partition in operation.partitions]
    new = [name for name in dict.fromkeys(names) if name not in table.partitions]
    if new:
        turn.record(PartitionsAdded(table_id=table.record.table_id, names=tuple(new)))
    return new


def normal_partition(table: TableState, name: str) -> str:
    """The partition with lower case keys (T24). Raises NoSuchPartition if the columns differ."""
    columns = tuple(column for column, _ in table.record.partition_columns)
    normal = _normal(name, columns)
    if normal is None:
        raise NoSuchPartition(
            f"{name!r} is no partition of {table.record.name}, which is partitioned by"
            f" {list(columns) or 'nothing'}"
        )
    return normal


@lru_cache(4096)
def _normal(name: str, columns: tuple[str, ...]) -> str | None:
    """Cached: each transaction asks twice, mostly for the same partitions."""
    values = parse_partition(name, list(columns)) if columns else None
    return None if values is None else partition_name(dict(zip(columns, values, strict=True)))


class TableCreated(Event, kind="table"):
    table: TableRecord

    def apply(self, state: State, at: int) -> None:
        record = replace(self.table, version=state.moment())
        state.next_table = record.table_id + 1
        table = TableState(record, next_write_id=record.floor + 1, purged=record.floor)
        state.tables[record.table_id] = table
        snapshots.begin_history(table, record.version, at, record.floor)
        state.names[record.name] = record.table_id
        state.occupied.add(record.location, record.table_id)


class TableAltered(Event, kind="altered"):
    table: TableRecord

    def apply(self, state: State, at: int) -> None:
        record = replace(self.table, version=state.moment())
        table = state.tables[record.table_id]
        del state.names[table.record.name]
        state.names[record.name] = record.table_id
        follow_rename(state, record.table_id, table.record.name, record.name)
        table.earlier.append(Earlier(table.record, record.version))
        table.record = record
        snapshots.note_commit(state, table, record.version, at)
        for row in [*state.compactions()]:
            # A Worker goes by the table's name; a drop goes by its location.
            if row.table_id == record.table_id:
                state.queue[row.id] = replace(row, table=record.name)
        # Its properties may set other thresholds (C22).
        state.changed |= dict.fromkeys(table.entities(), state.next_moment)


class TableAdopted(Event, kind="adopted"):
    table_id: int
    write_id: int
    txn_id: int
    aborted: tuple[int, ...]
    partitions: tuple[str, ...]
    directories: tuple[tuple[str | None, RecordedDirectory], ...]

    def apply(self, state: State, at: int) -> None:
        table = state.tables[self.table_id]
        state.next_txn = max(state.next_txn, self.txn_id + 1)
        table.next_write_id = max(table.next_write_id, self.write_id + 1)
        table.purged = table.last_write_id
        table.aborted.update(self.aborted)
        register_partitions(state, table, self.partitions)
        for partition, recorded in self.directories:
            entity, name = (self.table_id, partition), recorded.directory.name
            state.directories.setdefault(entity, {})[name] = recorded.directory
            state.highest.pop(entity, None)
            state.contents.setdefault(entity, {})[name] = recorded.contents
        snapshots.begin_history(table, state.moment(), at, self.write_id)
        state.changed |= dict.fromkeys(table.entities(), state.next_moment)


class PartitionsAdded(Event, kind="partitions"):
    table_id: int
    names: tuple[str, ...]

    def apply(self, state: State, _at: int) -> None:
        register_partitions(state, state.tables[self.table_id], self.names)


def register_partitions(state: State, table: TableState, names: Sequence[str]) -> None:
    """Adds partitions that see nothing of forgotten or dropped write ids (P4, P22).

    Ids that were forgotten before the last drop need no floor: a snapshot that does not see the
    drop reads the earlier partition, with that partition's floors.
    """
    new = [name for name in names if name not in table.partitions]
    if new:
        added = state.moment()
        for name in new:
            floors = table.floors.get(name, ())
            if table.forgotten > max(floors, default=0):
                floors = (*floors, table.forgotten)
            table.partitions[name] = PartitionRecord(name, floors, added)
