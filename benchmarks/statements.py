"""Peak memory of every statement and both compactions, on a large table with a small driver heap.

The benchmark `memory` gives the JVM 1 GB and 2 cores for 30 million rows. For each statement it
shows the seconds and the peak memory of the JVM, of the largest Python worker and of this process.
After each statement the rows of the table are counted and compared with the expected number.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from pyspark.sql import functions as F

from acid_platform import Warehouse
from acid_platform.services import cleaner
from benchmarks.lineitem import COLUMNS, NAMES, bench_warehouse, lineitem
from benchmarks.memory import peak_memory
from benchmarks.results import options, saved, show

TABLE = "bench.lineitem"
PRICE = {"extendedprice": "cast(extendedprice + 1 as decimal(12,2))"}


def statements(warehouse: Warehouse, rows: int) -> dict[str, tuple[Callable[[], object], int]]:
    """Name → the statement to run, and the number of rows that the table must have afterwards."""
    table = warehouse.table(TABLE)
    spark = warehouse.spark
    # Half of the source's keys are in the table; none of them was deleted before.
    gone = rows // 100 * 7
    source = lineitem(spark, rows // 50, seed=50).withColumn("orderkey", F.col("orderkey") * 100)
    new = rows // 50 - rows // 100
    left = rows - gone

    def compact(kind: str) -> None:
        table.compact(kind)
        cleaner.run(warehouse.metastore)  # so that the next compaction can be requested (C24)

    return {
        "INSERT": (lambda: table.insert(lineitem(spark, rows)), rows),
        "SELECT max of all columns": (
            lambda: table.read().agg(*(F.max(name) for name in NAMES)).collect(),
            rows,
        ),
        "UPDATE 1 %": (lambda: table.update(PRICE, "orderkey % 100 = 17"), rows),
        "UPDATE 30 %": (lambda: table.update(PRICE, "orderkey % 100 between 20 and 49"), rows),
        "DELETE 7 %": (lambda: table.delete("orderkey % 100 between 1 and 7"), left),
        "MERGE 2 %": (
            lambda: table.merge(
                source,
                "t.orderkey = s.orderkey",
                when_matched_update={"extendedprice": "s.extendedprice"},
                when_not_matched_insert="*",
            ),
            left + new,
        ),
        "minor compaction": (lambda: compact("minor"), left + new),
        "major compaction": (lambda: compact("major"), left + new),
        "INSERT OVERWRITE": (lambda: table.overwrite(table.read()), left + new),
        "TRUNCATE": (table.truncate, 0),
    }


def main() -> int:
    given = options(__doc__, rows=30_000_000)
    rows = given.rows // 100 * 100
    results, wrong = dict[str, Any](), 0
    with bench_warehouse() as warehouse:
        table = warehouse.create_table(TABLE, COLUMNS)
        for name, (run, left) in statements(warehouse, rows).items():
            started = time.perf_counter()
            with peak_memory() as peak:
                run()
            seconds = time.perf_counter() - started
            counted = table.count()
            wrong += counted != left
            results[name] = {
                "seconds": round(seconds, 1),
                **peak.as_json(),
                "rows": counted,
                "rows expected": left,
            }
            print(f"{name}: {results[name]}")
            warehouse.release()
    show(
        f"{rows:,} rows: peak memory in MB",
        ("statement", *next(iter(results.values()))),
        ((name, *(f"{one:,}" for one in found.values())) for name, found in results.items()),
    )
    saved(given, "memory", statements=results)
    return 1 if wrong else 0
