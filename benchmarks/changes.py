"""What the changes of a table cost to read and to keep (P39), beside a scan of the whole table.

The benchmark `changes` writes a table in inserts of equal size, then updates a share of its
rows in each of several commits, compacts it, and reads the changes of the last commits. Bytes are
those of the files that are opened; seconds are of CPU, the best of three. It needs no JVM.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from acid_platform import Table, Warehouse
from acid_platform.metastore.pasts import AsOf
from benchmarks.results import options, saved

TIMES = 3


def written(warehouse: Warehouse, rows: int, commits: int, share: int) -> Table:
    """A compacted table: `commits` inserts, then as many updates of 1 row in `share`."""
    table = warehouse.create_table(
        "bench.t", "id bigint, v double, name string", properties={"acid.history.retention": "1d"}
    )
    size = rows // commits
    for number in range(commits):
        ids = range(number * size, (number + 1) * size)
        values = [((id * 2654435761) % 2**32) / 7 for id in ids]
        names = [f"name {id % 1000} of {id * 40503 % 65536}" for id in ids]
        table.insert(pa.table({"id": pa.array(ids), "v": values, "name": names}))
    for number in range(commits):
        table.update({"v": "v + 1"}, f"id % {share} = {number}")
    table.compact("major")
    return table


def best(work: Callable[[], int]) -> tuple[int, float]:
    """What the work returns, and the fewest seconds of CPU."""
    seconds = []
    for _ in range(TIMES):
        begun = time.process_time()
        found = work()
        seconds.append(time.process_time() - begun)
    return found, min(seconds)


def measure(warehouse: Warehouse, table: Table, commits: int) -> dict[str, Any]:
    last = 2 * commits
    scanned, scan_seconds = best(lambda: int(table.to_arrow().num_rows))
    with warehouse.leases.brief(table.name) as view:
        live = view.scan(view.request(table.name)).read_bytes
    found: dict[str, Any] = {
        "rows": scanned,
        "scan": {"bytes": live, "cpu_seconds": round(scan_seconds, 4)},
        "changes": {},
    }
    for name, since, until in (
        ("one insert", commits - 1, commits),
        ("one update", last - 1, last),
        ("all updates", commits, last),
        ("everything", 0, last),
    ):

        def read(since: int = since, until: int = until) -> int:
            return sum(batch.num_rows for batch in table.changes_arrow(since, until))

        rows, seconds = best(read)
        ends = AsOf(write_id=since), AsOf(write_id=until)
        with warehouse.leases.brief(table.name) as view:
            opened = view.changes(table.name, *ends).read_bytes
        found["changes"][name] = {
            "rows": rows,
            "bytes": opened,
            "of_a_scan": round(opened / live, 2),
            "cpu_seconds": round(seconds, 4),
        }
    kept = table.retained()
    found["kept"] = {"directories": kept.directories, "bytes": kept.bytes}
    return found


def main() -> None:
    given = options(__doc__, rows=1_000_000, commits=10, share=100)
    with TemporaryDirectory() as root, Warehouse.open(root, engine="local") as warehouse:
        table = written(warehouse, given.rows, given.commits, given.share)
        found = measure(warehouse, table, given.commits)
        warehouse.release()
        warehouse.metastore.stop()
    print(found)
    saved(given, "changes", **found)
