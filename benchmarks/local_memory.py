"""Peak memory of the local engine: a scan, a GROUP BY and a DELETE of 5 % over 30 million rows.

`make bench-local-memory` makes the table with the local engine, a million rows at a time. Then each
statement runs in a process of its own, whose peak resident memory the operating system tells. The
rows of every answer are checked. Exit code 1 if an answer is wrong or a statement took more than
`--limit` megabytes.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable

from acid_platform import Warehouse
from benchmarks.comparison.rows import row_query
from benchmarks.comparison.statements import NAMES, SCHEMA, WHERE
from benchmarks.results import machine, save

TABLE = "bench.lineitem"
MILLION = 1_000_000
_EVERYTHING = str(1 << 40)


def load(warehouse: Warehouse, rows: int) -> int:
    """Makes the table; returns its rows."""
    import duckdb

    table = warehouse.create_table(TABLE, SCHEMA)
    with duckdb.connect() as database:
        database.execute("SET memory_limit = '1GB'; SET threads = 2")
        for low in range(0, rows, MILLION):
            ids = f"range({low}, {min(rows, low + MILLION)}) t(i)"
            table.insert(database.sql(row_query(ids, rows, 1)).to_arrow_table())
    return table.count()


def rows_of(warehouse: Warehouse, query: str) -> int:
    """The rows of a query's answer, read in batches."""
    result: Any = warehouse.sql(query)
    return sum(batch.num_rows for batch in result.batches())


def statements(warehouse: Warehouse, rows: int) -> dict[str, tuple[Callable[[], int], int]]:
    """Name → the statement, which returns a count, and the count that it must return."""
    maxima = ", ".join(f"max({name}) AS {name}" for name in NAMES)
    groups = (
        "SELECT l_partkey, count(*) AS n, sum(l_extendedprice) AS p, max(l_comment) AS c"
        f" FROM {TABLE} GROUP BY l_partkey"
    )
    gone = rows // 20
    left = rows - gone
    table = warehouse.table(TABLE)
    return {
        "scan, max of all columns": (
            lambda: rows_of(warehouse, f"SELECT {maxima} FROM {TABLE}"),
            1,
        ),
        "scan, all rows in batches": (lambda: rows_of(warehouse, f"SELECT * FROM {TABLE}"), rows),
        "GROUP BY": (lambda: rows_of(warehouse, groups), rows // 30),
        "DELETE 5 %": (lambda: table.delete(WHERE["delete_5pct"]), gone),
        "scan after the DELETE": (lambda: rows_of(warehouse, f"SELECT * FROM {TABLE}"), left),
        "GROUP BY after the DELETE": (lambda: rows_of(warehouse, groups), rows // 30),
    }


def run_here(path: Path, name: str, rows: int) -> dict[str, Any]:
    """Runs a statement in this process; returns what it measured."""
    with Warehouse.open(path, engine="local") as warehouse:
        warehouse.metastore.set("acid.local.max.bytes", _EVERYTHING)
        if name == "load":
            return {"rows": load(warehouse, rows)}
        run, expected = statements(warehouse, rows)[name]
        before, began = _peak(), time.perf_counter()
        found = run()
        return {
            "seconds": round(time.perf_counter() - began, 1),
            "peak MB": _peak(),
            "MB before": before,
            "rows": found,
            "rows expected": expected,
        }


def _peak() -> int:
    """The most resident memory that this process had so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def run_apart(path: Path, name: str, rows: int) -> dict[str, Any]:
    """`run_here` in a new process."""
    this = [sys.executable, "-m", "benchmarks.local_memory", "--rows", str(rows)]
    done = subprocess.run(
        [*this, "--here", str(path), "--statement", name],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.local_memory",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rows", type=int, default=30 * MILLION, help="a multiple of 60")
    parser.add_argument("--limit", type=int, default=1500, help="MB that a statement may take")
    parser.add_argument("--here", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--statement", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    chosen = parser.parse_args(argv)
    rows = chosen.rows // 60 * 60
    if chosen.here:
        print(json.dumps(run_here(chosen.here, chosen.statement, rows)))
        return 0
    console, results = Console(), dict[str, Any]()
    with TemporaryDirectory(dir=os.environ.get("ACID_BENCH_DIR"), prefix="acid-bench-") as home:
        path = Path(home, "wh")
        with Warehouse.open(path, engine="local") as warehouse:
            try:
                console.print(f"load: {run_apart(path, 'load', rows)}")
                for name in statements(warehouse, rows):
                    results[name] = run_apart(path, name, rows)
                    console.print(f"{name}: {results[name]}")
                size = sum(
                    directory.bytes
                    for entity in warehouse.metastore.entities(TABLE)
                    for directory in entity.directories
                )
            finally:
                warehouse.release()
                warehouse.metastore.stop()
    shown = RichTable(title=f"{rows:,} rows, {size / 1e6:,.0f} MB: peak memory of the process")
    columns = list(next(iter(results.values())))
    for column in ("statement", *columns):
        shown.add_column(column, justify="right")
    for name, measured in results.items():
        shown.add_row(name, *(f"{measured[column]:,}" for column in columns))
    console.print(shown)
    save(
        chosen.out / f"{datetime.date.today().isoformat()}-local-memory.json",
        {"machine": machine(), "rows": rows, "bytes": size, "statements": results},
    )
    wrong = any(
        measured["rows"] != measured["rows expected"] or measured["peak MB"] > chosen.limit
        for measured in results.values()
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
