"""INSERT, UPDATE and DELETE as frames of rows, each with one scan and one Spark job (P20)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from acid_platform.engine.interface import Condition, Where
from acid_platform.engine.merge_clauses import targets_of, wanted_assignments
from acid_platform.engine.spark.acid_columns import KEYS, ROW_ID_STRUCT
from acid_platform.engine.spark.few_calls import selected, types_of
from acid_platform.engine.spark.query import run_query
from acid_platform.engine.spark.scan import scan_rows
from acid_platform.engine.spark.spark_types import cast_text, require_assignable, with_limited_texts
from acid_platform.engine.spark.write import StatementRows, arranged, place_by_hash
from acid_platform.layout.schema import ROW_ID_COLUMN
from acid_platform.layout.sql_text import quoted, sql_string
from acid_platform.layout.types import Column as TableColumn
from acid_platform.layout.types import HiveType
from acid_platform.predicates.char_literals import refuse_blanks
from acid_platform.scan.scans import Scan
from acid_platform.write.publishing import WriteTarget
from acid_platform.write.task_files import RowKind


def insert_rows(frame: DataFrame, target: WriteTarget, few: bool) -> StatementRows:
    """The rows to insert; `frame` has the table's columns. Each row is in its bucket's task.

    Unless they are `few`, the rows of a partition come together: otherwise each task would write a
    file for each partition. Spark joins small groups and divides large ones.
    """
    if target.buckets:
        frame = place_by_hash(frame, target.buckets, target.columns)
    elif target.partition_columns and target.distributed and not few:
        columns_of_partitions = [F.col(quoted(name)) for name in target.partition_names]
        frame = frame.hint("rebalance", *columns_of_partitions)
    values = [quoted(column.name) for column in target.columns]
    return replace(arranged(frame, target, RowKind.INSERT, values), few=few)


def matched_rows(
    spark: SparkSession, scan: Scan, where: Where, names: Sequence[str] | None = None
) -> DataFrame:
    """The rows that `where` accepts, with their KEYS and its values; each once, whatever its
    subqueries join."""
    if not isinstance(where, Condition):
        return scan_rows(spark, scan, names, where)
    rows = scan_rows(spark, scan, None).selectExpr("*", ROW_ID_STRUCT)
    matched = run_query(spark, f"SELECT *{where.text}", where.sources, {where.target: rows})
    return matched.drop(ROW_ID_COLUMN)


def rows_to_delete(
    spark: SparkSession, scan: Scan, target: WriteTarget, where: Where
) -> StatementRows:
    """The key of each matching row, in the task of the row's bucket.

    Only the columns that `where` reads are decoded. Raises InvalidExpression, UnknownColumn.
    """
    matched = matched_rows(spark, scan, where, names=[])
    keys = matched if target.partition_names else selected(matched, KEYS)
    return arranged(keys, target, RowKind.DELETE, writers=writers(scan))


def rows_to_update(
    spark: SparkSession,
    scan: Scan,
    target: WriteTarget,
    assignments: Mapping[str, str],
    where: Where,
) -> StatementRows:
    """The key and the new values of each matching row, from one scan.

    Raises PartitionColumnUpdate, BucketColumnUpdate, UnknownColumn, WrongType, InvalidExpression.
    """
    matched = matched_rows(spark, scan, where)
    for text in assignments.values():
        refuse_blanks(text, (*scan.columns, *scan.partition_columns))
    checked = wanted_assignments(assignments, scan, target.buckets, target.table)
    values = computed(matched, checked, scan.columns, target.table)
    names = [quoted(column.name) for column in scan.columns]
    # A selection of its own: later ones use a value several times, and it is computed once.
    placed = selected(
        matched,
        [
            *map(quoted, target.partition_names),
            *KEYS,
            *(
                f"{values.get(column.name, name)} AS {name}"
                for column, name in zip(scan.columns, names, strict=True)
            ),
        ],
    )
    placed = with_limited_texts(placed, scan.columns, target.table)
    return arranged(placed, target, RowKind.UPDATE, names, writers(scan))


def computed(
    frame: DataFrame,
    texts: Mapping[str, str],
    columns: Sequence[TableColumn],
    table: str,
    row: str = "",
) -> dict[str, str]:
    """SQL expressions over `frame` as values of the columns that they are given for, as SQL.

    A column of which only fields are given keeps its others; if it is NULL, these become NULL.
    `row`: what stands before the names of the row's old values. Raises WrongType, UnknownColumn,
    InvalidExpression.
    """
    targets = targets_of(texts, columns, table)
    kinds = types_of(frame, [texts[target.value.name] for target in targets])
    values: dict[str, str] = {}
    fields: dict[TableColumn, dict[tuple[str, ...], str]] = {}
    for target, kind in zip(targets, kinds, strict=True):
        column = target.value
        text = texts[column.name]
        require_assignable(kind, column, table, text)
        value = cast_text(enclosed(text), kind, column.type)
        if target.fields:
            fields.setdefault(target.column, {})[target.fields] = value
        else:
            values[column.name] = value
    for column, inside in fields.items():
        values[column.name] = _with_fields(f"{row}{quoted(column.name)}", column.type, inside)
    return values


def _with_fields(old: str, kind: HiveType, values: Mapping[tuple[str, ...], str]) -> str:
    """SQL of a struct with other values of some fields, by the names down to them."""
    parts = []
    for name, child in kind.children:
        inside = {path[1:]: value for path, value in values.items() if path[0] == name}
        own = f"{old}.{quoted(name)}"
        if inside:
            own = inside[()] if () in inside else _with_fields(own, child, inside)
        parts.append(f"{sql_string(name)}, {own}")
    return f"named_struct({', '.join(parts)})"


def enclosed(text: str) -> str:
    """A SQL expression as a part of another; it may end with a comment."""
    return f"({text}\n)"


def writers(scan: Scan) -> int:
    """The number of writer tasks: the highest bucket number in the scanned files, plus one."""
    return scan.highest_bucket + 1
