"""The local engine as a table grows: seconds and peak memory of each statement.

The benchmark `local-growth` makes a table of each size with the defaults, as one stream. Then each
statement runs in a process of its own, after the same statement on a table of a few rows. The peak
is that of its anonymous memory, without the rows that the caller holds. Beside it stand the columns
that are kept for the next query, which are a part of it, and the most pages of files, which the
system may take back. The rows of every answer are checked. Exit code 1 if an answer is wrong, if a
statement took more than `--limit` megabytes beside what it keeps, or if it started Spark.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from acid_platform import Warehouse
from acid_platform.scan.kept_columns import KEPT
from benchmarks.comparison.rows import row_query
from benchmarks.comparison.statements import ASSIGNED, MERGED, SCHEMA, WHERE, queries
from benchmarks.results import options, saved, show

TABLE, SMALL = "bench.lineitem", "bench.warm"
SMALL_SIZE = 6000
MILLION, STREAMED = 1_000_000, 200_000


def source(ids: str, rows: int) -> Any:
    """Rows with these ids of a table of so many rows, as an Arrow table."""
    import duckdb

    with duckdb.connect() as database:
        database.execute("SET memory_limit = '1GB'; SET threads = 2")
        return database.sql(row_query(f"range({ids}) t(i)", rows, 1)).to_arrow_table()


def stream(first: int, last: int, rows: int) -> Iterator[Any]:
    """As `source` of the ids from `first` up to `last`, of which few are in memory."""
    for low in range(first, last, STREAMED):
        yield source(f"{low}, {min(last, low + STREAMED)}", rows)


def load(warehouse: Warehouse, name: str, rows: int) -> int:
    """Makes a table of one stream; returns its rows."""
    table = warehouse.create_table(name, SCHEMA)
    table.insert(stream(0, rows, rows))
    return table.count()


def insert_table(warehouse: Warehouse, name: str, rows: int) -> int:
    """Makes a table of rows that the caller holds."""
    held = source(f"0, {rows}", rows)
    _begun.update(at=time.monotonic(), held=held.nbytes)
    table = warehouse.create_table(name, SCHEMA)
    table.insert(held)
    return table.count()


def merge_stream(warehouse: Warehouse, name: str, rows: int) -> int:
    """Merges a tenth as many rows, of which half are new."""
    table = warehouse.table(name)
    table.merge(
        stream(rows - rows // 20, rows + rows // 20, rows),
        "t.l_id = s.l_id",
        when_matched_update={column: f"s.{column}" for column in MERGED},
        when_not_matched_insert="*",
    )
    return table.count()


def rows_of(warehouse: Warehouse, query: str) -> int:
    """The rows of a query's answer, read in batches."""
    result: Any = warehouse.sql(query)
    return sum(batch.num_rows for batch in result.batches())


