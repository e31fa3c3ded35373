"""Rounds of a recorded history: clients at work for a time under faults, then the last reads.

The driver opens no warehouse itself, since it forks: what has to be done is done in children.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

from acid_platform import Warehouse
from tests.interop.history import Gate
from tests.judge.recorded import save
from tests.judge.verdict import ON_REQUEST, PROMISED, Verdict, judge
from tests.recorder.faults import SETTINGS, Clocks, Faults, Running
from tests.recorder.processes import LAST, Round, last_reads, live
from tests.recorder.recording import Recording
from tests.recorder.service import (
    ForkOfDriver,
    Service,
    SharedLog,
    StartedByClients,
    forked,
)
from tests.recorder.workload import make_rows, make_tables

KINDS = ("python", "python", "sql", "sql", "snapshot", "changes", "dagster", "thrift", "keeper")
OF_SPARK = ("spark", "stream")
SERIALIZABLE = ("python", "python", "sql", "sql", "snapshot", "dagster", "keeper")
"""The kinds whose transactions are all serializable if the setting says so."""
_END_SECONDS = 60.0
_PATIENCE = 10


class RunFailed(Exception):
    """The run could not be made; nothing is said of the platform."""


@dataclass(frozen=True)
class Result:
    """What the judge says of a round, and the errors that no client should get."""

    verdict: Verdict
    unexpected: list[str]
    level: str = PROMISED

    def anomalies(self) -> Counter[str]:
        """Those that the level excludes, by name."""
        return Counter(one.name for one in self.verdict.against(self.level))

    def findings(self) -> Counter[str]:
        """None if the platform kept its promise."""
        return self.anomalies() + Counter({"unexpected error": len(self.unexpected)})

    def texts(self) -> list[str]:
        wrong = self.verdict.against(self.level)
        return [*self.unexpected, *(f"{one.name}: {one.why}" for one in wrong)]


@dataclass
class Rounds:
    """Rounds in one warehouse below `place`, an empty directory.

    `log`: one of LOGS. `own_metastore`: the metastore is a fork of this process, with whatever was
    changed in it. `trusting`: see Round. `level`: PROMISED, or ON_REQUEST, where all transactions
    are serializable.
    """

    place: Path
    seed: int
    kinds: tuple[str, ...] = KINDS
    log: str = "local"
    own_metastore: bool = False
    trusting: bool = False
    level: str = PROMISED
    counts: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    _round: int = 0
    _started: int = 0
    _gate: Gate | None = None

    def __post_init__(self) -> None:
        self._random = Random(self.seed)
        self.warehouse = self.place / "wh"
        clocks = Clocks(self.place / "clocks")
        clocks.install()
        self._clocks = clocks if not self.own_metastore else None
        self._service: Service = (
            ForkOfDriver(self.warehouse)
            if self.own_metastore
            else StartedByClients(self.warehouse)
            if self.log == "local"
            else SharedLog(self.log, self.place)
        )
        isolation = "serializable" if self.level == ON_REQUEST else "snapshot"
        self._in_child(make_tables, {**SETTINGS, "acid.isolation": isolation})
        if "thrift" in self.kinds:
            self._gate = Gate(self.warehouse, self.place / "gateway.log")
            self._gate.start()

    def close(self) -> None:
        if self._gate:
            self._gate.kill()
        self._service.close()

    def run(self, seconds: float) -> Result:
        """Records a history, saves it and judges it. Raises RunFailed."""
        self._round += 1
        self._started = 0
        journals = self.place / f"round-{self._round}"
        journals.mkdir()
        self._in_child(partial(make_rows, round_=self._round, seconds=seconds))
        address = self._gate.address if self._gate else None
        round_ = Round(
            self.warehouse,
            journals,
            address,
            self._round,
            time.monotonic(),
            seconds,
            os.getpid(),
            self.trusting,
        )
        clients = dict(self._start(round_, kind) for kind in self.kinds)
        faults = Faults(self._random, self._service, clients, self._gate, self._clocks)
        try:
            while time.monotonic() < round_.began + seconds:
                time.sleep(0.03)
                faults.happen()
                clients |= dict(self._start(round_, ended.kind) for ended in self._ended(clients))
        finally:
            (journals / "stop").touch()
            faults.undo()
            self._await(clients)
        unread = os.waitpid(forked(partial(last_reads, round_)), 0)[1]
        recording = Recording.of(journals)
        if unread:
            recording.unexpected.append("the last reads failed")
        save(self.place / f"history-{self._round}.jsonl", recording.history)
        verdict = judge(recording.history)
        self._count(recording, verdict, faults)
        return Result(verdict, recording.unexpected, self.level)

    def _count(self, recording: Recording, verdict: Verdict, faults: Faults) -> None:
        self.errors += recording.errors
        self.counts += faults.counts
        self.counts += Counter(
            histories=1,
            transactions=verdict.transactions,
            committed=verdict.committed,
            operations=sum(len(attempt.steps) for attempt in recording.history),
            processes=self._started,
            faults=faults.counts.total(),
        )
        for attempt in recording.history:
            kind = attempt.process.split("-", 2)[2]
            self.counts[f"transactions of {kind}"] += 1
            self.counts[f"outcome {attempt.outcome}"] += 1

    # --- processes ------------------------------------------------------------------------------

    def _in_child(
        self, work: Callable[[Warehouse], None], settings: dict[str, str] | None = None
    ) -> None:
        """Does it, again if the machine was so busy that its transaction was aborted. Raises
        RunFailed."""

        def with_warehouse() -> None:
            with Warehouse.open(self.warehouse, settings=settings, engine="local") as warehouse:
                work(warehouse)

        for _ in range(_PATIENCE):
            if not os.waitpid(forked(with_warehouse), 0)[1]:
                return
        raise RunFailed("see the errors above")

    def _start(self, round_: Round, kind: str) -> tuple[int, Running]:
        self._started += 1
        seed = self.seed * 10_000 + self._round * LAST + self._started
        number = self._started % LAST
        running = Running(kind, round_.journals / f"{round_.process(number, kind)}.jsonl")
        return forked(partial(live, round_, kind, number, seed)), running

    def _ended(self, clients: dict[int, Running]) -> list[Running]:
        """The clients that have ended since the last call."""
        self._service.again()
        return [clients.pop(pid) for pid in [*clients] if os.waitpid(pid, os.WNOHANG)[0]]

    def _await(self, clients: dict[int, Running]) -> None:
        """Waits for all clients; kills those that don't end."""
        deadline = time.monotonic() + _END_SECONDS
        while clients:
            self._ended(clients)
            if time.monotonic() > deadline:
                self.counts["processes that did not end"] += len(clients)
                for pid in clients:
                    os.killpg(pid, signal.SIGKILL)
                deadline = float("inf")
            time.sleep(0.03)
