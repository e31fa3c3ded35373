"""The keys of rows in frames: where files have them, and which of them are deleted.

ORC recognises files with the six ACID columns. If the requested root schema does not have the six
names too, ORC wraps it a second time and fails. So every scan by Spark's own reader requests all
six, and tests each row by all of them (F24).

A row is identified by (partition directory, write id, bucket property, rowId). The first three form
a group (P14). A scan tests each row by bitmaps: that of a group has one bit for each rowId from the
lowest to the highest deleted one. All bitmaps of a scan are in one array of 64-bit words. A table
indexed by (partition, write id, property) finds a group's words, so a row costs a few array loads
however many deletes there are. Where bitmaps would be too large, or more keys are deleted than one
process should hold, the rows are joined with the keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from posixpath import commonpath

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from acid_platform.engine.spark.failures import NO_DELETE
from acid_platform.engine.spark.few_calls import cached, file_frame, selected, sent
from acid_platform.formats import orc
from acid_platform.formats.data_file import DELETE_EVENT
from acid_platform.layout.acid_keys import ROW_ID_COLUMN, codec_in_sql
from acid_platform.layout.sql_text import sql_string
from acid_platform.scan.deletes import NO_DELETES, DeleteKeys, UnreadKeys
from acid_platform.scan.scans import Scan
from acid_platform.scan.source_files import SourceFile
from acid_platform.transactions import ValidWriteIdList

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
    shown = uris[0] if len(uris) == 1 else f"{commonpath(uris)} ({len(uris)} files)"
    keys = " | ".join(orc.ACID_COLUMNS[1:5])
    complete = f"coalesce({orc.OPERATION} | (({keys}) & 0), -1) = {operation}"
    if condition:
        complete = f"({complete} AND {condition})"
    wrong = f"if({orc.OPERATION} <> {operation}, {orc.OPERATION}, -1)"
    error = f"concat({sql_string(f'{mark} {shown}: ')}, {wrong})"
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


MAX_WORDS = 1 << 23
"""64 MB of bitmap; with more words, or more slots, the scan uses a join instead."""

FEW_GROUPS = 8
"""Up to so many groups are compared one after another; more are found through the table."""

_BLOCK = 1 << 4
_ALIGNED = MAX_WORDS // (4 * FEW_GROUPS)
"""Words. The bitmaps of few groups begin at a multiple of `_BLOCK` and are a power of two long,
unless they are longer than `_ALIGNED`. Spark compiles these numbers into the code of a scan. So the
scan after another DELETE of the same files usually has the same code, which the JVM has optimised.
"""


@dataclass(frozen=True, slots=True)
class DeleteBitmap:
    """Bitmaps of several entities, which are indexed by their ordinal in the scan."""

    words: np.ndarray
    starts: np.ndarray  # by slot: index of the group's first word, -1 where it has none
    lows: np.ndarray  # by slot: first rowId >> 6
    spans: np.ndarray  # by slot: number of words
    low_write_id: int
    write_id_span: int
    properties: tuple[int, ...]

    @classmethod
    def build(cls, entities: Sequence[DeleteKeys]) -> DeleteBitmap | None:
        """The bitmap, or None if it would be too large, so that a join is better."""
        properties = sorted({int(p) for keys in entities for p in np.unique(keys.buckets)})
        low = min(int(keys.write_ids[0]) for keys in entities if len(keys))
        high = max(int(keys.write_ids[-1]) for keys in entities if len(keys))
        span = high - low + 1
        slots = len(entities) * span * len(properties)
        if slots > MAX_WORDS:
            return None
        starts, lows, spans = np.full(slots, -1), np.zeros(slots, np.int64), np.zeros(slots, int)
        pieces: list[np.ndarray] = []
        total = 0
        groups: list[tuple[int, DeleteKeys]] = []
        for ordinal, keys in enumerate(entities):
            for group in keys.groups():
                slot = (ordinal * span + int(group.write_ids[0]) - low) * len(properties)
                groups.append((slot + properties.index(int(group.buckets[0])), group))
        for at, keys in groups:
            word = keys.words
            begin, count = int(word[0]), int(word[-1] - word[0]) + 1
            if len(groups) <= FEW_GROUPS and count <= _ALIGNED:
                begin &= -_BLOCK
                count = max(_BLOCK, 1 << (int(word[-1]) - begin).bit_length())
            total += count
            if total > MAX_WORDS:
                return None
            bits = np.zeros(count, np.uint64)
            bits[word - begin] = keys.bits
            starts[at], lows[at], spans[at] = total - count, begin, count
            pieces.append(bits)
        words = np.concatenate(pieces).view(np.int64)
        return cls(words, starts, lows, spans, low, span, tuple(properties))

    def deleted(self, spark: SparkSession, ordinal: str) -> Column:
        """A column that says whether a row of the scan is deleted; never NULL.

        `ordinal` names the column with the entity's ordinal. The arrays are uncorrelated scalar
        subqueries of the plan: evaluated once, after which each test is an array load.
        """
        arrays = (self.words, self.starts, self.lows, self.spans)
        key = (
            ordinal,
            self.low_write_id,
            self.write_id_span,
            self.properties,
            *(blake2b(array.tobytes()).digest() for array in arrays),
        )
        size = sum(array.nbytes for array in arrays)
        return cached(spark, key, size, lambda: self.test(spark, ordinal))

    def test(self, spark: SparkSession, ordinal: str) -> Column:
        """What `deleted` answers, built anew."""
        groups = np.flatnonzero(self.starts >= 0)
        few = len(groups) <= FEW_GROUPS
        index = self._by_group(ordinal, groups) if few else self._by_slot(spark, ordinal)
        bits = F.coalesce(F.get(_scalar(spark, self.words), index), F.lit(0))
        hit = F.call_function("shiftrightunsigned", bits, F.expr(f"CAST({_ROW} & 63 AS int)"))
        return hit.bitwiseAND(F.lit(1)) == 1

    def _by_group(self, ordinal: str, groups: np.ndarray) -> Column:
        """The index of a row's word, else -1: a comparison per group, the largest group first."""
        # Not how many entities have deletes: a row of any other may have the same key (P14).
        several = len(self.starts) > self.write_id_span * len(self.properties)
        cases = []
        for slot in sorted(groups.tolist(), key=lambda index: -int(self.spans[index])):
            rest, position = divmod(slot, len(self.properties))
            entity, write_id = divmod(rest, self.write_id_span)
            low, start = int(self.lows[slot]), int(self.starts[slot])
            same = (
                f"{_WRITE} = {self.low_write_id + write_id}"
                f" AND {_PROPERTY} = {self.properties[position]}"
                f" AND {_WORD} >= {low} AND {_WORD} < {low + int(self.spans[slot])}"
            )
            if several:
                same = f"{ordinal} = {entity} AND {same}"
            cases.append(f"WHEN {same} THEN {_WORD} + {start - low}")
        return F.expr(f"CAST(CASE {' '.join(cases)} ELSE -1 END AS int)")

    def _by_slot(self, spark: SparkSession, ordinal: str) -> Column:
        """SQL that tests rows by a table with an entry for every (entity, write id, property)."""
        high = self.low_write_id + self.write_id_span - 1
        properties = ", ".join(map(str, self.properties))
        property_index = f"(array_position(array({properties}), {_PROPERTY}) - 1)"
        slot = F.expr(
            f"CASE WHEN {_WRITE} >= {self.low_write_id} AND {_WRITE} <= {high}"
            f" AND {_PROPERTY} IN ({properties})"
            f" THEN CAST(({ordinal} * {self.write_id_span} + {_WRITE} - {self.low_write_id})"
            f" * {len(self.properties)} + {property_index} AS int) END"
        )
        word = F.expr(_WORD) - F.get(_scalar(spark, self.lows), slot)
        covered = (word >= 0) & (word < F.get(_scalar(spark, self.spans), slot))
        index = F.get(_scalar(spark, self.starts), slot) + word
        return F.when(covered, index.cast("int"))


