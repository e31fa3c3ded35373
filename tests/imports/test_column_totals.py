"""Counts, sums and bounds don't depend on the order, the batches or the types of the values."""

from __future__ import annotations

import datetime as dt
import math
import random
from decimal import Decimal
from fractions import Fraction

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acid_platform.handles.imports import ColumnTotals, differences
from acid_platform.layout.types import Column, parse_type


def totals(kind: str, *arrays: pa.Array) -> dict[str, object]:
    counted = ColumnTotals([Column("x", parse_type(kind))], pa.schema([("X", arrays[0].type)]))
    for array in arrays:
        counted.add(pa.record_batch([array], ["X"]))
    return counted.figures()


@given(st.lists(st.floats(width=64) | st.none()), st.randoms())
def test_the_sum_of_floats_is_exact_in_any_order(
    values: list[float | None], order: random.Random
) -> None:
    before = totals("double", pa.array(values, pa.float64()))
    finite = [Fraction(value) for value in values if value is not None and math.isfinite(value)]
    if values and any(value is not None for value in values):
        assert before["sum of x"] == sum(finite)
    order.shuffle(values)
    half = len(values) // 2
    parts = (pa.array(part, pa.float64()) for part in (values[:half], values[half:]))
    assert totals("double", *parts) == before


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_the_sum_of_integers_does_not_overflow(values: list[int]) -> None:
    assert totals("bigint", pa.array(values, pa.int64()))["sum of x"] == sum(values)


def test_the_sum_of_decimals_is_exact() -> None:
    most = Decimal("9" * 38)
    found = totals("decimal(38,0)", pa.array([most] * 50, pa.decimal128(38, 0)))
    assert found["sum of x"] == 50 * int(most)
    cents = pa.array([Decimal("0.10")] * 3, pa.decimal128(9, 2))
    assert totals("decimal(9,2)", cents)["sum of x"] == Fraction(3, 10)


SAME = [
    ("int", pa.array([1, None, 3], pa.int32()), pa.array([1, None, 3], pa.uint8())),
    (
        "decimal(20,0)",
        pa.array([Decimal(2**64 - 1)], pa.decimal128(20, 0)),
        pa.array([2**64 - 1], pa.uint64()),
    ),
    ("double", pa.array([1.5, 2.0]), pa.array([1.5, 2.0], pa.float32())),
    ("float", pa.array([0.1, 1e-3], pa.float32()), pa.array([0.1, 1e-3])),
    ("double", pa.array([0.1, -2.7]), pa.array([Decimal("0.1"), Decimal("-2.7")])),
    ("float", pa.array([0.1], pa.float32()), pa.array([Decimal("0.1")])),
    ("string", pa.array(["a", "äb"]), pa.array(["a", "äb"]).dictionary_encode()),
    ("string", pa.array(["a", "äb"]), pa.array(["a", "äb"], pa.large_string())),
    (
        "date",
        pa.array([dt.date(1969, 1, 2), dt.date(2024, 2, 29)]),
        pa.array([dt.datetime(1969, 1, 2), dt.datetime(2024, 2, 29)], pa.timestamp("ms")),
    ),
    (
        "timestamp",
        pa.array([dt.datetime(2024, 1, 1, 12)], pa.timestamp("us")),
        pa.array([dt.datetime(2024, 1, 1, 12)], pa.timestamp("ns", "Europe/Berlin")),
    ),
]


@pytest.mark.parametrize(("kind", "stored", "source"), SAME)
def test_values_have_the_same_totals_in_another_type(
    kind: str, stored: pa.Array, source: pa.Array
) -> None:
    assert totals(kind, stored) == totals(kind, source)
    assert len(totals(kind, stored)) > 2


def test_each_difference_is_named() -> None:
    one = totals("decimal(9,2)", pa.array([Decimal("12.50"), None], pa.decimal128(9, 2)))
    two = totals("decimal(9,2)", pa.array([Decimal("12.40")], pa.decimal128(9, 2)))
    assert differences(one, two) == [
        "rows: 2 in the source, 1 stored",
        "sum of x: 12.5 in the source, 12.4 stored",
    ]
    first = totals("date", pa.array([dt.date(2024, 1, 1)]))
    other = totals("date", pa.array([dt.date(2024, 1, 2)]))
    assert differences(first, other) == [
        "first x: 2024-01-01 00:00:00 in the source, 2024-01-02 00:00:00 stored",
        "last x: 2024-01-01 00:00:00 in the source, 2024-01-02 00:00:00 stored",
    ]
