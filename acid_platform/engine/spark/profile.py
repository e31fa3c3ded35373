"""Profiles of row sets, computed by Spark in one aggregate pass (compaction validation)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from acid_platform.compaction.validation import Profile
from acid_platform.engine.spark.row_keys import KEYS
from acid_platform.layout.types import Column as TableColumn
from acid_platform.storage.deletes import DeleteKeys

_MODULUS = 2_147_483_647
"""Hashes are taken modulo it, so that their sum over 4 billion rows fits a bigint."""


def _checksum(value: Column) -> Column:
    return F.coalesce(F.sum(F.pmod(F.xxhash64(value), F.lit(_MODULUS))), F.lit(0))


def _hashable(column: TableColumn) -> Column:
    """The value to hash: Spark can't hash maps, so nested types are hashed as JSON text."""
    value = F.col(f"`{column.name}`")
    return F.to_json(F.struct(value)) if column.type.nested else value


def profile_rows(rows: DataFrame, columns: Sequence[TableColumn]) -> Profile:
    """The profile of `ScanBuilder.rows()`: rows, row ids, and each column's values and NULLs."""
    values = [_hashable(column) for column in columns]
    aggregates = [
        F.count(F.lit(1)),
        F.coalesce(F.sum(F.pmod(F.xxhash64(*KEYS), F.lit(_MODULUS))), F.lit(0)),
        *(_checksum(value) for value in values),
        *(F.count_if(F.col(f"`{column.name}`").isNull()) for column in columns),
    ]
    totals = rows.agg(*(one.alias(f"a{i}") for i, one in enumerate(aggregates))).head()
    assert totals is not None  # an aggregate without groups always has its row
    names = [column.name for column in columns]
    checksums, nulls = totals[2 : 2 + len(names)], totals[2 + len(names) :]
    return Profile(
        rows=int(totals[0]),
        row_id_checksum=int(totals[1]),
        column_checksums=dict(zip(names, map(int, checksums), strict=True)),
        null_counts=dict(zip(names, map(int, nulls), strict=True)),
    )


def delete_checksum(keys: DeleteKeys) -> int:
    """Sum over the events of a mixed 64-bit value of their keys, modulo 2^64."""
    with np.errstate(over="ignore"):
        mixed = (
            keys.write_ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
            ^ keys.buckets.astype(np.uint64) * np.uint64(0xC2B2AE3D27D4EB4F)
            ^ keys.row_ids.astype(np.uint64) * np.uint64(0x165667B19E3779F9)
        )
        mixed ^= mixed >> np.uint64(29)
        mixed *= np.uint64(0xBF58476D1CE4E5B9)
        return int(mixed.sum(dtype=np.uint64))
