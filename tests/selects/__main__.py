"""`make lab-selects N=1000 SEED=1`: so many generated SELECTs in the local engine, then in one
session of Spark, and each that the engines answer differently.

Answers are kept below build/selects, so that another call goes on where one was stopped. With
`--minutes` it stops Spark after so many. Ends with 1 if answers differ, but for an error that Spark
meets in rows that an answer does not need.
"""

from __future__ import annotations

import argparse
import os
import pickle
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from acid_platform import AcidError, SparkLost, Warehouse
from tests.engine.local.answers import Answer, answer, disagreement, of_needless_rows
from tests.engine.local.generated import Query
from tests.selects import grammar
from tests.selects.grammar import Generator
from tests.selects.in_memory import Collected, read_once

HOME = Path("build/selects")
_SHOWN = 2000
_ROWS = "SELECT * FROM both.t ORDER BY id"
_JAVA = (
    *("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m"),
    *("-XX:+UseSerialGC", "-Xmn1g"),
    *(f"-Dspark.{kept}=5" for kept in ("sql.ui.retainedExecutions", "ui.retainedJobs")),
    *(f"-Dspark.ui.{kept}=5" for kept in ("retainedStages", "retainedTasks")),
)
"""For many small queries: Spark keeps little of those that have been answered."""


def queries(seed: int, number: int, changes: bool = False) -> list[Query]:
    generator = Generator(seed)
    return [Query(generator.change()) if changes else generator.query() for _ in range(number)]


def of_change(warehouse: Warehouse, text: str) -> Answer:
    """The rows of the table after an UPDATE or a MERGE that is then undone, or whether a CHECK
    holds for all of them."""
    try:
        if text.startswith("ALTER"):
            warehouse.sql(text)
            warehouse.sql("ALTER TABLE both.t DROP CONSTRAINT q")
            return Answer()
        with warehouse.transaction() as transaction:
            transaction.sql(text)
            rows: pa.Table = transaction.sql(_ROWS).to_arrow()
            transaction.abort()
        return Answer(rows, tuple(rows.column_names))
    except Collected as after:
        for row in after.rows:
            row["c"] = row["c"] and row["c"].ljust(4)  # a char(4)
        schema = _schema(warehouse)
        return Answer(pa.Table.from_pylist(after.rows, schema), tuple(schema.names))
    except SparkLost:
        raise
    except AcidError as error:
        return Answer(error=type(error).__name__, why=str(error))


@cache
def _schema(warehouse: Warehouse) -> pa.Schema:
    return warehouse.sql(_ROWS).to_arrow().schema


def kept(path: Path) -> Iterator[Any]:
    """What `keep` has written."""
    if path.exists():
        # The last one may not be written yet.
        with path.open("rb") as stream, suppress(EOFError, pickle.UnpicklingError):
            while True:
                yield pickle.load(stream)


def ask(warehouse: Warehouse, asked: list[Query], path: Path, until: float, at_once: int) -> int:
    """Writes an answer to each query that has none yet; how many are left."""

    def answered(query: Query) -> Answer:
        of = of_change if query.text.startswith(("ALTER", "UPDATE", "MERGE")) else answer
        try:
            return of(warehouse, query.text)
        except SparkLost:
            raise
        except Exception as error:  # which no user may see
            return Answer(error="raw", why=f"{type(error).__name__}: {error}")

    known = {query.text for query, _ in kept(path)}
    left = [query for query in asked if query.text not in known]
    with path.open("ab") as stream, ThreadPoolExecutor(at_once) as threads:
        while left and time.monotonic() < until:
            some, left = left[: 20 * at_once], left[20 * at_once :]
            for query, given in zip(some, threads.map(answered, some), strict=True):
                pickle.dump((query, given), stream)
            stream.flush()
    return len(left)


def tables(place: Path) -> None:
    """The two tables that the queries read."""
    with Warehouse.open(place, engine="local") as warehouse:
        if "both.t" not in warehouse.tables():
            for seed, name in enumerate(("t", "u")):
                table = warehouse.create_table(f"both.{name}", grammar.SCHEMA)
                table.insert(grammar.table(seed, 40))
                table.insert(grammar.table(seed + 10, 9, 40))
                table.delete("id = 4")


def compare(here: Path, there: Path) -> int:
    """Prints what differs, and how many queries were compared; how many answers differ."""
    kinds, needed, wrong = Counter[str](), Counter[str](), 0
    answers = {query.text: spark for query, spark in kept(there)}
    for query, local in kept(here):
        if local.error == "NeedsSpark":
            needed[local.why[:100]] += 1
            continue
        if query.text not in answers:
            continue
        spark = answers[query.text]
        kinds["errors of both" if local.error and spark.error else "answers"] += 1
        what = disagreement(query, local, spark)
        if what is None:
            continue
        if of_needless_rows(local, spark):
            kinds["errors of rows that the answer does not need"] += 1
            continue
        if of_needless_rows(spark, local):
            kinds["errors here of values that Spark leaves out, which it answers under auto"] += 1
        elif spark.why.startswith("Spark failed inside"):
            kinds["Spark fails inside"] += 1
        else:
            wrong += 1
        print(f"{query.text}\n    {what[:_SHOWN]}\n")
    print(dict(kinds), f"{needed.total()} need Spark, {wrong} differ")
    for why, times in needed.most_common(15):
        print(f"  {times:5} {why}")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(prog="make lab-selects")
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=1e6, help="for Spark in this call")
    parser.add_argument("--changes", action="store_true", help="UPDATE, MERGE and CHECK instead")
    parser.add_argument("--again", action="store_true", help="what needed Spark, or differed")
    parser.add_argument("--only", choices=("local", "spark", "compare"))
    given = parser.parse_args()
    home = HOME / f"{'changes' if given.changes else 'seed'}-{given.seed}"
    home.mkdir(parents=True, exist_ok=True)
    here, there = home / "local", home / "spark"
    place = HOME / ("changed" if given.changes else "warehouse")
    tables(place)
    if given.only in (None, "local"):
        if given.again:
            known, answers = [*kept(here)], {query.text: spark for query, spark in kept(there)}
            with here.open("wb") as stream:
                for query, local in known:
                    spark = answers.get(query.text, local)
                    if local.error != "NeedsSpark" and disagreement(query, local, spark) is None:
                        pickle.dump((query, local), stream)
            asked = [query for query, _ in known]
        else:
            asked = queries(given.seed, given.queries, given.changes)
        with Warehouse.open(place, engine="local") as warehouse:
            ask(warehouse, asked, here, float("inf"), 1)
    if given.only in (None, "spark"):
        from acid_platform.engine.spark.session import start_session

        until = time.monotonic() + 60 * given.minutes
        os.environ["ACID_SPARK_JAVA_OPTIONS"] = " ".join(_JAVA)
        session = start_session(master="local[2]", memory="4g")
        session.sparkContext.setLogLevel("OFF")
        read_once(session)
        with Warehouse.open(place, session, engine="spark") as warehouse:
            of_change(warehouse, "UPDATE both.t SET i = i")  # which reads the table whole
            asked = [query for query, local in kept(here) if local.error != "NeedsSpark"]
            checks = [query for query in asked if query.text.startswith("ALTER")]
            others = [query for query in asked if not query.text.startswith("ALTER")]
            left = ask(warehouse, checks, there, until, 1) + ask(warehouse, others, there, until, 4)
            print(f"{left} of {len(asked)} are left")
        session.stop()
    if given.only in (None, "compare"):
        return min(1, compare(here, there))
    return 0


if __name__ == "__main__":
    sys.exit(main())
