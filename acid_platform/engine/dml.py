"""INSERT, UPDATE and DELETE as frames of events: one scan and one Spark job each (P20)."""

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

from acid_platform.engine.failures import raise_as_ours
from acid_platform.engine.scan import BUCKET, ROW_ID, ROWS, WRITE_ID, ScanBuilder, TableScan
from acid_platform.engine.types import refusal, spark_schema, spark_type
from acid_platform.engine.write import DELETES, INSERTS, KIND, WriteTarget, insert_columns, numbered
from acid_platform.errors import InvalidExpression, PartitionColumnUpdate, UnknownColumn, WrongType
from acid_platform.layout import schema
from acid_platform.layout.types import INTEGRAL
from acid_platform.layout.types import Column as TableColumn
from acid_platform.storage.arrow_types import arrow_type

Rows: TypeAlias = DataFrame | pd.DataFrame | pa.Table | Sequence[Mapping[str, object]]
"""What a write accepts; columns match by name."""

ROWS_PER_LOCAL_TASK = 1_000_000


def _unknown(name: str, table: str, columns: Sequence[TableColumn]) -> UnknownColumn:
    known = ", ".join(column.name for column in columns)
    return UnknownColumn(f"{table} has no column {name!r}; its columns are {known}")


def conform(
    spark: SparkSession, rows: Rows, columns: Sequence[TableColumn], table: str,
    fixed: Mapping[str, str | None] | None = None,
) -> DataFrame:
    """`rows` with exactly the table's columns and types; missing columns become NULL.

    `columns` are the table's columns and partition columns; `fixed` gives values of partition
    columns that the rows need not carry. Raises UnknownColumn, WrongType.
    """
    fixed = fixed or {}
    frame = _as_frame(spark, rows, columns, table)
    known = {column.name: column for column in columns}
    given: dict[str, T.StructField] = {}
    for field in frame.schema.fields:
        name = field.name.lower()
        if name not in known:
            raise _unknown(field.name, table, columns)
        if name in given:
            raise UnknownColumn(f"column {name!r} of {table} is given twice")
        given[name] = field
    chosen: list[Column] = []
    for column in columns:
        kind = spark_type(column.type)
        if column.name in fixed:
            chosen.append(F.lit(fixed[column.name]).cast(kind).alias(column.name))
        elif column.name not in given:
            chosen.append(F.lit(None).cast(kind).alias(column.name))
        else:
            field = given[column.name]
            if why := refusal(field.dataType, column.type):
                raise WrongType(f"column {column.name!r} of {table}: {why}")
            chosen.append(F.col(f"`{field.name}`").cast(kind).alias(column.name))
    return frame.select(*chosen)


def _as_frame(
    spark: SparkSession, rows: Rows, columns: Sequence[TableColumn], table: str
) -> DataFrame:
    if isinstance(rows, DataFrame):
        return rows
    if isinstance(rows, pd.DataFrame | pa.Table):
        return _from_local(spark, rows, columns, table)
    return _from_local(spark, _from_dicts(rows, columns, table), columns, table)


def _from_dicts(
    rows: Sequence[Mapping[str, object]], columns: Sequence[TableColumn], table: str
) -> pa.Table:
    names = list(dict.fromkeys(name for row in rows for name in row))
    known = {column.name: column for column in columns}
    arrays = []
    for name in names:
        if name.lower() not in known:
            raise _unknown(name, table, columns)
        arrays.append(_array([row.get(name) for row in rows], known[name.lower()], table))
    if not names:
        return pa.table({columns[0].name: pa.array([], arrow_type(columns[0].type))})
    return pa.table(dict(zip(names, arrays, strict=True)))


