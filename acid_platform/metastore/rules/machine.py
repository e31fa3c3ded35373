"""The metastore's state machine: it takes a request and its moment, and returns events and answers.

It is deterministic, without a clock, files or a database, so that a simulator can drive it.
`replay` applies journaled events; the result is the state that recorded them. `tick` does what is
due without a request: it aborts dead transactions, ends waits and leases, and purges (P2, T13 to
T16, T43 to T45, C57). `Schedule` decides when each part is due.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pkgutil import iter_modules

from acid_platform.base.clock import Moment
from acid_platform.base.config import Settings
from acid_platform.errors import AcidError, MetastoreDamaged
from acid_platform.metastore import operations as ops
from acid_platform.metastore import rules
from acid_platform.metastore.messages import (
    OPERATIONS,
    Answer,
    MetastoreOperation,
    decode,
    encode,
    write_answer,
)
from acid_platform.metastore.records import NO_HEARTBEAT
from acid_platform.metastore.rules import (
    compactions,
    identity,
    locking,
    merging,
    other_engine_requests,
    reading,
    snapshots,
    timers,
    txns,
    write_set,
)
from acid_platform.metastore.rules.branch_commits import BranchCommitted
from acid_platform.metastore.rules.compactions import CompactionCommitted
from acid_platform.metastore.rules.declared import forget, outlived
from acid_platform.metastore.rules.locking import LockRemoved
from acid_platform.metastore.rules.past_snapshots import TagDropped
from acid_platform.metastore.rules.snapshots import first_snapshot, low_mark
from acid_platform.metastore.rules.state import Departed, Ended, Entity, State, TableState
from acid_platform.metastore.rules.table_declarations import TableAltered
from acid_platform.metastore.rules.timers import NEVER, dead, patience, silent
from acid_platform.metastore.rules.turn import (
    HANDLERS,
    Event,
    Parked,
    Past,
    Recorded,
    Replied,
    Reply,
    Turn,
    error_reply,
    handles,
)
from acid_platform.metastore.rules.txns import end
from acid_platform.metastore.rules.write_set import Aborted, Committed
from acid_platform.transactions import RowOperation, TxnType

for _module in iter_modules(rules.__path__, f"{rules.__name__}."):
    import_module(_module.name)  # completes HANDLERS and EVENTS

EXPAND: dict[type[MetastoreOperation[object]], Callable[..., object]] = {
    ops.Begin: reading.begun,
    ops.Lock: txns.granted,
    ops.BeginCompaction: compactions.begun,
}
"""Builds the whole answer from the state and the kept record, each time it is given."""

_FREES = (Committed, Aborted, BranchCommitted, LockRemoved, CompactionCommitted, TableAltered)
"""Events that may unblock a waiting lock request, or show that it need not wait any longer."""


class _NoPast:
    """The Past of a machine without a file: memory holds everything."""

    def past_txn(self, txn_id: int) -> Ended | None:  # noqa: ARG002 (Past declares it)
        return None

    def recorded(
        self,
        table_id: int,  # noqa: ARG002 (Past declares it)
        partitions: Sequence[str | None],  # noqa: ARG002
    ) -> Mapping[tuple[str | None, str], str]:
        return {}


@dataclass(frozen=True, slots=True)
class Handled:
    """The result of a request: events for the journal, then answers, perhaps to other requests."""

    events: list[Recorded]
    replies: list[Reply]


class Machine:
    """One state and the rules that change it. `past` knows what only a snapshot has."""

    def __init__(self, state: State | None = None, past: Past | None = None) -> None:
        self.state = state or State()
        self._past = past or _NoPast()
        self._schedule = Schedule()

    def replay(self, recorded: Iterable[Recorded]) -> None:
        """Raises MetastoreDamaged for an event that can't follow on those before it."""
        for record in recorded:
            try:
                record.event.apply(self.state, record.at)
            except (LookupError, ValueError, TypeError, AttributeError, AssertionError) as error:
                raise MetastoreDamaged(
                    f"the event {record.kind} of moment {record.at} does not fit what the log holds"
                    f" before it: {type(error).__name__}: {error}; restore a backup"
                ) from error

    def wake(self, moment: Moment) -> None:
        """To be called at a start, after `replay`: every open transaction gets one fresh timeout
        (P7)."""
        # Above every moment that a client knows: a client that asks for changes since then gets
        # all.
        self.state.awake = self.state.next_moment + 1
        self.state.forgotten = max(self.state.forgotten, low_mark(self.state))
        timers.wake(self.state, moment)
        self._schedule = Schedule(started=moment.steady)

    def _turn(self, moment: Moment, request_id: str = "") -> Turn:
        self.state.timers.now = moment.steady
        return Turn(self.state, moment.wall, request_id, self._past)

    def handle(
        self, operation: MetastoreOperation[object], request_id: str, moment: Moment
    ) -> Handled:
        """Decides one request; errors are answers too. A request that was seen before gets its old
        answer."""
        turn = self._turn(moment, request_id)
        if self.waits(request_id):
            return Handled([], [])
        kind = type(operation)
        repeatable = kind.repeatable
        if not repeatable and (outcome := self.state.outcomes.get(request_id)) is not None:
            return Handled([], [Reply(request_id, self.expand(outcome.op, outcome.reply))])
        txn = getattr(operation, "txn", None)
        reply: Answer | None
        try:
            answer = HANDLERS[kind](turn, operation)
            txn = getattr(answer, "txn", txn)
            whole = kind.outcome is None
            reply = {"value": write_answer(kind, answer) if whole else encode(answer)}
        except Parked:
            reply = None
        except AcidError as error:
            reply = error_reply(error)
        self._settle(turn)
        if reply is not None:
            if turn.events and not repeatable:
                turn.record(Replied(request_id, txn or 0, kind.op, reply))
            turn.replies.append(Reply(request_id, reply, kind.op))
        return self._handled(turn)

    def tick(self, moment: Moment) -> Handled:
        """Does what is due by itself: reaper, lock waits, leases, purges."""
        turn = self._turn(moment)
        tick(turn, self._schedule)
        self._settle(turn)
        return self._handled(turn)

    def purge(self, moment: Moment) -> Handled:
        """Forgets what nobody needs, even if that is not due yet: the next snapshot then
        writes less."""
        turn = self._turn(moment)
        purge(turn)
        return self._handled(turn)

    def copied(self, moment: Moment) -> Handled:
        """Notes that the metastore's files are a copy: tables outside of it are not ours (P31)."""
        turn = self._turn(moment)
        identity.copied(turn)
        return self._handled(turn)

    def waits(self, request_id: str) -> bool:
        """Whether the request is parked: its lock is not granted yet."""
        return request_id in self.state.waiting

    def expand(self, op: str, reply: Answer) -> Answer:
        """The whole answer, built from what was kept of it."""
        kind = OPERATIONS.get(op)
        if kind is None or kind.outcome is None or "value" not in reply:
            return reply
        try:
            whole = EXPAND[kind](self.state, self._past, decode(kind.outcome, reply["value"]))
        except AcidError as error:
            return error_reply(error)
        return {"value": write_answer(kind, whole)}

    def _settle(self, turn: Turn) -> None:
        looked_at = 0
        while any(isinstance(record.event, _FREES) for record in turn.events[looked_at:]):
            looked_at = len(turn.events)
            locking.settle(turn)

    def _handled(self, turn: Turn) -> Handled:
        replies = [
            replace(reply, value=self.expand(reply.op, reply.value)) for reply in turn.replies
        ]
        return Handled(turn.events, replies)


