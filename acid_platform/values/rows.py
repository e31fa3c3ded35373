"""The rows that a caller writes: which kinds there are, their columns, and their form for a write.

Names of columns are texts then, and no column is of a kind that Arrow does not know.
"""

from __future__ import annotations

import datetime
import sys
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeGuard, Union

import numpy as np
import pyarrow as pa

from acid_platform.errors import (
    InvalidDefinition,
    NoSuchPartition,
    SparkLost,
    UnknownColumn,
    WrongType,
)
from acid_platform.layout.types import Column
from acid_platform.values.arrow_types import declared_columns
from acid_platform.values.python_values import is_missing
from acid_platform.values.row_streams import ArrowLender, RowStream, once, table_or_stream

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    from pyspark.sql import DataFrame


class ComputedRows(ArrowLender):
    """Rows that an engine computes each time that they are asked for."""

    @property
    @abstractmethod
    def columns(self) -> list[str]:
        """The names of the columns, which may occur twice."""


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
    RowStream,
    Iterator["ArrowStream | ArrowArray"],
    ArrowStream,
    ArrowArray,
]
"""The kinds of rows that a write accepts; columns are matched by name."""


def plain_rows(rows: Rows) -> Rows:
    """The rows as an engine takes them: names are texts, a pandas index with a name is a column,
    and what lends Arrow's data is a pyarrow Table, or a RowStream if it gives many rows by and by.

    Raises WrongType for an index without a name that is no numbering of rows, a column without a
    name, and Arrow's data that is no table; UnknownColumn for an index with the name of a column;
    RowsTaken.
    """
    if isinstance(rows, pa.Table | RowStream | ComputedRows) or is_spark_frame(rows):
        return rows
    if is_pandas_frame(rows):
        return of_pandas(rows)  # type: ignore[arg-type]
    if isinstance(rows, pa.RecordBatchReader):
        return table_or_stream(rows.schema, once(rows))
    if isinstance(rows, ArrowLender):  # its errors are ours
        return table_or_stream(rows.schema, rows.batches(), rows.batches)
    if _is_of(rows, "polars", "LazyFrame"):
        return _lazy(rows)
    if isinstance(rows, Iterator):
        return _generated(rows)
    return _lent(rows)


def _lazy(frame: Any) -> Rows:
    """The rows of a LazyFrame of Polars, which newer versions compute batch by batch."""
    if not hasattr(frame, "collect_batches"):
        return _lent(frame.collect(engine="streaming"))
    none = _lent(frame.clear().collect())
    assert isinstance(none, pa.Table)

    def computed() -> Iterator[pa.RecordBatch]:
        for part in frame.collect_batches(engine="streaming"):
            yield from pa.table(of_polars(part)).to_batches()

    return table_or_stream(none.schema, computed(), computed)


def _generated(rows: Iterator[Any]) -> Rows:
    """The rows of an iterator over batches or tables of Arrow, or what lends such; other iterators
    stay as they are. Raises RowsTaken, and WrongType for batches that differ in their columns."""
    parts = once(rows)
    first = _lent(next(parts, pa.table({})))
    if not isinstance(first, pa.Table | RowStream):
        return rows

    def batches() -> Iterator[pa.RecordBatch]:
        for number, part in enumerate(chain([first], map(_lent, parts)), 1):
            given: Any = part
            if not isinstance(given, pa.Table | RowStream) or given.schema != first.schema:
                raise WrongType(
                    f"part {number} of the rows has other columns or types than the first: give all"
                    " of them one schema"
                )
            yield from given.batches() if isinstance(given, RowStream) else given.to_batches()

    return table_or_stream(first.schema, batches())


