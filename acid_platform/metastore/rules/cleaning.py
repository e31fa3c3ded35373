"""A cleaning from its start to its end, its failures and retries (C44 to C54, P4, P21, P25)."""

from __future__ import annotations

from dataclasses import replace

from acid_platform.compaction.states import CompactionState
from acid_platform.errors import CompactionLost
from acid_platform.metastore.operations.compaction import (
    Cleaning,
    MarkCleaned,
    RefuseCleaning,
    ReportCleaningFailed,
    ReportCleaningLeft,
    StartCleaning,
)
from acid_platform.metastore.records import CleaningTask, DropTask
from acid_platform.metastore.rules import events, kept_history
from acid_platform.metastore.rules.cleaning_survey import survey
from acid_platform.metastore.rules.compactions import entity_of, to_history
from acid_platform.metastore.rules.state import Component, Entity, Retry, State
from acid_platform.metastore.rules.turn import Effects, Handlers, Turn
from acid_platform.transactions import RowOperation

_R = CompactionState.READY_FOR_CLEANING


# --- decisions ----------------------------------------------------------------------------------


def start(turn: Turn, operation: StartCleaning) -> CleaningTask:
    """Starts a cleaning, and decides again what it may remove. Raises CompactionLost if it may not
    run."""
    ready, waiting = survey(turn, (operation.table_id, operation.partition))
    for task in ready:
        if task.id == operation.id:
            table = turn.state.tables.get(task.table_id)
            turn.record(
                events.CleaningStarted(
                    id=task.id,
                    table_id=task.table_id,
                    partition=task.partition,
                    upto=task.next_txn_id,
                    since=kept_history.horizon(turn.state, table, turn.now) if table else 0,
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
    """Marks a cleaning as done (C49).

    `removed` None: nothing aborted is left at or below the watermark; otherwise only these aborted
    write ids are gone (C53). `gone`: names of the directories that were removed (P26). Raises
    CompactionLost.
    """
    _started(turn.state, operation)
    turn.record(
        events.Cleaned(
            id=operation.id,
            table_id=operation.table_id,
            partition=operation.partition,
            highest=operation.highest_write_id,
            removed=operation.removed,
            gone=operation.gone,
            held=operation.held,
            left=operation.left,
        )
    )


def failed(turn: Turn, operation: ReportCleaningFailed) -> None:
    """Schedules another attempt after 2^k times the retry time, from now on (C48, C54, P25)."""
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


def again(turn: Turn, operation: ReportCleaningLeft) -> None:
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
        kept_history.advance(table, event.since)
    row = state.queue.get(event.id)
    if row is not None:
        state.queue[row.id] = replace(row, cleaner_start=at)


def _ended(
    state: State, event: events.Cleaned | events.CleaningFailed | events.CleaningLeft
) -> Entity:
    """Records that the Cleaner has stopped, and returns the entity."""
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
        to_history(state, replace(row, state=CompactionState.SUCCEEDED, ended=at, error=event.left))
        if isinstance(row, DropTask):
            return
    table = state.tables.get(event.table_id)
    if table is not None:
        table.held.pop(event.partition or "", None)
        if event.held:
            table.held = {**table.held, event.partition or "": event.held}
    known = state.directories.get(entity, {})
    for name in event.gone:
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
            elif component.operation is RowOperation.COMPACT:
                kept.append(replace(component, cleaned=True))
        state.components[txn_id] = kept
    if left and row is None:
        # A directory that also has committed rows must wait for a compaction (C53): try again
        # later.
        wait = state.settings.integer("hive.compactor.cleaner.retry.retention.time")
        why = event.left or "aborted data is mixed with committed"
        state.retries[entity] = Retry(0, at + wait, why)
        state.timers.retry_entity[entity] = state.timers.now + wait


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
    ReportCleaningFailed: failed,
    ReportCleaningLeft: again,
    RefuseCleaning: refuse,
}
