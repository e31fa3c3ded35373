"""What the end of a transaction changes: its commit, its abort, the directories that it places."""

from __future__ import annotations

from dataclasses import field, replace
from typing import NamedTuple

from acid_platform.metastore.pasts import Cursor, Sink
from acid_platform.metastore.records import HistoryRow, RecordedDirectory
from acid_platform.metastore.rules import kept_history, lock_index, write_set
from acid_platform.metastore.rules.state import Departed, Ended, Entity, State
from acid_platform.metastore.rules.table_declarations import register_partitions
from acid_platform.metastore.rules.turn import Event
from acid_platform.scan.selection import shadows
from acid_platform.transactions import RowOperation, TxnState, TxnType
from acid_platform.transactions.concurrency import Looked, WriteSetRow
from acid_platform.transactions.ids import BRIEF


class Placed(NamedTuple):
    table_id: int
    partition: str | None
    recorded: RecordedDirectory


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
            write_set.add(state, change)
        for table_id, partition, recorded in self.placed:
            if partition is not None:
                register_partitions(state, state.tables[table_id], [partition])
            place(state, (table_id, partition), recorded)
        for row in self.written:
            state.written.append(row)
            if row.operation is RowOperation.INSERT and not row.overwrite:
                # Not in `write_set`, since the log has all of it in `written`.
                inserted = (row.operation, txn_id, self.commit_id, row.write_id)
                write_set.add(state, WriteSetRow(row.table_id, row.partition, *inserted))
        if self.looked is not None:
            write_set.add_looked(state, self.looked)
        for cursor in self.cursors:
            state.cursors[cursor.consumer, cursor.table_id] = cursor
        for sink in self.sinks:
            state.sinks[sink.sink, sink.table_id] = sink
        state.components.pop(txn_id, None)
        wrote = state.txns[txn_id].wrote
        moment = close(state, at, txn_id, TxnState.COMMITTED, "", self.commit_id)
        for table_id in wrote:
            if table_id in state.tables:
                table = state.tables[table_id]
                rewrite = table_id in self.rewrote
                kept_history.note(
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
        close(state, at, txn.txn_id, TxnState.ABORTED, self.reason, 0)


def close(
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
            lock_index.remove_lock(state, ext)
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


def place(state: State, entity: Entity, recorded: RecordedDirectory) -> None:
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
