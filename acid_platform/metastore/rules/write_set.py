"""What commits leave behind: directories, and what a later commit may conflict with (T30 to T44,
P6, P30, P38, P51).

`State.write_set` has updates, deletes and overwrites, `State.inserts` the inserts. Only overwrites
conflict with inserts, and for them the last insert of an entity is enough. The rows of an entity's
list ascend by commit id. `State.looked` has the commits that looked for rows and inserted some.

What a serializable transaction has read is compared with the directories that it does not see
(P52). Commits are in the order in which their transactions could have run one after the other: each
one that is serializable has read what all commits before it left. A transaction that writes nothing
reads what the commits before its snapshot left, and needs no check.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from operator import attrgetter

from acid_platform.errors import NoSuchTable
from acid_platform.layout.file_entries import RecordedFiles
from acid_platform.layout.table_properties import CONFLICT_DETECTION
from acid_platform.layout.types import Column, parse_type
from acid_platform.metastore.branches import Placed
from acid_platform.metastore.pasts import Cursor, Sink
from acid_platform.metastore.records import (
    EntityDirectory,
    HistoryRow,
    RecordedDirectory,
    RegionReport,
    TableRecord,
)
from acid_platform.metastore.rules import snapshots
from acid_platform.metastore.rules.declared import commits_on, seen_table
from acid_platform.metastore.rules.snapshots import snapshot
from acid_platform.metastore.rules.state import (
    Component,
    Departed,
    Ended,
    Entity,
    State,
    TableState,
    Txn,
    remove_lock,
)
from acid_platform.metastore.rules.table_declarations import register_partitions
from acid_platform.metastore.rules.turn import Event, Past, Turn
from acid_platform.scan.row_regions import region_of_files, region_of_partition
from acid_platform.scan.selection import shadows
from acid_platform.transactions import RowOperation, TxnState, TxnType, ValidTxnList, concurrency
from acid_platform.transactions.concurrency import InTable, Looked, Touched, WriteSetRow
from acid_platform.transactions.ids import BRIEF
from acid_platform.transactions.row_sets import Region, RowSet

Changed = Mapping[tuple[int, str | None, RowOperation], RowSet]
"""The rows that a transaction changed, by table id, partition and operation (P38)."""

_BY_COMMIT = attrgetter("commit_id")


def conflict(
    state: State, txn: Txn, touches: Iterable[Component], changed: Changed | None = None
) -> tuple[Entity, str] | None:
    """The first of `conflicts`, as its entity and the reason; or None."""
    for mine, _, reason in conflicts(state, txn, touches, changed):
        return (mine.table_id, mine.partition), reason
    return None


def conflicts(
    state: State, txn: Txn, touches: Iterable[Component], changed: Changed | None = None
) -> Iterator[tuple[Touched, WriteSetRow, str]]:
    """What the transaction may not commit of these touches, what others did there, and why.

    A dynamic touch stands for every partition of its table. Touches without `changed` rows are
    compared by partition (P38), as before the statement has run (T40). What the transaction's
    snapshot sees does not conflict with an overwrite (P30), nor, under `hive.txn.xlock.write`, with
    anything (T35).
    """
    serial = state.settings.flag("hive.txn.xlock.write")
    own: ValidTxnList | None = None
    for touched in touches:
        for theirs in _rows(state, txn, touched):
            partition = theirs.partition if touched.dynamic else touched.partition
            mine = Touched(
                touched.table_id,
                partition,
                touched.operation,
                touched.txn_id,
                touched.write_id,
                (changed or {}).get((touched.table_id, partition, touched.operation)),
            )
            reason = concurrency.conflicts(mine, theirs)
            if reason is None:
                continue
            if serial or touched.operation is RowOperation.OVERWRITE:
                own = own or snapshot(state, txn)
                if own is not None and own.is_valid(theirs.txn_id):
                    continue
            yield mine, theirs, reason


def skew(state: State, txn: Txn, mine: Looked) -> tuple[Entity, str] | None:
    """The table in which the transaction may not commit, and why: another one, which it did not
    see, and this one have each inserted what the other looked for (P51); or None."""
    own: ValidTxnList | None = None
    if txn.branch and txn.has_client:
        there = (commit.looked for commit in commits_on(state, txn.branch))
        others = [looked for looked in there if looked is not None]
    else:
        others = state.looked
    for theirs in others[bisect_left(others, txn.txn_id, key=_BY_COMMIT) :]:
        found = concurrency.skew(mine, theirs)
        if found is not None:
            own = own or snapshot(state, txn)
            if own is None or not own.is_valid(theirs.txn_id):
                return (found[0], None), found[1]
    return None


def describe(state: State, entity: Entity, reason: str) -> str:
    table_id, partition = entity
    return f"{state.name_of(table_id)} {partition or ''}".rstrip() + f": {reason}"


def by_row(state: State, table_id: int) -> bool:
    """Whether the table's updates and deletes are compared by row (P38)."""
    properties = state.tables[table_id].record.properties
    own = CONFLICT_DETECTION.stated(properties)
    return (own or state.settings.text(CONFLICT_DETECTION.name)).lower() == "row"


