"""Compaction, including validation, compared with Spark rewriting the same rows as plain ORC.

`python -m benchmarks.compaction` creates a table with a base and `--pairs` updates (a delta and a
delete_delta each). It alternates a plain rewrite of the rows with a major and a minor compaction,
each up to its publication. Then each compaction is published once, and reads before and after are
compared. Peak memory is given for the JVM (run it with a heap of 1 GB) and for the largest Python
worker.
"""

from __future__ import annotations

import argparse
import datetime
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table as RichTable

from acid_platform import CompactionFailed, Table, Warehouse
from acid_platform.base.table_properties import LOCAL_COMPACTION_BYTES
from acid_platform.compaction.plan import NothingToDo
from acid_platform.services import cleaner
from acid_platform.services.worker import CompactionRun, work_once
from benchmarks.lineitem import COLUMNS, NAMES, alternated, bench_warehouse, lineitem, median
from benchmarks.memory import peak_memory
from benchmarks.results import machine, save

TABLE = "bench.lineitem"
LIMIT = 1.2
"""A major compaction must be this many times as fast as the plain rewrite."""


def make(warehouse: Warehouse, rows: int, pairs: int, console: Console) -> Table:
    """A base of `rows` rows, and `pairs` updates of 0.1 % of them each."""
    table = warehouse.create_table(TABLE, COLUMNS)
    table.overwrite(lineitem(warehouse.spark, rows))
    console.log(f"{rows:,} rows written")
    for number in range(pairs):
        table.update({"quantity": "quantity + 1"}, f"orderkey % 1000 = {number}")
        console.log(f"update {number + 1} of {pairs}")
    return table


def merged(warehouse: Warehouse, kind: str) -> None:
    """Run a compaction up to its publication, then fail it."""
    warehouse.metastore.request_compaction(TABLE, None, kind)
    run = CompactionRun.take(warehouse, table=TABLE)
    assert run is not None
    assert not isinstance(run.prepare(), NothingToDo)
    run.merge()
    run.check()
    run.fail(CompactionFailed("measured, not published"))


def published(warehouse: Warehouse, kind: str) -> list[str]:
    """Run and publish a compaction; returns the deviations from its forecast."""
    warehouse.release()
    warehouse.metastore.request_compaction(TABLE, None, kind)
    outcome = work_once(warehouse)
    assert outcome is not None and outcome.state == "published", outcome
    cleaner.run(warehouse.metastore)  # so that the next compaction can be requested (C24)
    return list(map(str, outcome.deviations))


def reads(warehouse: Warehouse, rounds: int) -> dict[str, float]:
    """Median seconds of each query on the table."""
    table = warehouse.table(TABLE)
    queries: dict[str, Callable[[], object]] = {
        "count(*)": table.count,
        "sum of one column": lambda: table.read().agg(F.sum("quantity")).collect(),
        "max of all columns": lambda: table.read().agg(*(F.max(n) for n in NAMES)).collect(),
    }
    results = {name: median(times) for name, times in alternated(queries, rounds).items()}
    warehouse.release()
    return results


def measure(rows: int, pairs: int, rounds: int, console: Console) -> dict[str, Any]:
    with bench_warehouse() as warehouse:
        warehouse.metastore.set(LOCAL_COMPACTION_BYTES, "0")  # always Spark
        table = make(warehouse, rows, pairs, console)
        flat, again = f"{warehouse.path}/flat", f"{warehouse.path}/again"
        spark, uri = warehouse.spark, warehouse.files.uri
        table.read().write.option("compression", "zlib").orc(uri(flat))
        warehouse.release()

        def rewrite() -> None:
            shutil.rmtree(again, ignore_errors=True)
            spark.read.orc(uri(flat)).write.option("compression", "zlib").orc(uri(again))

        results: dict[str, Any] = {"seconds": {}, "memory": {}, "reads": {}, "forecast": {}}
        candidates: dict[str, Callable[[], object]] = {
            "plain rewrite": rewrite,
            "major": partial(merged, warehouse, "major"),
            "minor": partial(merged, warehouse, "minor"),
        }
        for name, run in candidates.items():
            with peak_memory() as peak:
                run()
            results["memory"][name] = peak.as_json()
            console.log(f"{name}, with its memory", results["memory"][name])
        taken = alternated(candidates, rounds)
        results["seconds"] = {name: median(values) for name, values in taken.items()}
        console.log(f"{rounds} rounds of each, seconds", results["seconds"])
        results["reads"]["before"] = reads(warehouse, rounds)
        for kind in ("minor", "major"):
            results["forecast"][kind] = published(warehouse, kind)
            console.log(f"{kind} published")
            results["reads"][f"after {kind}"] = reads(warehouse, rounds)
        assert table.count() == rows
        warehouse.release()
    return results


def show(results: dict[str, Any], console: Console) -> None:
    plain = results["seconds"]["plain rewrite"]
    table = RichTable(title="Compaction, validation included, beside a plain rewrite")
    for name in ("what", "seconds", "times as fast", "JVM MB", "largest worker MB"):
        table.add_column(name, justify="right")
    for name, seconds in results["seconds"].items():
        memory = results["memory"][name]
        table.add_row(
            name,
            f"{seconds:.2f}",
            f"{plain / seconds:.2f}",
            str(memory["jvm MB"]),
            str(memory["largest worker MB"]),
        )
    console.print(table)
    console.print("reads, seconds:", results["reads"])
    console.print("forecasts:", results["forecast"])


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compaction", description=__doc__)
    parser.add_argument("--rows", type=int, default=30_000_000)
    parser.add_argument("--pairs", type=int, default=20, help="updates after the base")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    chosen = parser.parse_args(argv)
    console = Console()
    results = measure(chosen.rows, chosen.pairs, chosen.rounds, console)
    show(results, console)
    ratio = results["seconds"]["plain rewrite"] / results["seconds"]["major"]
    save(
        chosen.out / f"{datetime.date.today().isoformat()}-compaction.json",
        {
            "machine": machine(),
            "rows": chosen.rows,
            "pairs": chosen.pairs,
            "rounds": chosen.rounds,
            "major times as fast as plain": round(ratio, 2),
            "wanted": LIMIT,
            **results,
        },
    )
    return 0 if ratio >= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
