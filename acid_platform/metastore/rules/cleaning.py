"""Cleanings: which may run now, what the others wait for, and how one begins, ends or fails (C37 to
C55, P4, P21, P22, P25)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace
from operator import attrgetter

from acid_platform.compaction.states import CompactionState
from acid_platform.errors import CompactionLost
from acid_platform.layout.table_properties import CONSUMER_RETENTION, HISTORY_RETENTION
from acid_platform.metastore import operations as ops
from acid_platform.metastore.messages import FLAT
from acid_platform.metastore.operations.compaction import (
    BlockedCleaning,
    CleaningTask,
    DropCleaning,
    DropTask,
    EntityCleaning,
    EntityTask,
    QueuedTask,
)
from acid_platform.metastore.pasts import Pin, TableCommit, utc_text
from acid_platform.metastore.records import Holder
from acid_platform.metastore.rules import snapshots
from acid_platform.metastore.rules.compactions import CompactionEnded, to_history
from acid_platform.metastore.rules.declared import why_foreign
from acid_platform.metastore.rules.snapshots import cleaner_lists, holders, low_mark, txn_list
from acid_platform.metastore.rules.state import Component, Entity, Retry, State, TableState, Txn
from acid_platform.metastore.rules.table_declarations import being_cleaned
from acid_platform.metastore.rules.timers import NEVER
from acid_platform.metastore.rules.turn import Event, Turn, handles
from acid_platform.transactions import RowOperation, ValidWriteIdList

_MANY_PARTITIONS = 1000
_R, _W = CompactionState.READY_FOR_CLEANING, CompactionState.WORKING


def survey(
    turn: Turn, only: Entity | None = None, every: bool = False
) -> tuple[list[CleaningTask], list[BlockedCleaning]]:
    """All cleanings, or those of one entity: what may run now, and what waits, with the reason.

    Few and young aborted transactions ask for no cleaning, but `every` one takes them along.
    """
    ready: list[CleaningTask] = []
    waiting: list[BlockedCleaning] = []
    state = turn.state
    working = {row.entity for row in state.compactions() if row.state is _W}
    dropped = [(drop.table_id, f"{drop.location}/") for drop in state.drops()]
    for cleaning in (
        *_rows(turn, only),
        *_aborts(turn, only, every or only is not None),
        *_lapsed(turn, only),
    ):
        if isinstance(cleaning, BlockedCleaning):
            waiting.append(cleaning)
            continue
        table, reason = state.tables.get(cleaning.table_id), ""
        if table is not None and table.record.foreign:
            reason = f"it is read only, {why_foreign(table)}"
        elif cleaning.entity in working:
            reason = "a compaction of it is working"
        elif being_cleaned(state, cleaning.entity):
            reason = "a Cleaner is at work on it"
        elif _earlier_table(dropped, cleaning):
            reason = f"a table dropped from {cleaning.location} is still to be removed"
        if reason:
            waiting.append(BlockedCleaning.of(cleaning, reason))
        else:
            ready.append(cleaning)
    return ready[: state.settings.integer("hive.compactor.fetch.size")], waiting


def _earlier_table(dropped: Sequence[tuple[int, str]], task: CleaningTask) -> bool:
    """Whether snapshots may still need files there that belonged to an earlier table (P22)."""
    mine = f"{task.location}/"
    return any(
        table_id < task.table_id and (mine.startswith(location) or location.startswith(mine))
        for table_id, location in dropped
    )


def _rows(turn: Turn, only: Entity | None) -> Iterator[CleaningTask | BlockedCleaning]:
    """Cleanings after compactions: for each entity the row with the lowest highest write id (C37 to
    C40)."""
    state, settings, timers = turn.state, turn.state.settings, turn.state.timers
    delay = 0
    if settings.flag("hive.compactor.delayed.cleanup.enabled"):
        delay = settings.integer("hive.compactor.cleaner.retention.time.seconds")
    first: dict[tuple[Entity, str], QueuedTask] = {}
    for row in sorted(state.queue.values(), key=lambda queued: queued.id):
        if row.state is not _R or only not in (None, row.entity):
            continue
        until = max(
            timers.row_since[row.id] + delay if delay else NEVER,
            timers.retry_row.get(row.id, NEVER),
        )
        if turn.steady < until or (delay and turn.steady <= until):
            why = f"retry after {row.error!r}" if row.cleaner_retry_at else "delayed cleanup"
            yield BlockedCleaning.of(row, f"{why}, until {turn.wall(until)}")
            continue
        key = (row.entity, row.location if isinstance(row, DropTask) else "")
        if key not in first or row.highest_write_id < first[key].highest_write_id:
            first[key] = row
    for row in first.values():
        if txns := holders(state, row.table_id, row.next_txn_id):
            yield BlockedCleaning.of(
                row,
                f"transactions opened before its commit (next id {row.next_txn_id}) are open",
                tuple(held_by(state, txns)),
            )
        elif reason := _past_needs(turn, row):
            yield BlockedCleaning.of(row, reason, (), True)
        else:
            yield _row_task(turn, row)


def _past_needs(turn: Turn, row: QueuedTask) -> str:
    """Why past snapshots still need what the row replaced or dropped; empty if none does (P36)."""
    table = turn.state.known_table(row.table_id)
    if table is None:
        return ""
    whole = whole_drop(turn.state, table)
    if whole is not None:
        until = whole.commit_time + snapshots.retention(turn.state, table)
        if until > turn.now:
            what = f"until {utc_text(until)}: UNDROP TABLE brings it back"
            return f"{HISTORY_RETENTION.name} keeps the dropped table {what}"
    later = () if table.dropped else _later(turn, table, row.partition)
    commit = next((past for past in later if past.txn_id == row.txn_id), None)
    if commit is not None:
        return _keeper(turn, table, commit)
    if isinstance(row, DropTask):
        ended = snapshots.history_ended(table, row.partition)
        for who, pin in snapshots.pins_of(turn.state, table, ended):
            if not pin.write_ids.is_valid(row.highest_write_id):
                return f"{who} keeps the partition as it was before its drop"
    return ""


def whole_drop(state: State, table: TableState) -> DropTask | None:
    """The drop of the table, if the Cleaner has not finished it."""
    entity = (table.record.table_id, None)
    drops = state.drops() if table.dropped else ()
    return next((row for row in drops if row.entity == entity), None)


def _keeper(turn: Turn, table: TableState, commit: TableCommit) -> str:
    """What keeps the snapshot before a commit."""
    until = commit.at + snapshots.retention(turn.state, table)
    if until > turn.now:
        return f"{HISTORY_RETENTION.name} keeps what it replaced until {utc_text(until)}"
    if reader := snapshots.reader_since(turn.state, table, commit.moment):
        return f"transaction {reader} reads the changes since before it"
    waiting = (
        each
        for each in snapshots.unread(turn.state, table, turn.now)
        if each.moment < commit.moment
    )
    last = max(waiting, key=attrgetter("until"))
    return (
        f"consumer {last.consumer} has not read the changes since before it;"
        f" {CONSUMER_RETENTION.name} keeps them until {utc_text(last.until)}"
    )


def _later(turn: Turn, table: TableState, partition: str | None) -> Sequence[TableCommit]:
    """The commits that the oldest snapshot of a partition's history does not see."""
    ended = snapshots.history_ended(table, partition)
    return snapshots.commits_after(table, snapshots.horizon(turn.state, table, turn.now, ended))


