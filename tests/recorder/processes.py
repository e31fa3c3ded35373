"""The processes of a round: clients at work until the round is over, and a keeper of the tables."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

from acid_platform import AlreadyScheduled, CompactionFailed, LeaseHeld, Warehouse
from acid_platform.layout.formats import KEYED_FORMATS
from acid_platform.services import cleaner
from tests.gateway.clients import connected
from tests.recorder.clients import (
    ChangesClient,
    Client,
    DagsterClient,
    PythonClient,
    SnapshotClient,
    SqlClient,
    ThriftClient,
)
from tests.recorder.faults import TIMEOUT
from tests.recorder.recording import EXPECTED, Journal, run
from tests.recorder.workload import FED, OF_EITHER_FORMAT, TABLES, Plans, all_reads

LAST = 999
"""The number of the process that reads last; lower ones are of clients."""
_STORED_ANEW = 0.2
"""Of the turns of a table that can be stored in either format."""
_LAST_READS_TRIED = 5
"""On a busy machine a transaction may miss its heartbeats."""
_MADE: dict[str, Callable[[Warehouse], Client]] = {
    "python": PythonClient,
    "sql": SqlClient,
    "spark": SqlClient,
    "snapshot": SnapshotClient,
    "changes": ChangesClient,
    "dagster": DagsterClient,
}
_READERS = ("snapshot", "changes")
"""Clients that only read."""


@dataclass(frozen=True)
class Round:
    """Where and when a round runs."""

    warehouse: Path
    journals: Path
    gateway: tuple[str, int] | None
    number: int
    began: float
    """By time.monotonic()."""
    seconds: float
    driver: int
    """The process that started the clients: without it they end."""
    trusting: bool = False
    """Whether reads by Thrift count even if their transaction was reaped meanwhile, as it is now
    and then."""

    def process(self, number: int, kind: str) -> str:
        """The name of a process in the history; its journal is called so."""
        return f"{self.number}-{number}-{kind}"

    @property
    def stopped(self) -> bool:
        return (self.journals / "stop").exists() or os.getppid() != self.driver

    @property
    def passed(self) -> float:
        return min(time.monotonic() - self.began, self.seconds)


def live(round_: Round, kind: str, number: int, seed: int) -> None:
    """Works until it is killed or the round is stopped. Never returns."""
    os.setpgid(0, 0)  # a JVM gets the signals of faults, too
    journal = Journal(round_.journals, round_.process(number, kind))
    dice = Random(seed)
    plans = Plans(dice, round_.number, round_.number * 1000 + number)
    while not round_.stopped:
        try:
            if kind == "keeper":
                _keep(round_, dice)
            else:
                _work(round_, kind, journal, plans)
        except EXPECTED:
            pass  # nothing was tried: such as a gateway that has not started yet
        except BaseException as error:
            journal.error("before or after a transaction", error)
            os._exit(1)
        time.sleep(0.1)
    os._exit(0)


def _work(round_: Round, kind: str, journal: Journal, plans: Plans) -> None:
    dice = plans.random

    def pause() -> None:
        if dice.random() < 0.2:
            time.sleep(dice.uniform(0, 0.15))

    with _client(round_, kind, journal, dice) as client:
        while not round_.stopped:
            if kind == "snapshot":
                plan = plans.reads(round_.passed)
            elif kind == "changes":
                plan = plans.reads(round_.passed, FED)
            elif kind == "thrift":
                plan = plans.transaction(round_.passed, ("sets",))
                plan.sort(key=lambda step: step.writes)
            elif kind == "stream":
                plan = plans.batch_or_reads(round_.passed)
            else:
                plan = plans.transaction(round_.passed)
            one_by_one = kind in ("python", "sql", "spark")
            alone = len(plan) == 1 and one_by_one and dice.random() < 0.7
            gives_up = not alone and kind not in _READERS and dice.random() < 0.06
            outcome = run(client, journal, plan, alone=alone, gives_up=gives_up, pause=pause)
            if outcome != "ok":
                time.sleep(dice.uniform(0, 0.1))
                if kind == "thrift":
                    return  # its connection may be gone


@contextmanager
def _client(round_: Round, kind: str, journal: Journal, dice: Random) -> Iterator[Client]:
    if kind == "thrift":
        assert round_.gateway is not None
        with connected(round_.gateway) as client:
            yield ThriftClient(client, nap=1.5 * TIMEOUT if round_.trusting else 0.0)
        return
    if kind == "stream":
        from tests.recorder.streams import StreamClient  # it loads PySpark

        streams = StreamClient(round_.warehouse, journal, dice, lambda: round_.stopped)
        streams.go_on()
        yield streams
        return
    engine = "spark" if kind == "spark" else "local"
    with Warehouse.open(round_.warehouse, engine=engine) as warehouse:
        yield _MADE[kind](warehouse)


def _keep(round_: Round, dice: Random) -> None:
    """Compacts and cleans, and now and then stores a table in the other format."""
    with Warehouse.open(round_.warehouse, engine="local") as warehouse:
        while not round_.stopped:
            table = warehouse.table(f"j.{dice.choice([*TABLES])}")
            if table.name.partition(".")[2] in OF_EITHER_FORMAT and dice.random() < _STORED_ANEW:
                table.store_as(dice.choice(KEYED_FORMATS))
            with suppress(AlreadyScheduled, CompactionFailed, LeaseHeld):
                partition = dice.choice(table.partitions() or [None])
                table.compact(dice.choice(("minor", "major")), partition=partition)
            with suppress(LeaseHeld):
                cleaner.run(warehouse.metastore)
            time.sleep(dice.uniform(0, 0.6))


def last_reads(round_: Round) -> None:
    """Python and SQL read every key of the round, each in one transaction."""
    with Warehouse.open(round_.warehouse, engine="local") as warehouse:
        for kind in ("sql", "python"):
            journal = Journal(round_.journals, round_.process(LAST, f"last-{kind}"))
            client, plan = _MADE[kind](warehouse), all_reads(round_.number, round_.seconds)
            outcomes = (run(client, journal, plan) for _ in range(_LAST_READS_TRIED))
            assert "ok" in outcomes, f"the last reads failed: {kind}"
