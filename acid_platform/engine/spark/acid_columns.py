"""Which of the six ACID columns a scan decodes.

ORC recognises files with the six ACID columns. If the requested root schema does not have the six
names too, ORC wraps it a second time and fails, so every scan requests all six (F24). But ORC
compares the names by `equalsIgnoreCase`, for which the dotless i (U+0131) is an i, while Spark and
ORC look up the columns of a file by their lower case, where the two letters differ. So a column
whose name is spelled with a dotless i is requested and not found: nothing is decoded, and it is
NULL in every row. `bucket` has no i, and is always decoded.

Columns are left out only for files whose recorded statistics show that all rows are insert events
with complete keys, since the decoded columns are what each row is tested by otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from posixpath import commonpath
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession
from pyspark.sql import types as T

from acid_platform.engine.spark.failures import NO_INSERT
from acid_platform.engine.spark.few_calls import java_class
from acid_platform.engine.spark.row_keys import BUCKET, ROW_ID, WRITE_ID
from acid_platform.engine.spark.spark_types import event_schema
from acid_platform.layout import schema
from acid_platform.layout.sql_text import sql_string

NO_FIELD = "__no_field"
"""A field of `row` that no file can have: NULL in every row, and nothing to decode."""

KEY_COLUMNS = (schema.ORIGINAL_TRANSACTION, schema.BUCKET, schema.ROW_ID)
_IDS = schema.ACID_COLUMNS[:5]


@dataclass(frozen=True, slots=True)
class AcidColumns:
    """The root columns that a scan decodes besides `row`; the others are NULL in every row."""

    decoded: frozenset[str] = frozenset(_IDS)
    write_id: int | None = None
    """The write id of all rows, if it is known: then `originalTransaction` is not needed."""

    @property
    def complete(self) -> bool:
        return len(self.decoded) == len(_IDS)

    def schema(self, rows: T.StructType) -> T.StructType:
        """The schema to request for files whose `row` has the columns `rows`."""
        inner = T.StructType([*rows.fields, T.StructField(NO_FIELD, T.ByteType())])
        requested = event_schema(inner)
        return T.StructType(
            [T.StructField(self._name(field.name), field.dataType) for field in requested]
        )

    def keys(self) -> tuple[str, str, str]:
        """SQL that selects the row keys under their names in frames."""
        write_id = schema.ORIGINAL_TRANSACTION if self.write_id is None else f"{self.write_id}L"
        return (
            f"{write_id} AS {WRITE_ID}",
            f"{schema.BUCKET} AS {BUCKET}",
            f"{schema.ROW_ID} AS {ROW_ID}",
        )

    def tests(self, uris: Sequence[str]) -> list[str]:
        """SQL tests that hold for every row of a valid file: it is an insert with a complete key.

        Usually the first part of each decides. No filter of a reader can imply them, so all six
        root columns stay in the scan. The first test does not use `row`: otherwise it would be
        applied after the reader's filters on values, which are NULL if the file is no ACID file.
        Its message is a literal except for the operation, since a file name would have to be
        computed for every row. Both are compiled into the loop over all rows, so shorter code is
        faster.
        """
        where = uris[0] if len(uris) == 1 else f"{commonpath(uris)} ({len(uris)} files)"
        message = f"{NO_INSERT} {where}: "
        others: list[str] = []
        if self.complete:
            keys = " | ".join(schema.ACID_COLUMNS[1:5])
            whole = f"coalesce({schema.OPERATION} | (({keys}) & 0), -1) = {schema.INSERT_EVENT}"
            wrong = f"if({schema.OPERATION} <> {schema.INSERT_EVENT}, {schema.OPERATION}, -1)"
            error = f"concat({sql_string(message)}, {wrong})"
        else:
            keys = " | ".join(name for name in _IDS if name in self.decoded)
            whole = f"coalesce({keys}, -1) >= 0"
            error = sql_string(f"{message}-1")
            others = [f"`{_unfound(name)}`" for name in _IDS if name not in self.decoded]
        absent = " | ".join([*others, f"{schema.ROW}.{NO_FIELD}"])
        return [
            f"({whole} OR CAST(raise_error({error}) AS boolean))",
            f"(coalesce({schema.BUCKET}, -1) >= -1 OR ({absent}) IS NULL)",
        ]

    def _name(self, column: str) -> str:
        return column if column in self.decoded or column == schema.ROW else _unfound(column)


ALL = AcidColumns()


def some(needed: frozenset[str], write_id: int | None) -> AcidColumns:
    """Only the `needed` columns, and those that can't be left out.

    `write_id`: the write id of all rows, if they have one.
    """
    if write_id is not None:
        needed -= {schema.ORIGINAL_TRANSACTION}
    always = {name for name in _IDS if _unfound(name) == name}
    return AcidColumns(needed | always, write_id)


def _unfound(column: str) -> str:
    """A name that ORC takes for this one in a requested schema, and does not find in a file."""
    return column.replace("i", "\u0131").replace("I", "\u0131")


def can_leave_out(spark: SparkSession) -> bool:
    """Whether the ORC of this session takes the names as described above. Needs its JVM."""
    if spark not in _LEAVES_OUT:
        _LEAVES_OUT[spark] = hasattr(spark, "_jsparkSession") and _recognised(spark)
    return _LEAVES_OUT[spark]


_LEAVES_OUT: WeakKeyDictionary[SparkSession, bool] = WeakKeyDictionary()


def _recognised(spark: SparkSession) -> bool:
    fields = ",".join(f"`{_unfound(name)}`:int" for name in schema.ACID_COLUMNS)
    described = java_class(spark, "org.apache.orc.TypeDescription").fromString(f"struct<{fields}>")
    return bool(java_class(spark, "org.apache.orc.impl.SchemaEvolution").checkAcidSchema(described))
