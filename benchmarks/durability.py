"""The cost of durable commits (P27): INSERT with and without syncs of data files.

The benchmark `durability` alternates runs with the platform's syncs of data files and
directories and runs without them, which no setting allows. The metastore syncs its journal in both
cases. All pending writes are flushed to disk before each run.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import functions as F

from acid_platform import Warehouse
from acid_platform.base import local_files
from acid_platform.storage.durability import publish
from benchmarks.lineitem import COLUMNS, bench_warehouse, lineitem, median, seconds
from benchmarks.results import options, saved, show


@contextmanager
def unsynced() -> Iterator[None]:
    """Disables the platform's syncs in this process."""
    real = local_files.sync_path
    local_files.sync_path = lambda path: None  # noqa: ARG005, the name is part of its type
    try:
        yield
    finally:
        local_files.sync_path = real


def compared(run: Callable[[], object], rounds: int) -> dict[str, float]:
    """Median seconds with and without syncs, alternating; the first round only warms up."""
    taken: dict[str, list[float]] = {"synced": [], "not synced": []}
    for number in range(rounds + 1):
        for name, times in taken.items():
            os.sync()
            if name == "synced":
                spent = seconds(run)
            else:
                with unsynced():
                    spent = seconds(run)
            if number:
                times.append(spent)
    return {name: median(values) for name, values in taken.items()}


def inserts(warehouse: Warehouse, rows: int, partitions: int) -> Callable[[], object]:
    """An INSERT of `rows` rows; with 0 partitions, into an unpartitioned table."""
    flat = lineitem(warehouse.spark, rows)
    where = warehouse.files.uri(f"{warehouse.path}/flat_{rows}_{partitions}")
    flat.write.option("compression", "zlib").orc(where)
    source = warehouse.spark.read.orc(where)
    if partitions:
        source = source.withColumn("p", (F.col("orderkey") % partitions).cast("int"))
    table = warehouse.create_table(
        f"bench.t_{rows}_{partitions}", COLUMNS, partitioned_by=["p int"] if partitions else []
    )

    def insert() -> None:
        table.insert(source)

    return insert


def publications(root: Path, directories: int) -> Callable[[], object]:
    """Only the publication of a delta with two small files in each of `directories` partitions."""
    from acid_platform.storage.files import Files

    files, number = Files.of(str(root))[0], 0

    def run() -> None:
        nonlocal number
        number += 1
        staged = root / f"_tmp_{number}"
        moves = []
        for partition in range(directories):
            place = f"p={partition}/delta_{number}"
            (staged / place).mkdir(parents=True)
            (staged / place / "bucket_00000").write_bytes(b"x" * 1500)
            (staged / place / "_orc_acid_version").write_bytes(b"2")
            moves.append((f"{staged}/{place}", f"{root}/{place}"))
        publish(files, str(root), moves)
        shutil.rmtree(staged)

    return run


def main() -> None:
    given = options(__doc__, rows=[1_000, 8_000_000], rounds=5, partitions=2_000)
    with bench_warehouse() as warehouse:
        works = {f"INSERT of {rows:,} rows": inserts(warehouse, rows, 0) for rows in given.rows}
        works["INSERT of 1,000 rows into 20 partitions"] = inserts(warehouse, 1_000, 20)
        works[f"publication alone, {given.partitions:,} partitions"] = publications(
            Path(warehouse.path, "published"), given.partitions
        )
        results = {name: compared(work, given.rounds) for name, work in works.items()}
    show(
        "Seconds, medians",
        ("what", "synced", "not synced", "difference"),
        (
            (name, *(f"{one:.3f}" for one in (synced, unsynced, synced - unsynced)))
            for name, (synced, unsynced) in ((n, times.values()) for n, times in results.items())
        ),
    )
    saved(given, "durability", seconds=results)
