"""`python -m tests.log.leaders LOG`: leaders and the log's server fail under writers (P10).

LOG is `postgresql://…` or `s3://…`; `postgres` and `s3` start a server for the run. Eight processes
create databases, each name once, and commit a transaction. Meanwhile

- the leader is killed with SIGKILL (`--kills`),
- or stopped with SIGSTOP for longer than its lease (`--stops`);
- the log's own server fails (`--faults`): PostgreSQL crashes and is started again; S3 answers every
  request with 503, answers none, or does each PUT and loses the answer, by turns.

At the end the log must have every acknowledged commit once, its positions without a gap and its
epochs in order. The result is added to those in FILE (JSON).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

from acid_platform import MetastoreUnavailable, MetastoreWriteFailed, OutcomeUnknown
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.log.contract import Batch, open_log
from acid_platform.metastore.rules.table_declarations import DatabaseCreated
from acid_platform.metastore.rules.write_set import Committed
from acid_platform.metastore.server.store import events_of
from benchmarks.results import machine, save
from tests.log.members import Members
from tests.log.postgres_server import PostgresServer
from tests.log.servers import serving
from tests.metastore.processes import until
from tests.stores.server import Fault, S3Server

WRITERS = 8
LEASE_SECONDS = 2.5
FAULTS = (
    Fault("SlowDown"),
    Fault("hang", seconds=4),
    Fault("lost", "PUT"),
)
FAULT_SECONDS = 2.0


def write(where: str, writer: int, path: Path, stop: Path) -> None:
    """Commits until told to stop; what was acknowledged goes to the file, a line each."""
    number = 0
    with path.open("a", buffering=1) as acknowledged, Metastore.connect(where) as client:
        while not stop.exists():
            number += 1
            name = f"w{writer}_{number}"
            began = time.monotonic()
            # What is not acknowledged may or may not be there.
            with suppress(OutcomeUnknown, MetastoreUnavailable, MetastoreWriteFailed):
                client.create_database(name)
                with client.begin() as transaction:
                    txn = transaction.id
                seconds = time.monotonic() - began
                acknowledged.write(json.dumps([name, txn, time.time(), seconds]) + "\n")


@dataclass
class Outcome:
    """What a run found."""

    acknowledged: int = 0
    lost: list[Any] = field(default_factory=list)
    twice: list[Any] = field(default_factory=list)
    out_of_order: list[Any] = field(default_factory=list)
    """Batches whose position or epoch does not follow."""
    pauses: dict[str, list[float]] = field(default_factory=dict)
    """Seconds from each kill, stop and end of a fault to the next acknowledged commit."""

    @property
    def wrong(self) -> int:
        return len(self.lost) + len(self.twice) + len(self.out_of_order)

    @property
    def every_pause(self) -> list[float]:
        return [pause for pauses in self.pauses.values() for pause in pauses]

    def __str__(self) -> str:
        events = ", ".join(
            f"{len(pauses)} {what}s (commits went on after {statistics.median(pauses):.2f} s,"
            f" at most {max(pauses):.2f} s)"
            for what, pauses in self.pauses.items()
        )
        return (
            f"{events}; {self.acknowledged} commits acknowledged, {len(self.lost)} lost,"
            f" {len(self.twice)} twice, {len(self.out_of_order)} batches out of order"
        )


def run(
    where: str,
    directory: Path,
    server: PostgresServer | S3Server | None = None,
    count: int = 3,
    **times: int,
) -> Outcome:
    """`times`: how many `kills`, `stops` and `faults`, which come by turns. A fault needs the
    server of the log."""
    stop, outcome = directory / "stop", Outcome()
    paths = [directory / f"writer{writer}.log" for writer in range(WRITERS)]
    context = multiprocessing.get_context("spawn")
    with Members(where, directory, count) as members:
        events: dict[str, Callable[[], AbstractContextManager[float]]] = {
            "kills": partial(_killed, members),
            "stops": partial(_suspended, members),
            "faults": partial(_failed, server, cycle(FAULTS)),
        }
        members.start()
        observer = Observer(where, outcome)
        observer.start()
        with Metastore.connect(where) as client:
            # Snapshots replace batches all the time, but not those that the observer can't read.
            client.set(
                "acid.metastore.snapshot.bytes", "1000000" if times.get("faults") else "60000"
            )
        writers = [
            context.Process(target=write, args=(where, writer, path, stop))
            for writer, path in enumerate(paths)
        ]
        for process in writers:
            process.start()
        try:
            until(lambda: all(path.exists() and path.read_text() for path in paths), 60)
            for what in _by_turns(times):
                time.sleep(0.5)
                members.require_all()
                with events[what]() as at:
                    pause = _pause(paths, at)
                outcome.pauses.setdefault(what.removesuffix("s"), []).append(pause)
                print(f"{what.removesuffix('s')}: commits go on after {pause:.2f} s", flush=True)
        finally:
            stop.touch()
            for process in writers:
                process.join(60)
        observer.end()
        _check(observer, paths, outcome)
    return outcome


def _by_turns(times: dict[str, int]) -> list[str]:
    """Each as often as it says, spread over the whole run."""
    return [
        what
        for _, what in sorted(
            (number / most, what) for what, most in times.items() for number in range(most)
        )
    ]


@contextmanager
def _killed(members: Members) -> Iterator[float]:
    leader, at = members.leading(), time.time()
    leader.kill()
    yield at
    leader.start()


@contextmanager
def _suspended(members: Members) -> Iterator[float]:
    leader, at = members.leading(), time.time()
    leader.pause()
    yield at
    time.sleep(max(0.0, at + LEASE_SECONDS * 1.5 - time.time()))
    leader.resume()


@contextmanager
def _failed(server: PostgresServer | S3Server | None, faults: Iterator[Fault]) -> Iterator[float]:
    """Yields the moment at which the server works again."""
    if isinstance(server, PostgresServer):
        server.stop()
        server.start()
    elif server is not None:
        with server.fails(next(faults)):
            time.sleep(FAULT_SECONDS)
    yield time.time()


def _pause(paths: list[Path], at: float) -> float:
    """The seconds from then until commits go on."""
    until(lambda: _first_after(paths, at) is not None, 60, 0.05)
    return (_first_after(paths, at) or 0) - at


def _lines(paths: list[Path]) -> list[list[Any]]:
    whole = (line for path in paths for line in path.read_text().splitlines(keepends=True))
    return [json.loads(line) for line in whole if line.endswith("\n")]


def _first_after(paths: list[Path], moment: float) -> float | None:
    """When the first commit was acknowledged that was begun after this moment or long after it."""
    ends = [at for _, _, at, seconds in _lines(paths) if at - seconds > moment or at > moment + 1]
    return min(ends, default=None)


class Observer(threading.Thread):
    """Follows the log as a standby does, and counts what is in it."""

    def __init__(self, where: str, outcome: Outcome) -> None:
        super().__init__(daemon=True)
        self._log, self._outcome = open_log(where), outcome
        self._ended = threading.Event()
        self._position = self._epoch = 0
        self.databases: Counter[str] = Counter()
        self.committed: Counter[int] = Counter()

    def run(self) -> None:
        while not self._ended.wait(0.1):
            self._look(patient=True)

    def end(self) -> None:
        self._ended.set()
        self.join()
        self._look(patient=False)
        self._log.close()

    def _look(self, patient: bool) -> None:
        try:
            for batch in self._log.read(self._position):
                self._count(batch)
        except MetastoreUnavailable:  # as while the database is down
            if not patient:
                raise

    def _count(self, batch: Batch) -> None:
        if batch.position != self._position + 1 or batch.epoch < self._epoch:
            self._outcome.out_of_order.append((batch.position, batch.epoch))
        self._position, self._epoch = batch.position, batch.epoch
        for recorded in events_of(batch):
            if isinstance(recorded.event, DatabaseCreated):
                self.databases[recorded.event.name] += 1
            elif isinstance(recorded.event, Committed):
                self.committed[recorded.event.txn] += 1


def _check(observed: Observer, paths: list[Path], outcome: Outcome) -> None:
    """Compares the log with what was acknowledged."""
    acknowledged = _lines(paths)
    outcome.acknowledged = len(acknowledged)
    for name, txn, _, _ in acknowledged:
        if not observed.databases[name] or not observed.committed[txn]:
            outcome.lost.append((name, txn))
    answers = Counter(txn for _, txn, _, _ in acknowledged)
    outcome.twice += [txn for txn, times in answers.items() if times > 1]
    outcome.twice += [name for name, times in observed.databases.items() if times > 1]
    outcome.twice += [txn for txn, times in observed.committed.items() if times > 1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("log")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--stops", type=int, default=20)
    parser.add_argument("--faults", type=int, default=0, help="only with `postgres` and `s3`")
    parser.add_argument("--results", type=Path)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, serving(chosen.log) as (where, server):
        if chosen.faults and server is None:
            parser.error("--faults needs a server of its own: name the log postgres or s3")
        times = {name: getattr(chosen, name) for name in ("kills", "stops", "faults")}
        outcome = run(where, Path(directory), server, **times)
    print(outcome)
    if chosen.results is not None:
        _save(chosen.results, chosen.log, outcome)
    return 1 if outcome.wrong else 0


def _save(file: Path, log: str, outcome: Outcome) -> None:
    saved = json.loads(file.read_text()) if file.exists() else {"machine": machine(), "runs": []}
    saved["runs"].append(
        {
            "at": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
            "log": log.partition(":")[0],
            "writers": WRITERS,
            **{f"{what}s": len(pauses) for what, pauses in outcome.pauses.items()},
            "commits_acknowledged": outcome.acknowledged,
            "lost": len(outcome.lost),
            "acknowledged_twice": len(outcome.twice),
            "batches_out_of_order": len(outcome.out_of_order),
            "seconds_until_commits_go_on": {
                what: [round(pause, 2) for pause in pauses]
                for what, pauses in outcome.pauses.items()
            },
        }
    )
    save(file, saved)


if __name__ == "__main__":
    raise SystemExit(main())
