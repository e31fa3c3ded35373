"""Turning a caller's rows into a frame with exactly the table's columns, without loss."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import pandas as pd
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from acid_platform.engine.char_varchar import marked_type, to_be_stored
from acid_platform.engine.failures import OTHER_PARTITION
from acid_platform.engine.spark_types import hive_type, refusal, spark_schema, spark_type
from acid_platform.errors import InvalidDefinition, UnknownColumn, WrongType
from acid_platform.layout.types import INTEGRAL
from acid_platform.layout.types import Column as TableColumn
from acid_platform.reading.known_columns import unknown_column
from acid_platform.storage.arrow_types import arrow_type

Rows: TypeAlias = DataFrame | pd.DataFrame | pa.Table | Sequence[Mapping[str, object]]
"""The kinds of rows that a write accepts; columns are matched by name."""

ROWS_PER_LOCAL_TASK = 1_000_000


def conform(
    spark: SparkSession,
    rows: Rows,
    columns: Sequence[TableColumn],
    table: str,
    fixed: Mapping[str, str | None] | None = None,
) -> DataFrame:
    """`rows` with exactly the table's columns and types; missing columns become NULL.

    `columns` are the table's columns and partition columns. `fixed` gives values of partition
    columns; rows may leave them out, but a different value raises WrongType when it is written.
    Raises UnknownColumn, WrongType.
    """
    fixed = fixed or {}
    frame = as_frame(spark, rows, columns, table)
    known = {column.name: column for column in columns}
    given: dict[str, T.StructField] = {}
    for field in frame.schema.fields:
        name = field.name.lower()
        if name not in known:
            raise unknown_column(field.name, table, columns)
        if name in given:
            raise UnknownColumn(f"column {name!r} of {table} is given twice")
        given[name] = field
    chosen: list[Column] = []
    for column in columns:
        kind = spark_type(column.type)
        value = F.lit(fixed.get(column.name)).cast(kind)
        if column.name in given:
            field = given[column.name]
            if why := refusal(field.dataType, column.type):
                raise WrongType(f"column {column.name!r} of {table}: {why}")
            own = F.col(f"`{field.name}`").cast(kind)
            value = _agreeing(own, value, column.name, table) if column.name in fixed else own
        chosen.append(value.alias(column.name))
    return to_be_stored(frame.select(*chosen), columns, table)


def positioned(
    frame: DataFrame,
    names: Sequence[str],
    columns: Sequence[TableColumn],
    table: str,
    fixed: Mapping[str, str | None],
) -> DataFrame:
    """A query's columns renamed by position to `names`, with the `fixed` values.

    Raises WrongType if the numbers of columns differ.
    """
    if len(frame.columns) != len(names):
        raise WrongType(
            f"INSERT into {table}: the query has {len(frame.columns)} columns, and {len(names)} are"
            f" needed: {', '.join(names)}"
        )
    kinds = {column.name: spark_type(column.type) for column in columns}
    values = [F.lit(value).cast(kinds[name]).alias(name) for name, value in fixed.items()]
    return frame.toDF(*names).select("*", *values)


def _agreeing(own: Column, wanted: Column, name: str, table: str) -> Column:
    """The wanted value; a row with a different value fails the job that writes it."""
    text = F.concat(
        F.lit(f"{OTHER_PARTITION} a row for {table} has {name}="),
        F.coalesce(own.cast("string"), F.lit("NULL")),
        F.lit(", the partition has "),
        F.coalesce(wanted.cast("string"), F.lit("NULL")),
    )
    return F.when(own.eqNullSafe(wanted), wanted).otherwise(F.raise_error(text))


def column_names(rows: Rows) -> list[str]:
    """The columns of the rows, as the rows spell them.

    Raises WrongType for other types, such as a generator, which can be read only once;
    UnknownColumn for a name that is given twice, ignoring case.
    """
    if isinstance(rows, DataFrame | pd.DataFrame):
        names = [str(name) for name in rows.columns]
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


def _kind_of(rows: object) -> str:
    if isinstance(rows, list | tuple):
        return f"a list of {' and '.join(sorted({type(row).__name__ for row in rows}))}"
    return f"a {type(rows).__name__}"


def columns_of_rows(rows: Rows, names: Sequence[str] | None = None) -> tuple[TableColumn, ...]:
    """Some columns of rows, or all, as the Hive types that hold their values unchanged.

    Raises InvalidDefinition for a type without one, as of a column that holds nothing but NULL.
    """
    chosen = column_names(rows) if names is None else list(names)
    columns = []
    for field in _schema_of(rows, chosen).fields:
        try:
            columns.append(column_of(field))
        except InvalidDefinition as error:
            raise InvalidDefinition(f"column {field.name!r}: {error}") from error
    return tuple(columns)


def column_of(field: T.StructField) -> TableColumn:
    """A field as a table would declare it. Raises InvalidDefinition."""
    return TableColumn(field.name.lower(), marked_type(field) or hive_type(field.dataType))


def _schema_of(rows: Rows, names: Sequence[str]) -> T.StructType:
    if isinstance(rows, DataFrame):
        return rows.select(*(F.col(f"`{name}`") for name in names)).schema
    if isinstance(rows, pd.DataFrame):
        local = pa.Table.from_pandas(rows[list(names)], preserve_index=False)
    elif isinstance(rows, pa.Table):
        local = rows.select(names)
    else:
        local = pa.table({name: [row.get(name) for row in rows] for name in names})
    return from_arrow_schema(local.schema, prefer_timestamp_ntz=True)


def as_frame(
    spark: SparkSession, rows: Rows, columns: Sequence[TableColumn], table: str
) -> DataFrame:
    """As Spark sees the rows. Raises what `column_names` raises."""
    if isinstance(rows, DataFrame):
        return rows
    names = column_names(rows)
    if isinstance(rows, pd.DataFrame | pa.Table):
        return _from_local(spark, rows, columns, table)
    return _from_local(spark, _from_dicts(rows, names, columns, table), columns, table)


def _from_dicts(
    rows: Sequence[Mapping[str, object]],
    names: Sequence[str],
    columns: Sequence[TableColumn],
    table: str,
) -> pa.Table:
    known = {column.name: column for column in columns}
    arrays = []
    for name in names:
        if name.lower() not in known:
            raise unknown_column(name, table, columns)
        arrays.append(_array([row.get(name) for row in rows], known[name.lower()], table))
    if not names:  # rows that name no column are rows of NULLs, as `{}` beside others is
        return pa.table({columns[0].name: pa.nulls(len(rows), arrow_type(columns[0].type))})
    return pa.table(dict(zip(names, arrays, strict=True)))


def _array(values: object, column: TableColumn, table: str) -> pa.Array:
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


def _may_be_cut(column: TableColumn) -> bool:
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


def _from_local(
    spark: SparkSession, rows: pd.DataFrame | pa.Table, columns: Sequence[TableColumn], table: str
) -> DataFrame:
    """A frame of a pandas or Arrow table, in a few tasks.

    Raises WrongType if values would change.
    """
    known = {column.name: column for column in columns}
    names = [
        str(name) for name in (rows.column_names if isinstance(rows, pa.Table) else rows.columns)
    ]
    arrays = []
    for name in names:
        if name.lower() not in known:
            raise unknown_column(name, table, columns)
        values = rows.column(name) if isinstance(rows, pa.Table) else rows[name]
        if isinstance(values, pa.ChunkedArray) and _surprising(values.type, known[name.lower()]):
            raise WrongType(
                f"column {name!r} of {table} is {known[name.lower()].type}, the rows"
                f" have {values.type}; convert it first"
            )
        arrays.append(_array(values, known[name.lower()], table))
    fields = spark_schema([known[name.lower()] for name in names])
    local = pa.table(dict(zip([n.lower() for n in names], arrays, strict=True)))
    frame = spark.createDataFrame(local, schema=fields)
    return frame.coalesce(max(1, min(64, local.num_rows // ROWS_PER_LOCAL_TASK + 1)))


def _surprising(given: pa.DataType, column: TableColumn) -> bool:
    """Whether Arrow would parse text into another type: the rows are probably a mistake then."""
    text = pa.types.is_string(given) or pa.types.is_large_string(given)
    return text and column.type.kind not in ("string", "char", "varchar")
