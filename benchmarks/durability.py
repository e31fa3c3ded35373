"""The cost of durable commits (P27): INSERT with and without syncs of data files.

`python -m benchmarks.durability` alternates runs with the platform's syncs of data files and
directories and runs without them, which no setting allows. The metastore syncs its journal in both
cases. All pending writes are flushed to disk before each run.
"""

from __future__ import annotations

import argparse
import datetime
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table as RichTable

from acid_platform import Warehouse
from acid_platform.base import disk
from acid_platform.storage.durability import publish
from benchmarks.lineitem import COLUMNS, bench_warehouse, lineitem, median, seconds
from benchmarks.results import machine, save


@contextmanager
def unsynced() -> Iterator[None]:
    """Disables the platform's syncs in this process."""
    real = disk.sync_path
    disk.sync_path = lambda path: None  # noqa: ARG005, the name is part of its type
    try:
        yield
    finally:
        disk.sync_path = real


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


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.durability", description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000, 8_000_000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--partitions", type=int, default=2_000)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    chosen = parser.parse_args(argv)
    results: dict[str, dict[str, float]] = {}
    with bench_warehouse() as warehouse:
        for rows in chosen.rows:
            results[f"INSERT of {rows:,} rows"] = compared(
                inserts(warehouse, rows, 0), chosen.rounds
            )
        results["INSERT of 1,000 rows into 20 partitions"] = compared(
            inserts(warehouse, 1_000, 20), chosen.rounds
        )
        results[f"publication alone, {chosen.partitions:,} partitions"] = compared(
            publications(Path(warehouse.path, "published"), chosen.partitions), chosen.rounds
        )
    shown = RichTable(title="Seconds, medians")
    for name in ("what", "synced", "not synced", "difference"):
        shown.add_column(name, justify="right")
    for name, times in results.items():
        shown.add_row(
            name,
            f"{times['synced']:.3f}",
            f"{times['not synced']:.3f}",
            f"{times['synced'] - times['not synced']:.3f}",
        )
    Console().print(shown)
    save(
        chosen.out / f"{datetime.date.today().isoformat()}-durability.json",
        {"machine": machine(), "rounds": chosen.rounds, "seconds": results},
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