_WRITE, _PROPERTY, _ROW = (f"coalesce({name}, -1)" for name in (WRITE_ID, BUCKET, ROW_ID))
_WORD = f"shiftright({_ROW}, 6)"
"""Keys are never NULL; if Spark knows that, it generates 40% less code for the test."""


def _scalar(spark: SparkSession, values: np.ndarray) -> Column:
    # Spark tests each access to an array that may have NULLs.
    kind = pa.list_(pa.field("element", pa.int64(), nullable=False))
    column = pa.ListArray.from_arrays([0, len(values)], pa.array(values, pa.int64()), type=kind)
    return spark.createDataFrame(pa.table({"a": column})).scalar()


def _keys_frame(spark: SparkSession, entities: Sequence[DeleteKeys]) -> DataFrame:
    """All keys for the anti join: columns e (entity ordinal), w, b, r."""
    kinds = {"e": np.int32, "w": np.int64, "b": np.int32, "r": np.int64}
    parts = [
        (np.full(len(part[0]), ordinal), *part)
        for ordinal, keys in enumerate(entities)
        for part in keys.parts()
    ]
    columns = map(np.concatenate, zip(*parts, strict=True))
    named = zip(kinds.items(), columns, strict=True)
    return spark.createDataFrame(
        pa.table({name: values.astype(kind) for (name, kind), values in named})
    )


