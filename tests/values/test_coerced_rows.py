"""`coerce=True`: values are converted as Hive's CAST converts them, and what changed is told."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from acid_platform import (
    UnknownColumn,
    UnsupportedStatement,
    ValuesCoerced,
    Warehouse,
    WrongType,
)
from acid_platform.layout.types import parse_columns, parse_type
from acid_platform.values.coercion import Coerced, NoCast, cast, java_float
from acid_platform.values.local_rows import coerced_table, local_table
from tests.conftest import temporary_warehouse

DAY = datetime.date(2024, 2, 29)
NOON = datetime.datetime(2024, 2, 29, 12, 30, 1, 500_000)
NO = "no cast"

# The type, a value, what is stored, and whether that is all of the value.
CASTS: list[tuple[str, object, object, bool]] = [
    ("decimal(5,2)", "12.345", Decimal("12.35"), False),
    ("decimal(5,2)", "-12.345", Decimal("-12.35"), False),
    ("decimal(5,2)", " 12.30 ", Decimal("12.30"), True),
    ("decimal(5,2)", 1.005, Decimal("1.01"), False),
    ("decimal(5,2)", "1000", None, False),
    ("decimal(5,2)", "999.995", None, False),
    ("decimal(5,2)", "one", None, False),
    ("decimal(5,2)", "", None, False),
    ("decimal(5,2)", "1e999", None, False),
    ("decimal(5,2)", math.inf, None, False),
    ("decimal(5,2)", True, Decimal("1.00"), True),
    ("decimal(5,2)", DAY, NO, False),
    ("int", "12", 12, True),
    ("int", "12.9", 12, False),
    ("int", "-12.9", -12, False),
    ("int", 2.5, 2, False),
    ("int", 1 << 40, None, False),
    ("int", "x", None, False),
    ("int", False, 0, True),
    ("tinyint", 128, None, False),
    ("bigint", "9223372036854775807", (1 << 63) - 1, True),
    ("int", [1], NO, False),
    ("double", "1.5", 1.5, True),
    ("double", "x", None, False),
    ("double", "Infinity", math.inf, True),
    ("double", (1 << 53) + 1, float(1 << 53), False),
    ("float", 1e300, math.inf, False),
    ("double", Decimal("1e400"), math.inf, False),
    ("boolean", "TRUE", True, True),
    ("boolean", "n", False, True),
    ("boolean", "maybe", None, False),
    ("boolean", 2, True, False),
    ("boolean", 0, False, True),
    ("date", "2024-2-29", DAY, True),
    ("date", "2024-02-29 12:30:00", DAY, False),
    ("date", NOON, DAY, False),
    ("date", "2024-02-30", None, False),
    ("date", "yesterday", None, False),
    ("date", 19_782, NO, False),
    ("timestamp", "2024-2-29 12:30:1.5", NOON, True),
    ("timestamp", "2024-02-29 12:30:01.5000009", NOON, False),
    ("timestamp", np.datetime64("2024-02-29T12:30:01.500000009"), NOON, False),
    ("timestamp", pd.Timestamp("2024-02-29T12:30:01.500000009"), NOON, False),
    ("timestamp", "12:30", None, False),
    ("timestamp", 1.5, NO, False),
    ("string", 1.5, "1.5", True),
    ("string", 1e7, "1.0E7", True),
    ("string", -1.25e-5, "-1.25E-5", True),
    ("string", math.nan, "NaN", True),
    ("string", Decimal("1E+2"), "100", True),
    ("string", DAY, "2024-02-29", True),
    ("string", NOON, "2024-02-29 12:30:01.5", True),
    ("string", b"x", NO, False),
    ("varchar(3)", 12.5, "12.", False),
    ("char(5)", NOON, "2024-", False),
    ("binary", "\u00e9", b"\xc3\xa9", True),
    ("binary", 5, NO, False),
]


@pytest.mark.parametrize(("kind", "value", "stored", "whole"), CASTS)
def test_a_value_is_cast_as_hive_casts_it(
    kind: str, value: object, stored: object, whole: bool
) -> None:
    if stored is NO:
        with pytest.raises(NoCast):
            cast(value, parse_type(kind))
        return
    made, exact = cast(value, parse_type(kind))
    assert (made, exact) == (stored, whole)
    assert type(made) is type(stored)


COLUMNS = parse_columns(
    "id int, amount decimal(5,2), day date, note varchar(3), l array<struct<price:decimal(3,1)>>"
)
ROWS: list[dict[str, Any]] = [
    {"id": 1, "amount": "12.34", "day": "2024-02-29", "note": "ab", "l": [{"Price": 1.5}]},
    {"id": "2", "amount": 12.345, "day": NOON, "note": "abcd", "l": [{"price": "1.55"}, None]},
    {"id": "x", "amount": "free", "day": "29.2.2024", "note": None, "l": None},
]
CONVERTED = [
    {
        "id": 1,
        "amount": Decimal("12.34"),
        "day": DAY,
        "note": "ab",
        "l": [{"price": Decimal("1.5")}],
    },
    {
        "id": 2,
        "amount": Decimal("12.35"),
        "day": DAY,
        "note": "abc",
        "l": [{"price": Decimal("1.6")}, None],
    },
    {"id": None, "amount": None, "day": None, "note": None, "l": None},
]
COUNTS = {
    "id": Coerced(0, 1),
    "amount": Coerced(1, 1),
    "day": Coerced(1, 1),
    "note": Coerced(1, 0),
    "l[].price": Coerced(1, 0),
}


def test_numbers_become_texts_as_java_writes_them() -> None:
    written = {
        **{0.0: "0.0", 1.0: "1.0", 1234567.0: "1234567.0", 1e7: "1.0E7", 0.001: "0.001"},
        **{0.0009: "9.0E-4", 1.5e300: "1.5E300", -2.5: "-2.5", math.inf: "Infinity"},
    }
    assert {value: java_float(value) for value in written} == written
    special = (np.float32(0.1), -0.0, math.nan, -math.inf)
    assert [*map(java_float, special)] == ["0.1", "-0.0", "NaN", "-Infinity"]


@pytest.mark.parametrize("form", [list, pd.DataFrame])
def test_counts_are_told_by_column_and_path(form: Any) -> None:
    table, counts = coerced_table(form(ROWS), COLUMNS, "db.t")
    assert table.to_pylist() == CONVERTED
    assert counts == COUNTS
    again, nothing = coerced_table(table, COLUMNS, "db.t")
    assert again.equals(table) and nothing == {}


def test_arrow_is_converted_too() -> None:
    rows = pa.table(
        {
            "amount": pa.array([0.1, 2.345], pa.float32()),
            "day": pa.array([NOON, None]),
            "note": pa.array(["abcd", None]).dictionary_encode(),
            "l": pa.array([[{"PRICE": 1.25}], None]),
        }
    )
    table, counts = coerced_table(rows, COLUMNS, "db.t")
    assert table.to_pylist() == [
        {"amount": Decimal("0.10"), "day": DAY, "note": "abc", "l": [{"price": Decimal("1.3")}]},
        {"amount": Decimal("2.35"), "day": None, "note": None, "l": None},
    ]
    assert counts == {name: Coerced(1, 0) for name in ("amount", "day", "note", "l[].price")}


def test_what_no_cast_helps_is_still_refused() -> None:
    with pytest.raises(UnknownColumn, match=r"no field 'prize'; .*did you mean 'price'"):
        coerced_table([{"l": [{"prize": 1}]}], COLUMNS, "db.t")
    with pytest.raises(WrongType, match=r"5 \(int\) can't be cast to date.*in row 2"):
        coerced_table([{"day": "x"}, {"day": 5}], COLUMNS, "db.t")
    with pytest.raises(WrongType, match=r"'x' \(str\) is no decimal"):
        local_table([{"amount": "x"}], COLUMNS, "db.t")


@pytest.fixture(params=["local", pytest.param("spark", marks=pytest.mark.spark)])
def warehouse(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Warehouse]:
    spark = request.getfixturevalue("spark") if request.param == "spark" else None
    with temporary_warehouse(tmp_path, spark, request.param) as opened:
        yield opened


def test_each_verb_converts_and_tells(warehouse: Warehouse) -> None:
    table = warehouse.create_table("db.t", "id int, amount decimal(5,2)")
    rows = pd.DataFrame({"amount": ["1.005", "2.5", "x"]}, index=pd.Index([1, 2, 3], name="id"))
    with pytest.raises(WrongType, match=r"'1\.005' \(str\) is no decimal\(5,2\).*in row 1"):
        table.insert(rows)
    told = r"db\.t: amount: 1 changed, 1 became NULL$"
    stored = [(1, Decimal("1.01")), (2, Decimal("2.50")), (3, None)]

    def amounts() -> list[tuple[object, ...]]:
        return sorted(tuple(row.values()) for row in table.to_arrow().to_pylist())

    with pytest.warns(ValuesCoerced, match=told):
        assert table.insert(rows, coerce=True) == 3
    assert amounts() == stored
    with pytest.warns(ValuesCoerced, match=told):
        assert table.overwrite(rows, coerce=True) == 3
    assert amounts() == stored
    with pytest.warns(ValuesCoerced, match=told):
        counts = table.merge(rows, "t.id = s.id", {"amount": "s.amount"}, None, "*", coerce=True)
    assert (counts.updated, counts.inserted) == (3, 0) and amounts() == stored
    with warehouse.transaction() as txn:
        with pytest.warns(ValuesCoerced):
            txn.table("db.t").overwrite([{"id": "7", "amount": 7.777}], coerce=True)
        assert txn.coerced("db.t") == {"amount": Coerced(1, 0)}
        assert txn.coerced("db.other") == {}
    assert amounts() == [(7, Decimal("7.78"))]


def test_nothing_is_told_if_nothing_changed(
    warehouse: Warehouse, recwarn: pytest.WarningsRecorder
) -> None:
    table = warehouse.create_table("db.t", "id int, amount decimal(5,2)")
    table.insert([{"id": "1", "amount": "1.50"}], coerce=True)
    assert not [one for one in recwarn if issubclass(one.category, ValuesCoerced)]
    assert table.to_arrow().to_pylist() == [{"id": 1, "amount": Decimal("1.50")}]


def test_rows_of_a_query_are_cast_in_the_query(warehouse: Warehouse) -> None:
    table = warehouse.create_table("db.t", "id int, amount decimal(5,2)")
    rows = warehouse.sql("SELECT 1 AS id, '1.5' AS amount")
    with pytest.raises(UnsupportedStatement, match=r"cast those of Spark or a query"):
        table.insert(rows, coerce=True)  # type: ignore[arg-type]
    assert table.count() == 0
