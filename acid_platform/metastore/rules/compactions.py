"""The compaction queue from request to commit (C24 to C33, C58 to C61, P21)."""

from __future__ import annotations

from dataclasses import replace

from acid_platform.compaction.states import CompactionKind, CompactionState
from acid_platform.errors import (
    AcidError,
    AlreadyScheduled,
    CompactionLost,
    CompactionRefused,
    InvalidDefinition,
    NoSuchPartition,
)
from acid_platform.metastore.operations.compaction import (
    AbortCompactions,
    BeginCompaction,
    CommitCompaction,
    CompactionBegun,
    CompactionCommitted,
    CompactionTicket,
    EndCompaction,
    FailCompaction,
    Owned,
    RecordNotInitiated,
    RequestCompaction,
    RequestCompactions,
    RevokeWorkers,
    TakeCompaction,
    Wished,
)
from acid_platform.metastore.records import (
    CompactionTask,
    DropTask,
    EntityDirectory,
    LockRequest,
)
from acid_platform.metastore.rules import events, locking
from acid_platform.metastore.rules.commits import close, end, place
from acid_platform.metastore.rules.foreign import refuse_foreign
from acid_platform.metastore.rules.snapshots import compactor_list, snapshot, txn_list
from acid_platform.metastore.rules.state import Component, Entity, State, Table
from acid_platform.metastore.rules.tables import being_cleaned, normal_partition
from acid_platform.metastore.rules.turn import Effects, Handlers, Turn
from acid_platform.metastore.rules.txns import granted, open_txn, require_open
from acid_platform.transactions import Operation, TxnState, TxnType, ValidTxnList
from acid_platform.transactions.locks import LockType

_I, _W, _R = (
    CompactionState.INITIATED,
    CompactionState.WORKING,
    CompactionState.READY_FOR_CLEANING,
)


def entity_of(row: CompactionTask) -> Entity:
    return row.table_id, row.partition


Queued = dict[Entity, list[CompactionTask]]


def queued(state: State) -> Queued:
    """Rows of the queue by their entity, without those of dropped tables and partitions."""
    found: Queued = {}
    for row in state.queue.values():
        if not isinstance(row, DropTask):
            found.setdefault(entity_of(row), []).append(row)
    return found


# --- request, take ------------------------------------------------------------------------------


def request(turn: Turn, operation: RequestCompaction) -> int:
    """A partitioned table without a partition means what an aborted dynamic write left in unknown
    partitions: that row is ready for cleaning at once (C33).

    Raises AlreadyScheduled naming the row, CompactionRefused, ForeignLocation, NoSuchTable,
    NoSuchPartition.
    """
    return _enqueue(turn, operation, queued(turn.state), txn_list(turn.state))


def request_many(turn: Turn, operation: RequestCompactions) -> list[Wished]:
    """`request` for each wish of an Initiator, all durable at once: an id or an error each."""
    waiting, txns = queued(turn.state), txn_list(turn.state)
    answers = []
    for wish in operation.wishes:
        asked = RequestCompaction(
            wish.table, wish.partition, wish.kind, initiator=operation.initiator
        )
        try:
            answers.append(Wished(id=_enqueue(turn, asked, waiting, txns)))
        except AcidError as error:
            answers.append(Wished(error=(type(error).__name__, str(error))))
    return answers


