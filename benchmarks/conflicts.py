"""Writers that update random rows of one partition: conflicts by partition, and by row.

The benchmark `conflicts` makes an unpartitioned table for each setting of
`acid.conflict.detection`. Processes then update random rows of it with the local engine, and repeat
an update after a WriteConflict. Beside the commits it reports how many bytes of the journal the
rows of a commit take. It needs no JVM.
"""

from __future__ import annotations

import multiprocessing
import random
import time
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from acid_platform import Table, Transient, Warehouse
from acid_platform.layout.table_properties import CONFLICT_DETECTION
from benchmarks.results import options, saved

SETTINGS = ("partition", "row")


def create(warehouse: Warehouse, detection: str, rows: int) -> Table:
    table = warehouse.create_table(
        f"bench.by_{detection}", "id int, v bigint", properties={CONFLICT_DETECTION.name: detection}
    )
    table.insert(pa.table({"id": pa.array(range(rows), pa.int32()), "v": pa.array([0] * rows)}))
    return table


def write(
    root: str, name: str, rows: int, changed: int, number: int, span: tuple[float, float], done: Any
) -> None:
    """One writer during `span`, wall clock; puts its counts and latencies in `done`."""
    begins, ends = span
    chosen = random.Random(number)
    commits, conflicts, seconds = 0, 0, []
    with Warehouse.open(root, engine="local") as warehouse:
        table = warehouse.table(name)
        table.count()  # connects
        time.sleep(max(0.0, begins - time.time()))
        while time.time() < ends:
            ids = ", ".join(map(str, chosen.sample(range(rows), changed)))
            begun = time.perf_counter()
            while time.time() < ends:
                try:
                    table.update({"v": "v + 1"}, f"id in ({ids})")
                except Transient:
                    conflicts += 1
                else:
                    commits += 1
                    seconds.append(time.perf_counter() - begun)
                    break
    done.put((commits, conflicts, seconds))


def run(root: str, table: Table, rows: int, changed: int, writers: int, duration: float) -> Any:
    """Commits and conflicts of all writers; checks that each committed update is there."""
    context = multiprocessing.get_context("spawn")
    done = context.Queue()
    begins = time.time() + 5.0  # until then they import their modules
    processes = [
        context.Process(
            target=write,
            args=(root, table.name, rows, changed, number, (begins, begins + duration), done),
        )
        for number in range(writers)
    ]
    for process in processes:
        process.start()
    answers = [done.get(timeout=duration + 120) for _ in processes]
    for process in processes:
        process.join()
    commits, conflicts = (sum(answer[at] for answer in answers) for at in (0, 1))
    latencies = sorted(second for answer in answers for second in answer[2])
    written = sum(table.to_arrow(columns=["v"])["v"].to_pylist())
    if written != commits * changed or table.count() != rows:
        raise RuntimeError(f"{written} increments in {table.count()} rows after {commits} commits")
    return {
        "commits": commits,
        "commits per second": round(commits / duration, 1),
        "conflicts": conflicts,
        "share of attempts lost": round(conflicts / max(1, commits + conflicts), 3),
        "median seconds until committed": round(median(latencies), 3),
        "p95 seconds until committed": round(latencies[int(len(latencies) * 0.95)], 3),
    }


def listed(warehouse: Warehouse, table: Table, rows: int, changed: int, times: int = 5) -> int:
    """Bytes by which the list of the rows of an update makes its commit longer in the journal."""
    chosen, sizes = random.Random(0), []
    for _ in range(times):
        ids = ", ".join(map(str, chosen.sample(range(rows), changed)))
        before = warehouse.metastore.status()["changed_rows"]
        table.update({"v": "v + 1"}, f"id in ({ids})")
        sizes.append(warehouse.metastore.status()["changed_rows"] - before)
    return int(median(sizes))


def main() -> None:
    given = options(__doc__, rows=50_000, changed=1, writers=8, duration=20.0)
    results: dict[str, Any] = {}
    with (
        TemporaryDirectory(prefix="acid-bench-") as root,
        Warehouse.open(root, engine="local") as warehouse,
    ):
        try:
            for detection in SETTINGS:
                table = create(warehouse, detection, given.rows)
                results[detection] = run(
                    root, table, given.rows, given.changed, given.writers, given.duration
                )
                table.compact("major")
                results[detection]["journal bytes for the rows of a commit"] = {
                    f"{changed} rows": listed(warehouse, table, given.rows, changed)
                    for changed in (1, 100, 5000)
                }
                print(detection, results[detection])
        finally:
            warehouse.release()
            warehouse.metastore.stop()
    saved(given, "conflicts", **{"acid.conflict.detection": results})
