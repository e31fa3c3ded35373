"""`make lab-chaos`: processes that write, read, declare, compact and clean are killed and stopped.

`python -m tests.chaos --commits 1000 --kills 300 --stalls 100 --reads 3000 --seed N`: random actors
and the metastore get SIGKILL, actors SIGSTOP for longer than `hive.txn.timeout`; committed files
are truncated, emptied or moved away for a moment. In the end every read must have returned what its
snapshot holds, or raised an error that has a reason (checker.py). The seed decides what is tried;
the timing is not reproducible.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from acid_platform import AcidError, Warehouse
from acid_platform.metastore.operations.tables import RegisterPartitions
from acid_platform.metastore.operations.transactions import GetTxnStates
from tests.chaos.actors import COLUMNS, DROPPED, PARTITIONED, PARTITIONS, RENAMED, Actor, T, live
from tests.chaos.checker import Damage, Evidence, Verdict, check
from tests.chaos.journal import Journal, Line, Tail, now
from tests.chaos.mutations import MUTATIONS
from tests.metastore.processes import end, serving_process

ROLES = ("writer",) * 4 + ("reader",) * 3 + ("declarer", "compactor", "cleaner")
TIMEOUT = 2.0
SETTINGS = {
    "hive.txn.timeout": f"{TIMEOUT:g}s",
    "hive.timedout.txn.reaper.interval": "0.2s",
    "hive.timedout.txn.reaper.start": "0s",
    "acid.metastore.snapshot.bytes": "200000",
    "hive.compactor.abortedtxn.threshold": "0",
}
STOPPABLE = ("writer", "reader", "compactor", "cleaner")
SHARE_OF_METASTORE = 0.15
"""Of the kills."""
FINAL_SECONDS = 60


@dataclass(frozen=True)
class Goals:
    commits: int
    kills: int
    stalls: int
    reads: int


@dataclass
class Child:
    name: str
    role: str
    pid: int
    stopped: float = 0.0
    """When it was stopped; 0 if it runs."""
    until: float = 0.0


@dataclass
class Chaos:
    """A run below `place`, which is empty."""

    place: Path
    goals: Goals
    seed: int
    mutate: Callable[[], None] | None = None
    children: dict[int, Child] = field(default_factory=dict)
    damages: list[Damage] = field(default_factory=list)
    stalls: list[tuple[str, float, float]] = field(default_factory=list)
    metastore_kills: list[float] = field(default_factory=list)
    kills: int = 0
    commits: int = 0
    reads: int = 0
    started: int = 0

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.warehouse, self.journals = self.place / "wh", self.place / "journals"
        self.journals.mkdir(parents=True)
        self.tail, self.lines = Tail(self.journals), list[Line]()
        self.broken: tuple[Path, Path, str, float, float] | None = None

    def run(self, seconds: float) -> Verdict:
        """Runs until the goals are reached, or for so many seconds."""
        self._in_a_child(self._make)
        for role in ROLES:
            self.start(role)
        deadline = time.monotonic() + seconds
        pace = 0.6
        next_kill, next_stall, next_damage = (now() + pace, now() + pace, now() + 2 * pace)
        try:
            while not self.reached() and time.monotonic() < deadline:
                time.sleep(0.03)
                self.look()
                if any(line["what"] == "crashed" for line in self.lines[-200:]):
                    break
                if now() > next_kill:
                    self.kill()
                    next_kill = now() + self.random.uniform(0.5, 1.5) * pace
                if now() > next_stall:
                    self.stall()
                    next_stall = now() + self.random.uniform(2, 6) * pace
                if now() > next_damage:
                    self.damage()
                    next_damage = now() + self.random.uniform(0.5, 2) * pace
        finally:
            self.end()
        return check(self.evidence())

    def __str__(self) -> str:
        return (
            f"{self.commits} commits, {self.kills} kills ({len(self.metastore_kills)} of the"
            f" metastore), {len(self.stalls)} stalls, {self.reads} reads, {len(self.damages)}"
            f" damaged files, {self.started} processes"
        )

    def reached(self) -> bool:
        return (
            self.commits >= self.goals.commits
            and self.kills >= self.goals.kills
            and len(self.stalls) >= self.goals.stalls
            and self.reads >= self.goals.reads
        )

    # --- processes ------------------------------------------------------------------------------

    def _make(self) -> None:
        with Warehouse.open(self.warehouse, settings=SETTINGS) as warehouse:
            warehouse.create_table(T, COLUMNS)
            warehouse.create_table(PARTITIONED, COLUMNS, partitioned_by=["m int"])
            warehouse.create_table(DROPPED, COLUMNS)
            warehouse.metastore.call(
                RegisterPartitions(
                    PARTITIONED, tuple(f"m={number}" for number in range(PARTITIONS))
                )
            )

    def _in_a_child(self, work: Callable[[], None]) -> None:
        """Runs `work` in a child: the driver opens no warehouse itself, since it forks."""
        pid = os.fork()
        if not pid:
            try:
                work()
            except BaseException as error:
                print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
                os._exit(1)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0, "the warehouse was not made"

    def start(self, role: str) -> None:
        self.started += 1
        number = self.started
        pid = os.fork()
        if not pid:
            live(
                self.warehouse,
                self.journals,
                role,
                number,
                self.seed * 10_000 + number,
                self.mutate,
            )
        self.children[pid] = Child(f"{number:05d}-{role}", role, pid)

    def look(self) -> None:
        """Collects what happened, and restarts processes that have ended."""
        for line in self.tail.lines():
            self.lines.append(line)
            self.commits += line["what"] == "ended" and line["state"] == "c"
            self.reads += line["what"] == "read"
        for child in [*self.children.values()]:
            if os.waitpid(child.pid, os.WNOHANG)[0]:
                self._note_stall(child)
                del self.children[child.pid]
                self.start(child.role)
            elif child.stopped and now() > child.until:
                os.kill(child.pid, signal.SIGCONT)
                self._note_stall(child)
        if self.broken and now() > self.broken[4]:
            self.mend()

    def kill(self) -> None:
        if self.random.random() < SHARE_OF_METASTORE:
            self._kill_metastore()
            return
        child = self.random.choice([*self.children.values()])
        os.kill(child.pid, signal.SIGKILL)
        self.kills += 1

    def _kill_metastore(self) -> None:
        pid = serving_process(self.warehouse)
        if pid is None:
            return  # nobody has started another yet
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            self.metastore_kills.append(now())
            self.kills += 1

    def stall(self) -> None:
        running = [
            process
            for process in self.children.values()
            if process.role in STOPPABLE and not process.stopped
        ]
        if len(self.children) - len(running) > 5 or not running:
            return
        child = self.random.choice(running)
        os.kill(child.pid, signal.SIGSTOP)
        child.stopped = now()
        child.until = now() + TIMEOUT + self.random.uniform(0.5, 1.5)

    def _note_stall(self, child: Child) -> None:
        """Counts a stall beyond the timeout; a process that is killed before counts as killed."""
        if child.stopped:
            if now() >= child.until:
                self.stalls.append((child.name, child.stopped, now()))
            child.stopped = 0.0

    # --- files ----------------------------------------------------------------------------------

    def damage(self) -> None:
        """Damages one committed file at a time, for up to a second."""
        if self.broken:
            return
        # Directories appear and disappear in the meantime; a walk tolerates that.
        found = [
            Path(where, name)
            for where, _, names in os.walk(self.warehouse / "db.db")
            for name in names
            if name.startswith("bucket_") and "_tmp_" not in where
        ]
        if not found:
            return
        path, kept = self.random.choice(sorted(found)), self.place / "kept"
        kind = self.random.choice(("cut", "emptied", "gone"))
        begin = now()
        try:
            shutil.copyfile(path, kept)
            if kind == "gone":
                path.unlink()
            else:
                os.truncate(path, kept.stat().st_size // 2 if kind == "cut" else 0)
        except FileNotFoundError:
            return  # the Cleaner was faster
        self.broken = path, kept, kind, begin, now() + self.random.uniform(0.1, 1.0)

    def mend(self) -> None:
        if self.broken:
            path, kept, kind, begin, _ = self.broken
            with suppress(FileNotFoundError):  # its directory was removed in the meantime
                os.replace(kept, path)
            self.damages.append(Damage(str(path), kind, begin, now()))
            self.broken = None

    # --- the end --------------------------------------------------------------------------------

    def end(self) -> None:
        (self.journals / "stop").touch()
        self.mend()
        deadline = time.monotonic() + FINAL_SECONDS
        for child in self.children.values():
            os.kill(child.pid, signal.SIGCONT)
            if child.stopped:
                self.stalls.append((child.name, child.stopped, now()))
        while self.children:
            for child in [*self.children.values()]:
                if time.monotonic() > deadline:
                    os.kill(child.pid, signal.SIGKILL)
                if os.waitpid(child.pid, os.WNOHANG)[0]:
                    del self.children[child.pid]
            time.sleep(0.05)

    def evidence(self) -> Evidence:
        """Reads all tables once more, and asks for the outcome of every transaction."""
        with Warehouse.open(self.warehouse) as warehouse:
            metastore = warehouse.metastore
            if RENAMED in warehouse.tables():
                warehouse.table(RENAMED).rename(T)
            actor = Actor(warehouse, Random(0), Journal(self.journals, "99999-final"), 1)
            self.lines += self.tail.lines()
            asked = sorted({line["txn"] for line in self.lines if line["what"] == "begin"})
            deadline = time.monotonic() + FINAL_SECONDS
            while "o" in (states := metastore.call(GetTxnStates(tuple(asked)))).values():
                assert time.monotonic() < deadline, f"open transactions of the dead: {states}"
                time.sleep(0.2)
            # If a declarer was killed after a drop, no partition has the drop's floor yet.
            metastore.call(
                RegisterPartitions(
                    PARTITIONED, tuple(f"m={number}" for number in range(PARTITIONS))
                )
            )
            actor.floors()
            for table in warehouse.tables():
                with suppress(AcidError):
                    actor.seen.clear()
                    actor.final(table)
            end(metastore)
        self.lines += self.tail.lines()
        return Evidence(self.lines, states, self.damages, self.stalls, self.metastore_kills)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    for name, number in (("commits", 1000), ("kills", 300), ("stalls", 100), ("reads", 3000)):
        parser.add_argument(f"--{name}", type=int, default=number)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=3600, help="until it gives up")
    parser.add_argument(
        "--mutation", choices=sorted(MUTATIONS), help="a fault in the readers, which must be found"
    )
    parser.add_argument("--keep", type=Path, help="an empty directory, which stays")
    chosen = parser.parse_args()
    goals = Goals(chosen.commits, chosen.kills, chosen.stalls, chosen.reads)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="acid-chaos-") as temporary:
        chaos = Chaos(
            chosen.keep or Path(temporary), goals, chosen.seed, MUTATIONS.get(chosen.mutation)
        )
        verdict = chaos.run(chosen.seconds)
    print(f"seed {chosen.seed}: {chaos}, in {time.monotonic() - began:.0f} s")
    print(
        f"{verdict.commits} transactions were committed; {verdict.reads} reads gave"
        f" {verdict.rows} rows, or {dict(verdict.errors.most_common())};"
        f" {verdict.unexplained_expiries} leases ended though nobody had stopped their process"
    )
    print(f"others were refused: {dict(verdict.refused.most_common())}")
    done = Counter(line["what"] for line in chaos.lines)
    print(f"told: {dict(done.most_common())}")
    for text in verdict.wrong[:20]:
        print(f"WRONG {text}")
    print(f"{len(verdict.wrong)} wrong")
    if not chaos.reached():
        print(f"the goals were not reached in {chosen.seconds:.0f} s: {goals}")
    return 0 if chaos.reached() and not verdict.wrong else 1


if __name__ == "__main__":
    sys.exit(main())
