"""The metastore process as the simulator runs it: decide, write, answer, and crash in between.

It does what server.py does in one round, without sockets and threads, so that the simulator can
crash it between any two of these.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from acid_platform.metastore.operations import read_operation
from acid_platform.metastore.rules.events import Recorded
from acid_platform.metastore.rules.machine import Handled, Machine
from acid_platform.metastore.rules.state import State
from acid_platform.metastore.rules.timers import touch
from acid_platform.metastore.server import state_rows
from tests.clocks import ManualClock
from tests.simulation.storage import Storage

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
    """A metastore on its storage; `batch` is decided but not written yet."""

    def __init__(self, store: Storage, clock: ManualClock) -> None:
        self.store, self.clock = store, clock
        self.connected: set[str] = set()
        """Requests whose client waits for the answer."""
        self.batch: list[Decided] = []
        self.start()

    def start(self) -> None:
        """Rebuilds memory from the file; waiting clients have lost their connections."""
        self.batch = []
        state, events = self.store.load()
        self.machine = Machine(state, self.store)
        self.machine.replay(events)
        self.machine.wake(self.clock.moment())
        self.connected.clear()

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
        """Makes the batch durable, and returns it to be answered."""
        events: list[Recorded] = [
            event for decided in self.batch for event in decided.handled.events
        ]
        if events:
            self.store.append(events)
        done, self.batch = self.batch, []
        return done

    def fold(self) -> None:
        self.store.fold(self.machine.state, NO_FORGETTING)
        state_rows.forget_ended(self.machine.state)

    def outcome(self, request_id: str) -> Json:
        """What a client learns about an answer that was lost (P3)."""
        if self.machine.waits(request_id):
            return {"seen": "waiting"}
        kept = self.machine.state.outcomes.get(request_id) or self.store.past_outcome(request_id)
        if kept is None:
            return {"seen": "unseen"}
        return {"seen": "done", "answer": self.machine.expand(kept.op, kept.reply)}


def picture(state: State) -> Json:
    """Everything that has to survive a crash, sorted."""
    rows = state_rows.live_rows(state) | state_rows.ended_rows(state)
    text = {
        name: sorted(json.dumps(row, sort_keys=True) for row in part) for name, part in rows.items()
    }
    return {**text, "counters": state_rows.counters(state)}
