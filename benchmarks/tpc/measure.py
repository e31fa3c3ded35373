"""TPC-H and TPC-DS without a JVM: by query right, refused or wrong, and seconds.

The rows and the texts come from DuckDB's extensions, in an environment of their own (build/tpc);
the answers from Spark over the same Parquet files, once for each scale. A query is right if it has
Spark's names, types and rows. Beside it stand the seconds of DuckDB and of Spark on the Parquet
files, and those of Spark on our tables with `--spark 1`. `local again` finds the columns that the
run before it has kept. `--rounds` repeats each query by turns and takes the median. A plan with
more cross products than DuckDB's own of the same query is told.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import sqlglot

from acid_platform import AcidError, NeedsSpark, Warehouse
from acid_platform.engine.interface import Result
from acid_platform.engine.local.run_query import LocalResult
from acid_platform.predicates.grammar import SparkSql
from acid_platform.scan.kept_columns import KEPT
from benchmarks.results import options, saved, show
from benchmarks.tpc.answers import Answer, answers, fetch, load

CROSS = "CROSS_PRODUCT"


def timed(call: Callable[[], object], rounds: int) -> float:
    seconds = []
    for _ in range(rounds):
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    return round(median(seconds), 3)


def judged(warehouse: Warehouse, answer: Answer) -> tuple[str, LocalResult | None]:
    """What becomes of a query in the local engine, and its result if that is right."""
    try:
        result = warehouse.sql(answer.text, engine="local")
        assert isinstance(result, LocalResult)
        rows = result.to_arrow()
    except NeedsSpark as error:
        return f"refused: {error}", None
    except AcidError as error:
        return f"wrong: {type(error).__name__}: {error}", None
    if answer.rows is None:
        return f"Spark refuses it: {answer.refused}", None
    difference = answer.difference(rows, [str(kind) for _, kind in result.named])
    return (f"wrong: {difference}", None) if difference else ("right", result)


def on_parquet(folder: Path, answer: Answer) -> tuple[duckdb.DuckDBPyConnection, str]:
    """The same query for DuckDB, over the Parquet files."""
    connection = duckdb.connect()
    for path in sorted((folder / answer.benchmark).glob("*.parquet")):
        connection.execute(f"CREATE VIEW {path.stem} AS SELECT * FROM '{path}'")
    return connection, sqlglot.transpile(answer.text, read=SparkSql, write="duckdb")[0]


def crossed(connection: duckdb.DuckDBPyConnection, text: str, result: LocalResult) -> int:
    """How many cross products our plan has more than DuckDB's own."""
    (row,) = connection.execute(f"EXPLAIN {text}").fetchall()
    return result.plan().count(CROSS) - str(row[1]).count(CROSS)


def measured(warehouse: Warehouse, folder: Path, answer: Answer, given: Any) -> dict[str, Any]:
    state, result = judged(warehouse, answer)
    row: dict[str, Any] = {"query": answer.name, "state": state, "spark": answer.seconds}
    if result is None:
        return row
    connection, text = on_parquet(folder, answer)
    try:
        row["cross products"] = crossed(connection, text, result)
        row["duckdb"] = timed(lambda: connection.execute(text).to_arrow_table(), given.rounds)
    except duckdb.Error as error:
        row["duckdb refuses"] = str(error).partition("\n")[0]
    finally:
        connection.close()

    def ours(engine: str) -> None:
        found = warehouse.sql(answer.text, engine=engine)
        assert isinstance(found, Result)
        found.to_arrow()

    def first() -> None:
        KEPT.close()
        ours("local")

    row["local"] = timed(first, given.rounds)
    row["local again"] = timed(lambda: ours("local"), given.rounds)
    if given.spark:
        row["ours in spark"] = timed(lambda: ours("spark"), given.rounds)
    return row


def main() -> int:
    given = options(__doc__, scale="0.1", rounds=1, spark=0, only=["h", "ds"])
    folder = fetch(given.scale)
    with tempfile.TemporaryDirectory() as directory, Warehouse.open(directory) as warehouse:
        began = time.perf_counter()
        load(warehouse, folder)
        loaded = round(time.perf_counter() - began, 1)
        rows = []
        for answer in answers(folder, warehouse.spark, tuple(given.only)):
            warehouse.sql(f"USE {answer.benchmark}")
            rows.append(measured(warehouse, folder, answer, given))
    told = ("query", "state", "local", "local again", "duckdb", "spark", "ours in spark")
    show(
        f"TPC at scale {given.scale}, loaded in {loaded} s",
        told,
        [[str(row.get(name, ""))[:60] for name in told] for row in rows],
    )
    for word in ("right", "refused", "wrong", "Spark"):
        print(f"{word}: {sum(row['state'].startswith(word) for row in rows)}")
    print(saved(given, f"tpc-{given.scale}", loaded=loaded, queries=rows))
    return int(any(row["state"].startswith("wrong") for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
