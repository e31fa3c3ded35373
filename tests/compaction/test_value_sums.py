"""The sums differ if values differ, whatever the order and the batches of the rows (C32)."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acid_platform.compaction.profiles import Profile, ValueSums

ROW = pa.struct([("n", pa.int64()), ("s", pa.string()), ("l", pa.list_(pa.int32()))])
rows = st.lists(
    st.fixed_dictionaries(
        {
            "n": st.none() | st.integers(-9, 9),
            "s": st.none() | st.text("ab\0", max_size=3),
            "l": st.none() | st.lists(st.none() | st.integers(0, 3), max_size=3),
        }
    ),
    max_size=8,
)


def sums(*batches: list[Any], kind: pa.DataType = ROW) -> Profile:
    found = ValueSums([field.name for field in kind])
    for batch in batches:
        found.add(pa.RecordBatch.from_struct_array(pa.array(batch, kind)))
    return found.profile()


@pytest.mark.more
@given(rows, st.randoms(use_true_random=False), st.integers(0, 8))
def test_C32_order_and_batches_do_not_change_the_sum(
    values: list[Any], chance: Any, cut: int
) -> None:
    mixed = chance.sample(values, len(values))
    assert sums(mixed[:cut], mixed[cut:]) == sums(values)


@pytest.mark.more
@given(rows, rows)
def test_C32_different_values_have_different_sums(one: list[Any], other: list[Any]) -> None:
    def columns(values: list[Any]) -> list[list[str]]:
        return [sorted(repr(row[name]) for row in values) for name in ("n", "s", "l")]

    # A zero adds nothing but is not NULL, so rows are counted separately.
    if len(one) == len(other):
        assert (sums(one) == sums(other)) == (columns(one) == columns(other))


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        (pa.bool_(), True, False),
        (pa.decimal128(38, 2), Decimal("1.23"), Decimal("1.24")),
        (pa.date32(), datetime.date(1, 1, 1), datetime.date(1, 1, 2)),
        (pa.timestamp("ns"), datetime.datetime(1970, 1, 1), datetime.datetime(1970, 1, 2)),
        (pa.timestamp("us", "UTC"), datetime.datetime(9999, 1, 1), datetime.datetime(9999, 1, 2)),
        (pa.float64(), float("nan"), 1.5),
        (pa.binary(), b"\xff\xfe", b"\xff"),
        (pa.map_(pa.string(), pa.int32()), [("a", 1), ("a", 2)], [("a", 2), ("a", 1)]),
        (pa.list_(pa.int32()), [], [None]),
        (pa.list_(pa.map_(pa.int32(), pa.timestamp("ns"))), [[(1, None)]], [[(2, None)]]),
        (pa.struct([("a", pa.struct([("b", pa.string())]))]), {"a": {"b": "x"}}, {"a": {"b": ""}}),
    ],
    ids=str,
)
def test_C32_every_type_counts(kind: pa.DataType, one: Any, other: Any) -> None:
    row = pa.struct([("v", kind)])
    found = [sums([{"v": value}], kind=row) for value in (one, other, None)]
    assert len({str(each) for each in found}) == 3
    assert [each.null_counts["v"] for each in found] == [0, 0, 1]


def test_C32_text_that_is_no_text_counts_too() -> None:
    broken = pa.array([b"\xff\xfe", b"\xfd"], pa.binary()).view(pa.string())
    inside = pa.StructArray.from_arrays([broken], ["t"])
    found = ValueSums(["s", "n"])
    found.add(pa.RecordBatch.from_arrays([broken, inside], ["s", "n"]))
    assert all(checksum > 0 for checksum in found.profile().column_checksums.values())


def test_C32_a_row_that_is_sliced_out_of_a_batch_counts_as_itself() -> None:
    batch = pa.array([{"n": n, "s": str(n), "l": [n]} for n in range(9)], ROW)
    found = ValueSums(["n", "s", "l"])
    found.add(pa.RecordBatch.from_struct_array(batch).slice(3, 2))
    assert found.profile() == sums([{"n": n, "s": str(n), "l": [n]} for n in (3, 4)])


def test_C32_nanoseconds_count_and_units_do_not() -> None:
    def of(unit: str, *values: int) -> Profile:
        kind = pa.struct([("t", pa.timestamp(unit)), ("l", pa.list_(pa.timestamp(unit)))])
        found = ValueSums(["t", "l"])
        stamps = pa.array(values).cast(pa.timestamp(unit))
        rows = pa.array([{"t": moment, "l": [moment]} for moment in stamps], kind)
        found.add(pa.RecordBatch.from_struct_array(rows))
        return found.profile()

    assert of("ns", 1_000, 5_000) == of("us", 1, 5) != of("ns", 1_001, 5_000)
    assert of("us", 2**60) != of("us", 2**60 + 1), "beyond what nanoseconds hold"


def test_C32_a_dictionary_does_not_change_the_sum() -> None:
    texts = pa.array(["a", None, "b", "a", "\0", None])
    found = ValueSums(["s", "n"])
    for start, end in ((0, 4), (4, 6)):
        part = texts.slice(start, end - start)
        numbers = pa.array(range(start, end))
        found.add(pa.RecordBatch.from_arrays([part.dictionary_encode(), numbers], ["s", "n"]))
    plain = ValueSums(["s", "n"])
    plain.add(pa.RecordBatch.from_arrays([texts, pa.array(range(6))], ["s", "n"]))
    assert found.profile() == plain.profile()
