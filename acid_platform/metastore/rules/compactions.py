"""What a Worker does with a compaction that it took, until it ends (C28 to C32, P21)."""

from __future__ import annotations

from dataclasses import replace

from acid_platform.compaction.states import CompactionState
from acid_platform.errors import AcidError, CompactionLost, InvalidDefinition
from acid_platform.metastore.operations.compaction import (
    BeginCompaction,
    CommitCompaction,
    CompactionDone,
    CompactionGranted,
    CompactionTicket,
    EndCompaction,
    FailCompaction,
    Owned,
)
from acid_platform.metastore.records import CompactionTask, EntityDirectory, LockRequest, QueuedTask
from acid_platform.metastore.rules import events, kept_history, locking
from acid_platform.metastore.rules.commits import close, end, place
from acid_platform.metastore.rules.snapshots import compactor_list, snapshot
from acid_platform.metastore.rules.state import Component, Entity, State
from acid_platform.metastore.rules.turn import Effects, Handlers, Past, Turn
from acid_platform.metastore.rules.txns import granted, open_txn, require_open
from acid_platform.transactions import RowOperation, TxnState, TxnType, ValidTxnList
from acid_platform.transactions.locks import LockType

_W, _R = CompactionState.WORKING, CompactionState.READY_FOR_CLEANING


def entity_of(row: QueuedTask) -> Entity:
    return row.table_id, row.partition


def owned(state: State, operation: Owned) -> CompactionTask:
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


def begin(turn: Turn, operation: BeginCompaction) -> CompactionTicket:
    """Opens the COMPACTION transaction with its lock and lists (C28).

    Raises CompactionLost, and LockNotAcquired if the entity was locked EXCLUSIVE since it was
    taken: the Worker then puts the task back.
    """
    row = owned(turn.state, operation)
    if row.txn_id in turn.state.txns and turn.state.txns[row.txn_id].is_open:
        raise CompactionLost(f"compaction {row.id} has transaction {row.txn_id} open already")
    txn = open_txn(turn, TxnType.COMPACTION, operation.info, False)
    name = turn.state.name_of(row.table_id)
    wish = LockRequest(name, LockType.SHARED_READ, RowOperation.COMPACT, row.partition)
    try:
        locking.enqueue(turn, txn, (wish,), 0, True, begun=False)
    except AcidError as error:
        turn.record(events.Aborted(txn=txn.txn_id, reason=str(error)))
        raise
    ext = turn.state.next_lock - 1
    table, opened = turn.state.tables[row.table_id], turn.state.txns[txn.txn_id]
    high = compactor_list(turn.state, table, snapshot(turn.state, opened)).high_watermark
    turn.record(events.CompactionBegun(id=row.id, txn=txn.txn_id, highest=high))
    return CompactionTicket(txn.txn_id, ext, row.id)


def begun(state: State, past: Past, ticket: CompactionTicket) -> CompactionGranted:
    """What the Worker receives.

    Its own transaction counts as open: an earlier output of the same transaction must not become an
    input. Raises TxnAborted if the transaction has ended.
    """
    answer = granted(state, past, ticket)
    row = state.compaction(ticket.id)
    seen = answer.valid_txns
    return CompactionGranted(
        answer.txn,
        ValidTxnList.of(seen.high_watermark, {*seen.open, ticket.txn}, seen.aborted),
        answer.write_ids,
        answer.lists,
        answer.stale,
        answer.lost_overwrite,
        answer.interval,
        answer.set,
        compactor_list(state, state.tables[row.table_id], seen),
        row,
    )


