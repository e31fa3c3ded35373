"""A metastore process as the simulator runs it: decide, write, answer, and crash in between.

It does what server.py does in one round, without sockets and threads, so that the simulator can
crash it between any two of these.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from acid_platform.metastore.messages import read_operation
from acid_platform.metastore.rules.machine import Handled, Machine
from acid_platform.metastore.rules.state import State
from acid_platform.metastore.rules.timers import touch
from acid_platform.metastore.rules.turn import Recorded
from acid_platform.metastore.server import stored_kinds
from acid_platform.metastore.server.group_commit import GroupCommit
from acid_platform.metastore.server.store import Store, machine_at
from tests.clocks import ManualClock
from tests.simulation.storage import Place

Json = dict[str, Any]
NO_FORGETTING = 0


@dataclass(frozen=True, slots=True)
class Request:
    """A client's message; if it is sent again, it has the same id."""

    id: str
    client: int
    op: str
    args: Json


@dataclass(frozen=True, slots=True)
class Decided:
    """The result of a request, or of a tick (None), and when, by the steady clock."""

    request: Request | None
    handled: Handled
    at: int
    alive: frozenset[str] = frozenset()
    """For a tick: the waiting requests whose client is still connected."""


class Process:
    """A metastore on its log; `batch` is decided but not written yet."""

    def __init__(self, place: Place, clock: ManualClock) -> None:
        self.place, self.clock = place, clock
        self.connected: set[str] = set()
        """Requests whose client waits for the answer."""
        self.batch: list[Decided] = []
        self.saver: int | None = None
        """The position of a snapshot that a process of its own writes."""
        self.saved = False
        """Whether it has, and memory does not know yet."""
        self.commits = GroupCommit(place.store(), clock)

    def restart(self) -> None:
        """The process is killed; another one begins with what the log has."""
        self.store.close()
        self.batch = []
        self.connected.clear()
        self.commits = GroupCommit(self.place.store(), self.clock)

    @property
    def store(self) -> Store:
        return self.commits.store

    @property
    def machine(self) -> Machine:
        return self.commits.machine

    # --- requests -------------------------------------------------------------------------------

    def submit(self, request: Request) -> None:
        now = self.clock.moment()
        self.connected.add(request.id)
        operation = read_operation(request.op, request.args)
        handled = self.machine.handle(operation, request.id, now)
        self.batch.append(Decided(request, handled, now.steady))

    def tick(self) -> None:
        now, state = self.clock.moment(), self.machine.state
        alive = set()
        for entry in state.locks.values():
            if not entry.acquired and entry.request_id in self.connected:
                beats = state.heartbeats if entry.txn_id else state.lock_beats
                touch(beats, entry.txn_id or entry.ext, now.steady)
                alive.add(entry.request_id)
        handled = self.machine.tick(now)
        self.batch.append(Decided(None, handled, now.steady, frozenset(alive)))

    def write(self) -> list[Decided]:
        """Makes the batch durable, and returns it to be answered. Raises OSError, PositionTaken."""
        events: list[Recorded] = [
            event for decided in self.batch for event in decided.handled.events
        ]
        if events:
            self.commits._write(events)
        done, self.batch = self.batch, []
        return done

    def outcome(self, request_id: str) -> Json:
        """What a client learns about an answer that was lost (P3)."""
        if self.machine.waits(request_id):
            return {"seen": "waiting"}
        kept = self.machine.state.outcomes.get(request_id) or self.store.past_outcome(request_id)
        if kept is None:
            return {"seen": "unseen"}
        return {"seen": "done", "answer": self.machine.expand(kept.op, kept.reply)}

    # --- snapshots ------------------------------------------------------------------------------

    def mark(self) -> None:
        """A snapshot of the end of the log is due: notes what memory will forget then."""
        if self.saver is None:
            self.commits._mark()
            self.saver = self.store.end.position

    def adopt(self) -> None:
        """The snapshot is in the log: memory forgets what it has."""
        self.commits._adopt()
        self.saver, self.saved = None, False

    def end_saving(self) -> list[int]:
        """Ends the process that writes a snapshot, which may still do so; returns its position."""
        saver, self.saver = self.saver, None
        self.commits._saving, self.saved = None, False
        return [] if saver is None else [saver]


def write_snapshot(place: Place, position: int) -> None:
    """What the process does that writes a snapshot from the log."""
    store = place.store(appends=False)
    store.save(machine_at(store, position).state, NO_FORGETTING)
    store.close()


def picture(state: State, store: Store) -> Json:
    """Everything that has to survive a crash, sorted, but for what the snapshot has."""
    ended = stored_kinds.ended_rows(state)
    rows = stored_kinds.live_rows(state) | {
        "txns": [row for row in ended["txns"] if not store.past_txn(row["txn_id"])],
        "outcomes": [row for row in ended["outcomes"] if not store.past_outcome(row["request_id"])],
        "writes": [row for row in ended["writes"] if not store.past_txn(row["txn"])],
    }
    text = {
        name: sorted(json.dumps(row, sort_keys=True) for row in part) for name, part in rows.items()
    }
    return {**text, "counters": stored_kinds.counters(state)}
