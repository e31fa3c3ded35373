"""What the Cleaner may remove, and when (C37 to C56, P4, P21, P22, P25)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from acid_platform.compaction.states import CompactionState
from acid_platform.errors import CompactionLost
from acid_platform.metastore.operations.compaction import (
    Cleaning,
    CleaningFailed,
    CleaningLeft,
    MarkCleaned,
    RefuseCleaning,
    StartCleaning,
)
from acid_platform.metastore.records import (
    BlockedCleaning,
    CleaningTask,
    CompactionTask,
    DropTask,
    EntityDirectory,
    Holder,
)
from acid_platform.metastore.rules import events
from acid_platform.metastore.rules.compactions import entity_of, to_history
from acid_platform.metastore.rules.foreign import why
from acid_platform.metastore.rules.snapshots import cleaner_lists, holders, low_mark, txn_list
from acid_platform.metastore.rules.state import Component, Entity, Retry, State, Txn
from acid_platform.metastore.rules.tables import being_cleaned
from acid_platform.metastore.rules.timers import NEVER
from acid_platform.metastore.rules.turn import Effects, Handlers, Turn
from acid_platform.transactions import Operation, ValidWriteIdList

_R, _W = CompactionState.READY_FOR_CLEANING, CompactionState.WORKING


def survey(
    turn: Turn, only: Entity | None = None
) -> tuple[list[CleaningTask], list[BlockedCleaning]]:
    """Every cleaning there is, or those of one entity: what may run now, and what waits, with the
    reason."""
    state = turn.state
    ready: list[CleaningTask] = []
    waiting: list[BlockedCleaning] = []
    working = {entity_of(row) for row in state.queue.values() if row.state is _W}
    dropped = [(drop.table_id, f"{drop.location}/") for drop in state.drops()]
    for cleaning in (*_rows(turn, only), *_aborts(turn, only)):
        blocked = cleaning
        if isinstance(cleaning, CleaningTask):
            entity = (cleaning.table_id, cleaning.partition)
            reason = ""
            table = state.tables.get(cleaning.table_id)
            if table is not None and table.record.foreign:
                reason = f"it is read only, {why(table)} (P31)"
            elif entity in working:
                reason = "a compaction of it is working (P21)"
            elif being_cleaned(state, entity):
                reason = "a Cleaner is at work on it"
            elif _earlier_table(dropped, cleaning):
                reason = f"a table dropped from {cleaning.location} is still to be removed (C41)"
            if not reason:
                ready.append(cleaning)
                continue
            blocked = BlockedCleaning(cleaning.id, cleaning.table, cleaning.partition, reason)
        assert isinstance(blocked, BlockedCleaning)
        waiting.append(blocked)
    return ready[: state.settings.integer("hive.compactor.fetch.size")], waiting


def _earlier_table(dropped: Sequence[tuple[int, str]], task: CleaningTask) -> bool:
    """Whether snapshots may still need files there of a table of before (P22)."""
    mine = f"{task.location}/"
    return any(
        table_id < task.table_id and (mine.startswith(place) or place.startswith(mine))
        for table_id, place in dropped
    )


def _rows(turn: Turn, only: Entity | None) -> Iterator[CleaningTask | BlockedCleaning]:
    """Rows ready for cleaning, per entity the one with the lowest highest write id (C37 to C40)."""
    state, settings, timers = turn.state, turn.state.settings, turn.state.timers
    delay = 0
    if settings.flag("hive.compactor.delayed.cleanup.enabled"):
        delay = settings.integer("hive.compactor.cleaner.retention.time.seconds")
    first: dict[tuple[Entity, str], CompactionTask] = {}
    for row in sorted(state.queue.values(), key=lambda queued: queued.id):
        if row.state is not _R or only not in (None, entity_of(row)):
            continue
        until = max(
            timers.row_since[row.id] + delay if delay else NEVER,
            timers.retry_row.get(row.id, NEVER),
        )
        if turn.steady < until or (delay and turn.steady <= until):
            why = f"retry after {row.error!r}" if row.cleaner_retry_at else "delayed cleanup"
            yield BlockedCleaning(
                row.id, row.table, row.partition, f"{why}, until {turn.wall(until)}"
            )
            continue
        key = (entity_of(row), row.location if isinstance(row, DropTask) else "")
        if key not in first or row.highest_write_id < first[key].highest_write_id:
            first[key] = row
    for row in first.values():
        held = holders(state, row.table_id, row.next_txn_id)
        if held:
            yield BlockedCleaning(
                row.id,
                row.table,
                row.partition,
                f"transactions opened before its commit (next id {row.next_txn_id}) are open (C41)",
                tuple(holder(txn) for txn in held),
            )
        else:
            yield _row_task(state, row)


def holder(txn: Txn) -> Holder:
    return Holder(txn.txn_id, txn.user, txn.host, txn.run_id)


def _row_task(state: State, row: CompactionTask) -> CleaningTask:
    location = row.location if isinstance(row, DropTask) else None
    table = state.tables.get(row.table_id)
    if location is not None or table is None:
        # A partition may be written again at any time, long before a commit registers it, and
        # snapshots may read it long after its table was dropped too.
        again = row.partition is not None
        names = {table.record.location for table in state.tables.values()} | {
            drop.location for drop in state.drops() if drop.table_id > row.table_id
        }
        return CleaningTask(
            row.id,
            "drop",
            row.table,
            row.table_id,
            row.partition,
            location or "",
            row.highest_write_id,
            row.next_txn_id,
            txn_list(state),
            ValidWriteIdList.of(row.table, row.highest_write_id),
            row.txn_id,
            row.cleaner_attempts,
            again or location in names,
            row.properties,
        )
    # An open transaction may still ask for the table; P11 refuses only those below `next_txn_id`.
    above = (txn.txn_id for txn in state.open_txns() if txn.txn_id >= row.next_txn_id)
    watermark = min(above, default=state.next_txn)
    txns, listed = cleaner_lists(state, table, watermark, row.highest_write_id)
    return CleaningTask(
        row.id,
        "compaction",
        table.record.name,
        row.table_id,
        row.partition,
        _location(table.record.location, row.partition),
        row.highest_write_id,
        row.next_txn_id,
        txns,
        listed,
        row.txn_id,
        row.cleaner_attempts,
        False,
        {**table.record.properties, **row.properties},
    )


def _location(table: str, partition: str | None) -> str:
    return table if partition is None else f"{table}/{partition}"


def aborted_rows(state: State) -> dict[Entity, list[Component]]:
    """By entity what aborted transactions touched and the Cleaner has not cleaned yet (C2)."""
    found: dict[Entity, list[Component]] = {}
    for txn in state.aborted_txns():
        for component in state.components.get(txn.txn_id, ()):
            if not component.cleaned:
                found.setdefault((component.table_id, component.partition), []).append(component)
    return found


def _aborts(turn: Turn, only: Entity | None) -> Iterator[CleaningTask | BlockedCleaning]:
    """Entities with too many or too old aborted transactions (C50 to C55).

    The lists stop below everything that an open snapshot of any table excludes, so that no
    snapshot needs what is obsolete there.
    """
    state = turn.state
    if not state.settings.flag("hive.compactor.clean.aborts.using.cleaner"):
        return
    most = state.settings.integer("hive.compactor.abortedtxn.threshold")
    age = state.settings.integer("hive.compactor.aborted.txn.time.threshold")
    for (table_id, partition), rows in aborted_rows(state).items():
        if only not in (None, (table_id, partition)):
            continue
        table = state.tables[table_id]
        oldest = min(state.txns[row.txn_id].started for row in rows)
        if len(rows) <= most and not (age >= 0 and oldest + age < turn.now):
            continue
        retry = state.retries.get((table_id, partition))
        again = state.timers.retry_entity.get((table_id, partition), NEVER)
        if retry and turn.steady < again:
            yield BlockedCleaning(
                0, table.record.name, partition, f"{retry.error}, again at {turn.wall(again)}"
            )
            continue
        txns, listed = cleaner_lists(state, table, low_mark(state), table.last_write_id)
        yield CleaningTask(
            0,
            "abort",
            table.record.name,
            table_id,
            partition,
            _location(table.record.location, partition),
            listed.high_watermark,
            0,
            txns,
            listed,
            0,
            retry.attempts if retry else 0,
            False,
            table.record.properties,
        )


# --- decisions ----------------------------------------------------------------------------------


def start(turn: Turn, operation: StartCleaning) -> CleaningTask:
    """Takes a cleaning, and says afresh what may go. Raises CompactionLost if it may not run."""
    ready, waiting = survey(turn, (operation.table_id, operation.partition))
    for task in ready:
        if task.id == operation.id:
            turn.record(
                events.CleaningStarted(
                    id=task.id,
                    table_id=task.table_id,
                    partition=task.partition,
                    upto=task.next_txn_id,
                )
            )
            return task
    why = [blocked.reason for blocked in waiting if blocked.id == operation.id]
    raise CompactionLost(
        f"cleaning {operation.id} of {operation.table} {operation.partition or ''} can't start:"
        f" {why[0] if why else 'it is done or gone'}; look at ready_to_clean() again"
    )


def _started(state: State, operation: Cleaning) -> None:
    entity = (operation.table_id, operation.partition)
    gone = operation.id and operation.id not in state.queue
    if entity not in state.cleaning or gone:
        raise CompactionLost(
            f"cleaning {operation.id} of {operation.table} {operation.partition or ''} is not"
            " running; start it first"
        )


def done(turn: Turn, operation: MarkCleaned) -> None:
    """Marks cleaned (C49). `removed` None: nothing aborted is left at or below the watermark;
    a list: only these aborted write ids are gone (C53). `gone`: names of the directories that were
    removed (P26). Raises CompactionLost."""
    _started(turn.state, operation)
    turn.record(
        events.Cleaned(
            id=operation.id,
            table_id=operation.table_id,
            partition=operation.partition,
            highest=operation.highest_write_id,
            removed=operation.removed,
            gone=operation.gone,
        )
    )


def failed(turn: Turn, operation: CleaningFailed) -> None:
    """Another attempt after 2^k times the retry time, counted from now (C48, C54, P25)."""
    _started(turn.state, operation)
    settings, row = turn.state.settings, turn.state.queue.get(operation.id)
    entity = (operation.table_id, operation.partition)
    earlier = turn.state.retries.get(entity)
    attempts = row.cleaner_attempts if row else (earlier.attempts if earlier else 0)
    wait = settings.integer("hive.compactor.cleaner.retry.retention.time") * 2**attempts
    most = settings.integer("hive.compactor.cleaner.retry.maxattempts")
    turn.record(
        events.CleaningFailed(
            id=operation.id,
            table_id=operation.table_id,
            partition=operation.partition,
            attempts=attempts + 1,
            retry_at=turn.now + wait,
            error=operation.error,
            given_up=bool(row) and attempts + 1 > most,
        )
    )


def again(turn: Turn, operation: CleaningLeft) -> None:
    """Something obsolete is still there: the row stays for the next cycle (C47)."""
    _started(turn.state, operation)
    turn.record(events.CleaningLeft(table_id=operation.table_id, partition=operation.partition))


def refuse(turn: Turn, operation: RefuseCleaning) -> None:
    """NO_CLEANUP: the row ends as refused, the files stay (C44). Raises CompactionLost."""
    row = turn.state.queue.get(operation.id)
    if row is None or row.state is not _R:
        raise CompactionLost(f"compaction {operation.id} is not ready for cleaning")
    turn.record(
        events.CompactionEnded(id=row.id, state=CompactionState.REFUSED, error=operation.reason)
    )


# --- effects ------------------------------------------------------------------------------------


def _cleaning(state: State, at: int, event: events.CleaningStarted) -> None:
    entity = (event.table_id, event.partition)
    state.cleaning[entity] = at
    state.timers.cleaned_since[entity] = state.timers.now
    table = state.known_table(event.table_id)
    if table is not None:
        table.cleaned_upto = max(table.cleaned_upto, event.upto)
    row = state.queue.get(event.id)
    if row is not None:
        state.queue[row.id] = replace(row, cleaner_start=at)


def _ended(
    state: State, event: events.Cleaned | events.CleaningFailed | events.CleaningLeft
) -> Entity:
    """Takes down that the Cleaner has stopped, and answers on which entity."""
    entity: Entity = (event.table_id, event.partition)
    state.cleaning.pop(entity, None)
    state.timers.cleaned_since.pop(entity, None)
    return entity


def _cleaned(state: State, at: int, event: events.Cleaned) -> None:
    entity = _ended(state, event)
    state.retries.pop(entity, None)
    state.timers.retry_entity.pop(entity, None)
    row = state.queue.get(event.id)
    if row is not None:
        to_history(state, replace(row, state=CompactionState.SUCCEEDED, ended=at, error=""))
        if isinstance(row, DropTask):
            return
    known = state.directories.get(entity, {})
    for name in _shadowed(known, event.highest) if event.gone is None else event.gone:
        known.pop(name, None)
    removed = None if event.removed is None else set(event.removed)
    left = False
    for txn_id in [txn.txn_id for txn in state.aborted_txns()]:
        kept: list[Component] = []
        for component in state.components.get(txn_id, ()):
            mine = (component.table_id, component.partition) == entity and not component.cleaned
            if not mine:
                kept.append(component)
            elif (
                component.write_id > event.highest
                if removed is None
                else component.write_id not in removed
            ):
                kept.append(component)
                left = True
            elif component.operation is Operation.COMPACT:
                kept.append(replace(component, cleaned=True))
        state.components[txn_id] = kept
    if left and row is None:
        # A directory with committed rows too has to wait for a compaction (C53): try again later.
        wait = state.settings.integer("hive.compactor.cleaner.retry.retention.time")
        state.retries[entity] = Retry(0, at + wait, "aborted data is mixed with committed")
        state.timers.retry_entity[entity] = state.timers.now + wait


def _shadowed(known: Mapping[str, EntityDirectory], highest: int) -> list[str]:
    """What journals of older versions mean: directories that another directory replaces."""
    seen = [directory for directory in known.values() if directory.high <= highest]
    return [
        directory.name
        for directory in known.values()
        if any(other.shadows(directory) for other in seen)
    ]


def _cleaning_failed(state: State, at: int, event: events.CleaningFailed) -> None:
    entity = _ended(state, event)
    row, again = state.queue.get(event.id), state.timers.now + event.retry_at - at
    if row is None:
        state.retries[entity] = Retry(event.attempts, event.retry_at, event.error)
        state.timers.retry_entity[entity] = again
        return
    row = replace(
        row,
        cleaner_attempts=event.attempts,
        cleaner_retry_at=event.retry_at,
        cleaner_start=0,
        error=event.error,
    )
    if event.given_up:
        to_history(state, replace(row, state=CompactionState.FAILED, ended=at))
    else:
        state.queue[row.id] = row
        state.timers.retry_row[row.id] = again


def _cleaning_left(state: State, _at: int, event: events.CleaningLeft) -> None:
    entity = _ended(state, event)
    for row in list(state.queue.values()):
        if entity_of(row) == entity and row.cleaner_start:
            state.queue[row.id] = replace(row, cleaner_start=0)


APPLY: Effects = {
    events.CleaningStarted: _cleaning,
    events.Cleaned: _cleaned,
    events.CleaningFailed: _cleaning_failed,
    events.CleaningLeft: _cleaning_left,
}

HANDLERS: Handlers = {
    StartCleaning: start,
    MarkCleaned: done,
    CleaningFailed: failed,
    CleaningLeft: again,
    RefuseCleaning: refuse,
}