@dataclass(frozen=True, slots=True)
class ReadRows:
    """Rows of valid write ids, as a reader gives them."""

    frame: DataFrame
    keys: bool
    """Whether the frame has KEYS."""
    deleted: DeleteBitmap | DataFrame | None = None
    """What tells the deleted rows that are still in the frame: a bitmap, or `deleted_keys`; None:
    there are none left. Otherwise the frame has KEYS and ENTITY."""

    def live(self, spark: SparkSession) -> DataFrame:
        """The frame without deleted rows."""
        if self.deleted is None:
            return self.frame
        if isinstance(self.deleted, DeleteBitmap):
            return self.frame.filter(~self.deleted.deleted(spark, ENTITY))
        same = (
            (F.col(WRITE_ID) == self.deleted["w"])
            & (F.col(BUCKET) == self.deleted["b"])
            & (F.col(ROW_ID) == self.deleted["r"])
            & (F.col(ENTITY) == self.deleted["e"])
        )
        return self.frame.join(self.deleted, same, "left_anti")


def deleted_keys(spark: SparkSession, scan: Scan) -> DataFrame:
    """The deleted keys of a scan, for a join: ordinal of the entity as e, then w, b, r."""
    unread = [isinstance(entity.deletes, UnreadKeys) for entity in scan.entities]
    keys = _keys_frame(
        spark,
        [
            NO_DELETES if late else entity.deletes
            for entity, late in zip(scan.entities, unread, strict=True)
        ],
    )
    for ordinal, (entity, late) in enumerate(zip(scan.entities, unread, strict=True)):
        if late:
            uris = [scan.files.uri(source.path) for source in entity.sources.deletes]
            valid = valid_events(scan.write_ids)
            keys = keys.union(deleted_in_files(spark, uris, valid, ordinal))
    # Not by a broadcast, which the driver would have to hold.
    return keys.hint("merge") if any(unread) else keys


def deleted_in_files(
    spark: SparkSession, uris: Sequence[str], valid: Sequence[str], ordinal: int
) -> DataFrame:
    """The keys that delete events delete, as Spark's tasks read them: `ordinal` as e, then w, b, r.

    For more events than one process should hold. Keys may come several times. `valid` are SQL tests
    of events; those that fail one don't count. A row that is no delete event, or lacks a part of
    its key, fails the job (NO_DELETE), also if it does not count.
    """
    events = event_frame(spark, uris, T.StructType([]))
    codec = f"{codec_in_sql(EVENT_BUCKET)} <= 1"
    tests = [*event_tests(uris, DELETE_EVENT, NO_DELETE, codec), *valid]
    return selected(
        events.filter(sent(spark, " AND ".join(tests))),
        [f"{ordinal} AS e", *keys_as("w", "b", "r")],
    )


def valid_events(write_ids: ValidWriteIdList, column: str = CHANGED_BY) -> list[str]:
    """SQL tests of events: the snapshot sees the write id in the column."""
    current = never_pushed(column)
    tests = [f"{current} <= {write_ids.high_watermark}"]
    if excepted := sorted({*write_ids.open, *write_ids.aborted}):
        tests.append(f"{current} NOT IN ({', '.join(map(str, excepted))})")
    return tests


def may_have_deleted_rows(deletes: DeleteKeys, source: SourceFile) -> bool:
    """Whether the keys may delete rows of a file, as far as its name and its statistics tell."""
    if isinstance(deletes, UnreadKeys):
        return source.low <= deletes.newest
    if source.keys is None:
        return deletes.may_touch(source.low, source.high, source.number)
    (low, high), (bucket, last) = source.keys.write_ids, source.keys.buckets
    if low == high and bucket == last:
        return deletes.within(low, bucket, *source.keys.row_ids) > 0
    return deletes.may_touch(low, high, source.number)
