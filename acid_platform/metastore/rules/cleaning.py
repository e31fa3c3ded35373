"""A cleaning from its start to its end, its failures and retries (C44 to C54, P4, P21, P25)."""

from __future__ import annotations

from dataclasses import field, replace

from acid_platform.compaction.states import CompactionState
from acid_platform.errors import CompactionLost
from acid_platform.metastore import operations as ops
from acid_platform.metastore.codec import FLAT
from acid_platform.metastore.rules import kept_history
from acid_platform.metastore.rules.cleaning_survey import survey
from acid_platform.metastore.rules.compactions import CompactionEnded, to_history
from acid_platform.metastore.rules.state import Component, Entity, Retry, State
from acid_platform.metastore.rules.turn import Event, Turn, handles
from acid_platform.metastore.tasks import CleaningTask, DropTask, EntityTask
from acid_platform.transactions import RowOperation

_R = CompactionState.READY_FOR_CLEANING


# --- decisions ----------------------------------------------------------------------------------


@handles(ops.StartCleaning)
def start(turn: Turn, operation: ops.StartCleaning) -> CleaningTask:
    """Decides again what it may remove. Raises CompactionLost if it may not run."""
    ready, waiting = survey(turn, operation.entity)
    for task in ready:
        if task.id == operation.id:
            table = turn.state.tables.get(task.table_id)
            since = kept_history.horizon(turn.state, table, turn.now) if table else 0
            turn.record(CleaningStarted(operation, task.next_txn_id, since))
            return task
    why = [blocked.reason for blocked in waiting if blocked.id == operation.id]
    raise CompactionLost(
        f"cleaning {operation.id} of {operation.table} {operation.partition or ''} can't start:"
        f" {why[0] if why else 'it is done or gone'}; look at ready_to_clean() again"
    )


def _require_started(state: State, operation: EntityTask) -> None:
    gone = operation.id and operation.id not in state.queue
    if operation.entity not in state.cleaning or gone:
        raise CompactionLost(
            f"cleaning {operation.id} of {operation.table} {operation.partition or ''} is not"
            " running; start it first"
        )


@handles(ops.MarkCleaned)
def mark_cleaned(turn: Turn, operation: ops.MarkCleaned) -> None:
    """Raises CompactionLost."""
    _require_started(turn.state, operation)
    turn.record(Cleaned(operation))


@handles(ops.ReportCleaningFailed)
def failed(turn: Turn, operation: ops.ReportCleaningFailed) -> None:
    """The next attempt is due after 2^k times the retry time, from now on (C48, C54, P25)."""
    _require_started(turn.state, operation)
    settings, row = turn.state.settings, turn.state.queue.get(operation.id)
    earlier = turn.state.retries.get(operation.entity)
    attempts = row.cleaner_attempts if row else (earlier.attempts if earlier else 0)
    wait = settings.integer("hive.compactor.cleaner.retry.retention.time") * 2**attempts
    most = settings.integer("hive.compactor.cleaner.retry.maxattempts")
    given_up = bool(row) and attempts + 1 > most
    turn.record(CleaningFailed(operation, attempts + 1, turn.now + wait, given_up))


@handles(ops.ReportCleaningLeft)
def again(turn: Turn, operation: ops.ReportCleaningLeft) -> None:
    """Raises CompactionLost."""
    _require_started(turn.state, operation)
    turn.record(CleaningLeft(operation))


@handles(ops.RefuseCleaning)
def refuse(turn: Turn, operation: ops.RefuseCleaning) -> None:
    """Raises CompactionLost."""
    row = turn.state.queue.get(operation.id)
    if row is None or row.state is not _R:
        raise CompactionLost(f"compaction {operation.id} is not ready for cleaning")
    turn.record(CompactionEnded(id=row.id, state=CompactionState.REFUSED, error=operation.reason))


# --- events -------------------------------------------------------------------------------------


