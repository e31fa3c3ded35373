"""Writing: INSERT compared with plain ORC, and UPDATE, DELETE, MERGE with rewriting the table.

The benchmark `write` shows seconds and bytes written. Each change is rolled back after its
measurement, so all start from the same table.

INSERT is one pass: Spark's tasks hand Arrow batches to our ORC writer in Python processes. A
million rows of eleven columns cost that writer 0.35 to 0.7 s of CPU time, whatever the codec; the
rest is Spark's reading, and its conversion of rows to Arrow.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from acid_platform import Warehouse
from acid_platform.handles.transaction import TransactionTable
from benchmarks.lineitem import COLUMNS, alternated, bench_warehouse, lineitem, median, seconds
from benchmarks.results import options, saved, show

TABLE = "bench.lineitem"


def changes(source: DataFrame) -> dict[str, Callable[[TransactionTable], object]]:
    """Name → the statement; `source` has 3 % as many rows as the table, one in ten of them new."""
    price = {"extendedprice": "cast(extendedprice + 1 as decimal(12,2))"}
    return {
        "UPDATE 0.01 %": lambda t: t.update(price, "orderkey % 10000 = 17"),
        "UPDATE 1 %": lambda t: t.update(price, "orderkey % 100 = 17"),
        "UPDATE 30 %": lambda t: t.update(price, "orderkey % 10 < 3"),
        "DELETE 1 row": lambda t: t.delete("orderkey = 4242"),
        "DELETE 5 %": lambda t: t.delete("orderkey % 20 = 7"),
        "MERGE 3 %": lambda t: t.merge(
            source,
            "t.orderkey = s.orderkey",
            when_matched_update={"extendedprice": "s.extendedprice"},
            when_not_matched_insert="*",
        ),
    }


def inserts(warehouse: Warehouse, flat: DataFrame, rounds: int) -> dict[str, float]:
    """Median seconds of writing all rows as plain ORC and as one INSERT."""
    target = Path(warehouse.path, "again")
    table = warehouse.table(TABLE)

    def plain() -> None:
        shutil.rmtree(target, ignore_errors=True)
        flat.write.option("compression", "zlib").orc(warehouse.files.uri(str(target)))

    def insert() -> None:
        txn = warehouse.transaction()
        txn.table(table.name).insert(flat)
        txn.abort("measured")
        shutil.rmtree(
            Path(
                table.location,
                f"delta_{txn.write_ids[table.name]:07d}_{txn.write_ids[table.name]:07d}_0000",
            )
        )

    return {
        name: median(values)
        for name, values in alternated({"plain ORC": plain, "INSERT": insert}, rounds).items()
    }


def change(
    warehouse: Warehouse, run: Callable[[TransactionTable], object], rounds: int
) -> tuple[float, int]:
    """Median seconds and bytes written of a change, which is rolled back each time."""

    taken, written = [], 0
    for _ in range(rounds):
        txn = warehouse.transaction()
        table = txn.table(TABLE)
        taken.append(seconds(lambda on=table: run(on)))  # type: ignore[misc]
        written = sum(report.bytes for report in txn.reports)
        txn.abort("measured")
    return median(taken), written


def main() -> None:
    given = options(__doc__, rows=8_000_000, rounds=3)
    with bench_warehouse() as warehouse:
        spark = warehouse.spark
        where = warehouse.files.uri(f"{warehouse.path}/flat")
        lineitem(spark, given.rows).write.option("compression", "zlib").orc(where)
        flat = spark.read.orc(where)
        table = warehouse.create_table(TABLE, COLUMNS)
        table.insert(flat)
        insert = inserts(warehouse, flat, given.rounds)
        rewrite = insert["plain ORC"]
        size = sum(file.stat().st_size for file in Path(warehouse.path, "flat").glob("*.orc"))
        ratio = insert["INSERT"] / rewrite
        print(f"plain ORC {rewrite:.2f} s, INSERT {insert['INSERT']:.2f} s: {ratio:.2f}")
        source = lineitem(spark, given.rows // 33, seed=50).withColumn(
            "orderkey", F.col("orderkey") * 36
        )
        results = {}
        for name, run in changes(source).items():
            taken, written = change(warehouse, run, given.rounds)
            results[name] = {"seconds": taken, "bytes": written}
            print(f"{name}: {taken:.2f} s, {written / 1e6:.2f} MB")
    show(
        f"Against rewriting {given.rows:,} rows: {rewrite:.1f} s, {size / 1e6:.0f} MB",
        ("statement", "seconds", "of the rewrite", "MB written", "of the table"),
        (
            (
                name,
                f"{one['seconds']:.2f}",
                f"{one['seconds'] / rewrite:.2f}",
                f"{one['bytes'] / 1e6:.2f}",
                f"{one['bytes'] / size:.1%}",
            )
            for name, one in results.items()
        ),
    )
    more = {"insert over plain ORC": ratio, "table bytes": size}
    saved(given, "writing", insert=insert, changes=results, **more)
