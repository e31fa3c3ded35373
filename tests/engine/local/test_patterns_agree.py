"""P33: a pattern that runs locally matches, extracts and replaces what it does in Java."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import duckdb
import pytest

from acid_platform import NeedsSpark
from acid_platform.engine.local.translation.column_names import NameScope
from acid_platform.engine.local.translation.expressions import translate_value
from acid_platform.engine.local.translation.text_patterns import re2_pattern
from acid_platform.layout.sql_text import sql_string
from acid_platform.layout.types import Column, parse_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ATOMS = ["a", "b", "B", "1", "_", "-", "\\-", "\\.", ".", "\\d", "\\w", "\\s", "\\S", "\\W", "\\D",
         "\\t", "[ab]", "[^a]", "[a-b1]", "[\\w-]", "[^\\s]", "[-a]", "[\\d.]", "ä", "日", "\\_",
         "[ä-ü]", "^", "$"]  # fmt: skip
SIGNS = ["", "", "", "*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{0,1}?", "{2,}"]
LETTERS = ["a", "b", "B", "1", "_", "-", ".", " ", "\t", "\n", "\r", "\x0b", "ä", "日", "\u2028",
           "\U0001f3f3", "\u0663"]  # fmt: skip
SCOPE = NameScope.of({"t": [Column("s", parse_type("string"))]})


def pattern(dice: random.Random, depth: int = 2) -> str:
    parts = []
    for _ in range(dice.randint(1, 3)):
        if depth and dice.random() < 0.35:
            opening = dice.choice(["(", "(", "(?:"])
            inside = "|".join(pattern(dice, depth - 1) for _ in range(dice.randint(1, 2)))
            atom = f"{opening}{inside})"
        else:
            atom = dice.choice(ATOMS)
        parts.append(atom + dice.choice(SIGNS))
    return "".join(parts)


def expressions(dice: random.Random, wanted: int) -> list[str]:
    """Calls with patterns that run locally."""
    found: list[str] = []
    while len(found) < wanted:
        java = pattern(dice)
        try:
            groups = re2_pattern(java).groups
        except NeedsSpark:
            continue
        written = sql_string(java)
        calls = [f"s RLIKE {written}"]
        calls += [f"regexp_extract(s, {written}, {n})" for n in range(min(groups, 2) + 1)]
        calls.append(f"regexp_replace(s, {written}, '<$0>{'$1' if groups else ''}')")
        for call in calls:
            try:
                translate_value(call, SCOPE)
            except NeedsSpark:
                continue
            found.append(call)
    return found


def computed(connection: duckdb.DuckDBPyConnection, sql: str) -> dict[int, object]:
    """The values by row; not of those that are left to Spark."""
    try:
        return dict(connection.execute(f"SELECT id, {sql} FROM t").fetchall())
    except duckdb.Error as error:
        assert "NEEDS_SPARK" in str(error)
    ends = "regexp_matches(s, '[\\n\\r\\x{85}\\x{2028}]$')"
    rows = f"SELECT id, {sql} FROM (SELECT * FROM t WHERE NOT {ends}) AS t"
    return dict(connection.execute(rows).fetchall())


@pytest.mark.slow
@pytest.mark.spark
def test_P33_random_patterns_match_as_in_Java(spark: SparkSession) -> None:
    dice = random.Random(40)
    texts = ["", *("".join(dice.choices(LETTERS, k=dice.randint(1, 7))) for _ in range(150))]
    calls = expressions(dice, 400)
    frame = spark.createDataFrame(list(enumerate(texts)), "id int, s string").repartition(1)
    wrong = []
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t (id INTEGER, s VARCHAR)")
        connection.executemany("INSERT INTO t VALUES ($1, $2)", list(enumerate(texts)))
        for start in range(0, len(calls), 40):
            some = calls[start : start + 40]
            rows = frame.selectExpr("id", *(f"{one} AS c{i}" for i, one in enumerate(some)))
            theirs = {row["id"]: row for row in rows.collect()}
            for number, call in enumerate(some):
                for key, ours in computed(connection, translate_value(call, SCOPE).sql).items():
                    value = theirs[key][f"c{number}"]
                    if ours != value:
                        wrong.append(f"{call} of {texts[key]!r}: {value!r} in Spark, not {ours!r}")
                        break
    assert wrong == []
