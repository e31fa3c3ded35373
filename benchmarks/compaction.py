"""Compaction, including validation, compared with Spark rewriting the same rows as plain ORC.

The benchmark `compaction` creates a table with a base and `--pairs` updates (a delta and a
delete_delta each). It alternates a plain rewrite of the rows with a major and a minor compaction,
each up to its publication. Then each compaction is published once, and reads before and after are
compared. Peak memory is given for the JVM (run it with a heap of 1 GB) and for the largest Python
worker.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from typing import Any

from pyspark.sql import functions as F

from acid_platform import CompactionFailed, Table, Warehouse
from acid_platform.compaction.plan import NothingToDo
from acid_platform.services import cleaner
from acid_platform.services.worker import CompactionRun, work_once
from benchmarks.lineitem import COLUMNS, NAMES, alternated, bench_warehouse, lineitem, median
from benchmarks.memory import peak_memory
from benchmarks.results import options, saved, show

TABLE = "bench.lineitem"
LIMIT = 1.2
"""A major compaction must be this many times as fast as the plain rewrite."""


def make(warehouse: Warehouse, rows: int, pairs: int) -> Table:
    """A base of `rows` rows, and `pairs` updates of 0.1 % of them each."""
    table = warehouse.create_table(TABLE, COLUMNS)
    table.overwrite(lineitem(warehouse.spark, rows))
    print(f"{rows:,} rows written")
    for number in range(pairs):
        table.update({"quantity": "quantity + 1"}, f"orderkey % 1000 = {number}")
        print(f"update {number + 1} of {pairs}")
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


def measure(rows: int, pairs: int, rounds: int) -> dict[str, Any]:
    with bench_warehouse() as warehouse:
        warehouse.engines.preference = "spark"
        table = make(warehouse, rows, pairs)
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
            print(f"{name}, with its memory", results["memory"][name])
        taken = alternated(candidates, rounds)
        results["seconds"] = {name: median(values) for name, values in taken.items()}
        print(f"{rounds} rounds of each, seconds", results["seconds"])
        results["reads"]["before"] = reads(warehouse, rounds)
        for kind in ("minor", "major"):
            results["forecast"][kind] = published(warehouse, kind)
            print(f"{kind} published")
            results["reads"][f"after {kind}"] = reads(warehouse, rounds)
        assert table.count() == rows
        warehouse.release()
    return results


def main() -> int:
    given = options(__doc__, rows=30_000_000, pairs=20, rounds=3)
    results = measure(given.rows, given.pairs, given.rounds)
    plain, memory = results["seconds"]["plain rewrite"], results["memory"]
    show(
        "Compaction, validation included, beside a plain rewrite",
        ("what", "seconds", "times as fast", "JVM MB", "largest worker MB"),
        (
            (
                name,
                f"{seconds:.2f}",
                f"{plain / seconds:.2f}",
                *(str(memory[name][part]) for part in ("jvm MB", "largest worker MB")),
            )
            for name, seconds in results["seconds"].items()
        ),
    )
    print("reads, seconds:", results["reads"])
    print("forecasts:", results["forecast"])
    ratio = plain / results["seconds"]["major"]
    more = {"major times as fast as plain": round(ratio, 2), "wanted": LIMIT}
    saved(given, "compaction", **more, **results)
    return 0 if ratio >= LIMIT else 1
