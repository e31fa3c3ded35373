"""Several processes that may lead one log, with acknowledgements that get lost (P10).

One process leads and another follows. When the other takes over, the first still believes that it
leads: it decides requests, but none of its batches may count. Its clients then ask the new leader
for the outcomes.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from acid_platform import AcidError
from acid_platform.metastore.log.contract import PositionTaken
from tests.simulation.claims import claim
from tests.simulation.process import Decided, Process, Request
from tests.simulation.storage import Memory, Place

if TYPE_CHECKING:
    from tests.simulation.simulator import Simulation

_FAULTS = ("lost", "answer", "late")
_TRIES = 50
"""A log that fails does so in every fifth of them; what fails in all of them fails for ever."""


class Leaders:
    """The process that doesn't lead, and what a log elsewhere may do."""

    def __init__(self, sim: Simulation, place: Place) -> None:
        assert isinstance(place, Memory)
        self.sim, self.log = sim, place.log
        self.other = Process(place, sim.clock)
        self.misled = False
        """Whether the other process believes that it leads."""
        self.choice = random.Random(f"leaders {sim.seed}")

    def step(self) -> None:
        chance = self.choice.random()
        if self.misled and chance < 0.05:
            self._learn()
        elif not self.misled and chance < 0.02:
            self._follow()
        elif chance > 0.996:
            self.take_over()

    def mislead(self, request: Request) -> bool:
        """Whether a client sends its request to a process that no longer leads."""
        if not self.misled or request.client < 0 or self.choice.random() > 0.3:
            return False
        self.sim.note("to the replaced leader", request.id)
        self.sim.counts["misled"] += 1
        self.other.submit(request)
        return True

    # --- another process leads ------------------------------------------------------------------

    def take_over(self) -> None:
        """The other process leads, and the one that led does not know yet."""
        sim = self.sim
        if self.misled:
            self._learn()
        sim.note("take-over")
        sim.counts["take-over"] += 1
        for _ in range(_TRIES):
            if self.choice.random() < 0.2:
                self.log.failing = self.choice.choice(_FAULTS)
                self.log.arriving = self.choice.random() < 0.5
            try:
                self.other.commits.lead()
                break
            except (AcidError, OSError) as error:
                self.other.commits.step_down()
                last = error
        else:
            claim("P10", False, f"nobody can lead any more: {last}")
        self.log.failing = ""
        sim.process, self.other, self.misled = self.other, sim.process, True
        waiting = set(self.other.connected)
        sim.woken()
        # Those that wait for the replaced leader don't know either.
        for actor in sim.actors:
            if actor.pending is not None and actor.pending.id in waiting:
                actor.connected = True

    def _follow(self) -> None:
        if self.choice.random() < 0.3:
            self.log.broken = self.choice.randrange(1, 4)
        try:
            self.other.commits.follow()
            self.sim.counts["followed"] += 1
        except (AcidError, OSError):
            self.sim.counts["could not follow"] += 1
        self.log.broken = 0

    def _learn(self) -> None:
        """The replaced leader learns that it no longer leads; nothing that it decided counts."""
        sim, other = self.sim, self.other
        if self.choice.random() < 0.5:
            other.tick()
        end = self.log.last
        if any(decided.handled.events for decided in other.batch):
            try:
                if self.choice.random() < 0.5:
                    self.log.failing = "away"
                try:
                    other.write()
                except OSError as error:
                    sim.counts["replaced and away"] += 1
                    other.commits._fail([], error)
                    other.write()
                claim("P10", False, "a batch of a replaced leader was accepted")
            except PositionTaken:
                sim.counts["refused"] += 1
        claim("P10", self.log.last == end, "a replaced leader has appended a batch")
        sim.note("the replaced leader learns it")
        other.batch, self.misled = [], False
        sim.orphans += other.end_saving()
        other.commits.step_down()
        for actor in sim.actors:
            if actor.pending is not None and actor.pending.id in other.connected:
                actor.disconnected()
        other.connected.clear()

    # --- a log that fails -----------------------------------------------------------------------

    def write(self) -> list[Decided]:
        """Makes the leader's batch durable, or learns whether it is after an error."""
        process, choice = self.sim.process, self.choice
        if self.log.failing == "" and choice.random() < 0.02:
            self.log.failing = choice.choice(_FAULTS)
        decided = process.batch
        try:
            return process.write()
        except OSError as error:
            self._fail(decided, error)
            return []
        finally:
            self.log.failing = ""

    def _fail(self, decided: list[Decided], error: OSError) -> None:
        """The leader reads the log again; whoever waited for an answer asks for the outcome."""
        sim, process = self.sim, self.sim.process
        sim.note("append failed", error)
        sim.counts[str(error)] += 1
        process.batch, attempted = [], self.log.attempted
        self.log.arriving = self.choice.random() < 0.5
        try:
            process.commits._fail([], error)
            told = {reply.request_id for each in decided for reply in each.handled.replies}
            told |= {each.request.id for each in decided if each.request is not None}
        except PositionTaken:
            sim.counts["arrived late"] += 1
            sim.orphans += process.end_saving()
            process.commits.step_down()
            process.commits.lead()
            told = set(process.connected)
        self.log.arrive()
        if self.log.has(attempted):
            for each in decided:
                sim.tell_model(each)
        process.connected -= told
        waiting = set(process.connected) | self.other.connected
        sim.woken()
        for actor in sim.actors:
            if actor.pending is not None and actor.pending.id in waiting:
                actor.connected = True