def _enqueue(turn: Turn, operation: RequestCompaction, waiting: Queued, txns: ValidTxnList) -> int:
    """The id of the new row, which `waiting` has from then on."""
    table = turn.state.table(operation.table)
    refuse_foreign(table, "compaction")
    partition = operation.partition
    unknown = partition is None and _aborted_dynamic(turn.state, table)
    if not unknown and (partition is not None or table.record.partitioned):
        partition = normal_partition(table, partition or "")
        if partition not in table.partitions:
            raise NoSuchPartition(f"{table.record.name} has no partition {partition}")
    entity = (table.record.table_id, partition)
    name = f"{table.record.name} {partition or ''}".rstrip()
    high = (
        table.last_write_id if unknown else compactor_list(turn.state, table, txns).high_watermark
    )
    for row in waiting.get(entity, ()):
        if row.state is not _R or row.highest_write_id == high:
            nothing = " and nothing was written since" if row.state is _R else ""
            raise AlreadyScheduled(
                f"compaction {row.id} of {name} is {row.state.text}{nothing}; wait for it"
            )
    kinds = {kind.value: kind for kind in CompactionKind}
    kind = kinds.get(operation.kind.lower())
    if kind is None:
        raise CompactionRefused(
            f"{name}: {operation.kind!r} is no kind of compaction here; use major or minor"
        )
    row = CompactionTask(
        turn.state.next_compaction,
        table.record.name,
        table.record.table_id,
        partition,
        kind,
        _I,
        operation.properties,
        operation.initiator,
        turn.now,
    )
    if unknown:
        row = replace(
            row,
            state=_R,
            highest_write_id=high,
            commit_time=turn.now,
            next_txn_id=turn.state.next_txn,
        )
    turn.record(events.CompactionQueued(row))
    waiting.setdefault(entity, []).append(row)
    return row.id


def _aborted_dynamic(state: State, table: Table) -> bool:
    entity = (table.record.table_id, None)
    return table.record.partitioned and any(
        (component.table_id, component.partition) == entity and not component.cleaned
        for txn in state.aborted_txns()
        for component in state.components.get(txn.txn_id, ())
    )


def take(turn: Turn, operation: TakeCompaction) -> CompactionTask | None:
    """The first initiated row whose entity is not being compacted or cleaned (C26, P21)."""
    state = turn.state
    busy = {entity_of(row) for row in state.queue.values() if row.state is _W}
    for row in sorted(state.queue.values(), key=lambda queued: queued.id):
        entity = entity_of(row)
        table = state.tables.get(row.table_id)
        if table is not None and table.record.foreign:
            continue
        free = entity not in busy and not being_cleaned(state, entity)
        if row.state is _I and free and operation.table in (None, row.table):
            turn.record(events.CompactionTaken(id=row.id, worker=operation.worker))
            return state.queue[row.id]
    return None


def owned(state: State, operation: Owned) -> CompactionTask:
    """The row, if this attempt of this worker still owns it. Raises CompactionLost (P21)."""
    row = state.queue.get(operation.id)
    owner = (operation.worker, operation.attempt)
    if row is None or row.state is not _W or (row.worker, row.attempt) != owner:
        now = "gone" if row is None else f"{row.state.text} (worker {row.worker or 'none'})"
        raise CompactionLost(
            f"compaction {operation.id} no longer belongs to attempt {operation.attempt} of"
            f" {operation.worker}: it is {now}; drop the output"
        )
    return row


# --- work ---------------------------------------------------------------------------------------


def begin(turn: Turn, operation: BeginCompaction) -> CompactionTicket:
    """Opens the COMPACTION transaction with its lock and lists (C28).

    Raises CompactionLost, and LockNotAcquired if the entity is locked EXCLUSIVE: the Worker then
    fails the task.
    """
    row = owned(turn.state, operation)
    if row.txn_id in turn.state.txns and turn.state.txns[row.txn_id].is_open:
        raise CompactionLost(f"compaction {row.id} has transaction {row.txn_id} open already")
    txn = open_txn(turn, TxnType.COMPACTION, operation.info, False)
    name = turn.state.name_of(row.table_id)
    wish = LockRequest(name, LockType.SHARED_READ, Operation.COMPACT, row.partition)
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