def _lent(rows: Any) -> Rows:
    """What lends Arrow's data; reading it raises the errors of who lends it."""
    in_memory = isinstance(rows, pa.Table | pa.RecordBatch) or _is_of(rows, "polars", "DataFrame")
    if _is_of(rows, "polars", "DataFrame"):
        rows = of_polars(rows)
    try:
        if hasattr(rows, "__arrow_c_stream__"):
            stream = pa.RecordBatchReader.from_stream(rows)
        elif hasattr(rows, "__arrow_c_array__"):
            return pa.table(rows)
        else:
            plain: Rows = of_dicts(rows) if _are_dicts(rows) else rows
            return plain
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise WrongType(f"a {type(rows).__name__} has no rows with columns: {error}") from error
    return stream.read_all() if in_memory else table_or_stream(stream.schema, stream)


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

    Raises WrongType for other types, such as a generator of dicts; UnknownColumn for a name that is
    given twice, ignoring case; SparkLost for a frame of Spark whose JVM has ended.
    """
    names: list[str]
    if isinstance(rows, ComputedRows) or is_spark_frame(rows) or is_pandas_frame(rows):
        try:
            names = [str(name) for name in rows.columns]  # type: ignore[union-attr]
        except Exception as error:
            if lost := spark_lost_behind(error):
                raise lost from None
            raise
    elif isinstance(rows, pa.Table | RowStream):
        names = list(rows.schema.names)
    elif _are_dicts(rows):
        names = list(dict.fromkeys(str(name) for row in rows for name in row))
    elif isinstance(rows, Iterator):
        raise WrongType(
            "a generator gives batches or tables of Arrow's data, and this one gives something"
            " else: for dicts give list(rows)"
        )
    else:
        raise WrongType(
            "rows are a frame of pandas, Polars or Spark, a list of dicts, whatever lends Arrow's"
            f" data, or a generator of such data; {_kind_of(rows)} is none of them"
        )
    lower = [name.lower() for name in names]
    if twice := {name for name in lower if lower.count(name) > 1}:
        raise UnknownColumn(
            f"the rows have the column {', '.join(sorted(twice))} twice: each can be stored once"
        )
    return names


def spark_lost_behind(error: Exception) -> SparkLost | None:
    """What keeps PySpark from telling the columns of a frame, of which it only says that it can't
    parse their types."""
    behind = error.__context__ if "CANNOT_PARSE_DATATYPE" in str(error) else None
    return behind if isinstance(behind, SparkLost) else None


def _are_dicts(rows: object) -> TypeGuard[Sequence[Mapping[str, object]]]:
    return (
        isinstance(rows, Sequence)
        and not isinstance(rows, str | bytes)
        and all(isinstance(row, Mapping) for row in rows)
    )


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
        columns += declared_columns(schema_of(rows, name))
    return tuple(columns)


def schema_of(rows: Any, name: str) -> pa.Schema:
    """The Arrow schema of a column of rows in this process.

    Raises InvalidDefinition, which names the column, for values that no type holds.
    """
    try:
        return _inferred(rows, name)
    except OverflowError as error:
        raise InvalidDefinition(
            f"column {name!r} has a whole number of more than 64 bits, larger than a bigint: give"
            " values of decimal.Decimal, or declare the column, such as decimal(38,0)"
        ) from error
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidDefinition(
            f"column {name!r}: {error}; give values of one type, or declare the column"
        ) from error


def _inferred(rows: Any, name: str) -> pa.Schema:
    if is_pandas_frame(rows):
        try:
            return pa.Schema.from_pandas(rows[[name]], preserve_index=False)
        except pa.ArrowNotImplementedError as error:  # its text has a number of NumPy's
            raise TypeError(f"no type holds values of {rows[name].dtype}") from error
    if isinstance(rows, pa.Table | RowStream):
        return pa.schema([rows.schema.field(rows.schema.names.index(name))])
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
    sparse = [index for index, kind in enumerate(plain.dtypes) if _is_sparse(kind)]
    if not sparse and all(type(name) is str for name in plain.columns):
        return plain
    plain = plain.copy(deep=False)
    plain.columns = names
    for index in sparse:
        column: Any = plain.iloc[:, index]
        plain.isetitem(index, column.sparse.to_dense())
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
