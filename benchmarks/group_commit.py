"""Threads that insert a row at a time, alone and in groups of each interval (P44).

`python -m benchmarks.group_commit` makes a table for each interval. The threads of one process
insert rows of one column with the local engine for a while. Beside the commits it reports how long
an insert takes and how many directories it leaves. It needs no JVM.
"""

from __future__ import annotations

import argparse
import datetime
import sys
import threading
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console

from acid_platform import Warehouse
from acid_platform.base.table_properties import GROUP_COMMIT
from benchmarks.results import machine, save

INTERVALS = ("0ms", "2ms", "10ms", "50ms")


def run(warehouse: Warehouse, interval: str, threads: int, duration: float) -> dict[str, Any]:
    """Inserts, directories and latencies; checks that each row is there once."""
    name = f"bench.every_{interval}"
    table = warehouse.create_table(name, "id bigint", properties={GROUP_COMMIT.name: interval})
    first = warehouse.create_table("bench.first", "id bigint")
    for number in range(20):
        first.insert([{"id": number}])  # imports and warms up
    ends = time.perf_counter() + duration
    seconds: list[list[float]] = [[] for _ in range(threads)]

    def insert(number: int) -> None:
        mine, latencies = warehouse.table(name), seconds[number]
        while (began := time.perf_counter()) < ends:
            mine.insert([{"id": number * 1_000_000_000 + len(latencies)}])
            latencies.append(time.perf_counter() - began)

    workers = [threading.Thread(target=insert, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    taken = sorted(second for latencies in seconds for second in latencies)
    found = table.to_arrow()["id"].to_pylist()
    if len(found) != len(taken) or len(set(found)) != len(taken):
        raise RuntimeError(f"{len(found)} rows after {len(taken)} inserts")
    directories = len({row["directory"] for row in table.history()})
    return {
        "inserts per second": round(len(taken) / duration, 1),
        "directories": directories,
        "inserts per directory": round(len(taken) / directories, 1),
        "median milliseconds": round(1000 * median(taken), 1),
        "p99 milliseconds": round(1000 * taken[int(len(taken) * 0.99)], 1),
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.group_commit", description=__doc__)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--duration", type=float, default=8.0, help="seconds of each run")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    chosen = parser.parse_args(argv)
    console = Console()
    results: dict[str, Any] = {}
    for threads in chosen.threads:
        results[f"{threads} threads"] = {}
        for interval in INTERVALS:
            with (
                TemporaryDirectory(prefix="acid-bench-") as root,
                Warehouse.open(root, engine="local") as warehouse,
            ):
                try:
                    told = run(warehouse, interval, threads, chosen.duration)
                finally:
                    warehouse.release()
                    warehouse.metastore.stop()
            results[f"{threads} threads"][interval] = told
            console.print(threads, interval, told)
    save(
        chosen.out / f"{datetime.date.today().isoformat()}-group-commit.json",
        {"machine": machine(), "seconds": chosen.duration, GROUP_COMMIT.name: results},
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