def begun(state: State, ticket: CompactionTicket) -> CompactionBegun:
    """What the Worker learns. Its own transaction counts as open: an earlier output of the same
    transaction must not be taken for input. Raises NoSuchTxn if the transaction has ended."""
    answer = granted(state, ticket)
    row = state.queue[ticket.id]
    seen = answer.valid_txns
    return CompactionBegun(
        answer.txn,
        ValidTxnList.of(seen.high_watermark, {*seen.open, ticket.txn}, seen.aborted),
        answer.write_ids,
        answer.lists,
        answer.stale,
        answer.lost_overwrite,
        answer.interval,
        compactor_list(state, state.tables[row.table_id], seen),
        row,
    )


def commit(turn: Turn, operation: CommitCompaction) -> CompactionCommitted:
    """Publishes the result, frees the row for cleaning and commits, all at once (C30, P21).

    Raises CompactionLost, TxnAborted; then nothing changed and the output has to be dropped.
    """
    row = owned(turn.state, operation)
    txn = require_open(turn, operation.txn)
    if row.txn_id != txn.txn_id:
        raise CompactionLost(f"compaction {row.id} runs in transaction {row.txn_id} now")
    # By the name that it locked: a client may have renamed the table since.
    if any(
        (txn.needs.get(write.table), write.partition) != (row.table_id, row.partition)
        for write in operation.writes
    ):
        raise InvalidDefinition(f"compaction {row.id} may only report {row.table} {row.partition}")
    directories = tuple(
        events.DirectoryFiles(EntityDirectory.of(report, txn.txn_id), report.contents_text)
        for report in operation.writes
    )
    _finish(turn, row, _R, directories, "")
    return CompactionCommitted(row.id, turn.state.last_txn)


def nothing_to_do(turn: Turn, operation: EndCompaction) -> None:
    """Ends a task that wrote nothing: ready for cleaning, or refused (C29). Commits."""
    row = owned(turn.state, operation)
    require_open(turn, operation.txn)
    state = _R if operation.to_cleaning else CompactionState.REFUSED
    _finish(turn, row, state, (), operation.reason)


def _finish(
    turn: Turn,
    row: CompactionTask,
    state: CompactionState,
    directories: tuple[events.DirectoryFiles, ...],
    error: str,
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
        )
    )


def fail(turn: Turn, operation: FailCompaction) -> None:
    """The task becomes `failed`, its transaction is aborted (C32). Raises CompactionLost."""
    txn = turn.state.txns.get(operation.txn or 0)
    if txn is not None and txn.is_open and txn.kind is TxnType.COMPACTION:
        end(turn, txn.txn_id, f"compaction failed: {operation.error}")
    row = owned(turn.state, operation)
    turn.record(
        events.CompactionEnded(id=row.id, state=CompactionState.FAILED, error=operation.error)
    )


def abort_many(turn: Turn, operation: AbortCompactions) -> dict[int, str]:
    """ABORT COMPACTIONS: only rows that are initiated; one message for each id (C60)."""
    if not operation.ids:
        raise InvalidDefinition("ABORT COMPACTIONS needs at least one id; see SHOW COMPACTIONS")
    messages: dict[int, str] = {}
    for compaction in operation.ids:
        row = turn.state.queue.get(compaction)
        if row is not None and row.state is _I:
            turn.record(
                events.CompactionEnded(
                    id=compaction,
                    state=CompactionState.ABORTED,
                    error="aborted by ABORT COMPACTIONS",
                )
            )
            messages[compaction] = "aborted"
        else:
            now = "unknown" if row is None else row.state.text
            messages[compaction] = f"not aborted: it is {now}, not initiated"
    return messages


def revoke(turn: Turn, operation: RevokeWorkers) -> list[int]:
    """Returns working rows of a host, of a worker or those that timed out to the queue (C25)."""
    host = operation.host
    oldest = turn.steady - turn.state.settings.integer("hive.compactor.worker.timeout")
    since = turn.state.timers.row_since
    ids = [
        row.id
        for row in turn.state.queue.values()
        if row.state is _W
        and (
            since[row.id] < oldest
            if host is None
            else row.worker == host or row.worker.startswith(f"{host}-")
        )
    ]
    for compaction_id in ids:
        row = turn.state.queue[compaction_id]
        if row.txn_id in turn.state.txns and turn.state.txns[row.txn_id].is_open:
            end(turn, row.txn_id, f"compaction {compaction_id} was taken from worker {row.worker}")
        turn.record(events.CompactionRevoked(id=compaction_id))
    return ids


