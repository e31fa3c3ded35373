"""Frames and dicts from which a table is made: they are stored, or an error of ours names the
column and what to do."""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from acid_platform.errors import AcidError
from acid_platform.values.local_rows import local_table
from acid_platform.values.rows import column_names, columns_of_rows, plain_rows

DAY = dt.date(2024, 1, 2)
WIDE = pd.MultiIndex.from_tuples([("a", "x")])


class Colour(enum.Enum):
    RED = 1


def labelled(*names: Any) -> pd.DataFrame:
    return pd.DataFrame([[1] * len(names)], columns=list(names))


STORED: dict[str, tuple[Callable[[], Any], list[dict[str, Any]]]] = {
    "numbers as names": (lambda: pd.DataFrame([[1, 2]]), [{"0": 1, "1": 2}]),
    "numbers of NumPy": (lambda: labelled(np.int64(7), np.str_("a")), [{"7": 1, "a": 1}]),
    "dates as names": (lambda: labelled(DAY), [{"2024-01-02": 1}]),
    "times as names": (lambda: labelled(pd.Timestamp(DAY)), [{"2024-01-02 00:00:00": 1}]),
    "booleans as names": (lambda: labelled(True), [{"true": 1}]),
    "intervals as names": (lambda: labelled(pd.Interval(0, 5)), [{"(0, 5]": 1}]),
    "periods as names": (lambda: labelled(pd.Period("2024-01")), [{"2024-01": 1}]),
    "categories as names": (
        lambda: pd.DataFrame([[1, 2]], columns=pd.CategoricalIndex(["a", "b"])),
        [{"a": 1, "b": 2}],
    ),
    "a number as the name of the index": (
        lambda: pd.DataFrame({"a": [1]}, index=pd.Index([5], name=0)),
        [{"0": 5, "a": 1}],
    ),
    "numbers as keys of dicts": (lambda: [{0: 1, "a": 2}, {0: 3}], [
        {"0": 1, "a": 2},
        {"0": 3, "a": None},
    ]),
    "dates as keys of dicts": (lambda: [{DAY: 1}], [{"2024-01-02": 1}]),
    "a sparse column": (
        lambda: pd.get_dummies(pd.Series(["a", "b"]), sparse=True, dtype=int),
        [{"a": 1, "b": 0}, {"a": 0, "b": 1}],
    ),
    "a sparse column between others": (
        lambda: pd.DataFrame({"x": [1], 3: pd.arrays.SparseArray([0.5]), "y": ["t"]}),
        [{"x": 1, "3": 0.5, "y": "t"}],
    ),
    "sparse numbers with gaps": (
        lambda: pd.DataFrame({"x": pd.arrays.SparseArray([1.5, np.nan])}),
        [{"x": 1.5}, {"x": None}],
    ),
    "128 bits of Polars": (
        lambda: pl.DataFrame({"n": pl.Series([2, None], dtype=pl.Int128)}),
        [{"n": Decimal(2)}, {"n": None}],
    ),
    "128 bits of a lazy frame": (
        lambda: pl.LazyFrame({"n": pl.Series([2**70], dtype=pl.Int128)}),
        [{"n": Decimal(2**70)}],
    ),
    "decimals for large numbers": (lambda: [{"n": Decimal(2**70)}], [{"n": Decimal(2**70)}]),
}  # fmt: skip
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "names of two levels": (lambda: pd.DataFrame([[1]], columns=WIDE), "('a', 'x')"),
    "a tuple as a name": (lambda: pd.DataFrame({("a", "x"): [1]}), "('a', 'x')"),
    "None as a name": (lambda: labelled(None), "None"),
    "NaN as a name": (lambda: labelled(float("nan"), "a"), "nan"),
    "NaT as a name": (lambda: labelled(pd.NaT), "NaT"),
    "bytes as a name": (lambda: labelled(b"a"), "b'a'"),
    "an object as a name": (lambda: labelled(Colour.RED), "RED"),
    "a tuple as a key": (lambda: [{("a", "x"): 1}], "('a', 'x')"),
    "None as a key": (lambda: [{None: 1}], "None"),
    "two keys of one name": (lambda: [{1: "a", "1": "b"}], "1"),
    "two columns of one name": (lambda: labelled(1, "1"), "1"),
    "66 bits in dicts": (lambda: [{"n": 2**65}], "'n'"),
    "66 bits below zero": (lambda: [{"n": 1}, {"n": -(2**65)}], "'n'"),
    "66 bits in pandas": (lambda: pd.DataFrame({"n": [2**65]}), "'n'"),
    "66 bits in a list": (lambda: [{"n": [1, 2**65]}], "'n'"),
    "more than 38 digits": (
        lambda: pl.DataFrame({"n": pl.Series([10**38], dtype=pl.Int128)}),
        "'n'",
    ),
    "128 bits in a list": (
        lambda: pl.DataFrame({"n": pl.Series([[1]], dtype=pl.List(pl.Int128))}),
        "'n'",
    ),
    "nothing but None": (lambda: [{"n": None}], "'n'"),
    "nothing but None in pandas": (lambda: pd.DataFrame({"n": [None]}), "'n'"),
    "nothing but null in Polars": (lambda: pl.DataFrame({"n": [None]}), "'n'"),
    "texts and numbers": (lambda: [{"n": "a"}, {"n": 1}], "'n'"),
    "texts and numbers in pandas": (lambda: pd.DataFrame({"n": ["a", 1]}), "'n'"),
    "objects": (lambda: [{"n": Colour.RED}], "'n'"),
    "complex numbers": (lambda: pd.DataFrame({"n": [1j]}), "'n': no type holds values of complex"),
    "durations": (lambda: pd.DataFrame({"n": [pd.Timedelta(1, "h")]}), "'n'"),
    "objects in Polars": (
        lambda: pl.DataFrame({"n": pl.Series([Colour.RED], dtype=pl.Object)}),
        "'n'",
    ),
}


def first_rows(given: Any) -> list[dict[str, Any]]:
    """The rows as a table has them that is made from them."""
    rows = plain_rows(given)
    table = local_table(rows, columns_of_rows(rows), "db.t")
    assert table.column_names == [name.lower() for name in column_names(rows)]
    return table.to_pylist()


@pytest.mark.parametrize("case", STORED)
def test_first_rows_are_stored_as_they_are(case: str) -> None:
    given, expected = STORED[case]
    assert first_rows(given()) == expected


@pytest.mark.parametrize("case", REFUSED)
def test_an_error_names_the_column_that_no_table_can_have(case: str) -> None:
    given, named = REFUSED[case]
    with pytest.raises(AcidError) as told:
        first_rows(given())
    assert named in str(told.value)
