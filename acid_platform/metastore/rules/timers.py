"""Timers, which are kept in memory and follow the steady clock (P7, P29).

A jump of the wall clock does not affect them. They do not survive a restart; what has to survive is
recorded in wall time. `wake` sets new timers at a start: open transactions, waiting locks and
running cleanings get their whole time again; rows that wait for a cleaning get the rest of theirs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING

from acid_platform.compaction.states import CompactionState
from acid_platform.metastore.operations.compaction import CompactionTask
from acid_platform.transactions import TxnType

if TYPE_CHECKING:
    from acid_platform.base.clock import Moment
    from acid_platform.base.config import Settings
    from acid_platform.metastore.rules.state import Entity, State

NEVER = -(2**62)
"""Before every moment."""


@dataclass(slots=True)
class Timers:
    """Moments of the steady clock, in milliseconds."""

    now: int = 0
    """The moment of the request that is being handled; it has no meaning while events
    are replayed."""
    wait_ends: dict[int, int] = field(default_factory=dict)
    """When the wait of a lock request ends (L11), by the lock's id."""
    cleaned_since: dict[Entity, int] = field(default_factory=dict)
    """When a Cleaner began to work on an entity (P21)."""
    row_since: dict[int, int] = field(default_factory=dict)
    """When a row of the compaction queue entered its state, by its id (C25, C38)."""
    retry_row: dict[int, int] = field(default_factory=dict)
    """When the cleaning of such a row is tried again (C48)."""
    retry_entity: dict[Entity, int] = field(default_factory=dict)
    """When the cleaning of an entity's aborted transactions is tried again (C54)."""
    shortened: int = NEVER
    """When `hive.txn.timeout` was last made shorter: a client without a heartbeat since then does
    not know it."""


def touch(beats: dict[int, int], id_: int, now: int) -> None:
    """Records a heartbeat and moves it to the end, so that the oldest heartbeat stays in front."""
    beats.pop(id_, None)
    beats[id_] = now


def silent(beats: dict[int, int], before: int) -> list[int]:
    """The ids whose last heartbeat came before this moment, oldest heartbeat first."""
    return [txn_id for txn_id, _ in takewhile(lambda beat: beat[1] < before, beats.items())]


def wake(state: State, moment: Moment) -> None:
    """To be called at a start, after the replay: every open transaction gets one fresh timeout
    (P7)."""
    now = moment.steady
    timers = state.timers = Timers(now, shortened=now)
    for txn in state.open_txns():
        if txn.has_client:
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
        since, fresh = row.commit_time, False
        if isinstance(row, CompactionTask) and row.state is CompactionState.WORKING:
            since, fresh = row.started, row.txn_id in state.heartbeats
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
    """The milliseconds left of a wait, but never more than the whole wait."""
    first = settings.integer("hive.compactor.cleaner.retry.retention.time")
    return min(max(0, until - wall), first << max(attempts - 1, 0))


def patience(state: State, last: int) -> int:
    """How many milliseconds a client may be silent after its last heartbeat at `last`.

    That is `hive.txn.timeout`. If it was made shorter since then, the client does not know yet: it
    learns the new timeout with the answer to its next heartbeat, so the longest timeout that was in
    force still counts (P29).
    """
    timeout = state.settings.integer("hive.txn.timeout")
    return max(timeout, state.longest_timeout) if last <= state.timers.shortened else timeout


def dead(state: State, beats: dict[int, int]) -> list[int]:
    """The ids that were silent for longer than `patience` allows, oldest heartbeat first."""
    now = state.timers.now
    before = now - state.settings.integer("hive.txn.timeout")
    return [id_ for id_ in silent(beats, before) if now - beats[id_] > patience(state, beats[id_])]