def _array(values: object, column: TableColumn, table: str) -> pa.Array:
    wanted = arrow_type(column.type)
    try:
        if isinstance(values, pa.ChunkedArray):
            return values.cast(wanted)
        array = pa.array(values, type=wanted, from_pandas=True)
        # Arrow cuts Python's own values in silence: 1.5 to 1, a datetime to a date.
        if _may_be_cut(column) and getattr(getattr(values, "dtype", None), "kind", "O") in "OM":
            for given, stored in zip(values, array.to_pylist(), strict=True):  # type: ignore[call-overload]
                if not _kept(given, stored):
                    raise pa.ArrowInvalid(f"{given!r} would be stored as {stored!r}")
        return array
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError,
            OverflowError) as error:
        raise WrongType(
            f"column {column.name!r} of {table} is {column.type}: {error}; convert it first"
        ) from error


def _may_be_cut(column: TableColumn) -> bool:
    return any(one.kind in (*INTEGRAL, "date", "float") for one in column.type.walk())


def _kept(given: object, stored: object) -> bool:
    """Whether Arrow stored all of a Python value; a NaN may become NULL."""
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
    """A pandas or Arrow table through Arrow, lossless or WrongType, in few writer tasks."""
    known = {column.name: column for column in columns}
    names = [str(name) for name in
             (rows.column_names if isinstance(rows, pa.Table) else rows.columns)]
    arrays = []
    for name in names:
        if name.lower() not in known:
            raise _unknown(name, table, columns)
        values = rows.column(name) if isinstance(rows, pa.Table) else rows[name]
        if isinstance(values, pa.ChunkedArray) and _surprising(values.type, known[name.lower()]):
            raise WrongType(f"column {name!r} of {table} is {known[name.lower()].type}, the rows"
                            f" have {values.type}; convert it first")
        arrays.append(_array(values, known[name.lower()], table))
    fields = spark_schema([known[name.lower()] for name in names])
    local = pa.table(dict(zip([n.lower() for n in names], arrays, strict=True)))
    frame = spark.createDataFrame(local, schema=fields)
    return frame.coalesce(max(1, min(64, local.num_rows // ROWS_PER_LOCAL_TASK + 1)))


def _surprising(given: pa.DataType, column: TableColumn) -> bool:
    """Arrow would parse text into numbers: a table of text columns is a mistake, not an offer."""
    text = pa.types.is_string(given) or pa.types.is_large_string(given)
    return text and column.type.kind not in ("string", "char", "varchar")


def insert_events(
    frame: DataFrame, target: WriteTarget, columns: Sequence[TableColumn]
) -> DataFrame:
    return numbered(frame, target, [column.name for column in columns])


def _matched(builder: ScanBuilder, scan: TableScan, where: str | None) -> DataFrame:
    """Live rows that the predicate accepts: flat columns, partition columns and row keys."""
    frame = builder.events().select(
        *(F.col(f"{ROWS}.`{column.name}`").alias(column.name) for column in builder.columns),
        *(F.col(f"`{column.name}`") for column in scan.partition_columns),
        F.col(WRITE_ID), F.col(BUCKET), F.col(ROW_ID),
    )
    if where is None:
        return frame
    with raise_as_ours():
        return frame.filter(where)


def _bucket_number() -> Column:
    """Decoded from the property, both codec versions (storage.md section 4)."""
    prop = F.col(BUCKET)
    new = F.shiftright(prop, 29).bitwiseAND(F.lit(7)) == 1
    number = F.shiftright(prop, 16).bitwiseAND(F.lit(0xFFF))
    return F.when(new, number).otherwise(prop).cast("int")


def _delete_columns(target: WriteTarget, row: T.StructType) -> list[Column]:
    return [
        F.lit(schema.DELETE_EVENT).alias(schema.OPERATION),
        F.col(WRITE_ID).alias(schema.ORIGINAL_TRANSACTION),
        F.col(BUCKET).alias(schema.BUCKET),
        F.col(ROW_ID).alias(schema.ROW_ID),
        F.lit(target.write_id).cast("bigint").alias(schema.CURRENT_TRANSACTION),
        F.lit(None).cast(row).alias(schema.ROW),
    ]


def delete_events(
    spark: SparkSession, scan: TableScan, target: WriteTarget, where: str | None,
    needed: Sequence[str] | None,
) -> DataFrame:
    """One delete event per matching row, in the file of the bucket that holds the row.

    `needed`: the columns that `where` reads, or None for all. Raises InvalidExpression,
    UnknownColumn.
    """
    builder = ScanBuilder(spark, scan, needed)
    matched = _matched(builder, scan, where)
    partition = [F.col(f"`{name}`") for name in target.partition_columns]
    placed = matched.select(*partition, WRITE_ID, BUCKET, ROW_ID)
    placed = placed.repartitionById(_writers(scan), _bucket_number())
    placed = placed.sortWithinPartitions(*partition, WRITE_ID, BUCKET, ROW_ID)
    return placed.select(F.lit(DELETES).alias(KIND), *partition,
                         *_delete_columns(target, spark_schema(scan.columns)))


def update_events(
    spark: SparkSession, scan: TableScan, target: WriteTarget, assignments: Mapping[str, str],
    where: str | None, table: str,
) -> DataFrame:
    """A delete and an insert event per matching row, out of one scan (storage.md section 2).

    Raises PartitionColumnUpdate, UnknownColumn, WrongType, InvalidExpression.
    """
    builder = ScanBuilder(spark, scan, None)
    matched = _matched(builder, scan, where)
    values = _assigned(matched, scan, assignments, table)
    partition = [F.col(f"`{name}`") for name in target.partition_columns]
    new = F.struct(*values).alias(ROWS)
    placed = matched.select(*partition, WRITE_ID, BUCKET, ROW_ID, new)
    placed = placed.repartitionById(_writers(scan), _bucket_number())
    # Both events of a row come from the same task and the same evaluation of `new`.
    both = placed.withColumn(KIND, F.explode(F.array(F.lit(DELETES), F.lit(INSERTS))))
    both = both.sortWithinPartitions(KIND, *partition, WRITE_ID, BUCKET, ROW_ID)
    inserts = insert_columns(target.write_id, target.statement, F.col(ROWS))
    deletes = _delete_columns(target, spark_schema(scan.columns))
    is_delete = F.col(KIND) == DELETES
    events = [
        F.when(is_delete, gone).otherwise(fresh).alias(name)
        for name, gone, fresh in zip(schema.ACID_COLUMNS, deletes, inserts, strict=True)
    ]
    return both.select(KIND, *partition, *events)


def _assigned(
    matched: DataFrame, scan: TableScan, assignments: Mapping[str, str], table: str
) -> list[Column]:
    columns = {column.name: column for column in scan.columns}
    partition = {column.name for column in scan.partition_columns}
    wanted = {name.lower(): text for name, text in assignments.items()}
    if not wanted:
        raise InvalidExpression(f"UPDATE of {table} assigns nothing; give {{'column': 'SQL'}}")
    for name in wanted:
        if name in partition:
            raise PartitionColumnUpdate(
                f"{name!r} is a partition column of {table}: UPDATE can't move a row to another"
                " partition; delete the row and insert it again in one transaction"
            )
        if name not in columns:
            raise _unknown(name, table, scan.columns)
    values = []
    for column in scan.columns:
        text = wanted.get(column.name)
        if text is None:
            values.append(F.col(f"`{column.name}`"))
            continue
        with raise_as_ours():
            given = matched.select(F.expr(text)).schema.fields[0].dataType
        if why := refusal(given, column.type):
            raise WrongType(f"column {column.name!r} of {table} = {text}: {why}")
        values.append(F.expr(text).cast(spark_type(column.type)).alias(column.name))
    return values


def _writers(scan: TableScan) -> int:
    """Number of writer tasks = highest bucket number that the scanned files can hold, plus one."""
    return scan.highest_bucket + 1