class CleaningStarted(Event, kind="cleaning"):
    """`upto`: transactions below it that have not asked for the table yet may miss files (P11).

    `since`: the moment from which on the table's history is still kept (P36).
    """

    cleaning: ops.StartCleaning = field(metadata=FLAT)
    upto: int
    since: int

    def apply(self, state: State, at: int) -> None:
        entity = self.cleaning.entity
        state.cleaning[entity] = at
        state.timers.cleaned_since[entity] = state.timers.now
        table = state.known_table(self.cleaning.table_id)
        if table is not None:
            table.cleaned_upto = max(table.cleaned_upto, self.upto)
            kept_history.advance(state, table, self.since)
        row = state.queue.get(self.cleaning.id)
        if row is not None:
            state.queue[row.id] = replace(row, cleaner_start=at)


def _stop(state: State, entity: Entity) -> None:
    state.cleaning.pop(entity, None)
    state.timers.cleaned_since.pop(entity, None)


class Cleaned(Event, kind="cleaned"):
    report: ops.MarkCleaned = field(metadata=FLAT)

    def apply(self, state: State, at: int) -> None:
        report, entity, partition = self.report, self.report.entity, self.report.partition or ""
        _stop(state, entity)
        state.retries.pop(entity, None)
        state.timers.retry_entity.pop(entity, None)
        row = state.queue.get(report.id)
        if row is not None:
            past = replace(row, state=CompactionState.SUCCEEDED, ended=at, error=report.left)
            to_history(state, past)
            if isinstance(row, DropTask):
                return
        table = state.tables.get(report.table_id)
        if table is not None:
            table.held.pop(partition, None)
            if report.held:
                table.held = {**table.held, partition: report.held}
        directories = state.directories.get(entity, {})
        for name in report.gone:
            directories.pop(name, None)
        if self._forget_aborted(state) and row is None:
            # A directory that also has committed rows must wait for a compaction (C53): try again
            # later.
            wait = state.settings.integer("hive.compactor.cleaner.retry.retention.time")
            why = report.left or "aborted data is mixed with committed"
            state.retries[entity] = Retry(0, at + wait, why)
            state.timers.retry_entity[entity] = state.timers.now + wait

    def _forget_aborted(self, state: State) -> bool:
        """Forgets what aborted transactions touched and the Cleaner removed; True if some of it is
        left."""
        removed = None if self.report.removed is None else set(self.report.removed)
        left = False
        for txn_id in [txn.txn_id for txn in state.aborted_txns()]:
            components: list[Component] = []
            for component in state.components.get(txn_id, ()):
                if component.entity != self.report.entity or component.cleaned:
                    components.append(component)
                elif (
                    component.write_id > self.report.highest_write_id
                    if removed is None
                    else component.write_id not in removed
                ):
                    components.append(component)
                    left = True
                elif component.operation is RowOperation.COMPACT:
                    components.append(replace(component, cleaned=True))
            state.components[txn_id] = components
        return left


class CleaningFailed(Event, kind="cleaning_failed"):
    report: ops.ReportCleaningFailed = field(metadata=FLAT)
    attempts: int
    retry_at: int
    given_up: bool

    def apply(self, state: State, at: int) -> None:
        entity, error = self.report.entity, self.report.error
        _stop(state, entity)
        row, retry_at = state.queue.get(self.report.id), state.timers.now + self.retry_at - at
        if row is None:
            state.retries[entity] = Retry(self.attempts, self.retry_at, error)
            state.timers.retry_entity[entity] = retry_at
            return
        row = replace(
            row,
            cleaner_attempts=self.attempts,
            cleaner_retry_at=self.retry_at,
            cleaner_start=0,
            error=error,
        )
        if self.given_up:
            to_history(state, replace(row, state=CompactionState.FAILED, ended=at))
        else:
            state.queue[row.id] = row
            state.timers.retry_row[row.id] = retry_at


class CleaningLeft(Event, kind="cleaning_left"):
    report: ops.ReportCleaningLeft = field(metadata=FLAT)

    def apply(self, state: State, _at: int) -> None:
        _stop(state, self.report.entity)
        for row in list(state.queue.values()):
            if row.entity == self.report.entity and row.cleaner_start:
                state.queue[row.id] = replace(row, cleaner_start=0)