def _rows(state: State, txn: Txn, touched: Component) -> Iterator[WriteSetRow]:
    """What was committed to the entity, or the table, since the transaction was opened, or to it on
    its branch (P80).

    An overwrite with a higher write id is among it (P6): that id was allocated later.
    """
    if txn.branch and txn.has_client:
        for commit in commits_on(state, txn.branch):
            if commit.commit_id >= touched.txn_id:
                for row in commit.touched:
                    same = touched.dynamic or row.partition == touched.partition
                    if row.table_id == touched.table_id and same:
                        yield row
        return
    for by_table in (state.write_set, state.inserts):
        by_partition = by_table.get(touched.table_id)
        if by_partition is None:
            continue
        if touched.dynamic:
            for rows in by_partition.values():
                yield from _since(rows, touched.txn_id)
        else:
            yield from _since(by_partition.get(touched.partition, []), touched.txn_id)


def _since(rows: list[WriteSetRow], txn_id: int) -> list[WriteSetRow]:
    return rows[bisect_left(rows, txn_id, key=_BY_COMMIT) :]


def every_row(state: State) -> Iterator[WriteSetRow]:
    """All rows of the write set, in the form that a snapshot stores and `restore` reads."""
    for by_table in (state.write_set, state.inserts):
        for by_partition in by_table.values():
            for rows in by_partition.values():
                yield from rows


def restore(state: State, row: WriteSetRow) -> None:
    by_table = state.inserts if row.operation is RowOperation.INSERT else state.write_set
    by_table.setdefault(row.table_id, {}).setdefault(row.partition, []).append(row)
    state.row_bytes += _size(row)


def add(state: State, row: WriteSetRow) -> None:
    """Adds the row of a new commit.

    Of an entity's inserts two are kept: the last one, and the one of the highest transaction. A
    snapshot that sees both sees all of them: an insert that it misses was committed after the
    snapshot was taken, or has a higher transaction id than the snapshot's (S2).
    """
    if row.operation is RowOperation.INSERT:
        by_partition = state.inserts.setdefault(row.table_id, {})
        above = [
            insert for insert in by_partition.get(row.partition, ()) if insert.txn_id > row.txn_id
        ]
        highest = [max(above, key=attrgetter("txn_id"))] if above else []
        by_partition[row.partition] = [*highest, row]
        return
    restore(state, row)


def put_drop(state: State, row: WriteSetRow) -> None:
    """Records the drop of a partition in place of everything that was done to it before (P22)."""
    by_partition = state.write_set.setdefault(row.table_id, {})
    state.row_bytes -= sum(map(_size, by_partition.get(row.partition, ())))
    by_partition[row.partition] = [row]
    state.inserts.get(row.table_id, {}).pop(row.partition, None)