def commit(turn: Turn, operation: CommitCompaction) -> CompactionDone:
    """Publishes the result, makes the row ready for cleaning and commits, all at once (C30, P21).

    Raises CompactionLost or TxnAborted; then nothing has changed, and the output has to be dropped.
    """
    row = owned(turn.state, operation)
    txn = require_open(turn, operation.txn)
    if row.txn_id != txn.txn_id:
        raise CompactionLost(f"compaction {row.id} runs in transaction {row.txn_id} now")
    # Compared by the name that it locked: a client may have renamed the table since.
    if any(
        (txn.needs.get(write.table), write.partition) != (row.table_id, row.partition)
        for write in operation.writes
    ):
        raise InvalidDefinition(f"compaction {row.id} may only report {row.table} {row.partition}")
    directories = tuple(
        events.DirectoryFiles(EntityDirectory.of(report, txn.txn_id), str(report.contents))
        for report in operation.writes
    )
    _finish(turn, row, _R, directories, "")
    return CompactionDone(row.id, turn.state.last_txn)


def nothing_to_do(turn: Turn, operation: EndCompaction) -> None:
    """Ends a task that wrote nothing: ready for cleaning, or refused. Commits (C29)."""
    row = owned(turn.state, operation)
    require_open(turn, operation.txn)
    state = _R if operation.to_cleaning else CompactionState.REFUSED
    _finish(turn, row, state, (), operation.reason, operation.again)


def _finish(
    turn: Turn,
    row: CompactionTask,
    state: CompactionState,
    directories: tuple[events.DirectoryFiles, ...],
    error: str,
    again: bool = False,
) -> None:
    turn.record(
        events.CompactionCommitted(
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


def fail(turn: Turn, operation: FailCompaction) -> None:
    """Marks the task as failed, or puts it back, and aborts its transaction (C32).

    Raises CompactionLost.
    """
    txn = turn.state.txns.get(operation.txn or 0)
    if txn is not None and txn.is_open and txn.kind is TxnType.COMPACTION:
        end(turn, txn.txn_id, f"compaction failed: {operation.error}")
    row = owned(turn.state, operation)
    if operation.again:
        turn.record(events.CompactionRevoked(id=row.id))
        return
    turn.record(
        events.CompactionEnded(id=row.id, state=CompactionState.FAILED, error=operation.error)
    )


# --- effects ------------------------------------------------------------------------------------


def _compacting(state: State, _at: int, event: events.CompactionBegun) -> None:
    row = state.compaction(event.id)
    state.queue[row.id] = replace(row, txn_id=event.txn, highest_write_id=event.highest)
    state.components[event.txn] = [
        Component(event.txn, row.table_id, row.partition, RowOperation.COMPACT, event.highest)
    ]


def _compacted(state: State, at: int, event: events.CompactionCommitted) -> None:
    row = state.compaction(event.id)
    for directory, contents in event.directories:
        place(state, at, entity_of(row), directory, contents)
    state.components.pop(event.txn, None)
    moment = close(state, at, event.txn, TxnState.COMMITTED, "", event.commit_id)
    if row.table_id in state.tables:
        kept_history.note(state, state.tables[row.table_id], moment, at, txn=event.txn)
    if event.again:
        state.changed[entity_of(row)] = state.next_moment
    done = replace(
        row,
        state=event.state,
        worker="",
        commit_time=at,
        next_txn_id=event.next_txn,
        error=event.error,
    )
    if done.state is _R:
        state.queue[row.id] = done
        state.timers.row_since[row.id] = state.timers.now
    else:
        to_history(state, replace(done, worker=row.worker, ended=at))


def to_history(state: State, row: QueuedTask) -> None:
    state.queue.pop(row.id, None)
    state.timers.row_since.pop(row.id, None)
    state.timers.retry_row.pop(row.id, None)
    if isinstance(row, CompactionTask):
        state.past.setdefault(entity_of(row), []).append(row)
    else:
        state.past_drops.setdefault(entity_of(row), []).append(row)


def _compaction_ended(state: State, at: int, event: events.CompactionEnded) -> None:
    row = state.compaction(event.id)
    to_history(state, replace(row, state=event.state, error=event.error, ended=at))


APPLY: Effects = {
    events.CompactionBegun: _compacting,
    events.CompactionCommitted: _compacted,
    events.CompactionEnded: _compaction_ended,
}

HANDLERS: Handlers = {
    BeginCompaction: begin,
    CommitCompaction: commit,
    EndCompaction: nothing_to_do,
    FailCompaction: fail,
}
