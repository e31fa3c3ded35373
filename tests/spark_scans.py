"""Frames over the files of an `AcidTable`, and what their plans read."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession

from acid_platform.engine.spark.query import table_rows
from acid_platform.scan.scans import Scan
from tests.acid_files import AcidTable, open_scan
from tests.notation import txns, write_ids


def scans(table: AcidTable, w: str = "99:M::") -> Scan:
    return open_scan(table.layout, write_ids(w), txns(""))


def read(spark: SparkSession, scan: Scan, **options: Any) -> DataFrame:
    given = {"columns": None, "where": None, "row_id": False} | options
    return table_rows(lambda: spark, scan, table="db.t", **given)


def rows(frame: DataFrame) -> list[str]:
    return sorted(map(str, frame.collect()))


def leaves(frame: DataFrame) -> list[Any]:
    """The file scans of the physical plan."""
    found = frame._jdf.queryExecution().sparkPlan().collectLeaves()
    each = [found.apply(at) for at in range(found.size())]
    return [leaf for leaf in each if leaf.nodeName().startswith("Scan")]
