"""Delete events that Spark's tasks read, since there are more than one process should hold."""

from __future__ import annotations

from collections.abc import Sequence
from posixpath import commonpath

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from acid_platform.engine.spark.acid_columns import ALL, NO_FIELD
from acid_platform.engine.spark.failures import NO_DELETE
from acid_platform.engine.spark.few_calls import orc_frame, selected, sent
from acid_platform.engine.spark.source_frames import COMPLETE
from acid_platform.layout import schema
from acid_platform.layout.rowids import codec_in_sql
from acid_platform.layout.sql_text import sql_string


def deleted_in_files(
    spark: SparkSession, uris: Sequence[str], valid: Sequence[str], ordinal: int
) -> DataFrame:
    """The keys that the events in these files delete: `ordinal` as e, then w, b, r.

    Keys may come several times. `valid` are SQL tests of events; those that fail one don't count.
    A row that is no delete event, or lacks a part of its key, fails the job (NO_DELETE), also if
    it does not count.
    """
    events = orc_frame(spark, uris, ALL.schema(T.StructType([])), COMPLETE)
    where = uris[0] if len(uris) == 1 else f"{commonpath(uris)} ({len(uris)} files)"
    keys = " | ".join(schema.ACID_COLUMNS[1:5])
    # Refers to all six columns, as every scan of these files must; see `AcidColumns.tests`.
    whole = f"coalesce({schema.OPERATION} | (({keys}) & 0), -1) = {schema.DELETE_EVENT}"
    codec = f"{codec_in_sql(schema.BUCKET)} <= 1"
    wrong = f"if({schema.OPERATION} <> {schema.DELETE_EVENT}, {schema.OPERATION}, -1)"
    error = f"concat({sql_string(f'{NO_DELETE} {where}: ')}, {wrong})"
    tests = [
        f"(({whole} AND {codec}) OR CAST(raise_error({error}) AS boolean))",
        f"(coalesce({schema.BUCKET}, -1) >= -1 OR {schema.ROW}.{NO_FIELD} IS NULL)",
        *valid,
    ]
    return selected(
        events.filter(sent(spark, " AND ".join(tests))),
        [
            f"{ordinal} AS e",
            f"{schema.ORIGINAL_TRANSACTION} AS w",
            f"{schema.BUCKET} AS b",
            f"{schema.ROW_ID} AS r",
        ],
    )
