"""Applying the reader's columns and predicate to a scan."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame, SparkSession

from acid_platform.engine.spark.char_varchar import shown
from acid_platform.engine.spark.failures import analysed, raise_as_ours
from acid_platform.engine.spark.scan import read_frame
from acid_platform.predicates.known_columns import require_columns, require_names
from acid_platform.scan.scans import Scan


def filtered(
    spark: Callable[[], SparkSession],
    scan: Scan,
    columns: Sequence[str] | None,
    where: str | None,
    row_id: bool,
    table: str,
) -> DataFrame:
    """The rows, in no particular order. Spark starts only after the names were checked.

    Raises UnknownColumn, InvalidExpression.
    """
    known = (*scan.columns, *scan.partition_columns)
    require_columns(columns or (), known, table)
    if where is not None:
        require_names(where, known, table)
    session = spark()
    with raise_as_ours():
        return analysed(shown(read_frame(session, scan, columns, row_id, where)))