def held_by(state: State, txns: Iterable[Txn]) -> list[Holder]:
    branches = {branch.txn: name for name, branch in state.branches.items()}
    return [
        Holder(
            txn.txn_id,
            txn.info.user,
            txn.info.host,
            txn.info.run_id,
            branches.get(txn.branch, ""),
        )
        for txn in txns
    ]


def _row_task(turn: Turn, row: QueuedTask) -> CleaningTask:
    state = turn.state
    if isinstance(row, DropTask):
        return _drop_task(state, row)
    table = state.tables[row.table_id]
    # An open transaction may still ask for the table; P11 refuses only those below `next_txn_id`.
    above = (txn.txn_id for txn in state.open_txns() if txn.txn_id >= row.next_txn_id)
    watermark = min(above, default=state.next_txn)
    later = _later(turn, table, row.partition)
    txns, listed = cleaner_lists(state, table, watermark, row.highest_write_id, later)
    return EntityCleaning.of(
        row,
        location=table.record.place_of(row.partition),
        highest_write_id=row.highest_write_id,
        next_txn_id=row.next_txn_id,
        valid_txns=txns,
        write_ids=listed,
        properties={**table.record.properties, **row.properties},
        pins=_pins(state, table, row.partition),
    )


def _drop_task(state: State, drop: DropTask) -> DropCleaning:
    """A partition may be written again at any time, long before a commit registers it. And
    snapshots may read it long after its table was dropped."""
    names = {table.record.location for table in state.tables.values()} | {
        later.location for later in state.drops() if later.table_id > drop.table_id
    }
    return DropCleaning.of(
        drop,
        location=drop.location,
        highest_write_id=drop.highest_write_id,
        next_txn_id=drop.next_txn_id,
        valid_txns=txn_list(state),
        write_ids=ValidWriteIdList.of(drop.table, drop.highest_write_id),
        reused=drop.partition is not None or drop.location in names,
    )


def _pins(state: State, table: TableState, partition: str | None) -> tuple[Pin, ...]:
    ended = snapshots.history_ended(table, partition)
    return tuple(pin for _, pin in snapshots.pins_of(state, table, ended))


