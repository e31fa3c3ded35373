"""Reading an ACID table compared with the same rows in plain ORC, through the published steps.

The benchmark `read` reads a table while deletes and inserts are added: only a base, one
delete, one more insert, five of each, 5 % of its rows deleted. At each step, reads of this table
and of plain ORC alternate in one Spark session. Compare the ratios: times depend on the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from acid_platform import Table, Warehouse
from benchmarks.comparison.driver import SHORT_READS
from benchmarks.lineitem import COLUMNS, NAMES, alternated, bench_warehouse, lineitem, median
from benchmarks.results import chart, options, saved, show

QUERIES = ("count(*)", "sum of one column", "selective predicate", "max of all columns")
WIDE = QUERIES[-1]


def flat_queries(flat: DataFrame, rows: int) -> dict[str, Callable[[], object]]:
    low = rows // 2
    return {
        QUERIES[0]: flat.count,
        QUERIES[1]: lambda: flat.agg(F.sum("quantity")).collect(),
        QUERIES[2]: lambda: (
            flat.filter(f"orderkey between {low} and {low + 1000}")
            .agg(F.count("*"), F.sum("extendedprice"))
            .collect()
        ),
        WIDE: lambda: flat.agg(*(F.max(name) for name in NAMES)).collect(),
    }


def acid_queries(table: Table, rows: int) -> dict[str, Callable[[], object]]:
    low = rows // 2
    return {
        QUERIES[0]: table.count,
        QUERIES[1]: lambda: table.read().agg(F.sum("quantity")).collect(),
        QUERIES[2]: lambda: (
            table.read(where=f"orderkey between {low} and {low + 1000}")
            .agg(F.count("*"), F.sum("extendedprice"))
            .collect()
        ),
        WIDE: lambda: table.read().agg(*(F.max(name) for name in NAMES)).collect(),
    }


def steps(warehouse: Warehouse, table: Table, rows: int) -> Mapping[str, Callable[[], object]]:
    """The change to the table before each measurement."""
    spark = warehouse.spark

    def delete(number: int) -> None:
        table.delete(f"orderkey % {rows // 40} = {number}")

    def insert(number: int) -> None:
        table.insert(
            lineitem(spark, max(1, rows // 40_000), seed=100 + number).withColumn(
                "orderkey", F.col("orderkey") + rows * number
            )
        )

    def four_more(change: Callable[[int], None]) -> None:
        for number in range(2, 6):
            change(number)

    return {
        "base only": lambda: None,
        "+1 delete": lambda: delete(1),
        "+1 delete +1 insert": lambda: insert(1),
        "+5 deletes": lambda: four_more(delete),
        "+5 deletes +5 inserts": lambda: four_more(insert),
        "5 % deleted": lambda: table.delete("orderkey % 20 = 3"),
    }


def run(rows: int, rounds: int) -> dict[str, dict[str, dict[str, float]]]:
    """Step → query → median seconds of plain ORC (`flat`) and of the ACID table (`acid`)."""
    measured: dict[str, dict[str, dict[str, float]]] = {}
    with bench_warehouse() as warehouse:
        spark = warehouse.spark
        where = warehouse.files.uri(f"{warehouse.path}/flat")
        lineitem(spark, rows).write.option("compression", "zlib").orc(where)
        flat = spark.read.orc(where)
        table = warehouse.create_table("bench.lineitem", COLUMNS)
        table.overwrite(flat)
        print(f"{rows:,} rows written, {flat.inputFiles().__len__()} files")
        assert table.count() == flat.count() == rows
        for step, change in steps(warehouse, table, rows).items():
            change()
            measured[step] = {}
            for query in QUERIES:
                taken = alternated(
                    {
                        "flat": flat_queries(flat, rows)[query],
                        "acid": acid_queries(table, rows)[query],
                    },
                    rounds if query == WIDE else rounds * SHORT_READS,
                )
                times = {name: median(values) for name, values in taken.items()}
                measured[step][query] = times
                print(
                    f"{step:24s} {query:22s} flat {times['flat']:.3f} s,"
                    f" acid {times['acid']:.3f} s,"
                    f" ratio {times['acid'] / times['flat']:.2f}"
                )
        warehouse.release()
    return measured


def main() -> None:
    given = options(__doc__, rows=8_000_000, rounds=5)
    measured = run(given.rows, given.rounds)
    show(
        "Seconds over the same rows in plain ORC",
        ("table", *QUERIES),
        (
            (step, *(f"{t['acid'] / t['flat']:.2f} ({t['acid']:.2f} s)" for t in queries.values()))
            for step, queries in measured.items()
        ),
    )
    path = saved(given, "reading", seconds=measured)
    chart(
        path.with_suffix(".svg"),
        "Read time over plain ORC",
        {
            step: {query: times["acid"] / times["flat"] for query, times in queries.items()}
            for step, queries in measured.items()
        },
    )
