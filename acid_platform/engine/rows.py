"""The rows that a caller writes: which kinds there are, and as an Arrow table without loss."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, Union

import pyarrow as pa

from acid_platform.engine.arrow_values import exact, fitted
from acid_platform.engine.coercion import Coerced, Coercion
from acid_platform.engine.python_values import array_of, is_missing
from acid_platform.engine.struct_fields import Unfit
from acid_platform.errors import (
    InvalidDefinition,
    NoSuchPartition,
    UnknownColumn,
    UnsupportedStatement,
    WrongType,
)
from acid_platform.layout.types import CHAR_TYPES, Column, HiveType
from acid_platform.predicates.known_columns import unknown_column
from acid_platform.storage.arrow_lending import ArrowLender
from acid_platform.storage.arrow_numpy import values_of
from acid_platform.storage.arrow_types import arrow_type, declared_columns, is_period

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    from pyspark.sql import DataFrame


class ArrowStream(Protocol):
    """Rows that any library lends as Arrow's: frames of Polars, relations of DuckDB, readers."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...


class ArrowArray(Protocol):
    """A batch of rows that any library lends as Arrow's."""

    def __arrow_c_array__(self, requested_schema: object = None) -> object: ...


Rows: TypeAlias = Union[
    "DataFrame",
    "pd.DataFrame",
    "pl.LazyFrame",
    Sequence[Mapping[str, object]],
    ArrowStream,
    ArrowArray,
]
"""The kinds of rows that a write accepts; columns are matched by name."""


def plain_rows(rows: Rows) -> Rows:
    """The rows as an engine takes them: a pandas index with a name is a column, and what lends
    Arrow's data is a pyarrow Table. All others stay as they are.

    Raises WrongType for an index without a name that is no numbering of rows, and for Arrow's data
    that is no table; UnknownColumn for an index with the name of a column.
    """
    from acid_platform.engine.results import Result

    if isinstance(rows, pa.Table | Result) or is_spark_frame(rows):
        return rows
    if is_pandas_frame(rows):
        return _with_index(rows)
    if isinstance(rows, pa.RecordBatchReader):
        return _read_once(rows)
    if isinstance(rows, ArrowLender):
        return rows.batches().read_all()  # its errors are ours
    if _is_of(rows, "polars", "LazyFrame"):
        return _lent(rows.collect(engine="streaming"))  # type: ignore[union-attr]
    return _lent(rows)


_READ: weakref.WeakSet[pa.RecordBatchReader] = weakref.WeakSet()
"""The readers whose rows were taken; they have no others."""


def _read_once(reader: pa.RecordBatchReader) -> pa.Table:
    if reader in _READ:
        raise WrongType(
            "a RecordBatchReader gives its rows once, and these were taken before: give"
            " reader.read_all(), or a new reader for each attempt"
        )
    _READ.add(reader)
    return reader.read_all()


def _lent(rows: Any) -> Rows:
    """What lends Arrow's data as a table; reading it raises the errors of who lends it."""
    if _is_of(rows, "polars", "DataFrame"):
        for name, kind in rows.schema.items():
            if str(kind) == "Object":  # lent as addresses
                raise WrongType(f"column {name!r} has Python's objects (Object): cast it first")
    try:
        if hasattr(rows, "__arrow_c_stream__"):
            stream = pa.RecordBatchReader.from_stream(rows)
        elif hasattr(rows, "__arrow_c_array__"):
            stream = pa.table(rows).to_reader()
        else:
            plain: Rows = rows
            return plain
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise WrongType(f"a {type(rows).__name__} has no rows with columns: {error}") from error
    return stream.read_all()


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


def is_spark_frame(rows: object) -> bool:
    """Whether the rows are a DataFrame of Spark or Spark Connect. Imports neither."""
    return _is_of(rows, "pyspark.sql", "DataFrame")


def _is_of(rows: object, library: str, name: str) -> bool:
    """Whether a library that need not be there made the rows, as a class of this name."""
    return any(
        kind.__module__.startswith(library) and kind.__name__ == name for kind in type(rows).__mro__
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
            "rows are a frame of pandas, Polars or Spark, a list of dicts, or whatever lends"
            f" Arrow's data; {_kind_of(rows)} is none of them"
        )
    lower = [name.lower() for name in names]
    if twice := {name for name in lower if lower.count(name) > 1}:
        raise UnknownColumn(
            f"the rows have the column {', '.join(sorted(twice))} twice: each can be stored once"
        )
    return names


def are_none(rows: Rows) -> bool:
    """Whether the rows are none at all and name no column, such as `[]` or an empty frame."""
    if not isinstance(rows, Sequence | pa.Table) and not is_pandas_frame(rows):
        return False
    return not len(rows) and not column_names(rows)  # type: ignore[arg-type]


def columns_of_rows(rows: Rows, names: Sequence[str] | None = None) -> tuple[Column, ...]:
    """Some columns of rows in this process, or all, as the Hive types that hold their values.

    Raises InvalidDefinition for a type without one, as of a column that holds nothing but NULL.
    """
    chosen = column_names(rows) if names is None else list(names)
    columns: list[Column] = []
    for name in chosen:
        try:
            schema = _schema_of(rows, name)
        except (pa.ArrowException, UnicodeEncodeError) as error:
            raise InvalidDefinition(f"column {name!r}: {error}") from error
        columns += declared_columns(schema)
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


