"""Frames of pandas and Polars, and dicts, as a write takes them: with texts as names of columns,
and without kinds of columns that Arrow does not know."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from acid_platform.errors import UnknownColumn, WrongType
from acid_platform.values.python_values import is_missing

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

_LABELS = (bool, int, float, Decimal, np.generic, datetime.date, datetime.time, datetime.timedelta)
"""What names a column, as its text, besides texts: a pivot makes such columns."""
_OF_PANDAS = ("Interval", "Period")


def of_pandas(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with its named index as columns, names as texts, and sparse columns as dense ones.

    Raises WrongType for an index without a name that is no numbering of rows, and for a column
    without a name; UnknownColumn for an index with the name of a column.
    """
    plain = _with_index(frame)
    if plain.columns.nlevels > 1:
        raise WrongType(
            f"the columns of the frame have names of {plain.columns.nlevels} levels, such as"
            f" {plain.columns[0]!r}: join them (frame.columns = ['_'.join(map(str, name)) for name"
            " in frame.columns])"
        )
    names = [column_label(name) for name in plain.columns]
    sparse = [place for place, kind in enumerate(plain.dtypes) if _is_sparse(kind)]
    if not sparse and all(type(name) is str for name in plain.columns):
        return plain
    plain = plain.copy(deep=False)
    plain.columns = names
    for place in sparse:
        column: Any = plain.iloc[:, place]
        plain.isetitem(place, column.sparse.to_dense())
    return plain


def _with_index(frame: Any) -> pd.DataFrame:
    index, names = frame.index, list(frame.index.names)
    plain: pd.DataFrame = frame
    if names == [None] and (index.dtype.kind in "iu" or not len(index)):
        return plain  # numbers of rows, or what a filter left of them
    if None in names:
        raise WrongType(
            f"the frame has an index without a name, {index[:2].tolist()} …, which would be lost:"
            " name it (frame.rename_axis('id')) or drop it (frame.reset_index(drop=True))"
        )
    columns = {str(name).lower() for name in frame.columns}
    if twice := [str(name) for name in names if str(name).lower() in columns]:
        raise UnknownColumn(
            f"{twice[0]!r} is a column of the frame and the name of its index: rename one, or drop"
            " the index (frame.reset_index(drop=True))"
        )
    plain = frame.reset_index()
    return plain


def _is_sparse(kind: object) -> bool:
    return type(kind).__name__ == "SparseDtype"


def column_label(name: object) -> str:
    """The name of a column as a text. Raises WrongType for what names nothing: None, NaN, a tuple,
    bytes."""
    if isinstance(name, str):
        return str(name)  # also a text of NumPy
    named = isinstance(name, _LABELS) or type(name).__name__ in _OF_PANDAS
    if not named or is_missing(name):
        raise WrongType(
            f"a column of the rows is called {name!r} ({type(name).__name__}), which is no name:"
            " rename it to a text"
        )
    return str(name)


def of_dicts(rows: Sequence[Mapping[Any, object]]) -> Sequence[Mapping[str, object]]:
    """The rows with texts as names. Raises WrongType for what is no name."""
    if all(type(name) is str for row in rows for name in row):
        return rows
    named: list[Mapping[str, object]] = []
    for row in rows:
        values = {column_label(name): value for name, value in row.items()}
        if len(values) < len(row):
            raise UnknownColumn(f"a row has two columns of the same name: {list(row)}")
        named.append(values)
    return named


def of_polars(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with whole numbers of 128 bits as decimals. Raises WrongType, which names the
    column."""
    import polars as pl

    for name, kind in frame.schema.items():
        if str(kind) == "Object":  # lent as addresses
            raise WrongType(f"column {name!r} has Python's objects (Object): cast it first")
        if str(kind) in ("Int128", "UInt128"):
            try:
                frame = frame.with_columns(pl.col(name).cast(pl.Decimal(38, 0)))
            except pl.exceptions.PolarsError as error:
                raise WrongType(
                    f"column {name!r} has a {kind} of more than 38 digits, which no type of a"
                    f" table holds: cast it to a text (pl.col({name!r}).cast(pl.String))"
                ) from error
        elif "Int128" in str(kind):
            raise WrongType(
                f"column {name!r} is {kind}, and no type of a table has numbers of 128 bits inside"
                " of others: cast it"
            )
    return frame