@dataclass(slots=True)
class Schedule:
    """When each part ran last, by the steady clock (P29).

    The settings are read at every tick, so a shorter interval takes effect at once.
    """

    started: int = NEVER
    reaped: int = NEVER
    purged: int = NEVER
    history: int = NEVER

    def reaps(self, settings: Settings, now: int) -> bool:
        """The reaper waits for its start delay, so that clients can come back first (T13)."""
        start = self.started + settings.integer("hive.timedout.txn.reaper.start")
        return now >= max(
            start, self.reaped + settings.integer("hive.timedout.txn.reaper.interval")
        )


def tick(turn: Turn, last: Schedule) -> None:
    """Runs every part that is due."""
    settings, now = turn.state.settings, turn.steady
    locking.expire_waits(turn)
    end_leases(turn)
    if last.reaps(settings, now):
        reap(turn)
        last.reaped = now
    if now >= last.purged + settings.integer("hive.writeset.reaper.interval"):
        purge(turn)
        last.purged = now
    if now >= last.history + settings.integer("hive.compactor.history.reaper.interval"):
        compactions.purge_history(turn)
        last.history = now


def reap(turn: Turn) -> None:
    """Aborts transactions that had no heartbeat for the timeout; until then they live
    (T13, T15)."""
    beats = turn.state.heartbeats
    for txn_id in dead(turn.state, beats):
        timeout = patience(turn.state, beats[txn_id])
        end(turn, txn_id, f"{NO_HEARTBEAT} for {timeout / 1000:g} s")
    merging.expire(turn)
    other_engine_requests.expire_alone(turn)
    longest = turn.state.longest_timeout
    if longest and turn.steady - turn.state.timers.shortened > longest:
        turn.record(TimeoutKnown())


