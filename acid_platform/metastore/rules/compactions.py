"""What a Worker does with a compaction that it took, until it ends (C28 to C32, P21), and how long
it stays in the history (C57); requests to erase rows, which compactions fulfil: nothing here erases
anything.

While the output of a compaction comes into place, no other engine reads (P46): it would see a
compacted directory as soon as it is there, since Trino ignores the `_v…` of its name. So a Worker
asks for the publication first. That is a lock of its own kind, PUBLICATION: it waits for the locks
that other engines hold on the entity, and they wait for it. Our own readers read what commits
recorded, and have nothing to do with it. A commit ends the publication. If the compaction is
aborted instead, part of its output may be in place, so the lock stays until somebody has removed
it: the Worker itself, or the Cleaner.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import field, replace
from typing import TypeVar

from acid_platform.compaction.states import CompactionKind, CompactionState
from acid_platform.errors import AcidError, CompactionLost, InvalidDefinition
from acid_platform.metastore import operations as ops
from acid_platform.metastore.operations.compaction import (
    CompactionTask,
    DropTask,
    ErasureTask,
    QueuedTask,
    Unpublication,
)
from acid_platform.metastore.records import LockRequest, RecordedDirectory
from acid_platform.metastore.rules import locking, snapshots
from acid_platform.metastore.rules.locking import LockRemoved
from acid_platform.metastore.rules.snapshots import compactor_list, snapshot
from acid_platform.metastore.rules.state import Component, Entity, LockEntry, State, Txn
from acid_platform.metastore.rules.turn import Event, Past, Turn, handles
from acid_platform.metastore.rules.txns import end, granted, open_txn, require_open
from acid_platform.metastore.rules.write_set import Aborted, close_txn, place_directory
from acid_platform.transactions import RowOperation, TxnState, TxnType, ValidTxnList
from acid_platform.transactions.concurrency import LockComponent, LockType
from acid_platform.transactions.ids import BRIEF

_W, _R = CompactionState.WORKING, CompactionState.READY_FOR_CLEANING


def owned(state: State, operation: ops.Owned) -> CompactionTask:
    """The row, if this attempt of this worker still owns it. Raises CompactionLost (P21)."""
    row = state.queue.get(operation.id)
    now = "gone"
    if isinstance(row, CompactionTask):
        owner = (operation.worker, operation.attempt)
        if row.state is _W and (row.worker, row.attempt) == owner:
            return row
        now = f"{row.state.text} (worker {row.worker or 'none'})"
    raise CompactionLost(
        f"compaction {operation.id} no longer belongs to attempt {operation.attempt} of"
        f" {operation.worker}: it is {now}; drop the output"
    )


@handles(ops.BeginCompaction)
def begin(turn: Turn, operation: ops.BeginCompaction) -> ops.CompactionTicket:
    """Raises CompactionLost, and LockNotAcquired if the entity was locked EXCLUSIVE since it was
    taken: the Worker then puts the task back."""
    row = owned(turn.state, operation)
    if row.txn_id in turn.state.txns and turn.state.txns[row.txn_id].is_open:
        raise CompactionLost(f"compaction {row.id} has transaction {row.txn_id} open already")
    txn = open_txn(turn, TxnType.COMPACTION, operation.info, False)
    name = turn.state.name_of(row.table_id)
    wish = LockRequest(name, LockType.SHARED_READ, RowOperation.COMPACT, row.partition)
    try:
        locking.enqueue(turn, txn, (wish,), 0, True, begun=False)
    except AcidError as error:
        turn.record(Aborted(txn=txn.txn_id, reason=str(error)))
        raise
    ext = turn.state.next_lock - 1
    table, opened = turn.state.tables[row.table_id], turn.state.txns[txn.txn_id]
    high = compactor_list(turn.state, table, snapshot(turn.state, opened)).high_watermark
    turn.record(CompactionBegun(id=row.id, txn=txn.txn_id, highest=high))
    return ops.CompactionTicket(txn.txn_id, ext, row.id)


def begun(state: State, past: Past, ticket: ops.CompactionTicket) -> ops.CompactionGranted:
    """What the Worker receives.

    Its own transaction counts as open: an earlier output of the same transaction must not become an
    input. Raises TxnAborted if the transaction has ended.
    """
    answer = granted(state, past, ticket)
    row = state.compaction(ticket.id)
    txns = answer.valid_txns
    own = ValidTxnList.of(txns.high_watermark, {*txns.open, ticket.txn}, txns.aborted)
    merged = compactor_list(state, state.tables[row.table_id], txns)
    return ops.CompactionGranted(replace(answer, valid_txns=own), merged, row)


def _running(
    turn: Turn, operation: ops.CommitCompaction | ops.EndCompaction | ops.RequestPublication
) -> tuple[CompactionTask, Txn]:
    """The row, and its open transaction. Raises CompactionLost, TxnAborted."""
    row, txn = owned(turn.state, operation), require_open(turn, operation.txn)
    if row.txn_id != txn.txn_id:
        raise CompactionLost(f"compaction {row.id} runs in transaction {row.txn_id} now")
    return row, txn


@handles(ops.CommitCompaction)
def commit(turn: Turn, operation: ops.CommitCompaction) -> int:
    """Raises CompactionLost or TxnAborted; then nothing has changed, and the output has to be
    dropped."""
    row, txn = _running(turn, operation)
    # Compared by the name that it locked: a client may have renamed the table since.
    if any(
        (txn.needs.get(write.table), write.partition) != row.entity for write in operation.writes
    ):
        raise InvalidDefinition(f"compaction {row.id} may only report {row.table} {row.partition}")
    directories = tuple(RecordedDirectory.of(report, txn.txn_id) for report in operation.writes)
    _finish(turn, row, _R, directories, "")
    return turn.state.last_txn


@handles(ops.EndCompaction)
def nothing_to_do(turn: Turn, operation: ops.EndCompaction) -> None:
    """Raises CompactionLost, TxnAborted."""
    row, _ = _running(turn, operation)
    state = _R if operation.to_cleaning else CompactionState.REFUSED
    _finish(turn, row, state, (), operation.reason, operation.again)


def _finish(
    turn: Turn,
    row: CompactionTask,
    state: CompactionState,
    directories: tuple[RecordedDirectory, ...],
    error: str,
    again: bool = False,
) -> None:
    turn.record(
        CompactionCommitted(
            id=row.id,
            txn=row.txn_id,
            state=state,
            directories=directories,
            commit_id=turn.state.last_txn,
            next_txn=turn.state.next_txn,
            error=error,
            again=again,
        )
    )


@handles(ops.FailCompaction)
def fail(turn: Turn, operation: ops.FailCompaction) -> None:
    """Raises CompactionLost."""
    txn = turn.state.txns.get(operation.txn or 0)
    if txn is not None and txn.is_open and txn.kind is TxnType.COMPACTION:
        end(turn, txn.txn_id, f"compaction failed: {operation.error}")
    row = owned(turn.state, operation)
    if operation.again:
        turn.record(CompactionRevoked(id=row.id))
        return
    turn.record(CompactionEnded(id=row.id, state=CompactionState.FAILED, error=operation.error))


# --- events -------------------------------------------------------------------------------------


class CompactionBegun(Event, kind="compacting"):
    """`highest`: the highest write id that it may merge."""

    id: int
    txn: int
    highest: int

    def apply(self, state: State, _at: int) -> None:
        row = state.compaction(self.id)
        state.queue[row.id] = replace(row, txn_id=self.txn, highest_write_id=self.highest)
        state.components[self.txn] = [
            Component(self.txn, row.table_id, row.partition, RowOperation.COMPACT, self.highest)
        ]


class CompactionCommitted(Event, kind="compacted"):
    id: int
    txn: int
    state: CompactionState
    directories: tuple[RecordedDirectory, ...]
    commit_id: int
    next_txn: int
    error: str
    again: bool = field(default=False, metadata=BRIEF)

    def apply(self, state: State, at: int) -> None:
        row = state.compaction(self.id)
        for recorded in self.directories:
            place_directory(state, row.entity, recorded)
        state.components.pop(self.txn, None)
        moment = close_txn(state, at, self.txn, TxnState.COMMITTED, "", self.commit_id)
        if row.table_id in state.tables:
            snapshots.note_commit(state, state.tables[row.table_id], moment, at, txn=self.txn)
        if self.again:
            state.changed[row.entity] = state.next_moment
        ended = replace(
            row,
            state=self.state,
            worker="",
            commit_time=at,
            next_txn_id=self.next_txn,
            error=self.error,
        )
        if ended.state is _R:
            state.queue[row.id] = ended
            state.timers.row_since[row.id] = state.timers.now
        else:
            to_history(state, replace(ended, worker=row.worker, ended=at))


class CompactionEnded(Event, kind="compaction_ended"):
    id: int
    state: CompactionState
    error: str

    def apply(self, state: State, at: int) -> None:
        row = state.compaction(self.id)
        to_history(state, replace(row, state=self.state, error=self.error, ended=at))


class CompactionRevoked(Event, kind="revoked"):
    id: int

    def apply(self, state: State, _at: int) -> None:
        row = state.compaction(self.id)
        state.queue[row.id] = replace(
            row, state=CompactionState.INITIATED, worker="", started=0, txn_id=0
        )


@handles(ops.RequestPublication)
def publish(turn: Turn, operation: ops.RequestPublication) -> ops.Ticket:
    """Raises Parked while other engines hold locks on the entity, LockTimeout if it may not wait,
    CompactionLost (P21) and TxnAborted."""
    row, txn = _running(turn, operation)
    locking.stand_in_line(turn, _entry(turn, row, operation), ())
    return ops.Ticket(txn.txn_id, turn.state.next_lock - 1)


def _entry(turn: Turn, row: CompactionTask, operation: ops.RequestPublication) -> LockEntry:
    name = turn.state.name_of(row.table_id)
    database, _, table = name.partition(".")
    component = LockComponent(
        database,
        table,
        row.partition,
        LockType.PUBLICATION,
        RowOperation.COMPACT,
        directories=operation.directories,
    )
    return LockEntry(
        ext=turn.state.next_lock,
        txn_id=operation.txn,
        acquired=False,
        components=(component,),
        touches=(),
        request_id=turn.request_id,
        begun=False,
        requested=turn.now,
        deadline=turn.now + round(operation.wait * 1000),
        tables={name: row.table_id},
    )


@handles(ops.EndPublication)
def ended(turn: Turn, operation: ops.EndPublication) -> None:
    """A publication that has ended already is no error. Raises InvalidDefinition for another lock,
    and for the publication of a compaction that goes on."""
    entry = turn.state.locks.get(operation.ext)
    if entry is None:
        return
    txn = turn.state.txns.get(entry.txn_id)
    if not entry.publishes or (txn is not None and txn.is_open):
        raise InvalidDefinition(
            f"lock {entry.ext} of transaction {entry.txn_id} is no publication of an aborted"
            " compaction; nothing was changed"
        )
    turn.record(LockRemoved(ext=entry.ext))


@handles(ops.GetUnpublished)
def unpublished(turn: Turn, _operation: ops.GetUnpublished) -> list[Unpublication]:
    """Its removal waits for nobody: no reader of ours needs it. A name that a commit recorded
    belongs to another compaction of a table with the layout hive3."""
    state = turn.state
    tasks = []
    for entry in state.locks.values():
        txn = state.txns.get(entry.txn_id)
        if not entry.publishes or not entry.acquired or (txn is not None and txn.is_open):
            continue
        (component,) = entry.components
        (table_id,) = entry.tables.values()
        table, partition = state.tables[table_id].record, component.partition
        recorded = state.directories.get((table_id, partition), {})
        if not table.foreign:
            tasks.append(
                Unpublication(
                    table=table.name,
                    table_id=table_id,
                    partition=partition,
                    location=table.place_of(partition),
                    txn_id=entry.txn_id,
                    directories=tuple(
                        name for name in component.directories if name not in recorded
                    ),
                    lock=entry.ext,
                )
            )
    return tasks


# --- the history ----------------------------------------------------------------------------------


def to_history(state: State, row: QueuedTask) -> None:
    state.queue.pop(row.id, None)
    state.timers.row_since.pop(row.id, None)
    state.timers.retry_row.pop(row.id, None)
    if isinstance(row, CompactionTask):
        state.past.setdefault(row.entity, []).append(row)
    else:
        state.past_drops.setdefault(row.entity, []).append(row)


_KEPT = {
    CompactionState.SUCCEEDED: "succeeded",
    CompactionState.FAILED: "failed",
    CompactionState.REFUSED: "refused",
    CompactionState.DID_NOT_INITIATE: "did.not.initiate",
    CompactionState.ABORTED: "did.not.initiate",
}


def purge_history(turn: Turn) -> None:
    if any(True for _ in _surplus(turn.state, turn.now)):
        turn.record(HistoryPurged())


def _surplus(state: State, now: int) -> Iterator[QueuedTask]:
    """History rows to delete: beyond the newest of their state, or older than a success (C57)."""
    settings = state.settings
    oldest = now - settings.integer("hive.compactor.history.retention.timeout")
    keep = {
        compaction_state: settings.integer(f"hive.compactor.history.retention.{name}")
        for compaction_state, name in _KEPT.items()
    }
    least = settings.integer("hive.compactor.initiator.failed.compacts.threshold")
    keep[CompactionState.FAILED] = max(keep[CompactionState.FAILED], least)
    past: Iterable[tuple[Entity, Sequence[QueuedTask]]]
    past = (*state.past.items(), *state.past_drops.items())
    for (table_id, _), rows in past:
        counts = dict.fromkeys(CompactionState, 0)
        later: set[CompactionKind] = set()
        for row in reversed(rows):
            kind = row.kind if isinstance(row, CompactionTask) else CompactionKind.MAJOR
            counts[row.state] += 1
            outdated = row.state is not CompactionState.SUCCEEDED and (
                CompactionKind.MAJOR in later or kind in later
            )
            if counts[row.state] > keep[row.state] or (
                row.ended < oldest and (outdated or table_id not in state.tables)
            ):
                yield row
            if row.state is CompactionState.SUCCEEDED:
                later.add(kind)


class HistoryPurged(Event, kind="history_purged"):
    def apply(self, state: State, at: int) -> None:
        gone = {row.id for row in _surplus(state, at)}
        state.past = _without(state.past, gone)
        state.past_drops = _without(state.past_drops, gone)


_Row = TypeVar("_Row", CompactionTask, DropTask)


def _without(past: dict[Entity, list[_Row]], gone: Container[int]) -> dict[Entity, list[_Row]]:
    left = {entity: [row for row in rows if row.id not in gone] for entity, rows in past.items()}
    return {entity: rows for entity, rows in left.items() if rows}


# --- requests to erase ----------------------------------------------------------------------------


@handles(ops.RequestErasure)
def request_erasure(turn: Turn, operation: ops.RequestErasure) -> int:
    """An equal request that is still open keeps its id. Raises NoSuchTable."""
    state = turn.state
    table = state.table(operation.table).record.name
    for erasure in state.erasures.values():
        if erasure.state.open and (erasure.table, erasure.condition) == (
            table,
            operation.condition,
        ):
            return erasure.id
    task = ErasureTask(
        len(state.erasures) + 1, table, operation.condition, operation.user, turn.now
    )
    turn.record(ErasureRecorded(task))
    return task.id


@handles(ops.AnswerErasure)
def answer_erasure(turn: Turn, operation: ops.AnswerErasure) -> None:
    """Raises InvalidDefinition for a request that is unknown or no longer open."""
    task = turn.state.erasures.get(operation.id)
    if task is None or not task.state.open:
        raise InvalidDefinition(
            f"erasure request {operation.id} is "
            + (task.state.value if task else "not there")
            + "; `acid show erasures` lists them"
        )
    turn.record(
        ErasureRecorded(
            replace(
                task,
                state=operation.state,
                answer=operation.answer,
                answered=turn.now,
                run_id=operation.run_id,
                waits_for=operation.waits_for,
                waits=task.waits + bool(operation.waits_for),
            )
        )
    )


@handles(ops.GetErasures)
def erasures(turn: Turn, _operation: ops.GetErasures) -> list[ErasureTask]:
    return list(turn.state.erasures.values())


class ErasureRecorded(Event, kind="erasure"):
    erasure: ErasureTask

    def apply(self, state: State, _at: int) -> None:
        state.erasures[self.erasure.id] = self.erasure
