"""Python's own values are stored whole, or refused: Arrow alone would cut them in silence."""

from __future__ import annotations

import datetime
import math
import sys
from decimal import Decimal
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest

from acid_platform import WrongType
from acid_platform.layout.types import Column, parse_columns
from acid_platform.values.local_rows import local_table
from acid_platform.values.rows import column_names


def stored_values(values: object, column: Column) -> list[object]:
    """What becomes of values in a column `c` of db.t: a column of pandas, or of dicts."""
    rows: Any = pd.DataFrame({"c": values}) if isinstance(values, pd.Series) else None
    rows = [{"c": value} for value in values] if rows is None else rows  # type: ignore[attr-defined]
    stored: list[object] = local_table(rows, [column], "db.t").column("c").to_pylist()
    return stored


DAY = datetime.date(2013, 1, 1)
FIVE = datetime.datetime(2013, 1, 1, 5)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("int", [1.5]),
        ("int", [Decimal("1.5")]),
        ("int", ["1"]),
        ("tinyint", [128]),
        ("int", [True]),
        ("int", pd.Series([1.5])),
        ("int", pd.Series([1.5], dtype=object)),
        ("int", pd.Series([1.5, None], dtype="Float64")),
        ("date", [FIVE]),
        ("date", pd.Series([pd.Timestamp(FIVE)])),
        ("float", [1e300]),
        ("float", [Decimal("1e39")]),
        ("double", [Decimal("-1e400")]),
        ("double", pd.Series([0.5, Decimal("1e400")], dtype=object)),
        ("array<double>", [[0.5, Decimal("1e400")]]),
        ("decimal(3,2)", [Decimal("1.234")]),
        ("array<int>", [[1, 2.5]]),
        ("struct<x:date>", [{"x": FIVE}]),
        ("map<string,int>", [{"k": 1.5}]),
    ],
)
def test_a_value_that_would_be_cut_is_a_wrong_type(kind: str, values: object) -> None:
    [column] = parse_columns(f"c {kind}")
    with pytest.raises(WrongType, match=r"column 'c' of db\.t is "):
        stored_values(values, column)


@pytest.mark.parametrize(
    ("kind", "values", "stored"),
    [
        ("int", [1, 2.0, None, math.nan], [1, 2, None, None]),
        ("bigint", pd.Series([1, None], dtype="Int64"), [1, None]),
        ("date", [DAY, datetime.datetime(2013, 1, 1), None], [DAY, DAY, None]),
        ("date", pd.Series([pd.Timestamp(DAY), None]), [DAY, None]),
        ("float", [0.5, math.inf], [0.5, math.inf]),
        ("double", [Decimal("1e308"), Decimal("-Infinity"), None], [1e308, -math.inf, None]),
        ("array<int>", [[1], np.array([2, 3]), None], [[1], [2, 3], None]),
        ("map<string,int>", [{"k": 1}], [[("k", 1)]]),
        ("struct<x:int>", [{"x": None}, {"x": 4}], [{"x": None}, {"x": 4}]),
        ("timestamp", [FIVE], [FIVE]),
    ],
)
def test_other_values_are_stored_as_they_are(
    kind: str, values: object, stored: list[object]
) -> None:
    [column] = parse_columns(f"c {kind}")
    assert stored_values(values, column) == stored


def test_rows_are_told_while_another_thread_imports_pandas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", ModuleType("pandas"))
    assert column_names([{"id": 1}]) == ["id"]
