"""INSERT, UPDATE and DELETE as frames of rows, each with one scan and one Spark job (P20)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from acid_platform.engine.assignments import wanted_assignments
from acid_platform.engine.queries import Condition, Where
from acid_platform.engine.scans import TableScan
from acid_platform.engine.spark.buckets import place_by_hash
from acid_platform.engine.spark.char_varchar import to_be_stored
from acid_platform.engine.spark.failures import raise_as_ours
from acid_platform.engine.spark.query import run_query
from acid_platform.engine.spark.row_keys import BUCKET, KEYS
from acid_platform.engine.spark.scan import ROW_ID_STRUCT, ScanBuilder
from acid_platform.engine.spark.spark_types import refusal, spark_type
from acid_platform.engine.spark.write import SparkTarget, StatementRows, arranged
from acid_platform.errors import WrongType
from acid_platform.layout.schema import ROW_ID_COLUMN
from acid_platform.layout.types import Column as TableColumn
from acid_platform.storage.task_files import RowKind


def insert_rows(
    frame: DataFrame, target: SparkTarget, columns: Sequence[TableColumn], few: bool = False
) -> StatementRows:
    """The rows to insert; `frame` has the table's columns. Each row is in its bucket's task.

    Unless they are `few`, the rows of a partition come together: otherwise each task would write a
    file for each partition. Spark joins small groups and divides large ones.
    """
    if target.buckets:
        frame = place_by_hash(frame, target.buckets, columns)
    elif target.partition_columns and target.distributed and not few:
        frame = frame.hint("rebalance", *partition_columns(target))
    values = [F.col(f"`{column.name}`") for column in columns]
    return arranged(frame, target, RowKind.INSERT, values)


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


def rows_to_delete(
    spark: SparkSession, scan: TableScan, target: SparkTarget, where: Where
) -> StatementRows:
    """The key of each matching row, in the task of the row's bucket.

    Only the columns that `where` reads are decoded. Raises InvalidExpression, UnknownColumn.
    """
    matched = matched_rows(spark, scan, where, wanted=[])
    placed = matched.select(*partition_columns(target), *KEYS)
    placed = placed.repartitionById(writers(scan), bucket_number())
    return arranged(placed, target, RowKind.DELETE)


def rows_to_update(
    spark: SparkSession,
    scan: TableScan,
    target: SparkTarget,
    assignments: Mapping[str, str],
    where: Where,
    table: str,
) -> StatementRows:
    """The key and the new values of each matching row, from one scan (F6).

    Raises PartitionColumnUpdate, BucketColumnUpdate, UnknownColumn, WrongType, InvalidExpression.
    """
    matched = matched_rows(spark, scan, where)
    own = {column.name: F.col(f"`{column.name}`") for column in scan.columns}
    values = assigned(matched, scan, target, assignments, own, table)
    placed = matched.select(*partition_columns(target), *KEYS, *values)
    placed = to_be_stored(placed, scan.columns, table)
    placed = placed.repartitionById(writers(scan), bucket_number())
    return arranged(placed, target, RowKind.UPDATE, list(own.values()))


def partition_columns(target: SparkTarget) -> list[Column]:
    """The partition columns of a frame."""
    return [F.col(f"`{name}`") for name in target.partition_names]


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


def writers(scan: TableScan) -> int:
    """The number of writer tasks: the highest bucket number in the scanned files, plus one."""
    return scan.highest_bucket + 1