def end_leases(turn: Turn) -> None:
    """Ends read leases `acid.read.lease.max` after their last read (P12)."""
    most = turn.state.settings.integer("acid.read.lease.max")
    for txn_id in silent(turn.state.reads, turn.steady - most):
        end(turn, txn_id, f"no read for {most / 1000:g} s (acid.read.lease.max)")


# --- purges -------------------------------------------------------------------------------------


def purge(turn: Turn) -> None:
    """Forgets what no open snapshot, writer or file needs any more (T43 to T45, P4)."""
    state = turn.state
    low, writers = low_mark(state), _min_writer(state)
    needed = (
        write_set.may_forget(state, writers)
        or any(row.txn_id < low for table in state.tables.values() for row in table.writes)
        or any(not state.components.get(txn.txn_id) for txn in state.aborted_txns())
        or any(_forgettable(state, table, low) for table in state.tables.values())
        or any(_outlived(state, txn.txn_id, low) for txn in state.aborted_txns())
        or len(_still_seen(state)) < len(state.departed)
        or outlived(state)
        or any(_horizon(state, table, turn.now) > table.since for table in state.tables.values())
    )
    if needed:
        turn.record(Purged(low=low, writers=writers))
    for table in state.tables.values():
        for tag in list(table.tags.values()):
            if tag.expires and tag.expires <= turn.now:
                turn.record(TagDropped(table.record.table_id, tag.name))


def _horizon(state: State, table: TableState, now: int) -> int:
    """The moment before which the history may be forgotten: without a retention that is left to
    the Cleaner (P36)."""
    return (
        snapshots.horizon(state, table, now) if snapshots.retention(state, table) else table.since
    )


def _min_writer(state: State) -> int:
    """The lowest open transaction that can conflict, or the next id."""
    return min(
        (txn.txn_id for txn in state.open_txns() if txn.kind is TxnType.DEFAULT),
        default=state.next_txn,
    )


def _forgettable(state: State, table: TableState, low: int) -> set[int]:
    """Aborted write ids that a base of every entity hides from all possible readers (P4)."""
    entities = table.entities()
    # Snapshots from before the drop of a partition may still read its files (P22).
    dropping = any(drop.table_id == table.record.table_id for drop in state.drops())
    if not table.aborted or not entities or dropping:
        return set()
    later = {past.txn_id for past in table.commits}
    top = min(_safe_base(state, entity, low, later) for entity in entities)
    mapped = {row.write_id for row in table.writes}
    waiting = {
        component.write_id
        for txn in state.aborted_txns()
        for component in state.components.get(txn.txn_id, ())
        if component.table_id == table.record.table_id
    }
    # The highest forgotten id is the floor of new partitions, so nothing below it may be written.
    unsettled = [row.write_id - 1 for row in table.writes if row.txn_id >= low]
    top = min(top, *unsettled) if unsettled else top
    return {write_id for write_id in table.aborted if write_id <= top} - mapped - waiting


