"""`make lab-soak`: writers, readers and all services at work for a time, each in its own process.

Asserted in the end: delta counts stay bounded, what the Cleaner may remove goes within two of its
intervals, no row is lost or doubled, and no log has an error. The report goes to
benchmarks/results.
"""

from __future__ import annotations

import argparse
import datetime
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from acid_platform import Warehouse
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.operations.compaction import GetCleanings
from acid_platform.metastore.operations.transactions import CommitContents
from acid_platform.transactions import RowOperation
from benchmarks.results import machine, save
from tests.acid_files import AcidTable, P
from tests.soak.actors import COLUMNS, IDS, PARTITIONS, TABLE, report

WRITERS, READERS = 4, 2
SERVICES = ("initiator", "worker", "cleaner")
CLEANER_SECONDS = 5.0
SETTINGS = {
    "hive.compactor.check.interval": "5s",
    "hive.compactor.worker.sleep.time": "500ms",
    "hive.compactor.worker.max.sleep.time": "2s",
    "hive.compactor.abortedtxn.threshold": "5",
    "hive.compactor.cleaner.run.interval": f"{CLEANER_SECONDS:g}s",
}
DRAIN_SECONDS = 300
"""How long the services may take to empty the queue after the writers have ended."""
MANY_DELTAS = 50
"""The most deltas of one partition, while a Worker starts or works elsewhere."""
WRONG = ("error", "Error", "Traceback", "failed", "lost")
"""Words that no log may contain."""


@dataclass
class Watch:
    """The state of the table, second by second."""

    deltas: list[int] = field(default_factory=list)
    """Live deltas and delete_deltas of the worst partition."""
    since: dict[tuple[int, str | None, int], float] = field(default_factory=dict)
    longest: float = 0.0
    """The longest time in seconds that something removable waited for the Cleaner."""

    def look(self, metastore: Metastore) -> None:
        now = time.monotonic()
        self.deltas.append(
            max(
                sum(
                    not directory.base and not directory.obsolete
                    for directory in entity.directories
                )
                for entity in metastore.entities(TABLE)
                if entity.partition
            )
        )
        ready = {
            (task.id, task.partition, task.highest_write_id if task.id else 0)
            for task in metastore.call(GetCleanings()).ready
        }
        self.since = {key: self.since.get(key, now) for key in ready}
        waited = max((now - at for at in self.since.values()), default=0.0)
        self.longest = max(self.longest, waited)


def fill(warehouse: Warehouse) -> None:
    table = warehouse.create_table(TABLE, COLUMNS, partitioned_by=["p int"])
    metastore = warehouse.metastore
    for number in range(PARTITIONS):
        name = f"p={number}"
        with metastore.begin() as txn:
            txn.lock(TABLE, "SHARED_WRITE", operation=RowOperation.INSERT, partition=name)
            w = txn.write_ids[TABLE]
            files = AcidTable(Path(table.location, name), COLUMNS)
            files.inserts(f"d{w}", [(w, P, row, row, 0) for row in range(IDS)])
            directory = f"delta_{w:07d}_{w:07d}_0000"
            txn.commit(CommitContents((report(files, name, directory, RowOperation.INSERT),)))


@contextmanager
def running(log: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a child with its own log, and asks it to end at the end of the block."""
    with log.open("wb") as stream:
        child = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            stdout=stream,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        try:
            yield child
        finally:
            child.terminate()
            child.wait(120)


def soak(place: Path, minutes: float) -> dict[str, Any]:
    logs = place / "logs"
    logs.mkdir()
    where, until = str(place / "wh"), time.time() + 60 * minutes
    watch = Watch()
    with Warehouse.open(where, settings=SETTINGS) as warehouse:
        fill(warehouse)
        with ExitStack() as stack:
            for name in SERVICES:
                stack.enter_context(
                    running(
                        logs / f"{name}.log", "acid_platform", "run", name, "--warehouse", where
                    )
                )
            actors = {
                f"{role}-{number}": stack.enter_context(
                    running(
                        logs / f"{role}-{number}.log",
                        "tests.soak.actors",
                        role,
                        where,
                        str(number),
                        str(until),
                    )
                )
                for role, count in (("writer", WRITERS), ("reader", READERS))
                for number in range(count)
            }
            while any(actor.poll() is None for actor in actors.values()):
                watch.look(warehouse.metastore)
                time.sleep(1)
            ended = {name: actor.returncode for name, actor in actors.items()}
            deadline = time.monotonic() + DRAIN_SECONDS
            while left(warehouse.metastore) and time.monotonic() < deadline:
                watch.look(warehouse.metastore)
                time.sleep(1)
            obsolete = left(warehouse.metastore)
        rows = warehouse.table(TABLE).to_arrow().num_rows
        warehouse.release()
        history = warehouse.metastore.compactions()
        warehouse.metastore.stop()
    bad = {
        path.name: [
            line for line in path.read_text().splitlines() if any(word in line for word in WRONG)
        ][:5]
        for path in sorted(logs.iterdir())
    }
    half = len(watch.deltas) // 2
    found = {
        "minutes": minutes,
        "actors": {name: (logs / f"{name}.log").read_text().strip()[-200:] for name in actors},
        "compactions published": (logs / "worker.log").read_text().count("published"),
        "paths removed": (logs / "cleaner.log").read_text().count("removed "),
        "most deltas, first half": max(watch.deltas[:half], default=0),
        "most deltas, second half": max(watch.deltas[half:], default=0),
        "longest wait for the Cleaner, s": round(watch.longest, 1),
        "rows": rows,
        "obsolete left": obsolete,
        "states": sorted({row["state"] for row in history}),
        "errors": {name: lines for name, lines in bad.items() if lines},
    }
    found["wrong"] = [
        name
        for name, right in {
            "an actor failed": not any(ended.values()),
            "rows were lost or doubled": rows == PARTITIONS * IDS,
            "deltas grow": found["most deltas, second half"]
            <= max(MANY_DELTAS, 2 * found["most deltas, first half"]),
            "obsolete files stay": not obsolete and watch.longest <= 2 * CLEANER_SECONDS,
            "a log has an error": not found["errors"],
            "nothing was compacted": found["compactions published"] > 0,
            "nothing was removed": found["paths removed"] > 0,
        }.items()
        if not right
    ]
    return found


def left(metastore: Metastore) -> int:
    """The number of compactions and obsolete directories that are left."""
    waiting = [
        row
        for row in metastore.compactions()
        if row["state"] in ("initiated", "working", "ready for cleaning")
    ]
    old = [
        directory
        for entity in metastore.entities(TABLE)
        for directory in entity.directories
        if directory.obsolete
    ]
    return len(waiting) + len(old)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="acid-soak-") as place:
        found = soak(Path(place), chosen.minutes)
    for name, value in found.items():
        print(f"{name}: {value}")
    save(
        chosen.out / f"{datetime.date.today().isoformat()}-soak.json",
        {"machine": machine(), **found},
    )
    return 1 if found["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
