"""Runs clients, a Cleaner, time and crashes from one seed, and compares with model.py.

A step is one thing that happens: a client does something, time passes, the process crashes. The
model gets every decision once it is durable. The same seed gives the same run.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from tests.clocks import ManualClock
from tests.simulation.actors import Actor
from tests.simulation.checks import check_fast, check_whole
from tests.simulation.claims import Broken, claim
from tests.simulation.disk import Directory, Disk, Place
from tests.simulation.foreigners import Foreigner
from tests.simulation.keepers import Cleaner, Worker
from tests.simulation.leaders import Leaders
from tests.simulation.model import Model
from tests.simulation.process import Decided, Process, Request, picture, write_snapshot
from tests.simulation.storage import Memory
from tests.simulation.storage import Place as LogPlace
from tests.simulation.travellers import RETENTIONS, Traveller
from tests.simulation.visitors import Admin, Bystander, Declarer
from tests.simulation.writers import Writer

Json = dict[str, Any]

TABLES = {"t": False, "u": True, "v": True, "w": True}
"""Name, and whether it is partitioned. `w` comes only by renaming."""
PARTITIONS = ("p=1", "p=2", "p=3")

SETTINGS = {
    "hive.txn.timeout": "30s",
    "hive.timedout.txn.reaper.start": "4s",
    "hive.timedout.txn.reaper.interval": "3s",
    "hive.writeset.reaper.interval": "1s",
    "hive.compactor.aborted.txn.time.threshold": "0s",
    "hive.compactor.cleaner.retry.retention.time": "5s",
    "acid.read.lease.max": "40s",
    "hive.txn.xlock.write": "false",
    "acid.cleaner.watermark": "table",
    "acid.conflict.detection": "row",
    "acid.conflict.memory.bytes": "100000",
}

WALL, STEADY = 1_000_000_000, 5_000
"""The start of the two clocks, far apart, so that mixing them up is noticed."""
_TIMEOUTS = ("30s", "30s", "12s")
_JUMPS = (-86_400_000, 86_400_000, -20_000, 20_000, 700)
_PAUSES = (0, 0, 1000, 1000, 1000, 1000, 2000, 3000, 5000)


class Failure(AssertionError):
    """What broke, with everything that is needed to reproduce it."""


class Simulation:
    """One seeded run. `run(n)` raises Failure with the seed, the step and the last steps."""

    def __init__(self, seed: int, place: Callable[[], LogPlace] = Memory) -> None:
        self.seed, self.random = seed, random.Random(seed)
        self.row_choice = random.Random(f"rows {seed}")
        """Chooses rows, so that everything else happens as it would without rows."""
        self.key_choice = None if seed % 13 else random.Random(f"keys {seed}")
        """Chooses keys that writers look for, in some runs (P51)."""
        self.clock = ManualClock(WALL, STEADY)
        self.settings = dict(SETTINGS)
        if self.random.random() < 0.25:
            self.settings["hive.txn.xlock.write"] = "true"
        if self.random.random() < 0.2:
            self.settings["acid.cleaner.watermark"] = "global"
        if seed % 4 == 3:
            self.settings["acid.conflict.detection"] = "partition"
        if seed % 4 == 2:
            self.settings["acid.conflict.memory.bytes"] = "40"
        tidy = self.random.random() < 0.6
        if tidy:
            # The Cleaner works on compactions and drops rather than on every single abort.
            self.settings["hive.compactor.aborted.txn.time.threshold"] = "600s"
        if seed % 20 == 10:
            # Shorter than the life of transactions: leases end although their owner is alive (P12).
            self.settings["acid.read.lease.max"] = "15s"
        self.travels = seed % 3 == 0
        """Whether somebody reads the past, and tables have retentions (P36)."""
        self.visited = seed % 5 == 4
        """Whether other engines use the tables through the gateway (P46)."""
        self.place = place()
        self.process = Process(self.place, self.clock)
        self.process.commits.lead()
        self.orphans: list[int] = []
        """Positions of snapshots that processes without a leader may still write."""
        several = self.place.shared and seed % 3 == 1
        if several:
            self.settings["acid.metastore.snapshot.bytes"] = "20000"
        self.leaders = Leaders(self, self.place) if several else None
        """Several processes that may lead the log, and lost acknowledgements, if there are."""
        self.log_choice = random.Random(f"log {seed}")
        """Chooses when snapshots are written, so that everything else happens as without them."""
        self.model = Model(self.settings)
        self.disk = Disk()
        self.late: list[tuple[Place, Directory]] = []
        """What writers that count as dead may still publish."""
        self.unstaged: set[int] = set()
        """Compactions whose staged output is gone: they can rename nothing more (P46)."""
        self.durable: set[str] = set()
        """Requests whose effects are in the journal."""
        self.acknowledged: dict[int, str] = {}
        """How transactions ended, as far as a client was told."""
        self.steps = self.requests = 0
        self.trace: deque[tuple[object, ...]] = deque(maxlen=40)
        self.counts: Counter[str] = Counter()
        self.actors: list[Actor] = [Writer(self, number) for number in range(9)]
        self.actors += [
            Worker(self, 9),
            Worker(self, 10),
            Cleaner(self, 11),
            Admin(self, 12),
            Bystander(self, 13),
            Declarer(self, 14),
            Declarer(self, 15),
        ]
        # Few writers test the borders of intervals, many writers test the locks.
        writers = self.random.choice((2, 3, 5, 9))
        others = [8, 8, 10, 2, 1, 1, 1] if tidy else [6, 6, 6, 1, 2, 1, 1]
        if self.travels:
            self.actors.append(Traveller(self, 16))
            others.append(12)
        if self.visited:
            self.actors += [Foreigner(self, len(self.actors) + number) for number in range(3)]
            others[:2] = [30, 30]
            others += [6, 6, 6]
        self.weights = (
            [6] * writers + [0] * (9 - writers) + [weight * writers / 9 for weight in others]
        )
        self.slow = self.random.choice((0.0, 0.2))
        self._prepare()

    def _prepare(self) -> None:
        self.model.wake(self.clock.moment().steady)
        for name, value in self.settings.items():
            self.call("set", name=name, value=value)
        for name in ("t", "u", "v"):
            self.call("create_table", table=self.declared(name), if_not_exists=False)

    # --- the run ----------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        try:
            for _ in range(steps):
                self.step()
            self.write()
            self._restart("at the end")
            check_whole(self)
            if self.leaders is not None:
                self.leaders.take_over()
        except Exception as error:
            lines = "\n".join("  " + " ".join(map(str, step)) for step in self.trace)
            raise Failure(
                f"seed {self.seed}, step {self.steps}: {type(error).__name__}: {error}\n"
                f"replay: make lab-sim SEED={self.seed} N={self.steps}\nlast steps:\n{lines}"
            ) from error

    def step(self) -> None:
        self.steps += 1
        chance = self.random.random()
        if chance < 0.1:
            for actor in self.random.sample(self.actors, 4):
                if actor.next is not None:
                    actor.act()
                    break
        elif chance < 0.88:
            (actor,) = self.random.choices(self.actors, self.weights)
            actor.act()
        elif chance < 0.95:
            self._pass_time()
        elif chance < 0.97:
            self._publish_late()
        elif chance < 0.976:
            self._mark()
        elif chance < 0.982:
            self._crash()
        if self.process.batch and self.random.random() < 0.75:
            self.write()
        self._go_on_saving()
        if self.leaders is not None:
            self.leaders.step()

    def note(self, *what: object) -> None:
        self.trace.append((self.steps, *what))

    def declared(self, name: str, location: str = "") -> Json:
        """A new table, with a retention if somebody reads the past."""
        record = declared(name, location)
        if self.travels and name in RETENTIONS:
            record["properties"] = {"acid.history.retention": RETENTIONS[name]}
        return record

    # --- requests ---------------------------------------------------------------------------

    def send(self, client: int, op: str, **args: Any) -> Request:
        self.requests += 1
        request = Request(f"{client}-{self.requests}", client, op, args)
        self.submit(request)
        return request

    def submit(self, request: Request) -> None:
        self.note("client", request.client, request.op, request.args, request.id)
        self.counts[request.op] += 1
        if self.leaders is None or not self.leaders.mislead(request):
            self.process.submit(request)
            if self.leaders is not None:  # who asked the replaced leader first has left it
                self.leaders.other.connected.discard(request.id)

    def forget(self, request_id: str) -> None:
        """The client of this request is gone."""
        self.process.connected.discard(request_id)
        if self.leaders is not None:
            self.leaders.other.connected.discard(request_id)

    def call(self, op: str, **args: Any) -> Json:
        """A request that no actor makes."""
        request, replies = self.send(-1, op, **args), dict[str, Any]()
        while not replies or request.id not in self.durable:
            if replies:  # the write before failed
                self.submit(request)
            handled = self.process.batch[-1].handled
            replies = {reply.request_id: reply.value for reply in handled.replies}
            self.write()
        return replies[request.id]

    def write(self) -> None:
        """Makes the batch durable, then delivers the answers, except those that are lost."""
        written = self.process.write() if self.leaders is None else self.leaders.write()
        for decided in written:
            self.tell_model(decided)
        for decided in written:
            for reply in decided.handled.replies:
                if reply.request_id not in self.process.connected:
                    continue
                self.process.connected.discard(reply.request_id)
                client = int(reply.request_id.rpartition("-")[0])
                if client < 0:
                    continue
                if self.random.random() < 0.02:
                    self.note("answer lost", reply.request_id)
                    self.counts["lost"] += 1
                    self.actors[client].disconnected()
                    continue
                self.note("answer", reply.request_id, reply.value)
                self.actors[client].answered(reply.request_id, reply.value)
        check_fast(self)
        if self.random.random() < 0.02:
            check_whole(self)

    def tell_model(self, decided: Decided) -> None:
        replies = {reply.request_id: reply.value for reply in decided.handled.replies}
        request = decided.request
        if request is None:
            self.model.tick(decided.at, decided.alive, replies)
            return
        repeated = request.id in self.durable
        if decided.handled.events:
            self.durable.add(request.id)
        self.model.apply(request.id, request.op, request.args, replies, decided.at, repeated)

    def outcome(self, request: Request) -> Json:
        """The outcome after a lost answer, which is known exactly if it is durable (P3)."""
        found = self.process.outcome(request.id)
        expected = ("done", "waiting") if request.id in self.durable else ("unseen",)
        claim("P3", found["seen"] in expected, "outcome of", request, "is", found)
        return found

    # --- time and accidents -----------------------------------------------------------------

    def _pass_time(self) -> None:
        pause = self.random.choice(_PAUSES)
        self.clock.advance(pause)
        self.note("tick", pause)
        self.process.tick()
        if self.random.random() < 0.08:
            self._set_clock()
        if self.random.random() < 0.08:
            self.counts["timeout set"] += 1
            self.call("set", name="hive.txn.timeout", value=self.random.choice(_TIMEOUTS))

    def _set_clock(self) -> None:
        """Sets the wall clock, by seconds or by a day (P29)."""
        jump = self.random.choice(_JUMPS)
        self.note("the wall clock jumps by", jump)
        self.counts["clock set"] += 1
        self.clock.set_wall(jump)

    def _publish_late(self) -> None:
        """A writer that counted as dead was only slow (P4)."""
        if self.late:
            place, one = self.late.pop(self.random.randrange(len(self.late)))
            self.note("late", place, one.name)
            self.counts["late"] += 1
            self.disk.publish(place, one)

    def _mark(self) -> None:
        self.write()
        self.note("a snapshot is due")
        self.process.mark()

    def _go_on_saving(self) -> None:
        """Snapshots are written from the log and adopted while everything else goes on."""
        chance, process = self.log_choice, self.process
        if self.orphans and chance.random() < 0.05:
            self._write_snapshot(self.orphans.pop(0))
        if process.saver is None or chance.random() > 0.15:
            return
        if process.saved:
            self.note("the snapshot is adopted")
            self.counts["snapshot adopted"] += 1
            process.adopt()
        elif chance.random() < 0.05:
            self.note("the snapshot fails")
            process.end_saving()
        else:
            self._write_snapshot(process.saver)
            process.saved = True

    def _write_snapshot(self, position: int) -> None:
        self.note("a snapshot is written", position)
        self.counts["snapshot"] += 1
        write_snapshot(self.place, position)

    def _crash(self) -> None:
        """Crashes the process between any two of its actions."""
        where = self.random.choice(
            (
                "before writing",
                "before answering",
                "failed write",
                "before a snapshot",
                "after a snapshot",
                "idle",
            )
        )
        self.counts[where] += 1
        if where == "before answering":
            written = self.process.write() if self.leaders is None else self.leaders.write()
            for decided in written:
                self.tell_model(decided)
        elif where in ("after a snapshot", "before a snapshot", "idle"):
            self.write()
        if where in ("after a snapshot", "before a snapshot"):
            self.process.mark()
        if where == "after a snapshot" and self.process.saver is not None:
            self._write_snapshot(self.process.saver)
        compared = where in ("idle", "before a snapshot")
        before = self.process.machine.state
        self._restart(where)
        if compared:
            after = picture(self.process.machine.state, self.process.store)
            for name, found in picture(before, self.process.store).items():
                claim(
                    "P3",
                    found == after[name],
                    f"{name} after replay: {after[name]}, before: {found}",
                )

    def _restart(self, where: str) -> None:
        self.note("crash", where)
        self.orphans += self.process.end_saving()
        self.process.restart()
        self.process.commits.lead()
        self.woken()

    def woken(self) -> None:
        """Another process leads, or the same one has read its log again."""
        for actor in self.actors:
            actor.disconnected()
        self.model.wake(self.clock.moment().steady)
        check_fast(self)
        check_whole(self)


def declared(name: str, location: str = "") -> Json:
    return {
        "table_id": 0,
        "name": name,
        "location": location or f"/w/{name}",
        "columns": [["id", "int"]],
        "partition_columns": [["p", "int"]] if TABLES[name] else [],
    }


__all__ = ["PARTITIONS", "TABLES", "Broken", "Failure", "Simulation", "declared"]
