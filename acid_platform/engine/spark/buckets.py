"""Bucketed tables: Hive's hash decides which writer task gets a row."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf

from acid_platform.layout.bucketing import Bucketing, bucket_ids
from acid_platform.layout.sql_text import quoted
from acid_platform.layout.types import Column as TableColumn

BUCKET_OF_ROW = "__bucket"


def bucket_of_row(buckets: Bucketing, columns: Sequence[TableColumn]) -> Column:
    """The bucket number of a row of the frame; `columns` are the table's."""
    kinds = [next(c.type for c in columns if c.name == name) for name in buckets.columns]
    count, version = buckets.count, buckets.version

    def numbers(*values: pa.Array) -> pa.Array:
        return pa.array(bucket_ids(values, kinds, count, version), pa.int32())

    hash_of = arrow_udf(numbers, "int")  # type: ignore[call-overload]
    hashed: Column = hash_of(*(F.col(quoted(name)) for name in buckets.columns))
    return hashed


def place_by_hash(
    frame: DataFrame, buckets: Bucketing, columns: Sequence[TableColumn]
) -> DataFrame:
    """The frame with the rows of bucket n in partition n."""
    placed = frame.withColumn(BUCKET_OF_ROW, bucket_of_row(buckets, columns))
    return placed.repartitionById(buckets.count, F.col(BUCKET_OF_ROW)).drop(BUCKET_OF_ROW)
