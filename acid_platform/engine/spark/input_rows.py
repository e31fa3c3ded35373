"""Turning a caller's rows into a frame with exactly the table's columns, without loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from acid_platform.engine.results import Result
from acid_platform.engine.rows import Rows, local_table
from acid_platform.engine.spark.char_varchar import marked_type, to_be_stored
from acid_platform.engine.spark.failures import OTHER_PARTITION
from acid_platform.engine.spark.spark_types import hive_type, refusal, spark_schema, spark_type
from acid_platform.errors import InvalidDefinition, UnknownColumn, WrongType
from acid_platform.layout.types import Column as TableColumn
from acid_platform.reading.known_columns import unknown_column

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


def _agreeing(own: Column, wanted: Column, name: str, table: str) -> Column:
    """The wanted value; a row with a different value fails the job that writes it."""
    text = F.concat(
        F.lit(f"{OTHER_PARTITION} a row for {table} has {name}="),
        F.coalesce(own.cast("string"), F.lit("NULL")),
        F.lit(", the partition has "),
        F.coalesce(wanted.cast("string"), F.lit("NULL")),
    )
    return F.when(own.eqNullSafe(wanted), wanted).otherwise(F.raise_error(text))


def columns_of_frame(frame: DataFrame, names: Sequence[str]) -> tuple[TableColumn, ...]:
    """Some columns of a frame as a table would declare them. Raises InvalidDefinition."""
    columns = []
    for field in frame.select(*(F.col(f"`{name}`") for name in names)).schema.fields:
        try:
            columns.append(column_of(field))
        except InvalidDefinition as error:
            raise InvalidDefinition(f"column {field.name!r}: {error}") from error
    return tuple(columns)


def column_of(field: T.StructField) -> TableColumn:
    """A field as a table would declare it. Raises InvalidDefinition."""
    return TableColumn(field.name.lower(), marked_type(field) or hive_type(field.dataType))


def as_frame(
    spark: SparkSession, rows: Rows, columns: Sequence[TableColumn], table: str
) -> DataFrame:
    """As Spark sees the rows. Raises what `column_names` raises."""
    if isinstance(rows, DataFrame):
        return rows
    if isinstance(rows, Result):
        return rows.to_spark()
    local = local_table(rows, columns, table)
    known = {column.name: column for column in columns}
    frame = spark.createDataFrame(
        local, schema=spark_schema([known[name] for name in local.column_names])
    )
    return frame.coalesce(max(1, min(64, local.num_rows // ROWS_PER_LOCAL_TASK + 1)))