def _safe_base(state: State, entity: Entity, low: int, later: Container[int] = ()) -> int:
    """The highest write id of a base that all open snapshots see; -1 without such a base.

    Bases of the transactions `later` do not count: past snapshots miss them (P36).
    """
    return max(
        (
            directory.high
            for directory in state.directories.get(entity, {}).values()
            if directory.base and directory.txn < low and directory.txn not in later
        ),
        default=-1,
    )


def _outlived(state: State, txn_id: int, low: int) -> bool:
    """Whether a later base hides what an aborted compaction could still publish (P4).

    It must hide it from open transactions that take their snapshot only when their locks are
    granted, too.
    """
    return any(
        component.cleaned
        and _safe_base(state, (component.table_id, component.partition), low) > component.write_id
        for component in state.components.get(txn_id, ())
        if component.operation is RowOperation.COMPACT
    )


class Purged(Event, kind="purged"):
    """Forgets what nobody needs any more (T44, T45).

    `low`: every transaction below it has ended in every open snapshot; `writers`: the lowest
    transaction that may still conflict.
    """

    low: int
    writers: int

    def apply(self, state: State, at: int) -> None:
        low, writers = self.low, self.writers
        state.forgotten = max(state.forgotten, low)
        for table in state.tables.values():
            snapshots.advance_history(state, table, _horizon(state, table, at))
        write_set.purge(state, writers)
        for table in state.tables.values():
            gone = [row for row in table.writes if row.txn_id < low]
            if gone:
                table.purged = max(table.purged, *(row.write_id for row in gone))
                table.writes = [row for row in table.writes if row.txn_id >= low]
                for row in gone:
                    del table.by_txn[row.txn_id]
                _settle_floors(table)
            forgotten = _forgettable(state, table, low)
            if forgotten:
                table.aborted -= forgotten
                table.forgotten = max(table.forgotten, *forgotten)
        for txn in list(state.aborted_txns()):
            if _outlived(state, txn.txn_id, low):
                state.components[txn.txn_id] = [
                    component
                    for component in state.components[txn.txn_id]
                    if not component.cleaned
                    or _safe_base(state, (component.table_id, component.partition), low)
                    <= component.write_id
                ]
            if not state.components.get(txn.txn_id):
                state.components.pop(txn.txn_id, None)
                del state.txns[txn.txn_id]
                state.departed.append(Departed(txn.txn_id, txn.closed, state.moment()))
        state.departed = _still_seen(state)
        forget(state)


def _settle_floors(table: TableState) -> None:
    """Keeps only the last of the drops of a partition that every snapshot sees."""
    mapped = {row.write_id for row in table.writes}.union(past.write_id for past in table.commits)
    for name, floors in table.floors.items():
        if len(floors) > 1:
            settled = [floor for floor in floors if floor not in mapped]
            table.floors[name] = tuple(settled[-1:]) + tuple(
                floor for floor in floors if floor in mapped
            )


def _still_seen(state: State) -> list[Departed]:
    """Departed writers that the snapshot of an open transaction still lists (S4)."""
    first = first_snapshot(state)
    return [departed for departed in state.departed if first(departed.txn_id) < departed.gone]


class TimeoutKnown(Event, kind="timeout_known"):
    def apply(self, state: State, _at: int) -> None:
        """Forgets the longer timeout: every living client has learnt of the shorter one (P29)."""
        state.longest_timeout = 0


@handles(ops.ChangeSetting)
def set_value(turn: Turn, operation: ops.ChangeSetting) -> int:
    """Raises SettingRefused."""
    turn.state.settings.with_value(operation.name, operation.value)
    turn.record(SettingChanged(name=operation.name, value=operation.value))
    return turn.state.settings.heartbeat_interval


class SettingChanged(Event, kind="set"):
    name: str
    value: str

    def apply(self, state: State, _at: int) -> None:
        before = state.settings.integer("hive.txn.timeout")
        state.settings = state.settings.with_stored(self.name, self.value)
        clients = next(state.open_txns(), None) or state.locks or state.cleaning
        if clients and state.settings.integer("hive.txn.timeout") < before:
            state.longest_timeout = max(state.longest_timeout, before)
            state.timers.shortened = state.timers.now