def require_partition_columns(rows: Rows, names: Iterable[str], table: str) -> None:
    """Raises NoSuchPartition if rows lack one of these partition columns, even one dict of many.

    NULL is a value, by which a row goes to the default partition.
    """
    missing = _first_missing(rows, [name.lower() for name in names])
    if missing is not None:
        name, row = missing
        lacks = "the rows lack" if row is None else f"row {row + 1} lacks"
        raise NoSuchPartition(
            f"{lacks} {name!r}, a partition column of {table}: add it, with None for the default"
            " partition"
        )


def _first_missing(rows: Any, names: Sequence[str]) -> tuple[str, int | None] | None:
    """A column that is not there, and in which of a list of dicts; None for no rows at all."""
    if not names:
        return None
    if isinstance(rows, Sequence):
        for row, values in enumerate(rows):
            own = {str(name).lower() for name in values}
            for name in names:
                if name not in own:
                    return name, row
        return None
    own = {name.lower() for name in column_names(rows)}
    empty = (isinstance(rows, pa.Table) or is_pandas_frame(rows)) and not len(rows)
    return next(((name, None) for name in names if name not in own and not empty), None)


def coerced_table(
    rows: Rows, columns: Sequence[Column], table: str
) -> tuple[pa.Table, dict[str, Coerced]]:
    """Rows in this process with the table's types, converted as Hive's CAST does, and what that
    changed in which column.

    The rows may have columns that the table lacks. Raises UnsupportedStatement for rows that
    Spark or a query computes, and what `local_table` raises.
    """
    from acid_platform.engine.results import Result

    if isinstance(rows, Result) or is_spark_frame(rows):
        raise UnsupportedStatement(
            f"coerce=True converts rows in this process; for {table} cast those of Spark or a query"
            " by themselves: frame.selectExpr('CAST(amount AS decimal(9,2)) AS amount')"
        )
    coercion = Coercion()
    converted = local_table(plain_rows(rows), columns, table, True, coercion)
    return converted, coercion.counts


def local_table(
    rows: Rows,
    columns: Sequence[Column],
    table: str,
    more: bool = False,
    coercion: Coercion | None = None,
) -> pa.Table:
    """Rows in this process with the table's types, for those of its columns that they have.

    The names are in lower case. With `more`, the rows may have columns that the table lacks, which
    keep their own types. `coercion` converts values that would change, and counts them. Raises
    UnknownColumn, also for a field of a struct; WrongType if a value would change;
    InvalidDefinition for a column of `more` whose type no table has.
    """
    names = column_names(rows)
    declared = {column.name: column for column in columns}
    others = [name for name in names if name.lower() not in declared]
    if others and not more:
        raise unknown_column(others[0], table, columns)
    declared |= {column.name: column for column in _others(rows, others)}
    arrays = {
        name.lower(): _array(_values(rows, name), declared[name.lower()], table, coercion)
        for name in names
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
    if series.dtype == object:
        # pandas writes a missing value of any type as NaN.
        return [None if is_missing(value) else value for value in series]
    try:
        array = pa.array(series, from_pandas=True)
    except (pa.ArrowException, ValueError):  # such as half of a character in a text
        return list(series)
    return array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array])


def _array(
    values: Sequence[object] | pa.ChunkedArray,
    column: Column,
    table: str,
    coercion: Coercion | None = None,
) -> Any:
    """The values as the column's type. Raises WrongType, UnknownColumn."""
    try:
        if isinstance(values, pa.ChunkedArray):
            if is_period(values.type):
                raise Unfit(f"the rows have {values.type}")
            values.validate(full=True)  # whoever lent them
            if coercion is None:
                return _fitted(values, column.type)
            if not any(part.kind in CHAR_TYPES for part in column.type.walk()):
                with suppress(Unfit, pa.ArrowNotImplementedError):
                    return _fitted(values, column.type)
            values = _python_values(values)  # texts may have to be cut
        return array_of(values, column.type, coercion, column.name)
    except Unfit as fault:
        raise fault.error(column, table) from fault
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        # Values that Arrow itself refuses, or a type that it has little code for.
        kind = getattr(values, "type", "values")
        raise Unfit(f"the rows have {kind}: {error}").error(column, table) from error


_MOST_ROWS, _MOST_BYTES = 1 << 20, 1 << 30
"""How much of a chunk is converted at a time: the texts and lists of a table's types have offsets
of 32 bits, also where the chunk has longer ones, or each text once for many rows."""


def _fitted(values: pa.ChunkedArray, hive: HiveType) -> pa.ChunkedArray:
    parts, before = [], 0
    for part in _parts(values):
        try:
            parts.append(fitted(part, hive, exact))
        except Unfit as fault:
            fault.row = None if fault.row is None else fault.row + before
            raise
        before += len(part)
    return pa.chunked_array(parts, arrow_type(hive))


def _parts(values: pa.ChunkedArray) -> Iterator[pa.Array]:
    for chunk in values.chunks:
        rows = min(_MOST_ROWS, max(1, len(chunk) * _MOST_BYTES // (chunk.nbytes or 1)))
        yield from (chunk.slice(start, rows) for start in range(0, len(chunk) or 1, rows))


def _python_values(values: pa.ChunkedArray) -> list[object]:
    """The values of an Arrow array; floats of 32 bits stay such, which are written shorter."""
    listed: list[object] = values.to_pylist()
    if not pa.types.is_floating(values.type):
        return listed
    numbers = list(values_of(values))
    return [None if one is None else numbers[row] for row, one in enumerate(listed)]
