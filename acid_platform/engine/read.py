"""A scan with the reader's columns and predicate."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from acid_platform.engine.failures import raise_as_ours
from acid_platform.engine.predicates import columns_of
from acid_platform.engine.scan import TableScan, read_frame
from acid_platform.errors import UnknownColumn

ROW_ID_COLUMN = "row__id"


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
    wanted = list(columns) if columns is not None else None
    if where is None:
        return read_frame(spark, scan, wanted, row_id)
    needed = columns_of(where)
    keep = wanted if wanted is not None else known
    if wanted is not None:
        extra = known if needed is None else [one for one in known if one in needed]
        wanted = list(dict.fromkeys([*(one.lower() for one in wanted), *extra]))
    asks_id = needed is None or ROW_ID_COLUMN in needed
    with raise_as_ours():
        frame = read_frame(spark, scan, wanted, row_id or asks_id).filter(where)
        return frame.select(*keep, *([ROW_ID_COLUMN] if row_id else []))