def forget_table(state: State, table_id: int) -> None:
    gone = state.write_set.pop(table_id, {})
    state.row_bytes -= sum(_size(row) for rows in gone.values() for row in rows)
    state.inserts.pop(table_id, None)


def purge(state: State, writers: int) -> None:
    """Forgets what no open writer overlaps; `writers` is the id of the oldest one (T44)."""
    for by_table in (state.write_set, state.inserts):
        for table_id, by_partition in list(by_table.items()):
            by_partition = {
                partition: left
                for partition, rows in by_partition.items()
                if (left := [row for row in rows if row.commit_id >= writers])
            }
            if by_partition:
                by_table[table_id] = by_partition
            else:
                del by_table[table_id]
    state.looked = [looker for looker in state.looked if looker.commit_id >= writers]
    _count(state)


def within_memory(turn: Turn, changed: Changed, more: int) -> Changed:
    """The changed rows that later commits are compared with, within the memory for them (P38).

    Nothing is kept of a commit whose row sets are too large: it conflicts by partition. `more`
    bytes come besides (P51).
    """
    size = sum(len(rows.text) for rows in changed.values())
    limits = ("acid.conflict.rows.bytes", "acid.conflict.memory.bytes")
    if size > min(turn.state.settings.integer(name) for name in limits):
        changed, size = {}, 0
    upto = _forgettable_rows(turn.state, size + more)
    if upto:
        turn.record(RowsForgotten(upto))
    return changed


def _forgettable_rows(state: State, needed: int) -> int:
    """The commit id up to which row sets have to be forgotten, so that `needed` more bytes fit in
    `acid.conflict.memory.bytes`; 0 if they fit now (P38).

    The oldest go first, and half of the memory becomes free: the youngest transactions, which are
    most, need only the newest.
    """
    budget = state.settings.integer("acid.conflict.memory.bytes")
    left = state.row_bytes + needed
    if left <= budget:
        return 0
    upto = 0
    for commit_id, size in sorted(_sizes(state)):
        if left <= budget // 2 and commit_id > upto:
            break
        if size:
            left, upto = left - size, commit_id
    return upto


class RowsForgotten(Event, kind="rows_forgotten"):
    """From now on the commits up to this commit id conflict by partition (P38), or by table if they
    looked for rows (P51)."""

    upto: int

    def apply(self, state: State, _at: int) -> None:
        for by_partition in state.write_set.values():
            for partition, rows in by_partition.items():
                by_partition[partition] = [
                    replace(row, rows=None) if row.commit_id <= self.upto and _size(row) else row
                    for row in rows
                ]
        state.looked = [
            _without_regions(looker) if looker.commit_id <= self.upto else looker
            for looker in state.looked
        ]
        _count(state)


def _without_regions(looked: Looked) -> Looked:
    def whole(some: tuple[InTable, ...]) -> tuple[InTable, ...]:
        left = {(entry.table_id, entry.region.compared): entry for entry in some}
        return tuple(InTable(entry.table_id, entry.region.forgotten) for entry in left.values())

    return replace(looked, sought=whole(looked.sought), inserted=whole(looked.inserted))


def add_looked(state: State, looked: Looked) -> None:
    state.looked.append(looked)
    state.row_bytes += looked.size


def may_forget(state: State, writers: int) -> bool:
    """Whether something here is older than the oldest open writer (T44)."""
    return any(commit_id < writers for commit_id, _ in _sizes(state))


def _sizes(state: State) -> Iterator[tuple[int, int]]:
    """The commit id and the size of all that a commit keeps in memory."""
    for row in every_row(state):
        yield row.commit_id, _size(row)
    for looked in state.looked:
        yield looked.commit_id, looked.size


def _count(state: State) -> None:
    state.row_bytes = sum(size for _, size in _sizes(state))


def _size(row: WriteSetRow) -> int:
    return len(row.rows.text) if row.rows is not None else 0


