"""Which rows may be deleted, and a scan without them, where its reader did not leave them out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from acid_platform.engine.spark.delete_bitmap import DeleteBitmap, keys_frame
from acid_platform.engine.spark.row_keys import BUCKET, ENTITY, ROW_ID, WRITE_ID
from acid_platform.engine.spark.source_frames import never_pushed
from acid_platform.engine.spark.unread_deletes import deleted_in_files
from acid_platform.layout import schema
from acid_platform.scan.deletes import NO_DELETES, DeleteKeys
from acid_platform.scan.kept_keys import UnreadKeys
from acid_platform.scan.scans import EntityScan, Scan
from acid_platform.scan.source_files import SourceFile
from acid_platform.transactions import ValidWriteIdList


@dataclass(frozen=True, slots=True)
class ReadRows:
    """Rows of valid write ids, as a reader gives them."""

    frame: DataFrame
    keys: bool
    """Whether the frame has KEYS."""
    deleted: DeleteBitmap | Sequence[EntityScan] | None = None
    """What tells the deleted rows that are still in the frame: a bitmap, or the entities whose keys
    are joined; None: there are none left. Otherwise the frame has KEYS and ENTITY."""

    def live(self, spark: SparkSession, scan: Scan) -> DataFrame:
        """The frame without deleted rows."""
        if self.deleted is None:
            return self.frame
        if isinstance(self.deleted, DeleteBitmap):
            return self.frame.filter(~self.deleted.deleted(spark, ENTITY))
        return _joined(spark, self.frame, scan, self.deleted)


def _joined(
    spark: SparkSession, frame: DataFrame, scan: Scan, group: Sequence[EntityScan]
) -> DataFrame:
    unread = [isinstance(entity.deletes, UnreadKeys) for entity in group]
    loaded = [NO_DELETES if late else one.deletes for one, late in zip(group, unread, strict=True)]
    gone = keys_frame(spark, loaded)
    for ordinal, (entity, late) in enumerate(zip(group, unread, strict=True)):
        if late:
            uris = [scan.files.uri(source.path) for source in entity.sources.deletes]
            valid = valid_events(scan.write_ids)
            gone = gone.union(deleted_in_files(spark, uris, valid, ordinal))
    if any(unread):  # not by a broadcast, which the driver would have to hold
        gone = gone.hint("merge")
    same = (
        (F.col(WRITE_ID) == gone["w"])
        & (F.col(BUCKET) == gone["b"])
        & (F.col(ROW_ID) == gone["r"])
        & (F.col(ENTITY) == gone["e"])
    )
    return frame.join(gone, same, "left_anti")


def valid_events(write_ids: ValidWriteIdList) -> list[str]:
    """SQL tests of events with ACID columns: the snapshot sees their currentTransaction."""
    current = never_pushed(schema.CURRENT_TRANSACTION)
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