def aborted_rows(state: State) -> dict[Entity, list[Component]]:
    """What aborted transactions touched and the Cleaner has not cleaned yet, by entity (C2)."""
    rows: dict[Entity, list[Component]] = {}
    for txn in state.aborted_txns():
        for component in state.components.get(txn.txn_id, ()):
            if not component.cleaned:
                rows.setdefault(component.entity, []).append(component)
    return rows


def _aborts(
    turn: Turn, only: Entity | None, every: bool
) -> Iterator[CleaningTask | BlockedCleaning]:
    """Cleanings of entities with too many or too old aborted transactions (C50 to C55), or with
    `every` of all that have some; but not of a table with very many partitions, any of which may
    have their files.

    Their lists stop below everything that an open snapshot of any table excludes, so no snapshot
    needs what is obsolete there.
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
            many = partition is None and len(table.partitions) > _MANY_PARTITIONS
            if not every or many or min(row.txn_id for row in rows) >= low_mark(state):
                continue
        retry = state.retries.get((table_id, partition))
        again = state.timers.retry_entity.get((table_id, partition), NEVER)
        if retry and turn.steady < again:
            reason = f"{retry.error}, again at {turn.wall(again)}"
            yield BlockedCleaning(0, table.record.name, table_id, partition, reason)
            continue
        yield _entity_task(turn, table, partition)


def _lapsed(turn: Turn, only: Entity | None) -> Iterator[CleaningTask | BlockedCleaning]:
    """Cleanings of entities in which an earlier one left directories for pins: they may run when
    one of these pins is gone (P36)."""
    state = turn.state
    for table_id, table in state.tables.items():
        for name, moments in table.held.items():
            entity = (table_id, name or None)
            if only not in (None, entity):
                continue
            ended = snapshots.history_ended(table, name)
            pins = {pin.moment: who for who, pin in snapshots.pins_of(state, table, ended)}
            if pins.keys() >= set(moments):
                who = ", ".join(pins[moment] for moment in moments)
                reason = f"{who}: it keeps what it shows"
                readers = {pin.moment: id for id, pin in snapshots.open_pins(state, table)}
                open_readers = (
                    state.txns[readers[moment]] for moment in moments if moment in readers
                )
                reading = tuple(held_by(state, open_readers))
                by_history = not readers.keys() >= set(moments)
                yield BlockedCleaning(0, table.record.name, *entity, reason, reading, by_history)
            elif entity not in aborted_rows(state):
                newest = _newest_merge(state, entity)
                if newest < low_mark(state):
                    yield _entity_task(turn, table, entity[1])
                    continue
                # It would remove nothing and be done, and nobody would come back for the rest.
                yield BlockedCleaning(
                    0,
                    table.record.name,
                    *entity,
                    f"a snapshot may not see what transaction {newest} merged or replaced",
                    tuple(
                        held_by(state, (txn for txn in state.open_txns() if txn.txn_id < newest))
                    ),
                )


def _newest_merge(state: State, entity: Entity) -> int:
    """The last transaction whose directory makes others obsolete."""
    return max(
        (
            directory.txn
            for directory in state.directories.get(entity, {}).values()
            if directory.base or directory.compacted
        ),
        default=0,
    )


def _entity_task(turn: Turn, table: TableState, partition: str | None) -> EntityCleaning:
    """A cleaning without a compaction, of what no open snapshot of any table needs."""
    state = turn.state
    txns, listed = cleaner_lists(
        state, table, low_mark(state), table.last_write_id, _later(turn, table, partition)
    )
    return EntityCleaning(
        id=0,
        table=table.record.name,
        table_id=table.record.table_id,
        partition=partition,
        location=table.record.place_of(partition),
        highest_write_id=listed.high_watermark,
        next_txn_id=0,
        valid_txns=txns,
        write_ids=listed,
        properties=table.record.properties,
        pins=_pins(state, table, partition),
    )


# --- decisions ----------------------------------------------------------------------------------


@handles(ops.StartCleaning)
def start(turn: Turn, operation: ops.StartCleaning) -> CleaningTask:
    """Decides again what it may remove. Raises CompactionLost if it may not run."""
    ready, waiting = survey(turn, operation.entity)
    for task in ready:
        if task.id == operation.id:
            table = turn.state.tables.get(task.table_id)
            since = snapshots.horizon(turn.state, table, turn.now) if table else 0
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
            snapshots.advance_history(state, table, self.since)
        row = state.queue.get(self.cleaning.id)
        # What a partition of a dropped table has left belongs to what would come back (P83).
        whole = whole_drop(state, table) if table is not None else None
        for each in (row, whole):
            if each is not None:
                state.queue[each.id] = replace(each, cleaner_start=at)


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