def unseen_change(
    state: State, past: Past, txn: Txn, read: Sequence[RegionReport]
) -> tuple[Entity, str] | None:
    """The first entity in which others have changed what the transaction read, after its snapshot,
    and why; or None. Raises MalformedRows."""
    own = snapshot(state, txn)
    if own is None:
        return None
    for report in read:
        region = report.region.checked()
        try:
            table, record = seen_table(state, txn, report.table)
        except NoSuchTable:
            continue  # it was never there for the transaction
        table_id = table.record.table_id
        if table.dropped or record != table.record:
            return (table_id, None), f"it was read by transaction {txn.txn_id}, and altered since"
        for entity, who in _changes(state, past, txn, own, table, region):
            return entity, (
                f"transaction {txn.txn_id} read rows ({region}) among which transaction {who} has"
                " changed some since"
            )
    return None


def _changes(
    state: State, past: Past, txn: Txn, own: ValidTxnList, table: TableState, region: Region
) -> Iterator[tuple[Entity, int]]:
    """The entities with rows of the region that others have changed, and who did."""
    columns, keys = _columns(table.record)
    table_id = table.record.table_id
    for dropped in table.dropped_partitions:
        if dropped.dropped > txn.taken and region.meets(region_of_partition(dropped.name, keys)):
            yield (table_id, dropped.name), 0
    for entity in table.entities():
        if state.changed.get(entity, 0) <= txn.taken and txn.taken >= state.awake:
            continue  # nobody has written there since
        unseen = [
            directory
            for directory in state.directories.get(entity, {}).values()
            if not own.is_valid(directory.txn) and directory.txn != txn.txn_id
        ]
        if not unseen or not region.meets(region_of_partition(entity[1], keys)):
            continue
        for directory in unseen:
            counts = concurrency.CHANGED[directory.base, directory.deletes, directory.compacted]
            if counts is concurrency.Changed.ITS_ROWS and region.columns:
                files = region_of_files(
                    _files(state, past, entity, directory), columns, region.columns
                )
                counts = (
                    concurrency.Changed.ANY_ROW
                    if region.meets(files)
                    else concurrency.Changed.NOTHING
                )
            if counts is not concurrency.Changed.NOTHING:
                yield entity, directory.txn


def _columns(record: TableRecord) -> tuple[list[Column], list[Column]]:
    ids = zip(record.columns, record.ids_of_columns, strict=True)
    own = [Column(name, parse_type(kind), number) for (name, kind), number in ids]
    return own, [Column(name, parse_type(kind)) for name, kind in record.partition_columns]


def _files(state: State, past: Past, entity: Entity, one: EntityDirectory) -> RecordedFiles:
    table_id, partition = entity
    text = state.contents.get(entity, {}).get(one.name)
    if text is None:
        text = past.recorded(table_id, [partition])[partition, one.name]
    return RecordedFiles.parse(text)


class Committed(Event, kind="commit"):
    txn: int
    commit_id: int
    write_set: tuple[WriteSetRow, ...]
    placed: tuple[Placed, ...]
    written: tuple[HistoryRow, ...]
    cursors: tuple[Cursor, ...] = field(default=(), metadata=BRIEF)
    sinks: tuple[Sink, ...] = field(default=(), metadata=BRIEF)
    rewrote: tuple[int, ...] = field(default=(), metadata=BRIEF)
    """The tables all of whose files were written again, with the same rows."""
    looked: Looked | None = field(default=None, metadata=BRIEF)
    """What it looked for and inserted, if it did both (P51)."""

    def apply(self, state: State, at: int) -> None:
        txn_id = self.txn
        for change in self.write_set:
            add(state, change)
        for table_id, partition, recorded in self.placed:
            if partition is not None:
                register_partitions(state, state.tables[table_id], [partition])
            place_directory(state, (table_id, partition), recorded)
        for row in self.written:
            state.written.append(row)
            if row.operation is RowOperation.INSERT and not row.overwrite:
                # Not in `write_set`, since the log has all of it in `written`.
                inserted = (row.operation, txn_id, self.commit_id, row.write_id)
                add(state, WriteSetRow(row.table_id, row.partition, *inserted))
        if self.looked is not None:
            add_looked(state, self.looked)
        for cursor in self.cursors:
            state.cursors[cursor.consumer, cursor.table_id] = cursor
        for sink in self.sinks:
            state.sinks[sink.sink, sink.table_id] = sink
        state.components.pop(txn_id, None)
        wrote = state.txns[txn_id].wrote
        moment = close_txn(state, at, txn_id, TxnState.COMMITTED, "", self.commit_id)
        for table_id in wrote:
            if table_id in state.tables:
                table = state.tables[table_id]
                rewrite = table_id in self.rewrote
                snapshots.note_commit(
                    state,
                    table,
                    moment,
                    at=at,
                    write_id=table.by_txn[txn_id],
                    txn=txn_id,
                    rewrite=rewrite,
                )


