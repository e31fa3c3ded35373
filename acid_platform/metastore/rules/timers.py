"""What is waited for in memory, by the steady clock: no jump of the wall clock matters (P7, P29).

None of it is kept over a restart. What people see, and what has to outlive a restart, is recorded
in wall time beside it. `wake` makes new timers at a start: whoever is open, waits for a lock or is
cleaned gets his whole time once more; what waits for a cleaning gets what the recorded times leave.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING

from acid_platform.compaction.states import CompactionState
from acid_platform.transactions import TxnType

if TYPE_CHECKING:
    from acid_platform.clock import Moment
    from acid_platform.config import Settings
    from acid_platform.metastore.rules.state import Entity, State

NEVER = -(2**62)
"""Before every moment."""


@dataclass(slots=True)
class Timers:
    """Moments of the steady clock, in milliseconds."""

    now: int = 0
    """The moment of the request that is being handled; while events are replayed it means nothing.
    """
    wait_ends: dict[int, int] = field(default_factory=dict)
    """When the wait of a lock request is over (L11), by the lock's id."""
    cleaned_since: dict[Entity, int] = field(default_factory=dict)
    """Since when a Cleaner works on an entity (P21)."""
    row_since: dict[int, int] = field(default_factory=dict)
    """Since when a row of the compaction queue is in its state, by its id (C25, C38)."""
    retry_row: dict[int, int] = field(default_factory=dict)
    """When the cleaning of such a row is tried again (C48)."""
    retry_entity: dict[Entity, int] = field(default_factory=dict)
    """When the cleaning of an entity's aborted transactions is tried again (C54)."""
    shortened: int = NEVER
    """When `hive.txn.timeout` was last made shorter: whoever was not heard of since does not know.
    """


def touch(beats: dict[int, int], one: int, now: int) -> None:
    """Notes a sign of life, at the end: the order tells who is silent longest."""
    beats.pop(one, None)
    beats[one] = now


def silent(beats: dict[int, int], before: int) -> list[int]:
    """Those whose last sign of life came before this moment, who is silent longest first."""
    return [one for one, _ in takewhile(lambda beat: beat[1] < before, beats.items())]


def wake(state: State, moment: Moment) -> None:
    """At a start, after the replay: everybody who is open gets one fresh timeout (P7)."""
    now = moment.steady
    timers = state.timers = Timers(now, shortened=now)
    for txn in state.open_txns():
        state.heartbeats[txn.txn_id] = now
        if txn.kind is TxnType.READ_ONLY:
            state.reads[txn.txn_id] = now
    for entry in state.locks.values():
        if not entry.txn_id:
            state.lock_beats[entry.ext] = now
        if not entry.acquired:
            timers.wait_ends[entry.ext] = now + entry.deadline - entry.requested
    timers.cleaned_since = dict.fromkeys(state.cleaning, now)
    for row in state.queue.values():
        working = row.state is CompactionState.WORKING
        fresh = working and row.txn_id in state.heartbeats
        since = row.started if working else row.commit_time
        timers.row_since[row.id] = now if fresh else now - max(0, moment.wall - since)
        if row.cleaner_attempts:
            timers.retry_row[row.id] = now + _left(
                state.settings, moment.wall, row.cleaner_retry_at, row.cleaner_attempts
            )
    for entity, retry in state.retries.items():
        timers.retry_entity[entity] = now + _left(
            state.settings, moment.wall, retry.at, retry.attempts
        )


def _left(settings: Settings, wall: int, until: int, attempts: int) -> int:
    """Milliseconds of a wait, which are never more than the whole wait."""
    first = settings.integer("hive.compactor.cleaner.retry.retention.time")
    return min(max(0, until - wall), first << max(attempts - 1, 0))


def patience(state: State, last: int) -> int:
    """How many milliseconds somebody whose last sign of life came at `last` may be silent.

    That is `hive.txn.timeout`. One that was made shorter does not count for who was not heard of
    since: he learns of it by the answer to his next sign of life, which may take him the longest
    timeout that was in force (P29).
    """
    timeout = state.settings.integer("hive.txn.timeout")
    return max(timeout, state.longest_timeout) if last <= state.timers.shortened else timeout


def dead(state: State, beats: dict[int, int]) -> list[int]:
    """Those who were silent for longer than `patience` allows, who is silent longest first."""
    now = state.timers.now
    before = now - state.settings.integer("hive.txn.timeout")
    return [one for one in silent(beats, before) if now - beats[one] > patience(state, beats[one])]
