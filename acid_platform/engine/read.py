"""A scan with the reader's columns and predicate."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from acid_platform.engine.failures import analysed, raise_as_ours
from acid_platform.engine.scan import TableScan, read_frame
from acid_platform.errors import UnknownColumn


def filtered(
    spark: SparkSession, scan: TableScan, columns: Sequence[str] | None, where: str | None,
    row_id: bool, table: str,
) -> DataFrame:
    """Rows in no particular order. Raises UnknownColumn, InvalidExpression."""
    known = [column.name for column in (*scan.columns, *scan.partition_columns)]
    for name in columns or ():
        if name.lower() not in known:
            raise UnknownColumn(f"{table} has no column {name!r}; its columns are"
                                f" {', '.join(known)}")
    with raise_as_ours():
        return analysed(read_frame(spark, scan, columns, row_id, where))
