"""Rows like TPC-H's lineitem, made by Spark alone, and the warehouse that a benchmark works in."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from acid_platform.warehouse import Warehouse

COLUMNS = (
    "orderkey bigint, linenumber int, quantity int, extendedprice decimal(12,2),"
    " discount decimal(4,2), shipdate date, shipmode string, returnflag string, comment string"
)
NAMES = tuple(
    column.split()[0] for column in COLUMNS.replace("12,2", "").replace("4,2", "").split(", ")
)
FILES = 4


def lineitem(spark: SparkSession, rows: int, seed: int = 1) -> DataFrame:
    """`rows` rows in FILES partitions, ascending in orderkey."""
    key = F.col("id")
    modes = F.array(*map(F.lit, ("AIR", "FOB", "MAIL", "RAIL", "SHIP", "TRUCK", "REG AIR")))
    words = F.array(
        *map(
            F.lit,
            (
                "carefully",
                "quickly",
                "final",
                "deposits",
                "packages",
                "furiously",
                "ironic",
                "requests",
                "accounts",
                "sleep",
                "pending",
                "special",
                "express",
                "instructions",
                "bold",
                "even",
            ),
        )
    )

    def word(number: int) -> Column:
        return F.get(words, (F.rand(seed + number) * 16).cast("int"))

    return spark.range(0, rows, 1, FILES).select(
        key.alias("orderkey"),
        (key % 7 + 1).cast("int").alias("linenumber"),
        (F.rand(seed) * 50 + 1).cast("int").alias("quantity"),
        (F.rand(seed + 1) * 100_000).cast("decimal(12,2)").alias("extendedprice"),
        (F.floor(F.rand(seed + 2) * 11) / 100).cast("decimal(4,2)").alias("discount"),
        F.date_add(F.lit("1992-01-02").cast("date"), (F.rand(seed + 3) * 2520).cast("int")).alias(
            "shipdate"
        ),
        F.get(modes, (F.rand(seed + 4) * 7).cast("int")).alias("shipmode"),
        F.when(F.rand(seed + 5) < 0.5, "N").otherwise("R").alias("returnflag"),
        F.concat_ws(" ", word(6), word(7), word(8), key.cast("string")).alias("comment"),
    )


@contextmanager
def bench_warehouse() -> Iterator[Warehouse]:
    """A warehouse below ACID_BENCH_DIR, or the system's temporary directory; removed at the end."""
    with (
        TemporaryDirectory(dir=os.environ.get("ACID_BENCH_DIR"), prefix="acid-bench-") as home,
        Warehouse.open(Path(home, "wh")) as warehouse,
    ):
        try:
            yield warehouse
        finally:
            warehouse.metastore.stop()


def seconds(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def alternated(
    candidates: Mapping[str, Callable[[], object]], rounds: int
) -> dict[str, list[float]]:
    """Seconds of each candidate in each round, one after another; a first round only warms up."""
    taken: dict[str, list[float]] = {name: [] for name in candidates}
    for number in range(rounds + 1):
        for name, run in candidates.items():
            spent = seconds(run)
            if number:
                taken[name].append(spent)
    return taken


def median(values: list[float]) -> float:
    return statistics.median(values)
