"""Spark and the local engine by the size of the table: queries, writes and compactions.

`make bench-engines` makes a table of each number of `--rows`, with a base and a few updates. Both
engines then take turns with three queries, a DELETE of 5 % that is not committed, and a major
compaction up to its publication, validation included. Spark's session is warm: a process that has
none pays its start too. `acid.local.max.bytes` and `acid.local.compaction.max.bytes` can be chosen
for a machine by the sizes at which Spark becomes the faster one.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable

from acid_platform import Warehouse
from acid_platform.engine.choice import LOCAL_BYTES
from benchmarks.compaction import TABLE, make, merged
from benchmarks.lineitem import NAMES, alternated, bench_warehouse, median
from benchmarks.results import machine, save

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


def measure(rows: int, pairs: int, rounds: int, console: Console) -> dict[str, Any]:
    """Median seconds of each statement by each engine, and the bytes of the table."""
    taken: dict[str, dict[str, float]] = {}
    with bench_warehouse() as warehouse:
        warehouse.metastore.set(LOCAL_BYTES, str(1 << 40))
        make(warehouse, rows, pairs, console)
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
            console.log(what, taken[what])
        warehouse.release()
    return {"rows": rows, "bytes": size, "rounds": rounds, "seconds": taken}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.engine_sizes",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000, 8_000_000])
    parser.add_argument("--pairs", type=int, default=3, help="updates after the base")
    parser.add_argument(
        "--rounds", type=int, default=3, help="after a first one to warm up; one for the last table"
    )
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    chosen = parser.parse_args(argv)
    console = Console()
    found = [
        measure(rows, chosen.pairs, 1 if rows == chosen.rows[-1] else chosen.rounds, console)
        for rows in chosen.rows
    ]
    table = RichTable(title="Seconds by engine and size of the table")
    for name in ("rows", "MB", "statement", "Spark", "local", "local is times as fast"):
        table.add_column(name, justify="right")
    for one in found:
        for what, seconds in one["seconds"].items():
            table.add_row(
                f"{one['rows']:,}",
                f"{one['bytes'] / 1e6:.1f}",
                what,
                f"{seconds['spark']:.2f}",
                f"{seconds['local']:.2f}",
                f"{seconds['spark'] / seconds['local']:.1f}",
            )
    console.print(table)
    save(
        chosen.out / f"{datetime.date.today().isoformat()}-engine-sizes.json",
        {"machine": machine(), "found": found},
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
