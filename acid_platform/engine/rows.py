"""The rows that a caller writes: which kinds there are, and as an Arrow table without loss."""

from __future__ import annotations

import datetime
import math
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, Union

import pyarrow as pa

from acid_platform.errors import InvalidDefinition, UnknownColumn, WrongType
from acid_platform.layout.types import INTEGRAL, Column
from acid_platform.reading.known_columns import unknown_column
from acid_platform.storage.arrow_types import arrow_type, declared_columns

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame

    from acid_platform.engine.results import Result

Rows: TypeAlias = Union[
    "DataFrame", "pd.DataFrame", pa.Table, "Result", Sequence[Mapping[str, object]]
]
"""The kinds of rows that a write accepts; columns are matched by name."""


def is_spark_frame(rows: object) -> bool:
    """Whether the rows are a DataFrame of Spark or Spark Connect. Imports neither."""
    return any(
        kind.__module__.startswith("pyspark.sql") and kind.__name__ == "DataFrame"
        for kind in type(rows).__mro__
    )


def is_pandas_frame(rows: object) -> bool:
    """Whether the rows are a pandas DataFrame. Doesn't import pandas, which takes long."""
    # While another thread imports pandas, it is there without its classes.
    frame = getattr(sys.modules.get("pandas"), "DataFrame", None)
    return frame is not None and isinstance(rows, frame)


def column_names(rows: Rows) -> list[str]:
    """The columns of the rows, as the rows spell them.

    Raises WrongType for other types, such as a generator, which can be read only once;
    UnknownColumn for a name that is given twice, ignoring case.
    """
    from acid_platform.engine.results import Result

    names: list[str]
    if isinstance(rows, Result) or is_spark_frame(rows) or is_pandas_frame(rows):
        names = [str(name) for name in rows.columns]  # type: ignore[union-attr]
    elif isinstance(rows, pa.Table):
        names = list(rows.column_names)
    elif (
        isinstance(rows, Sequence)
        and not isinstance(rows, str | bytes)
        and all(isinstance(row, Mapping) for row in rows)
    ):
        names = list(dict.fromkeys(str(name) for row in rows for name in row))
    else:
        raise WrongType(
            f"rows are a Spark or pandas DataFrame, a pyarrow Table or a list of dicts;"
            f" {_kind_of(rows)} is none of them"
        )
    lower = [name.lower() for name in names]
    if twice := {name for name in lower if lower.count(name) > 1}:
        raise UnknownColumn(
            f"the rows have the column {', '.join(sorted(twice))} twice: each can be stored once"
        )
    return names


def columns_of_rows(rows: Rows, names: Sequence[str] | None = None) -> tuple[Column, ...]:
    """Some columns of rows in this process, or all, as the Hive types that hold their values.

    Raises InvalidDefinition for a type without one, as of a column that holds nothing but NULL.
    """
    chosen = column_names(rows) if names is None else list(names)
    columns: list[Column] = []
    for name in chosen:
        try:
            columns += declared_columns(_schema_of(rows, name))
        except InvalidDefinition as error:
            raise InvalidDefinition(f"column {name!r}: {error}") from error
    return tuple(columns)


def _schema_of(rows: Any, name: str) -> pa.Schema:
    """The Arrow schema of a column of rows in this process."""
    if is_pandas_frame(rows):
        return pa.Schema.from_pandas(rows[[name]], preserve_index=False)
    if isinstance(rows, pa.Table):
        return rows.select([name]).schema
    return pa.table({name: [row.get(name) for row in rows]}).schema


def _kind_of(rows: object) -> str:
    if isinstance(rows, list | tuple):
        return f"a list of {' and '.join(sorted({type(row).__name__ for row in rows}))}"
    return f"a {type(rows).__name__}"


def local_table(rows: Rows, columns: Sequence[Column], table: str) -> pa.Table:
    """Rows in this process with the table's types, for those of its columns that they have.

    The names are in lower case. Raises UnknownColumn, WrongType if a value would change.
    """
    names = column_names(rows)
    known = {column.name: column for column in columns}
    for name in names:
        if name.lower() not in known:
            raise unknown_column(name, table, columns)
    if not (isinstance(rows, pa.Table) or is_pandas_frame(rows)):
        return _from_dicts(rows, names, columns, table)  # type: ignore[arg-type]
    arrays = []
    for name in names:
        column = known[name.lower()]
        values = rows.column(name) if isinstance(rows, pa.Table) else rows[name]  # type: ignore[index, call-overload]
        if isinstance(values, pa.ChunkedArray) and _surprising(values.type, column):
            raise WrongType(
                f"column {name!r} of {table} is {column.type}, the rows have {values.type};"
                " convert it first"
            )
        arrays.append(_array(values, column, table))
    return pa.table(dict(zip([name.lower() for name in names], arrays, strict=True)))


def _from_dicts(
    rows: Sequence[Mapping[str, object]],
    names: Sequence[str],
    columns: Sequence[Column],
    table: str,
) -> pa.Table:
    known = {column.name: column for column in columns}
    arrays = [_array([row.get(name) for row in rows], known[name.lower()], table) for name in names]
    if not names:  # rows that name no column are rows of NULLs, as `{}` beside others is
        return pa.table({columns[0].name: pa.nulls(len(rows), arrow_type(columns[0].type))})
    return pa.table(dict(zip([name.lower() for name in names], arrays, strict=True)))


def _array(values: object, column: Column, table: str) -> pa.Array:
    wanted = arrow_type(column.type)
    try:
        if isinstance(values, pa.ChunkedArray):
            return values.cast(wanted)
        array = pa.array(values, type=wanted, from_pandas=True)
        # Arrow silently cuts Python values: 1.5 to 1, a datetime to a date.
        if _may_be_cut(column) and getattr(getattr(values, "dtype", None), "kind", "O") in "OM":
            for given, stored in zip(values, array.to_pylist(), strict=True):  # type: ignore[call-overload]
                if not _kept(given, stored):
                    raise pa.ArrowInvalid(f"{given!r} would be stored as {stored!r}")
        return array
    except (
        pa.ArrowInvalid,
        pa.ArrowTypeError,
        pa.ArrowNotImplementedError,
        OverflowError,
    ) as error:
        raise WrongType(
            f"column {column.name!r} of {table} is {column.type}: {error}; convert it first"
        ) from error


def _may_be_cut(column: Column) -> bool:
    return any(kind.kind in (*INTEGRAL, "date", "float") for kind in column.type.walk())


def _kept(given: object, stored: object) -> bool:
    """Whether Arrow stored a Python value without loss; a NaN may become NULL."""
    match stored:
        case None | bool():
            return True
        case int():
            return given == stored
        case float():
            return math.isfinite(stored) or not math.isfinite(given)  # type: ignore[arg-type]
        case datetime.datetime():
            return True
        case datetime.date():
            midnight = datetime.time()
            return not isinstance(given, datetime.datetime) or given.time() == midnight
        case dict() if isinstance(given, Mapping):
            return all(_kept(given.get(name), one) for name, one in stored.items())
        case list() if isinstance(given, Mapping):  # a map, stored as pairs
            return all(_kept(pair, one) for pair, one in zip(given.items(), stored, strict=True))
        case list() | tuple():
            return all(_kept(left, right) for left, right in zip(given, stored, strict=True))  # type: ignore[call-overload]
    return True


def _surprising(given: pa.DataType, column: Column) -> bool:
    """Whether Arrow would parse text into another type: the rows are probably a mistake then."""
    text = pa.types.is_string(given) or pa.types.is_large_string(given)
    return text and column.type.kind not in ("string", "char", "varchar")
