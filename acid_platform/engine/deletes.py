"""Delete events as bitmaps that a scan tests row by row (spark.md section 2, P14, P15).

Identity is (partition directory, write id, bucket property, rowId). A group is the first three;
its bitmap has one bit per rowId from its lowest deleted one to its highest. All bitmaps of a scan
lie in one array of 64-bit words, found through a table addressed by (partition, write id,
property), so that a row costs a few array loads whatever the number of deletes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from acid_platform.layout import schema
from acid_platform.snapshot.directory import AcidDirectory
from acid_platform.storage.deletes import NO_DELETES, DeleteKeys, load_keys
from acid_platform.storage.files import Files
from acid_platform.storage.sources import resolve
from acid_platform.transactions import ValidWriteIdList

__all__ = ["NO_DELETES", "DeleteBitmap", "DeleteKeys", "keys_frame", "load_deletes"]

MAX_WORDS = 1 << 23
"""64 MB of bitmap; above it, or with as many slots, the scan joins instead."""


def load_deletes(
    files: Files, directory: AcidDirectory, write_ids: ValidWriteIdList
) -> DeleteKeys:
    """The keys that the snapshot's delete deltas delete in one entity; see `load_keys`."""
    return load_keys(files, resolve(files, directory).deletes, write_ids)


@dataclass(frozen=True, slots=True)
class DeleteBitmap:
    """Bitmaps of several entities, addressed by their ordinal in the scan."""

    words: np.ndarray
    starts: np.ndarray  # by slot: index of the group's first word, -1 where it has none
    lows: np.ndarray  # by slot: first rowId >> 6
    spans: np.ndarray  # by slot: number of words
    low_write_id: int
    write_id_span: int
    properties: tuple[int, ...]

    @classmethod
    def build(cls, entities: Sequence[DeleteKeys]) -> DeleteBitmap | None:
        """None when it would be too large, so that a join is better."""
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
        for ordinal, keys in enumerate(entities):
            if not len(keys):
                continue
            slot = ((ordinal * span + keys.write_ids - low) * len(properties)
                    + np.searchsorted(np.array(properties), keys.buckets))
            edges = np.flatnonzero(np.diff(slot, prepend=-1))
            for first, last in zip(edges, [*edges[1:], len(slot)], strict=True):
                word = keys.row_ids[first:last] >> 6
                count = int(word[-1] - word[0]) + 1
                total += count
                if total > MAX_WORDS:
                    return None
                bits = np.zeros(count, np.uint64)
                np.bitwise_or.at(bits, word - word[0],
                                 np.uint64(1) << (keys.row_ids[first:last] & 63).astype(np.uint64))
                at = slot[first]
                starts[at], lows[at], spans[at] = total - count, word[0], count
                pieces.append(bits)
        words = np.concatenate(pieces).view(np.int64)
        return cls(words, starts, lows, spans, low, span, tuple(properties))

    def deleted(self, spark: SparkSession, ordinal: Column) -> Column:
        """Whether a row of the raw scan is deleted; never NULL.

        `ordinal` is the row's entity. The arrays reach the plan as uncorrelated scalar subqueries:
        evaluated once, then each test is an array load.
        """
        def scalar(values: np.ndarray, kind: pa.DataType) -> Column:
            column = pa.array([values.tolist()], pa.list_(kind))
            return spark.createDataFrame(pa.table({"a": column})).scalar()

        write_id, bucket = F.col(schema.ORIGINAL_TRANSACTION), F.col(schema.BUCKET)
        row_id = F.col(schema.ROW_ID)
        position = F.array_position(F.array(*map(F.lit, self.properties)), bucket) - 1
        if len(self.properties) == 1:
            position = F.lit(0)
        slot = ((ordinal * self.write_id_span + write_id - self.low_write_id)
                * len(self.properties) + position).cast("int")
        inside = (write_id.between(self.low_write_id, self.low_write_id + self.write_id_span - 1)
                  & bucket.isin(*self.properties))
        word = F.shiftright(row_id, 6) - F.get(scalar(self.lows, pa.int64()), slot)
        covered = (word >= 0) & (word < F.get(scalar(self.spans, pa.int64()), slot))
        index = F.get(scalar(self.starts, pa.int64()), slot) + word
        bits = F.get(scalar(self.words, pa.int64()), index.cast("int"))
        bit = F.call_function(
            "shiftrightunsigned", bits, row_id.bitwiseAND(F.lit(63)).cast("int"))
        hit = bit.bitwiseAND(F.lit(1)) == 1
        return F.coalesce(F.when(inside, F.when(covered, hit)), F.lit(False))


def keys_frame(spark: SparkSession, entities: Sequence[DeleteKeys]) -> DataFrame:
    """All keys with their entity ordinal, for the anti join: columns e, w, b, r."""
    ordinals = np.concatenate([np.full(len(k), i, np.int32) for i, k in enumerate(entities)])
    return spark.createDataFrame(pa.table({
        "e": ordinals,
        "w": np.concatenate([k.write_ids for k in entities]),
        "b": np.concatenate([k.buckets for k in entities]).astype(np.int32),
        "r": np.concatenate([k.row_ids for k in entities]),
    }))

