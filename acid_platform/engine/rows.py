"""The rows that a caller writes: which kinds there are, and as an Arrow table without loss."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, Union

import pyarrow as pa

from acid_platform.engine.arrow_values import exact, fitted
from acid_platform.engine.python_values import array_of, is_missing
from acid_platform.engine.struct_fields import Unfit
from acid_platform.errors import InvalidDefinition, UnknownColumn, WrongType
from acid_platform.layout.types import Column, HiveType
from acid_platform.predicates.known_columns import unknown_column
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
        except (InvalidDefinition, pa.ArrowException, UnicodeEncodeError) as error:
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


def local_table(rows: Rows, columns: Sequence[Column], table: str, more: bool = False) -> pa.Table:
    """Rows in this process with the table's types, for those of its columns that they have.

    The names are in lower case. With `more`, the rows may have columns that the table lacks, which
    keep their own types. Raises UnknownColumn, also for a field of a struct; WrongType if a value
    would change; InvalidDefinition for a column of `more` whose type no table has.
    """
    names = column_names(rows)
    declared = {column.name: column for column in columns}
    others = [name for name in names if name.lower() not in declared]
    if others and not more:
        raise unknown_column(others[0], table, columns)
    declared |= {column.name: column for column in _others(rows, others)}
    arrays = {
        name.lower(): _array(_values(rows, name), declared[name.lower()], table) for name in names
    }
    if not names:  # rows that name no column are rows of NULLs, as `{}` beside others is
        first = columns[0]
        arrays = {first.name: pa.nulls(len(rows), arrow_type(first.type))}  # type: ignore[arg-type]
    return pa.table(arrays)


def _others(rows: Rows, names: Sequence[str]) -> tuple[Column, ...]:
    """Columns that the table lacks; those of nothing but NULL are strings."""
    columns: list[Column] = []
    for name in names:
        text = Column(name.lower(), HiveType("string"))
        try:
            nothing = pa.types.is_null(_schema_of(rows, name).field(0).type)
        except UnicodeEncodeError:
            nothing = True  # the conversion to a text says which value is wrong
        except pa.ArrowException as error:
            raise InvalidDefinition(f"column {name!r}: {error}") from error
        columns += [text] if nothing else columns_of_rows(rows, [name])
    return tuple(columns)


def _values(rows: Any, name: str) -> Sequence[object] | pa.ChunkedArray:
    """A column of rows in this process: an Arrow array if its type is known, else Python values."""
    if isinstance(rows, pa.Table):
        return rows.column(name)
    if not is_pandas_frame(rows):
        return [row.get(name) for row in rows]
    series = rows[name]
    if series.dtype.kind == "O" and series.dtype == object:
        # pandas writes a missing value of any type as NaN.
        return [None if is_missing(value) else value for value in series]
    try:
        array = pa.array(series, from_pandas=True)
    except (pa.ArrowException, ValueError):  # such as half of a character in a text
        return list(series)
    return array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array])


def _array(values: Sequence[object] | pa.ChunkedArray, column: Column, table: str) -> Any:
    """The values as the column's type. Raises WrongType, UnknownColumn."""
    try:
        if not isinstance(values, pa.ChunkedArray):
            return array_of(values, column.type)
        chunks, before = [], 0
        for chunk in values.chunks:
            try:
                chunks.append(fitted(chunk, column.type, exact))
            except Unfit as fault:
                fault.row = None if fault.row is None else fault.row + before
                raise
            before += len(chunk)
        return pa.chunked_array(chunks, arrow_type(column.type))
    except Unfit as fault:
        raise fault.error(column, table) from fault