def statements(
    warehouse: Warehouse, name: str, rows: int
) -> dict[str, tuple[Callable[[], int], int]]:
    """The statement by its name, which returns a count, and the count that it must return."""
    reads = queries(name, rows)
    groups = (
        "SELECT l_partkey, count(*) AS n, sum(l_extendedprice) AS p, max(l_comment) AS c"
        f" FROM {name} GROUP BY l_partkey"
    )
    table = warehouse.table(name)

    def merge() -> int:
        """A hundred rows, of which fifty are new."""
        table.merge(
            source(f"{rows - 50}, {rows + 50}", rows),
            "t.l_id = s.l_id",
            when_matched_update={column: f"s.{column}" for column in MERGED},
            when_not_matched_insert="*",
        )
        return table.count()

    def insert() -> int:
        table.insert(source(f"{2 * rows}, {2 * rows + 1000}", rows))
        return table.count()

    def compact() -> int:
        table.compact("major")
        return table.count()

    few = f"l_id BETWEEN {rows // 2} AND {rows // 2 + 99}"
    every_100th = f"l_id < {rows} AND {WHERE['update']}"
    deleted = rows // 20
    left = rows + 50 + 1000 - deleted
    return {
        "count": (lambda: rows_of(warehouse, reads["count"]), 1),
        "narrow": (lambda: rows_of(warehouse, reads["narrow"]), 1),
        "selective": (lambda: rows_of(warehouse, reads["selective"]), 1),
        "wide": (lambda: rows_of(warehouse, reads["wide"]), 1),
        "all rows in batches": (lambda: rows_of(warehouse, f"SELECT * FROM {name}"), rows),
        "GROUP BY": (lambda: rows_of(warehouse, groups), rows // 30),
        "UPDATE of 100 rows": (lambda: table.update(ASSIGNED, few), 100),
        "MERGE of 100 rows": (merge, rows + 50),
        "INSERT of 1,000 rows": (insert, rows + 50 + 1000),
        "UPDATE 1 %": (lambda: table.update(ASSIGNED, every_100th), rows // 100),
        "DELETE 5 %": (
            lambda: table.delete(f"l_id < {rows} AND {WHERE['delete_5pct']}"),
            deleted,
        ),
        "count after the DELETE": (lambda: rows_of(warehouse, reads["count"]), 1),
        "narrow after the DELETE": (lambda: rows_of(warehouse, reads["narrow"]), 1),
        "wide after the DELETE": (lambda: rows_of(warehouse, reads["wide"]), 1),
        "all rows after the DELETE": (lambda: rows_of(warehouse, f"SELECT * FROM {name}"), left),
        "major compaction": (compact, left),
        "INSERT of a table": (partial(insert_table, warehouse, f"{name}_copy", rows), rows),
        "UPDATE of all rows": (
            lambda: warehouse.table(f"{name}_copy").update(ASSIGNED),
            rows,
        ),
        "MERGE of a stream": (
            partial(merge_stream, warehouse, f"{name}_copy", rows),
            rows + rows // 20,
        ),
        "DELETE of all rows": (lambda: warehouse.table(f"{name}_copy").delete(), rows + rows // 20),
    }


def run_here(path: Path, name: str, rows: int) -> dict[str, Any]:
    """Runs a statement in this process; returns what it measured."""
    with Warehouse.open(path) as warehouse:
        if name == "load":
            load(warehouse, SMALL, SMALL_SIZE)
            run: Callable[[], int] = partial(load, warehouse, TABLE, rows)
            expected = rows
        else:
            run, expected = statements(warehouse, TABLE, rows)[name]
            warm, _ = statements(warehouse, SMALL, SMALL_SIZE)[name]
            warm()
        _begun.update(at=time.monotonic(), held=0)
        began = time.perf_counter()
        found = run()
        return {
            "seconds": round(time.perf_counter() - began, 3),
            "rows": found,
            "rows expected": expected,
            "spark": "pyspark" in sys.modules,
            "kept MB": KEPT.get().size >> 20,
            "held MB": _begun["held"] >> 20,
            "began": _begun["at"],
            "ended": time.monotonic(),
        }


_begun: dict[str, Any] = {}
"""When the statement began, by a clock that all processes share, and what the caller's rows take,
which are no memory of it."""


def run_apart(path: Path, name: str, rows: int) -> dict[str, Any]:
    """`run_here` in a new process, whose memory this one looks at."""
    this = [sys.executable, "-m", "benchmarks", "local-growth", "--rows", str(rows)]
    command = [*this, "--here", str(path), "--statement", name]
    seen: list[tuple[float, list[int]]] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            seen.append((time.monotonic(), _memory(process.pid, "RssAnon", "RssFile")))
            time.sleep(0.005)
        assert process.stdout is not None
        printed = process.stdout.read()
    if process.returncode:
        raise SystemExit(f"{name}: {printed}")
    told: dict[str, Any] = json.loads(printed.splitlines()[-1])
    began, ended = told.pop("began"), told.pop("ended")
    during = [sizes for at, sizes in seen if began <= at <= ended] or [[0, 0]]
    anonymous, of_files = (max(each) >> 20 for each in zip(*during, strict=True))
    peak = anonymous - told["held MB"]
    return {"seconds": told.pop("seconds"), "peak MB": peak, "files MB": of_files, **told}


def _memory(process: int, *names: str) -> list[int]:
    """Lines of the process's status, in bytes; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        lines = []
    sizes = dict(line.split(":", 1) for line in lines)
    return [int(sizes.get(name, "0 kB").split()[0]) << 10 for name in names]


def measure(rows: int) -> dict[str, Any]:
    """Every statement on a new table of so many rows, one after the other."""
    with TemporaryDirectory(dir=os.environ.get("ACID_BENCH_DIR"), prefix="acid-bench-") as home:
        path = Path(home, "wh")
        with Warehouse.open(path) as warehouse:
            try:
                measured = {"load": run_apart(path, "load", rows)}
                for name in statements(warehouse, TABLE, rows):
                    measured[name] = run_apart(path, name, rows)
                    print(name, measured[name], flush=True)
            finally:
                warehouse.release()
                warehouse.metastore.stop()
    return {"statements": measured}


def main() -> int:
    """`--here` and `--statement` are for the process of one statement."""
    every = [200_000, 2 * MILLION, 6 * MILLION, 30 * MILLION]
    given = options(__doc__, rows=every, limit=1500, here="", statement="")
    sizes = [max(rows // 6000, 1) * 6000 for rows in given.rows]
    if given.here:
        print(json.dumps(run_here(Path(given.here), given.statement, sizes[0])))
        return 0
    results: dict[str, Any] = {}
    for rows in sizes:
        results[f"{rows:,}"] = measure(rows)
        show(
            "Seconds, and the peak of the process's memory in MB: anonymous, kept, of files",
            (
                "statement",
                *(part for size in results for part in (f"{size} rows", "MB", "kept", "files")),
            ),
            ((name, *_cells(results, name)) for name in results[f"{rows:,}"]["statements"]),
        )
        saved(given, "local-growth", results=results)
    wrong = any(
        measured["rows"] != measured["rows expected"]
        or measured["peak MB"] - measured["kept MB"] > given.limit
        or measured["spark"]
        for size in results.values()
        for measured in size["statements"].values()
    )
    return 1 if wrong else 0


def _cells(results: dict[str, Any], name: str) -> Iterator[str]:
    for size in results.values():
        measured = size["statements"][name]
        yield f"{measured['seconds']:,.3f}"
        yield f"{measured['peak MB']:,}"
        yield f"{measured['kept MB']:,}"
        yield f"{measured['files MB']:,}"