def not_initiated(turn: Turn, operation: RecordNotInitiated) -> int:
    """A `did not initiate` row in the history (C9, C23)."""
    table = turn.state.table(operation.table)
    row = CompactionTask(
        turn.state.next_compaction,
        table.record.name,
        table.record.table_id,
        operation.partition,
        CompactionKind.MAJOR,
        CompactionState.DID_NOT_INITIATE,
        enqueued=turn.now,
        ended=turn.now,
        error=operation.reason,
    )
    turn.record(events.NotInitiated(row))
    return row.id


# --- effects ------------------------------------------------------------------------------------


def _queued(state: State, _at: int, event: events.CompactionQueued) -> None:
    row = event.row
    state.next_compaction = row.id + 1
    state.queue[row.id] = row
    state.timers.row_since[row.id] = state.timers.now


def _taken(state: State, at: int, event: events.CompactionTaken) -> None:
    row = state.queue[event.id]
    state.queue[row.id] = replace(
        row,
        state=_W,
        worker=event.worker,
        attempt=row.attempt + 1,
        started=at,
        txn_id=0,
        job=row.job_name(event.worker),
    )
    state.timers.row_since[row.id] = state.timers.now


def _compacting(state: State, _at: int, event: events.CompactionBegun) -> None:
    row = state.queue[event.id]
    state.queue[row.id] = replace(row, txn_id=event.txn, highest_write_id=event.highest)
    state.components[event.txn] = [
        Component(event.txn, row.table_id, row.partition, Operation.COMPACT, event.highest)
    ]


def _compacted(state: State, at: int, event: events.CompactionCommitted) -> None:
    row = state.queue[event.id]
    for directory, contents in event.directories:
        place(state, at, entity_of(row), directory, contents)
    state.components.pop(event.txn, None)
    close(state, at, event.txn, TxnState.COMMITTED, "", event.commit_id)
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


def to_history(state: State, row: CompactionTask) -> None:
    state.queue.pop(row.id, None)
    state.timers.row_since.pop(row.id, None)
    state.timers.retry_row.pop(row.id, None)
    state.past.setdefault(entity_of(row), []).append(row)


def _compaction_ended(state: State, at: int, event: events.CompactionEnded) -> None:
    row = state.queue[event.id]
    to_history(state, replace(row, state=event.state, error=event.error, ended=at))


def _revoked(state: State, _at: int, event: events.CompactionRevoked) -> None:
    row = state.queue[event.id]
    state.queue[row.id] = replace(row, state=_I, worker="", started=0, txn_id=0)


def _not_initiated(state: State, _at: int, event: events.NotInitiated) -> None:
    row = event.row
    state.next_compaction = row.id + 1
    to_history(state, row)


APPLY: Effects = {
    events.CompactionQueued: _queued,
    events.CompactionTaken: _taken,
    events.CompactionBegun: _compacting,
    events.CompactionCommitted: _compacted,
    events.CompactionEnded: _compaction_ended,
    events.CompactionRevoked: _revoked,
    events.NotInitiated: _not_initiated,
}

HANDLERS: Handlers = {
    RequestCompaction: request,
    RequestCompactions: request_many,
    TakeCompaction: take,
    BeginCompaction: begin,
    CommitCompaction: commit,
    EndCompaction: nothing_to_do,
    FailCompaction: fail,
    AbortCompactions: abort_many,
    RevokeWorkers: revoke,
    RecordNotInitiated: not_initiated,
}
