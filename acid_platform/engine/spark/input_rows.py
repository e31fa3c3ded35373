"""Turning a caller's rows into a frame with exactly the table's columns, without loss."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from acid_platform.engine.interface import Result
from acid_platform.engine.spark.failures import INEXACT, OTHER_PARTITION
from acid_platform.engine.spark.few_calls import selected
from acid_platform.engine.spark.spark_types import (
    as_values,
    cast_text,
    hive_type,
    marked_type,
    require_assignable,
    spark_schema,
    stripped,
    type_text,
    with_limited_texts,
)
from acid_platform.errors import InvalidDefinition
from acid_platform.layout.sql_text import quoted, sql_string
from acid_platform.layout.types import Column as TableColumn
from acid_platform.layout.types import matched_columns
from acid_platform.values.arrow_types import declared_columns
from acid_platform.values.local_rows import local_parts, local_table
from acid_platform.values.row_streams import RowStream, frame_of
from acid_platform.values.rows import Rows
from acid_platform.values.stored_values import in_full_batches
from acid_platform.write.task_files import files_needed


def conform(
    spark: SparkSession,
    rows: Rows,
    columns: Sequence[TableColumn],
    table: str,
    fixed: Mapping[str, str | None] | None = None,
    defaults: Mapping[str, str] | None = None,
) -> DataFrame:
    """`rows` with exactly the table's columns and types; missing columns become NULL, or what
    `defaults` has of SQL for them.

    `columns` are the table's columns and partition columns. `fixed` gives values of partition
    columns; rows may leave them out, but a different value raises WrongType when it is written, and
    so does a number of a caller's frame that its column would round; a query's is rounded, as in
    SQL. Raises UnknownColumn, WrongType.
    """
    fixed = fixed or {}
    of_caller = isinstance(rows, DataFrame)
    frame = as_frame(spark, rows, columns, table)
    given = frame.schema.fields
    places = matched_columns([field.name for field in given], columns, table)
    fields = {name: given[index] for name, index in places.items()}
    selection: list[str] = []
    for column in columns:
        value = _fixed(fixed.get(column.name), column)
        if column.name in fields:
            field = fields[column.name]
            require_assignable(field.dataType, column, table)
            message = f"{INEXACT} column {column.name} of {table} is {column.type}: "
            inexact = message if of_caller else ""
            own = cast_text(quoted(field.name), field.dataType, column.type, inexact)
            value = _agreeing(own, value, column.name, table) if column.name in fixed else own
        elif defaults and column.name in defaults:
            value = defaults[column.name]
        selection.append(f"{value} AS {quoted(column.name)}")
    names = [column.name for column in columns]
    same = [f"{quoted(name)} AS {quoted(name)}" for name in names]
    if selection != same or list(fields) != names:
        frame = selected(frame, selection)
    return with_limited_texts(frame, columns, table)


def _fixed(text: str | None, column: TableColumn) -> str:
    """SQL of a value that all rows have."""
    return f"CAST({'NULL' if text is None else sql_string(text)} AS {type_text(column.type)})"


def _agreeing(own: str, fixed: str, name: str, table: str) -> str:
    """SQL of the fixed value; a row with a different value fails the job that writes it."""
    start = sql_string(f"{OTHER_PARTITION} a row for {table} has {name}=")
    own_text, fixed_text = (f"coalesce(CAST({text} AS string), 'NULL')" for text in (own, fixed))
    text = f"{start}, {own_text}, ', the partition has ', {fixed_text}"
    return f"CASE WHEN {own} <=> {fixed} THEN {fixed} ELSE raise_error(concat({text})) END"


def columns_of_frame(frame: DataFrame, names: Sequence[str]) -> tuple[TableColumn, ...]:
    """Some columns of a frame as a table would declare them. Raises InvalidDefinition."""
    columns = []
    for field in selected(frame, [quoted(name) for name in names]).schema.fields:
        try:
            columns.append(column_of(field))
        except InvalidDefinition as error:
            raise InvalidDefinition(f"column {field.name!r}: {error}") from error
    return tuple(columns)


def column_of(field: T.StructField) -> TableColumn:
    """A field as a table would declare it. Raises InvalidDefinition."""
    return TableColumn(field.name.lower(), marked_type(field) or hive_type(field.dataType))


def as_frame(
    spark: SparkSession,
    rows: Rows,
    columns: Sequence[TableColumn],
    table: str,
    more: bool = False,
) -> DataFrame:
    """As Spark's expressions see the rows; `more` as in `local_table`, which says what is raised.

    Rows of this process have no types of their own: what a CHAR of the table is given is one.
    """
    if isinstance(rows, DataFrame):
        return as_values(rows)
    if isinstance(rows, Result):
        return as_values(rows.to_spark())
    whole = more and not isinstance(rows, RowStream)  # whose columns get their types from all rows
    given = [local_table(rows, columns, table, True)] if whole else None
    parts = iter(given or local_parts(rows, columns, table, more))
    first = next(parts)
    by_name = {column.name: column for column in (*declared_columns(first.schema), *columns)}
    own = [by_name[name] for name in first.column_names]
    lengths: list[int] = []

    def counted() -> Iterator[pa.Table]:
        for part in chain([first], parts):
            lengths.append(len(part))
            yield part

    def made(local: pa.Table) -> DataFrame:
        return spark.createDataFrame(in_full_batches(local), schema=spark_schema(own))

    frame = stripped(frame_of(spark, counted(), made), own)
    return frame.coalesce(files_needed(sum(lengths)))
