"""`python -m tests.log.leaders LOG`: leaders are killed and suspended under writers (P10).

LOG is `postgresql://…` or `s3://…`; `postgres` and `s3` start a server for the run. Eight processes
create databases, each name once, and commit a transaction. The leader is killed with SIGKILL, or
stopped with SIGSTOP for longer than its lease. At the end the log must have every acknowledged
commit once, its positions without a gap and its epochs in order. The result is added to those in
FILE (JSON).
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
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from acid_platform import MetastoreUnavailable, OutcomeUnknown
from acid_platform.metastore import Metastore
from acid_platform.metastore.log.contract import Batch
from acid_platform.metastore.log.open_log import open_log
from acid_platform.metastore.rules.events import Committed, DatabaseCreated
from acid_platform.metastore.server.store import events_of
from benchmarks.results import machine, save
from tests.log.members import Members
from tests.log.servers import serving
from tests.metastore.processes import until

WRITERS = 8
LEASE_SECONDS = 2.5


def write(where: str, writer: int, path: Path, stop: Path) -> None:
    """Commits until told to stop; what was acknowledged goes to the file, a line each."""
    number = 0
    with path.open("a", buffering=1) as acknowledged, Metastore.connect(where) as client:
        while not stop.exists():
            number += 1
            name = f"w{writer}_{number}"
            began = time.monotonic()
            # What is not acknowledged may or may not be there.
            with suppress(OutcomeUnknown, MetastoreUnavailable):
                client.create_database(name)
                with client.begin() as transaction:
                    txn = transaction.id
                seconds = time.monotonic() - began
                acknowledged.write(json.dumps([name, txn, time.time(), seconds]) + "\n")


@dataclass
class Outcome:
    """What a run found."""

    kills: int = 0
    stops: int = 0
    acknowledged: int = 0
    lost: list[Any] = field(default_factory=list)
    twice: list[Any] = field(default_factory=list)
    out_of_order: list[Any] = field(default_factory=list)
    """Batches whose position or epoch does not follow."""
    pauses: list[float] = field(default_factory=list)
    """Seconds from each kill or stop to the next acknowledged commit."""

    @property
    def wrong(self) -> int:
        return len(self.lost) + len(self.twice) + len(self.out_of_order)

    def __str__(self) -> str:
        return (
            f"{self.kills} kills, {self.stops} stops, {self.acknowledged} commits acknowledged,"
            f" {len(self.lost)} lost, {len(self.twice)} twice,"
            f" {len(self.out_of_order)} batches out of order; commits went on after"
            f" {statistics.median(self.pauses):.2f} s (median), {max(self.pauses):.2f} s (longest)"
        )


def run(where: str, directory: Path, kills: int, stops: int, count: int = 3) -> Outcome:
    """Kills and stops alternate as long as both are wanted."""
    stop, outcome = directory / "stop", Outcome()
    paths = [directory / f"writer{writer}.log" for writer in range(WRITERS)]
    context = multiprocessing.get_context("spawn")
    with Members(where, directory, count) as members:
        members.start()
        observer = Observer(where, outcome)
        observer.start()
        with Metastore.connect(where) as client:  # snapshots replace batches all the time
            client.set("acid.metastore.snapshot.bytes", "60000")
        writers = [
            context.Process(target=write, args=(where, writer, path, stop))
            for writer, path in enumerate(paths)
        ]
        for process in writers:
            process.start()
        try:
            until(lambda: all(path.exists() and path.read_text() for path in paths), 60)
            while outcome.kills < kills or outcome.stops < stops:
                time.sleep(0.5)
                if outcome.stops * max(kills, 1) < outcome.kills * stops or outcome.kills >= kills:
                    outcome.stops += 1
                    _replace(members, paths, outcome, suspended=True)
                else:
                    outcome.kills += 1
                    _replace(members, paths, outcome, suspended=False)
        finally:
            stop.touch()
            for process in writers:
                process.join(60)
        observer.end()
        _check(observer, paths, outcome)
    return outcome


def _replace(members: Members, paths: list[Path], outcome: Outcome, suspended: bool) -> None:
    leader = members.leading()
    members.require_all()
    at = time.time()
    leader.pause() if suspended else leader.kill()
    until(lambda: _first_after(paths, at) is not None, 60, 0.05)
    pause = (_first_after(paths, at) or 0) - at
    outcome.pauses.append(pause)
    what = "stop" if suspended else "kill"
    print(f"{what} {len(outcome.pauses)}: commits go on after {pause:.2f} s", flush=True)
    if suspended:
        time.sleep(max(0.0, at + LEASE_SECONDS * 1.5 - time.time()))
        leader.resume()
    else:
        leader.start()


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
        self.error: Exception | None = None

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
    told = Counter(txn for _, txn, _, _ in acknowledged)
    outcome.twice += [txn for txn, times in told.items() if times > 1]
    outcome.twice += [name for name, times in observed.databases.items() if times > 1]
    outcome.twice += [txn for txn, times in observed.committed.items() if times > 1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("log")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--stops", type=int, default=20)
    parser.add_argument("--results", type=Path)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, serving(chosen.log) as where:
        outcome = run(where, Path(directory), chosen.kills, chosen.stops)
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
            "kills": outcome.kills,
            "stops": outcome.stops,
            "commits_acknowledged": outcome.acknowledged,
            "lost": len(outcome.lost),
            "acknowledged_twice": len(outcome.twice),
            "batches_out_of_order": len(outcome.out_of_order),
            "seconds_until_commits_go_on": [round(pause, 2) for pause in outcome.pauses],
        }
    )
    save(file, saved)


if __name__ == "__main__":
    raise SystemExit(main())
