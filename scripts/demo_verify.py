"""Compares a table with what pandas computed from the raw files: all rows, all columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd


@dataclass(frozen=True, slots=True)
class Verdict:
    """The comparison of one table; `differences` is empty when it is right."""

    table: str
    rows: int
    columns: int
    differences: tuple[str, ...]

    @property
    def right(self) -> bool:
        return not self.differences


def compare(
    table: str, actual: pd.DataFrame, expected: pd.DataFrame, key: Sequence[str]
) -> Verdict:
    """Compares every value. Rows match by `key`; the order of rows and columns is ignored."""
    differences: list[str] = []
    if set(actual.columns) != set(expected.columns):
        differences.append(f"columns {sorted(actual.columns)}, expected {sorted(expected.columns)}")
        return Verdict(table, len(actual), len(actual.columns), tuple(differences))
    left, right = (_normal(frame[list(expected.columns)], key) for frame in (actual, expected))
    for name, frame in (("the table", left), ("pandas", right)):
        if frame.index.has_duplicates:
            twice = frame.index[frame.index.duplicated()]
            differences.append(f"{len(twice)} keys are twice in {name}, such as {twice[0]}")
    if not differences:
        differences += _missing("the table does not have", right.index.difference(left.index))
        differences += _missing("the table has too much", left.index.difference(right.index))
        common = left.index.intersection(right.index)
        left, right = left.loc[common], right.loc[common]
        for name in left.columns:
            same = (left[name] == right[name]) | (left[name].isna() & right[name].isna())
            wrong = common[~same.fillna(False).to_numpy(dtype=bool)]
            if len(wrong):
                at = wrong[0]
                differences.append(
                    f"{name} differs in {len(wrong)} rows, such as {at}:"
                    f" {left.at[at, name]!r}, expected {right.at[at, name]!r}"
                )
    return Verdict(table, len(actual), len(actual.columns), tuple(differences))


def _missing(what: str, keys: pd.Index) -> list[str]:
    return [f"{what} {len(keys)} rows, such as {keys[0]}"] if len(keys) else []


def _normal(frame: pd.DataFrame, key: Sequence[str]) -> pd.DataFrame:
    """One type per kind of value, so that Spark's int32 equals pandas' Int32; NaN is NULL."""
    plain: dict[str, pd.Series[Any]] = {}
    for name in frame.columns:
        column = frame[name]
        if pd.api.types.is_float_dtype(column.dtype):
            plain[name] = column.astype("Float64")
        elif pd.api.types.is_integer_dtype(column.dtype):
            plain[name] = column.astype("Int64")
        elif pd.api.types.is_datetime64_any_dtype(column.dtype):
            plain[name] = column.astype("datetime64[us]")
        else:
            plain[name] = column.astype("string")
    for name in plain:  # a nullable integer column comes from Spark as float: the values decide
        if plain[name].dtype == "Int64":
            plain[name] = plain[name].astype("Float64")
    return pd.DataFrame(plain).set_index(list(key)).sort_index()
