"""P78: what is made of a text for DuckDB is in proportion to it, or Spark computes it."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from acid_platform import NeedsSpark
from acid_platform.engine.local.run_query import query
from acid_platform.engine.local.translation.column_names import NameScope
from acid_platform.engine.local.translation.expressions import translate_value
from acid_platform.layout.types import parse_columns

SCOPE = NameScope.of({"t": parse_columns("i int, v string, d double, b boolean, t timestamp")})
NESTED = [
    ("i", "{} % i"),
    ("i", "day(date_add(t, {}))"),
    ("i", "nullif({}, 3)"),
    ("i", "coalesce({}, 3)"),
    ("i", "CASE {} WHEN 1 THEN 2 WHEN 2 THEN 1 WHEN 3 THEN 4 END"),
    ("d", "{} / d"),
    ("d", "floor(CAST({} AS double))"),
    ("v", "upper({})"),
    ("v", "CAST(CAST({} AS int) AS string)"),
    ("v", "CAST(CAST({} AS date) AS string)"),
    ("v", "date_format({}, 'yyyy-S-S')"),
    ("v", "regexp_replace({}, 'a$', 'b')"),
    ("b", "({} BETWEEN true AND false)"),
    ("b", "(({} AND i + 1 > 0) OR i + 2 > 0)"),
    ("b", "(({}, b) IN ((true, true), (false, false)))"),
]
"""A column, and what has its argument several times in DuckDB's SQL."""


def nested(form: str, value: str, levels: int) -> str:
    for _ in range(levels):
        value = form.format(value)
    return value


@pytest.mark.parametrize(("column", "form"), NESTED)
def test_P78_what_multiplies_with_each_level_is_refused(column: str, form: str) -> None:
    """No text of hundreds of characters makes gigabytes of SQL: in a view or a CHECK it would be
    that of everybody who reads or writes the table."""
    assert translate_value(nested(form, column, 2), SCOPE).sql
    with pytest.raises(NeedsSpark, match="its SQL becomes too long"):
        translate_value(nested(form, column, 12), SCOPE)


def refused(text: str, reason: str) -> None:
    with pytest.raises(NeedsSpark, match=reason):
        query(text, {}, lambda: pytest.fail("no session"), "a test")


@pytest.mark.parametrize(
    "texts",
    [
        ["CASE {} WHEN 1 THEN 2 WHEN 2 THEN 1 END"],  # whose name has its operand twice
        ["nullif({}, 3)", "coalesce({}, 3)"],
    ],
)
def test_P78_the_parts_of_a_query_share_its_room(texts: Sequence[str]) -> None:
    items = ", ".join(nested(text, "1", 30) for text in texts)
    refused(f"SELECT {items}", "its SQL becomes too long")


def test_P78_many_short_parts_have_their_room() -> None:
    items = ", ".join(f"{number} % 7 AS c{number}" for number in range(300))
    assert query(f"SELECT {items}", {}, lambda: pytest.fail("no session"), "a test").count() == 1


def test_P78_a_long_list_takes_time_in_proportion() -> None:
    """With the square of its length, it would take more than a minute."""
    listed, begun = ", ".join(map(str, range(20_000))), time.process_time()
    assert translate_value(f"i IN ({listed})", SCOPE).sql
    assert time.process_time() - begun < 10


def test_P78_a_cube_of_many_keys_is_refused() -> None:
    keys = ", ".join(f"col{number}" for number in range(1, 31))
    row = ", ".join(map(str, range(30)))
    refused(f"SELECT count(*) FROM VALUES ({row}) GROUP BY CUBE ({keys})", "CUBE of 30 keys")
