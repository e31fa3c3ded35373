"""Profiles of a compaction's inputs and of its staged output, by Spark's scan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession

from acid_platform.compaction.key_sums import MODULUS
from acid_platform.compaction.validation import Profile
from acid_platform.engine.spark.few_calls import selected
from acid_platform.engine.spark.row_keys import KEYS
from acid_platform.engine.spark.scan import ScanBuilder
from acid_platform.layout.sql_text import quoted
from acid_platform.layout.types import Column as TableColumn
from acid_platform.scan.scans import Scan


def profile(spark: SparkSession, scan: Scan, values: Profile | None = None) -> Profile:
    """Rows and row ids as the ordinary scan finds them.

    `values` has the sums of the columns if Arrow has computed them while it decoded the files: the
    scan then reads only row keys, which takes half the time. None: the scan computes them.
    """
    rows = ScanBuilder(spark, scan, None if values is None else ()).rows()
    counted = profile_rows(rows, scan.columns if values is None else ())
    if values is None:
        return counted
    return replace(
        counted, column_checksums=values.column_checksums, null_counts=values.null_counts
    )


def profile_rows(rows: DataFrame, columns: Sequence[TableColumn]) -> Profile:
    """The profile of `ScanBuilder.rows()`: rows, row ids, and each column's values and NULLs."""
    aggregates = [
        "count(1)",
        _checksum(", ".join(KEYS)),
        *(_checksum(_hashable(column)) for column in columns),
        *(f"count_if({quoted(column.name)} IS NULL)" for column in columns),
    ]
    totals = selected(rows, [f"{one} AS a{i}" for i, one in enumerate(aggregates)]).head()
    assert totals is not None  # an aggregate without groups always has its row
    names = [column.name for column in columns]
    checksums, nulls = totals[2 : 2 + len(names)], totals[2 + len(names) :]
    return Profile(
        rows=int(totals[0]),
        row_id_checksum=int(totals[1]),
        column_checksums=dict(zip(names, map(int, checksums), strict=True)),
        null_counts=dict(zip(names, map(int, nulls), strict=True)),
    )


def _checksum(values: str) -> str:
    return f"coalesce(sum(pmod(xxhash64({values}), {MODULUS}L)), 0L)"


def _hashable(column: TableColumn) -> str:
    """The value to hash: Spark can't hash maps, so nested types are hashed as JSON text."""
    name = quoted(column.name)
    return f"to_json(struct({name}))" if column.type.nested else name
