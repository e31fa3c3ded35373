"""Names and types of the columns that carry row ids through the engine's frames."""

from __future__ import annotations

from pyspark.sql import types as T

WRITE_ID, BUCKET, ROW_ID = "__w", "__b", "__r"
"""The write id of the insert, the bucket property and the rowId."""

KEYS = (WRITE_ID, BUCKET, ROW_ID)

ENTITY = "__e"
"""The column with the ordinal of a row's entity in the scan."""


def key_fields(nullable: bool = True) -> list[T.StructField]:
    """The fields of KEYS in the schema of a frame."""
    kinds = (T.LongType(), T.IntegerType(), T.LongType())
    return [T.StructField(name, kind, nullable) for name, kind in zip(KEYS, kinds, strict=True)]
