"""INSERT, UPDATE and DELETE as frames of events, each with one scan and one Spark job (P20)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from acid_platform.engine.assignments import wanted_assignments
from acid_platform.engine.queries import Condition, Where
from acid_platform.engine.scans import TableScan
from acid_platform.engine.spark.buckets import place_by_hash
from acid_platform.engine.spark.char_varchar import struct_to_be_stored
from acid_platform.engine.spark.failures import raise_as_ours
from acid_platform.engine.spark.query import run_query
from acid_platform.engine.spark.row_keys import BUCKET, KEYS, ROW_ID, WRITE_ID
from acid_platform.engine.spark.scan import ROW_ID_STRUCT, ScanBuilder
from acid_platform.engine.spark.spark_types import refusal, spark_type
from acid_platform.engine.spark.write import (
    DELETES,
    INSERTS,
    KIND,
    SparkTarget,
    arranged,
    insert_ids,
    numbered,
    stored_row,
)
from acid_platform.errors import WrongType
from acid_platform.layout import schema
from acid_platform.layout.schema import ROW_ID_COLUMN
from acid_platform.layout.types import Column as TableColumn

NEW = "__new"
"""The column with the new values of an updated or inserted row, as a struct."""


def insert_events(
    frame: DataFrame, target: SparkTarget, columns: Sequence[TableColumn]
) -> DataFrame:
    """Insert events for a frame with the table's columns; each row is in its bucket's task."""
    if target.buckets:
        frame = place_by_hash(frame, target.buckets, columns)
    return numbered(frame, target, [column.name for column in columns])


def bucket_number() -> Column:
    """The bucket number, decoded from a bucket property of either codec version (F10)."""
    prop = F.col(BUCKET)
    new = F.shiftright(prop, 29).bitwiseAND(F.lit(7)) == 1
    number = F.shiftright(prop, 16).bitwiseAND(F.lit(0xFFF))
    return F.when(new, number).otherwise(prop).cast("int")


def matched_rows(
    spark: SparkSession, scan: TableScan, where: Where, wanted: Sequence[str] | None = None
) -> DataFrame:
    """The rows that `where` accepts, with their KEYS; each once, whatever its subqueries join."""
    if not isinstance(where, Condition):
        return ScanBuilder(spark, scan, wanted, where).rows()
    rows = ScanBuilder(spark, scan, None).rows().selectExpr("*", ROW_ID_STRUCT)
    matched = run_query(spark, where.text, where.sources, {where.target: rows})
    return matched.drop(ROW_ID_COLUMN)


def delete_events(
    spark: SparkSession,
    scan: TableScan,
    target: SparkTarget,
    where: Where,
) -> DataFrame:
    """A delete event for each matching row, in the file of the row's bucket.

    Only the columns that `where` reads are decoded. Raises InvalidExpression, UnknownColumn.
    """
    matched = matched_rows(spark, scan, where, wanted=[])
    partition = [F.col(f"`{name}`") for name in target.partition_names]
    placed = matched.select(*partition, *KEYS)
    placed = placed.repartitionById(writers(scan), bucket_number())
    placed = arranged(placed, target, KEYS)
    return placed.select(*partition, *_delete_ids(target))


def update_events(
    spark: SparkSession,
    scan: TableScan,
    target: SparkTarget,
    assignments: Mapping[str, str],
    where: Where,
    table: str,
) -> DataFrame:
    """A delete event and an insert event for each matching row, from one scan (F6).

    Raises PartitionColumnUpdate, BucketColumnUpdate, UnknownColumn, WrongType, InvalidExpression.
    """
    matched = matched_rows(spark, scan, where)
    own = {column.name: F.col(f"`{column.name}`") for column in scan.columns}
    values = assigned(matched, scan, target, assignments, own, table)
    partition = [F.col(f"`{name}`") for name in target.partition_names]
    placed = matched.select(*partition, *KEYS, F.struct(*values).alias(NEW))
    placed = struct_to_be_stored(placed, NEW, scan.columns, table)
    placed = placed.repartitionById(writers(scan), bucket_number())
    return both_events(placed, F.array(F.lit(DELETES), F.lit(INSERTS)), scan, target)


def both_events(
    placed: DataFrame, kinds: Column, scan: TableScan, target: SparkTarget
) -> DataFrame:
    """The events of placed rows (partition columns, KEYS, NEW), one for each entry of `kinds`.

    Both events of an updated row come from the same task and the same evaluation of its values.
    """
    partition = [F.col(f"`{name}`") for name in target.partition_names]
    is_delete = F.col(KIND) == DELETES
    # Delete events are cheap to sort without their values.
    both = placed.withColumn(KIND, F.explode(kinds)).withColumn(NEW, F.when(~is_delete, F.col(NEW)))
    both = arranged(both, target, KEYS)
    inserts, deletes = insert_ids(target.write_id, target.statement), _delete_ids(target)
    ids = [
        F.when(is_delete, gone).otherwise(fresh).alias(name)
        for name, gone, fresh in zip(schema.ACID_COLUMNS, deletes, inserts, strict=False)
    ]
    values = [F.col(NEW).getField(column.name).alias(column.name) for column in scan.columns]
    return both.select(KIND, *partition, *ids, *stored_row(values, target))


def assigned(
    frame: DataFrame,
    scan: TableScan,
    target: SparkTarget,
    assignments: Mapping[str, str],
    own: Mapping[str, Column],
    table: str,
) -> list[Column]:
    """The table's columns after SET: SQL expressions over `frame`, else the row's `own` values.

    Raises PartitionColumnUpdate, BucketColumnUpdate, UnknownColumn, WrongType, InvalidExpression.
    """
    wanted = wanted_assignments(assignments, scan, target.buckets, table)
    return [
        own[column.name].alias(column.name)
        if column.name not in wanted
        else computed(frame, wanted[column.name], column, table)
        for column in scan.columns
    ]


def computed(frame: DataFrame, text: str, column: TableColumn, table: str) -> Column:
    """A SQL expression over `frame` as a value of the column.

    Raises WrongType, UnknownColumn, InvalidExpression.
    """
    with raise_as_ours():
        given = frame.select(F.expr(text)).schema.fields[0].dataType
    if why := refusal(given, column.type):
        raise WrongType(f"column {column.name!r} of {table} = {text}: {why}")
    return F.expr(text).cast(spark_type(column.type)).alias(column.name)


def _delete_ids(target: SparkTarget) -> list[Column]:
    return [
        F.lit(schema.DELETE_EVENT).alias(schema.OPERATION),
        F.col(WRITE_ID).alias(schema.ORIGINAL_TRANSACTION),
        F.col(BUCKET).alias(schema.BUCKET),
        F.col(ROW_ID).alias(schema.ROW_ID),
        F.lit(target.write_id).cast("bigint").alias(schema.CURRENT_TRANSACTION),
    ]


def writers(scan: TableScan) -> int:
    """The number of writer tasks: the highest bucket number in the scanned files, plus one."""
    return scan.highest_bucket + 1