class Aborted(Event, kind="abort"):
    txn: int
    reason: str

    def apply(self, state: State, at: int) -> None:
        txn = state.txns[self.txn]
        for table_id in txn.wrote:
            table = state.known_table(table_id)
            if table is not None:
                table.aborted.add(table.by_txn[txn.txn_id])
                # In every entity of the table, the open write id held back what a compaction may
                # merge.
                if not table.dropped:
                    state.changed |= dict.fromkeys(table.entities(), state.next_moment)
        left = [
            component
            for component in state.components.get(txn.txn_id, ())
            if component.table_id in state.tables
        ]
        if left:
            state.components[txn.txn_id] = left
        else:
            state.components.pop(txn.txn_id, None)
        close_txn(state, at, txn.txn_id, TxnState.ABORTED, self.reason, 0)


def close_txn(
    state: State, at: int, txn_id: int, end_state: TxnState, reason: str, commit_id: int
) -> int:
    """Ends a transaction; an aborted one is kept while it has components (T11, T46).

    The publication of an aborted compaction stays until its output is gone (P46). Returns the
    moment of its end; 0 for a read lease.
    """
    txn = state.txns[txn_id]
    for ext in list(state.locks_by_txn.get(txn_id, ())):
        held = state.locks[ext].acquired and state.locks[ext].publishes
        if end_state is TxnState.COMMITTED or not held:
            remove_lock(state, ext)
    state.heartbeats.pop(txn_id, None)
    state.reads.pop(txn_id, None)
    state.ended[txn_id] = Ended(
        txn_id,
        state=end_state,
        kind=txn.kind,
        started=txn.started,
        ended=at,
        commit_id=commit_id,
        info=txn.info,
        reason=reason,
    )
    if end_state is TxnState.ABORTED and txn_id in state.components:
        moment = state.moment()
        state.txns[txn_id] = replace(
            txn, state=end_state, ended=at, reason=reason, taken=0, closed=moment, pins=()
        )
        return moment
    del state.txns[txn_id]
    if txn.kind is TxnType.READ_ONLY:
        return 0
    moment = state.moment()
    state.departed.append(Departed(txn_id, moment, moment))
    return moment


def place_directory(state: State, entity: Entity, recorded: RecordedDirectory) -> None:
    """Adds a directory with its files to its entity.

    Directories that it replaces become obsolete; if another directory replaces it, it is obsolete
    itself.
    """
    new = recorded.directory
    state.changed[entity] = state.next_moment
    state.contents.setdefault(entity, {})[new.name] = recorded.contents
    directories = state.directories.setdefault(entity, {})
    # A new delta cannot replace directories that lie wholly below it, and mostly all of them do.
    highest = state.highest.get(entity)
    if highest is None:
        highest = max((directory.high for directory in directories.values()), default=0)
    state.highest[entity] = max(highest, new.high)
    name = new.acid_name
    near = [
        directory
        for directory in (directories.values() if new.base or highest >= new.low else ())
        if not directory.obsolete and (new.base or directory.high >= new.low)
    ]
    for other in near:
        if shadows(name, other.acid_name):
            directories[other.name] = other.as_obsolete()
        elif shadows(other.acid_name, name):
            new = new.as_obsolete()
    directories[new.name] = new
