"""The Initiator's cycle over many tables; by default 10,000 tables with 1,000,000 recorded deltas.

The benchmark `initiator` creates the metastore's file with the metastore's own store, starts
the metastore on it, and runs three cycles: the first checks all tables and requests a compaction of
each table above its threshold, the second checks all tables again, the third only those that
changed. It needs no JVM.
"""

from __future__ import annotations

import resource
import time
from collections import Counter
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from acid_platform.layout.file_entries import (
    ColumnRange,
    FileEntry,
    Footer,
    RangeKind,
    RecordedFiles,
)
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.endpoint import Home
from acid_platform.metastore.operations.compaction import GetMoment
from acid_platform.metastore.records import EntityDirectory, TableRecord
from acid_platform.metastore.rules.state import State, TableState
from acid_platform.metastore.server.server import log_of
from acid_platform.metastore.server.store import Store
from acid_platform.services import initiator
from benchmarks.results import options, saved

BASE_BYTES, DELTA_BYTES = 1 << 30, 100_000


def warehouse(tables: int, deltas: int, above: int) -> State:
    """Tables with a base and `deltas` deltas; the first `above` tables exceed their threshold."""
    quiet = {"compactorthreshold.hive.compactor.delta.num.threshold": str(deltas)}
    state = State(next_txn=deltas + 2, next_table=tables + 1)
    for number in range(1, tables + 1):
        name = f"default.t{number}"
        record = TableRecord(
            number,
            name,
            f"/warehouse/t{number}",
            (("id", "bigint"),),
            properties={} if number <= above else quiet,
        )
        state.tables[number] = TableState(record, next_write_id=deltas + 2, purged=deltas + 1)
        state.names[name] = number
        base = EntityDirectory("base_0000001", 1, 1, False, True, 10**7, BASE_BYTES, 1, 1)
        known = {base.name: base}
        files = {base.name: record_of(BASE_BYTES)}
        for write_id in range(2, deltas + 2):
            directory = f"delta_{write_id:07d}_{write_id:07d}_0000"
            known[directory] = EntityDirectory(
                directory,
                write_id,
                write_id,
                False,
                False,
                1000,
                DELTA_BYTES,
                1,
                write_id,
            )
            files[directory] = record_of(DELTA_BYTES)
        state.directories[number, None] = known
        state.contents[number, None] = files
    return state


def record_of(size: int) -> str:
    """The record of a directory with one file and the ranges of five columns (P26)."""
    ranges = {
        f"column_{number}": ColumnRange(RangeKind.INTEGER, 1, 10**9, 0) for number in range(5)
    }
    return str(RecordedFiles((FileEntry("bucket_00000", size, Footer(1000, True), None, ranges),)))


def manifests(metastore: Metastore, tables: int) -> dict[str, Any]:
    """Milliseconds until a reader has the files of a table, the first time and again."""
    cold, warm = list[float](), list[float]()
    for number in range(1, tables + 1, max(1, tables // 20)):
        name = f"default.t{number}"
        with metastore.open_snapshot([name]) as lease:
            for measured in (cold, warm):
                started = time.perf_counter()
                lease.manifest(name, [None])
                measured.append(1000 * (time.perf_counter() - started))
    return {"cold ms": round(median(cold), 1), "warm ms": round(median(warm), 1)}


def cycle(metastore: Metastore, since: int = 0) -> dict[str, Any]:
    """Seconds and decisions of one cycle."""
    started, cpu = time.perf_counter(), metastore.status()["cpu_seconds"]
    done = initiator.run(metastore, int(time.time() * 1000), since)
    seconds = time.perf_counter() - started
    status = metastore.status()
    return {
        "seconds": round(seconds, 2),
        "entities": len(done),
        "asked for": sum(decided.id is not None for decided in done),
        "decisions": Counter(decided.decision.rule for decided in done),
        "metastore cpu seconds": round(status["cpu_seconds"] - cpu, 2),
        "metastore resident MB": status["resident_bytes"] >> 20,
        "initiator peak MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
    }


def make_in_child(home: Home, tables: int, deltas: int, above: int) -> None:
    """Create the metastore's file in a child process, whose memory does not count here."""
    import multiprocessing

    child = multiprocessing.get_context("spawn").Process(
        target=make, args=(home, tables, deltas, above)
    )
    child.start()
    child.join()
    if child.exitcode:
        raise RuntimeError(f"creating the metastore's file failed: exit code {child.exitcode}")


def make(home: Home, tables: int, deltas: int, above: int) -> None:
    log = log_of(home)
    log.create()
    log.open_to_append()
    store = Store(log, home.path)
    store.load()
    store.begin_epoch(1, 0)
    store.save(warehouse(tables, deltas, above), forget_before=0)
    store.close()


def main() -> int:
    given = options(__doc__, tables=10_000, deltas=100, above=0.1, limit=10.0)
    measured: dict[str, Any] = {}
    with TemporaryDirectory(prefix="acid-bench-") as place:
        home = Home(Path(place, "metastore"))
        home.prepare()
        make_in_child(home, given.tables, given.deltas, int(given.tables * given.above))
        with Metastore.connect(home.path) as metastore:
            try:
                measured["first cycle"] = cycle(metastore)
                measured["all again"] = cycle(metastore)
                measured["what changed"] = cycle(metastore, metastore.call(GetMoment()))
                measured["files of a table"] = manifests(metastore, given.tables)
                resident = metastore.status()["resident_bytes"] >> 20
                measured["files of a table"]["metastore resident MB"] = resident
            finally:
                metastore.stop()
    for name, results in measured.items():
        print(name, results)
    saved(given, "initiator", cycles=measured)
    slowest = max(results.get("seconds", 0) for results in measured.values())
    return 0 if slowest < given.limit else 1
