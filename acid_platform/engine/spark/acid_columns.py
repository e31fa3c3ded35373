"""The six ACID columns of a file as Spark's own ORC reader gets them, and their names in frames.

ORC recognises files with the six ACID columns. If the requested root schema does not have the six
names too, ORC wraps it a second time and fails. So every scan requests all six, and tests each row
by all of them (F24).
"""

from __future__ import annotations

from collections.abc import Sequence
from posixpath import commonpath

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from acid_platform.engine.spark.few_calls import file_frame
from acid_platform.formats import orc
from acid_platform.layout.schema import ROW_ID_COLUMN
from acid_platform.layout.sql_text import sql_string

WRITE_ID, BUCKET, ROW_ID = "__w", "__b", "__r"
"""Names in frames of the parts of a row key: write id of the insert, bucket property, rowId."""

KEYS = (WRITE_ID, BUCKET, ROW_ID)

ENTITY = "__e"
"""The column of a frame with the ordinal of a row's entity in the scan."""

ROW_ID_PARTS = ("writeid", "bucketid", "rowid")
"""The fields of the virtual column `row__id`, which are KEYS."""

ROW_ID_STRUCT = (
    f"named_struct('writeid', {WRITE_ID}, 'bucketid', {BUCKET}, 'rowid', {ROW_ID})"
    f" AS {ROW_ID_COLUMN}"
)
"""SQL that makes the virtual column `row__id` from `KEYS`."""


def keys_as(*names: str) -> tuple[str, ...]:
    """SQL that selects the parts of a key from a file under these names."""
    parts = (orc.ORIGINAL_TRANSACTION, orc.BUCKET, orc.ROW_ID)
    return tuple(f"{part} AS {name}" for part, name in zip(parts, names, strict=True))


SELECTED_KEYS = keys_as(*KEYS)
"""SQL that selects the parts of a key from a file under their names in frames."""

VALUES, EVENT_BUCKET, CHANGED_BY = orc.ROW, orc.BUCKET, orc.CURRENT_TRANSACTION
"""The root columns with a row's values, its bucket property, and the write id of its event."""

NO_FIELD = "__no_field"
"""A field of `row` that no file can have: NULL in every row, and nothing to decode."""


def key_fields(nullable: bool = True) -> list[T.StructField]:
    """The fields of KEYS in the schema of a frame."""
    kinds = (T.LongType(), T.IntegerType(), T.LongType())
    return [T.StructField(name, kind, nullable) for name, kind in zip(KEYS, kinds, strict=True)]


def row_id_type() -> T.StructType:
    """The type of the virtual column `row__id`."""
    return T.StructType(
        [
            T.StructField(part, field.dataType)
            for part, field in zip(ROW_ID_PARTS, key_fields(), strict=True)
        ]
    )


def event_schema(rows: T.StructType) -> T.StructType:
    """The schema to request for files whose `row` has the columns `rows`."""
    inner = T.StructType([*rows.fields, T.StructField(NO_FIELD, T.ByteType())])
    kinds = (T.IntegerType(), T.LongType(), T.IntegerType(), T.LongType(), T.LongType(), inner)
    return T.StructType(
        [T.StructField(name, kind) for name, kind in zip(orc.ACID_COLUMNS, kinds, strict=True)]
    )


def event_frame(spark: SparkSession, uris: Sequence[str], rows: T.StructType) -> DataFrame:
    """The events of files, whose `row` has the columns `rows`. Raises Spark's exceptions."""
    return file_frame(spark, "orc", uris, event_schema(rows))


def event_tests(
    uris: Sequence[str], operation: int, mark: str, condition: str | None = None
) -> list[str]:
    """SQL tests that each event of valid files passes: it has this operation and a complete key.

    An event that fails one, or `condition`, fails the job: the message is `mark`, the place and the
    operation, or -1 if that is right. Usually the first part of each test decides. No filter of a
    reader can imply them, so all six root columns stay in the scan. The first test does not use
    `row`: otherwise it would be applied after the reader's filters on values, which are NULL if the
    file is no ACID file. Its message is a literal except for the operation, since a file name would
    have to be computed for every row. Both are compiled into the loop over all rows, so shorter
    code is faster.
    """
    place = uris[0] if len(uris) == 1 else f"{commonpath(uris)} ({len(uris)} files)"
    keys = " | ".join(orc.ACID_COLUMNS[1:5])
    complete = f"coalesce({orc.OPERATION} | (({keys}) & 0), -1) = {operation}"
    if condition:
        complete = f"({complete} AND {condition})"
    wrong = f"if({orc.OPERATION} <> {operation}, {orc.OPERATION}, -1)"
    error = f"concat({sql_string(f'{mark} {place}: ')}, {wrong})"
    return [
        f"({complete} OR CAST(raise_error({error}) AS boolean))",
        f"(coalesce({orc.BUCKET}, -1) >= -1 OR {orc.ROW}.{NO_FIELD} IS NULL)",
    ]


def never_pushed(name: str) -> str:
    """SQL of a root column for a filter that must stay in Spark.

    For a plain comparison Spark pushes down at least `IS NOT NULL`, and ORC looks for a column of
    that name inside `row`. If the user has such a column (`operation`, `bucket`), rows with NULL
    there would be lost.
    """
    return f"coalesce({name}, -1)"
