"""How transactions end: commit with its conflict check, abort, drop (T10 to T39, P2, P6, P38).

The Cleaner removes the files of what was dropped later (P22).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from acid_platform.compaction.states import CompactionState
from acid_platform.errors import (
    AcidError,
    DeclarationChanged,
    InvalidDefinition,
    MalformedRows,
    NoSuchPartition,
    NoSuchTable,
    OverwriteThenWrite,
    Terminal,
    TxnAborted,
    WriteConflict,
)
from acid_platform.layout import table_properties
from acid_platform.layout.names import DeltaName, parse_directory, span
from acid_platform.layout.table_properties import HISTORY_RETENTION
from acid_platform.metastore import operations as ops
from acid_platform.metastore.branches import BranchCommit, Placed
from acid_platform.metastore.operations.compaction import DropTask
from acid_platform.metastore.pasts import Cursor, Sink
from acid_platform.metastore.records import (
    PLATFORM,
    HistoryRow,
    RecordedDirectory,
    RegionReport,
    RewrittenTable,
    RowReport,
    TableRecord,
    WriteReport,
    refuse_names_of_views,
)
from acid_platform.metastore.rules import change_feed, write_set
from acid_platform.metastore.rules.branch_commits import BranchCommitted, require_branchable
from acid_platform.metastore.rules.declared import (
    joined_commit,
    refuse_foreign,
    unchanged,
    widened,
)
from acid_platform.metastore.rules.state import Component, Entity, State, Txn, forget_publications
from acid_platform.metastore.rules.table_declarations import (
    TableAltered,
    check_columns,
    check_comments,
    check_constraints,
    normal_partition,
)
from acid_platform.metastore.rules.turn import Event, Turn, handles
from acid_platform.metastore.rules.txns import WriteIdAllocated, end, leave_waits, require_open
from acid_platform.metastore.rules.write_set import Committed
from acid_platform.transactions import RowOperation, TxnState, TxnType
from acid_platform.transactions.concurrency import InTable, LockType, Looked, WriteSetRow
from acid_platform.transactions.row_sets import MOST_REGIONS, RowSet


@handles(ops.CommitTxn)
def commit(turn: Turn, operation: ops.CommitTxn) -> int:
    """The first committer wins (T30 to T38, P6, P30, P38, P51, P52). A second commit is no error
    (T10).

    A refused commit aborts the transaction: WriteConflict, OverwriteThenWrite, DeclarationChanged,
    InvalidDefinition, NoSuchTable, NoSuchPartition, MalformedName, MalformedRows. Raises TxnAborted
    or NoSuchTxn if the transaction is not open, and InvalidDefinition for a compaction's
    transaction, which stays open.
    """
    past = None if operation.txn in turn.state.txns else turn.ended(operation.txn)
    if past is not None and past.state is TxnState.COMMITTED:
        return past.commit_id
    joined = joined_commit(turn.state, operation.txn)
    if joined is not None:
        return joined.commit_id
    txn = require_open(turn, operation.txn)
    if txn.kind is TxnType.COMPACTION:
        raise InvalidDefinition(f"transaction {txn.txn_id} is a compaction; call commit_compaction")
    try:
        return finish(turn, txn, _checked(turn, txn, operation.contents))
    except AcidError as refused:
        prefix = "write conflict on " if isinstance(refused, WriteConflict) else ""
        end(turn, txn.txn_id, f"{prefix}{refused}")
        raise type(refused)(
            f"{refused}; transaction {txn.txn_id} was aborted, begin again"
        ) from refused


class Reported(NamedTuple):
    """A write, with its table and the partition as it is registered."""

    table_id: int
    partition: str | None
    report: WriteReport


@dataclass(frozen=True, slots=True)
class CheckedCommit:
    """What a commit does: its contents, checked against the state, in the terms of the state."""

    components: Sequence[Component] = ()
    reported: Sequence[Reported] = ()
    changed: write_set.Changed = field(default_factory=dict)
    cursors: tuple[Cursor, ...] = ()
    sinks: tuple[Sink, ...] = ()
    altered: tuple[TableRecord, ...] = ()
    """Tables that get columns."""
    rewritten: tuple[TableRecord, ...] = ()
    """Tables all of whose files were written again."""
    rewrote: tuple[int, ...] = ()
    """Those among them that keep their rows, by id."""
    looked: Looked | None = None


def _checked(turn: Turn, txn: Txn, contents: ops.CommitContents) -> CheckedCommit:
    """Raises WriteConflict, and whatever makes the commit impossible."""
    state = turn.state
    if txn.branch:
        require_branchable(state, txn, contents)
    components, reported = _touched(state, txn, contents.writes)
    changed = _changed(state, txn, contents.changed)
    wider = [widened(state, txn, name, columns) for name, columns in contents.columns.items()]
    rewritten = [_rewritten(state, txn, table) for table in contents.rewritten]
    same_rows = zip(rewritten, contents.rewritten, strict=True)
    checked = CheckedCommit(
        components,
        reported,
        changed,
        altered=tuple(record for record in wider if record is not None),
        rewritten=tuple(rewritten),
        rewrote=tuple(record.table_id for record, stated in same_rows if not stated.rows),
        cursors=change_feed.moved_cursors(state, txn, contents.cursors),
        sinks=change_feed.advanced_sinks(turn, txn, contents.sinks),
        looked=_looked(state, txn, contents),
    )
    conflict = write_set.conflict(state, txn, components, changed)
    if conflict is None and checked.looked is not None:
        conflict = write_set.skew(state, txn, checked.looked)
    if conflict is None and contents.read:
        conflict = write_set.unseen_change(state, turn.past, txn, contents.read)
    if conflict is not None:
        raise WriteConflict(write_set.describe(state, *conflict))
    for record in (*checked.altered, *checked.rewritten):
        before = state.tables[record.table_id].record
        refuse_names_of_views(state.views.values(), before, record.columns)
    return checked


def finish(turn: Turn, txn: Txn, checked: CheckedCommit) -> int:
    """Records the commit of an open transaction; returns its id."""
    for record in (*checked.altered, *checked.rewritten):
        turn.record(TableAltered(record))
    commit_id, looked = turn.state.last_txn, checked.looked
    compared = write_set.within_memory(turn, checked.changed, looked.size if looked else 0)
    leave_waits(turn, txn.txn_id, TxnAborted(f"transaction {txn.txn_id} was committed just now"))
    touched = tuple(
        WriteSetRow(
            table_id=touch.table_id,
            partition=touch.partition,
            operation=touch.operation,
            txn_id=txn.txn_id,
            commit_id=commit_id,
            write_id=touch.write_id,
            rows=compared.get((touch.table_id, touch.partition, touch.operation)),
        )
        for touch in checked.components
        if touch.operation.changes or txn.branch
    )
    placed = tuple(
        Placed(table_id, partition, RecordedDirectory.of(report, txn.txn_id))
        for table_id, partition, report in checked.reported
    )
    written = tuple(_history_row(turn, txn, *each) for each in checked.reported)
    what = (touched, placed, written)
    if txn.branch and txn.wrote:
        own = BranchCommit(txn.txn_id, txn.branch, commit_id, turn.now, *what, looked)
        turn.record(BranchCommitted(own))
        return commit_id
    turn.record(
        Committed(
            txn.txn_id,
            commit_id,
            *what,
            cursors=checked.cursors,
            sinks=checked.sinks,
            rewrote=checked.rewrote,
            looked=looked,
        )
    )
    return commit_id


def _history_row(
    turn: Turn, txn: Txn, table_id: int, partition: str | None, report: WriteReport
) -> HistoryRow:
    table = turn.state.tables[table_id]
    return HistoryRow(
        table_id=table_id,
        table=table.record.name,
        partition=partition,
        write_id=table.by_txn.get(txn.txn_id, 0),
        operation=report.operation,
        directory=report.directory,
        rows=report.rows,
        bytes=report.bytes,
        files=report.files,
        overwrite=report.overwrite,
        txn=txn.txn_id,
        user=txn.info.user,
        run_id=txn.info.run_id,
        time=turn.now,
        engine=report.engine or ("" if txn.info.agent == PLATFORM else txn.info.agent),
        reason=report.reason,
        message=txn.info.description if txn.info.agent == PLATFORM else "",
    )


def _touched(
    state: State, txn: Txn, reports: Sequence[WriteReport]
) -> tuple[list[Component], list[Reported]]:
    """What the transaction touched: reports replace the row of a dynamic lock (T26, T27, T38)."""
    locked = state.components.get(txn.txn_id, [])
    final = [component for component in locked if not component.dynamic]
    reported: list[Reported] = []
    for report in reports:
        table = unchanged(state, txn, report.table)
        table_id, partition = table.record.table_id, report.partition
        if partition is not None or table.record.partitioned:
            partition = normal_partition(table, partition or "")
        cover = [
            component
            for component in locked
            if component.table_id == table_id
            and (component.dynamic or component.partition == partition)
        ]
        if not cover:
            raise InvalidDefinition(
                f"transaction {txn.txn_id} reports a write of {table.record.name}"
                f" {partition or ''} without a write lock there; lock it first"
            )
        _require_announced(txn, table.record.name, cover, report)
        operation = RowOperation.OVERWRITE if report.overwrite else report.operation
        written = Component(txn.txn_id, table_id, partition, operation, cover[0].write_id)
        if written not in final:
            final.append(written)
        reported.append(Reported(table_id, partition, report))
    _check_overwrites(state, txn, reported)
    overwritten = {
        (table_id, partition) for table_id, partition, report in reported if report.overwrite
    }
    return [_as_done(component, overwritten) for component in final], reported


def _as_done(component: Component, overwritten: set[Entity]) -> Component:
    """A lock for an overwrite that did not happen counts as an update (T38)."""
    if component.operation is RowOperation.OVERWRITE and component.entity not in overwritten:
        return replace(component, operation=RowOperation.UPDATE)
    return component


def _require_announced(
    txn: Txn, table: str, cover: Sequence[Component], report: WriteReport
) -> None:
    """Raises InvalidDefinition for a directory of another write id than the transaction's, and for
    one that changes rows under locks for INSERT; MalformedName.

    Transactions of Hive's streaming share a directory of inserted rows with a range of write ids.
    """
    name, write_id = parse_directory(report.directory), cover[0].write_id
    low, high = span(name) if name else (0, 0)
    shared = isinstance(name, DeltaName) and not name.deletes
    if not (low <= write_id <= high if shared else low == write_id == high):
        raise InvalidDefinition(
            f"transaction {txn.txn_id} reports {report.directory} of {table}, where it has the"
            f" write id {write_id}; report directories of this write id"
        )
    deletes = isinstance(name, DeltaName) and name.deletes
    changes = report.overwrite or report.operation.changes or deletes
    if changes and not any(component.operation.changes for component in cover):
        raise InvalidDefinition(
            f"transaction {txn.txn_id} reports {report.directory} of {table}, which changes rows,"
            " and its lock there is for INSERT; lock for UPDATE or DELETE"
        )


def _changed(state: State, txn: Txn, reports: Sequence[RowReport]) -> write_set.Changed:
    """The changed rows of each entity, where its table compares rows (P38).

    A table that was dropped, renamed or altered meanwhile is left out: a write of it was refused
    before, and an UPDATE that matched no row of it may commit. Raises MalformedRows.
    """
    changed: dict[tuple[int, str | None, RowOperation], RowSet] = {}
    for report in reports:
        try:
            table = unchanged(state, txn, report.table)
        except (NoSuchTable, DeclarationChanged):
            continue
        table_id, partition = table.record.table_id, report.partition
        if table.record.partitioned:
            partition = normal_partition(table, partition or "")
        if write_set.by_row(state, table_id) and report.operation is not RowOperation.OVERWRITE:
            changed[table_id, partition, report.operation] = report.rows.checked()
    return changed


def _looked(state: State, txn: Txn, contents: ops.CommitContents) -> Looked | None:
    """What the transaction looked for and inserted; None unless it did both (P51).

    A table that was dropped, renamed or altered meanwhile is left out, as in `_changed`. Raises
    MalformedRows.
    """

    def placed(reports: Sequence[RegionReport]) -> Iterator[InTable]:
        for table, count in Counter(report.table for report in reports).items():
            if count > MOST_REGIONS:
                raise MalformedRows(f"{count} regions of rows of {table}: {MOST_REGIONS} at most")
        for report in reports:
            region = report.region.checked()
            with suppress(NoSuchTable, DeclarationChanged):
                yield InTable(unchanged(state, txn, report.table).record.table_id, region)

    sought, inserted = tuple(placed(contents.sought)), tuple(placed(contents.inserted))
    if not sought or not inserted:
        return None
    return Looked(txn.txn_id, state.last_txn, sought, inserted)


def _rewritten(state: State, txn: Txn, rewritten: RewrittenTable) -> TableRecord:
    """The declaration that fits the files which the transaction has written again.

    Raises DeclarationChanged if others altered the table meanwhile, InvalidDefinition.
    """
    record = unchanged(state, txn, rewritten.table).record
    if record.version != rewritten.version:
        raise DeclarationChanged(
            f"{record.name} was altered while transaction {txn.txn_id} wrote its files again"
        )
    if not rewritten.rows or record.columns != rewritten.columns:  # changes lead over other rows
        record = replace(record, rewritten=state.tables[record.table_id].by_txn[txn.txn_id])
    record = replace(
        record.with_columns(rewritten.columns, dict(rewritten.renamed)),
        comments=rewritten.comments,
        properties=rewritten.properties,
    )
    check_columns(record.name, record)
    check_comments(record)
    check_constraints(record)
    before = state.tables[record.table_id].record.properties
    stated = {name: text for name, text in record.properties.items() if before.get(name) != text}
    table_properties.check(record.name, stated)
    return record


def _check_overwrites(state: State, txn: Txn, reported: Sequence[Reported]) -> None:
    """Refuses a transaction that overwrites an entity and writes it otherwise too (P6)."""
    for table_id, partition, report in reported:
        others = [report for key, name, report in reported if (key, name) == (table_id, partition)]
        if report.overwrite and len(others) > 1:
            raise OverwriteThenWrite(
                f"transaction {txn.txn_id} overwrites {state.name_of(table_id)} {partition or ''}"
                " and writes it besides, and the overwrite would hide the rest; commit between the"
                " two"
            )


@handles(ops.Drop)
def drop(turn: Turn, operation: ops.Drop) -> int:
    """The Cleaner removes the files under C41, but those of a foreign table stay (P22, P31).

    The drop of a partition allocates a write id: whoever sees it sees nothing at or below it.
    Raises NoSuchTable, NoSuchPartition, ForeignLocation, InvalidDefinition for a transaction with
    writes, and Terminal without the lock.
    """
    state, txn_id = turn.state, operation.txn
    txn = require_open(turn, txn_id)
    if state.components.get(txn_id) or txn.wrote:
        raise InvalidDefinition(f"transaction {txn_id} has writes; begin another to drop")
    table = state.table(operation.name)
    partition = operation.partition
    if partition is not None:
        refuse_foreign(table, "DROP PARTITION")
        partition = normal_partition(table, partition)
        if partition not in table.partitions:
            raise NoSuchPartition(f"{table.record.name} has no partition {partition}")
    held = [
        component
        for ext in state.locks_by_txn.get(txn_id, [])
        if state.locks[ext].acquired
        for component in state.locks[ext].components
    ]
    if not any(
        f"{component.db}.{component.table}" == table.record.name
        and component.lock is LockType.EXCLUSIVE
        and component.partition in (None, partition)
        for component in held
    ):
        raise Terminal(f"transaction {txn_id} drops {table.record.name} without EXCLUSIVE lock")
    if partition is not None:
        turn.record(WriteIdAllocated(txn_id, table.record.table_id, table.next_write_id, needs=()))
    elif operation.purge:
        properties = {**table.record.properties, HISTORY_RETENTION.name: "0s"}
        turn.record(TableAltered(replace(table.record, properties=properties)))
    unsettled = partition is None and any(
        component.operation is RowOperation.COMPACT and component.table_id == table.record.table_id
        for components in state.components.values()
        for component in components
    )
    row = DropTask(
        id=state.next_compaction,
        table=table.record.name,
        table_id=table.record.table_id,
        partition=partition,
        state=CompactionState.READY_FOR_CLEANING,
        location=table.record.place_of(partition),
        enqueued=turn.now,
        txn_id=txn_id,
        next_txn_id=state.next_txn,
        highest_write_id=table.last_write_id,
        commit_time=turn.now,
        error="an aborted compaction had left files at its drop" if unsettled else "",
    )
    turn.record(Dropped(row, state.last_txn))
    return finish(turn, txn, CheckedCommit())


class Dropped(Event, kind="dropped"):
    """Drops a table or partition; `row` is the Cleaner's task (P22)."""

    row: DropTask
    commit_id: int

    def apply(self, state: State, _at: int) -> None:
        row = self.row
        table, location = state.tables[row.table_id], row.location
        if not table.record.foreign:
            state.locations[location] = max(state.locations.get(location, 0), row.highest_write_id)
        if row.partition is None:
            del state.tables[row.table_id], state.names[table.record.name]
            state.occupied.remove(table.record.location, row.table_id)
            for key, cursor in state.cursors.items():
                if key[1] == row.table_id:  # another table of this name has other changes (P55)
                    name = cursor.table or table.record.name
                    state.cursors[key] = replace(cursor, table=name)
            state.dropped_tables[row.table_id] = table
            table.dropped = state.moment()
            write_set.forget_table(state, row.table_id)
            forget_publications(state, row.table_id)
        else:
            # If it is created again it sees nothing older; a writer with an older write id must
            # conflict.
            former = table.partitions.pop(row.partition)
            table.dropped_partitions.append(replace(former, dropped=state.moment()))
            table.floors[row.partition] = (*former.floors, row.highest_write_id)
            overwritten = (RowOperation.OVERWRITE, row.txn_id, self.commit_id, row.highest_write_id)
            write_set.put_drop(state, WriteSetRow(row.table_id, row.partition, *overwritten))

        def gone(entity: Entity) -> bool:
            return entity[0] == row.table_id and row.partition in (None, entity[1])

        for entity in list(filter(gone, state.directories)):
            # Snapshots that are older than the drop need them until they end (P28).
            dropped = state.dropped_directories.setdefault(entity, {})
            dropped.update(state.directories.pop(entity))
        state.past = {key: past for key, past in state.past.items() if not gone(key)}
        state.past_drops = {key: past for key, past in state.past_drops.items() if not gone(key)}
        state.queue = {
            key: task
            for key, task in state.queue.items()
            if isinstance(task, DropTask) or not gone(task.entity)
        }
        for txn_id, components in state.components.items():
            state.components[txn_id] = [
                component
                for component in components
                if not gone(component.entity)
                or (row.partition is not None and component.operation is RowOperation.COMPACT)
            ]
        state.next_compaction = row.id + 1
        if not table.record.foreign:  # otherwise its files stay, whoever owns them (P31)
            state.queue[row.id] = row
            since = {**state.timers.row_since, row.id: state.timers.now}
            state.timers.row_since = {
                key: moment for key, moment in since.items() if key in state.queue
            }
