"""Spark and the local engine by the size of the table: queries, writes and compactions.

The benchmark `engines` makes a table of each number of `--rows`, with a base and updates. Both
engines then take turns with three queries, a DELETE of 5 % that is not committed, and a major
compaction up to its publication, validation included. Spark's session is warm: a process that has
none pays its start too. `acid.local.max.bytes` and `acid.local.compaction.max.bytes` can be chosen
for a machine by the sizes at which Spark becomes the faster one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from acid_platform import Warehouse
from acid_platform.engine.choice import LOCAL_BYTES
from benchmarks.compaction import TABLE, make, merged
from benchmarks.lineitem import NAMES, alternated, bench_warehouse, median
from benchmarks.results import options, saved, show

ENGINES = ("spark", "local")
QUERIES = {
    "sum of one column": f"SELECT sum(quantity) AS q FROM {TABLE}",
    "max of all columns": f"SELECT {', '.join(f'max({name}) AS {name}' for name in NAMES)}"
    f" FROM {TABLE}",
    "GROUP BY": "SELECT shipmode, returnflag, count(*) AS n, sum(extendedprice) AS p"
    f" FROM {TABLE} GROUP BY shipmode, returnflag",
}


def run(warehouse: Warehouse, engine: str, what: str) -> None:
    """One run of a query, of the DELETE or of the compaction by this engine."""
    with warehouse.using(engine):
        if what == "major compaction":
            merged(warehouse, "major")
        elif what == "DELETE 5 %":
            txn = warehouse.transaction()
            txn.table(TABLE).delete("orderkey % 20 = 7")
            txn.abort("measured, not committed")
        else:
            result: Any = warehouse.sql(QUERIES[what])
            result.to_arrow()
            warehouse.release()


def measure(rows: int, pairs: int, rounds: int) -> dict[str, Any]:
    """Median seconds of each statement by each engine, and the bytes of the table."""
    taken: dict[str, dict[str, float]] = {}
    with bench_warehouse() as warehouse:
        warehouse.metastore.set(LOCAL_BYTES, str(1 << 40))
        make(warehouse, rows, pairs)
        warehouse.release()
        size = sum(
            directory.bytes
            for entity in warehouse.metastore.entities(TABLE)
            for directory in entity.directories
        )
        for what in (*QUERIES, "DELETE 5 %", "major compaction"):
            engines: dict[str, Callable[[], object]] = {
                engine: partial(run, warehouse, engine, what) for engine in ENGINES
            }
            times = alternated(engines, rounds)
            taken[what] = {engine: round(median(times[engine]), 3) for engine in ENGINES}
            print(what, taken[what])
        warehouse.release()
    return {"rows": rows, "bytes": size, "rounds": rounds, "seconds": taken}


def main() -> None:
    given = options(__doc__, rows=[100_000, 1_000_000, 8_000_000], pairs=3, rounds=3)
    found = [  # one round of the largest table
        measure(rows, given.pairs, 1 if rows == given.rows[-1] else given.rounds)
        for rows in given.rows
    ]
    show(
        "Seconds by engine and size of the table",
        ("rows", "MB", "statement", "Spark", "local", "local is times as fast"),
        (
            (
                f"{one['rows']:,}",
                f"{one['bytes'] / 1e6:.1f}",
                what,
                f"{seconds['spark']:.2f}",
                f"{seconds['local']:.2f}",
                f"{seconds['spark'] / seconds['local']:.1f}",
            )
            for one in found
            for what, seconds in one["seconds"].items()
        ),
    )
    saved(given, "engine-sizes", found=found)
