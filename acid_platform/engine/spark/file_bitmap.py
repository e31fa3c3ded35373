"""Delete events as a bitmap for each file, where all rows of a file have one key but for the rowId
(P14).

Every file that a statement wrote is such a file. A scan decodes no key of it but the rowId, and the
file's place in the bitmaps follows from the file's size, which Spark knows without decoding. So the
sizes of files with deleted rows must be unique in the scan.

No number of a snapshot is in the code that Spark compiles for the scan. So the JVM runs the code
that it has optimised for scans of earlier snapshots, while each new code is interpreted at first,
which takes several times as long.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import ClassVar

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from acid_platform.engine.spark.cache import kept
from acid_platform.engine.spark.delete_bitmap import MAX_WORDS, is_set, scalar, word_of_row
from acid_platform.engine.spark.failures import OTHER_SIZE
from acid_platform.engine.spark.row_keys import FILE_SIZE
from acid_platform.layout.sql_text import sql_string
from acid_platform.snapshot.sources import Source
from acid_platform.storage.deletes import DeleteKeys

MAX_FILES = 64
"""A file is found by comparing the sizes one after another, those of large files first."""

_NOWHERE = -(1 << 62)
"""The place of a file without deleted rows."""


@dataclass(frozen=True, slots=True, eq=False)
class FileBitmap:
    """Bitmaps of files. Bit n & 63 of word n >> 6 plus the file's place is the row with rowId n."""

    sizes: np.ndarray
    """int64 (f,), those of large files first."""
    places: np.ndarray
    """int64 (f,)"""
    words: np.ndarray

    helper: ClassVar[str] = FILE_SIZE
    """The column that the test needs besides the rowId."""

    @classmethod
    def build(cls, files: Sequence[tuple[DeleteKeys, Source]]) -> FileBitmap | None:
        """The bitmaps of all files of a scan, each with the deleted keys of its entity.

        None if a file's recorded keys differ in more than the rowId, if sizes don't tell the files
        apart, or if there are too many files or rowIds.
        """
        if len(files) > MAX_FILES:
            return None
        total, pieces = 0, []
        places: dict[int, int] = {}
        number_of = Counter(source.size for _, source in files)
        for deletes, source in sorted(files, key=lambda pair: -pair[1].size):
            if source.keys is None:
                if source.rows == 0:
                    places.setdefault(source.size, _NOWHERE)
                    continue
                return None
            (write_id, last_id), (bucket, last_bucket) = source.keys.write_ids, source.keys.buckets
            if write_id != last_id or bucket != last_bucket:
                return None
            low, high = source.keys.row_ids
            gone = deletes.of_group(write_id, bucket)
            gone = gone[slice(*np.searchsorted(gone, [low, high + 1]))]
            if not len(gone):
                places.setdefault(source.size, _NOWHERE)
                continue
            begin, count = low >> 6, (high >> 6) - (low >> 6) + 1
            if number_of[source.size] > 1 or total + count > MAX_WORDS:
                return None
            bits = np.zeros(count, np.uint64)
            np.bitwise_or.at(
                bits, (gone >> 6) - begin, np.uint64(1) << (gone & 63).astype(np.uint64)
            )
            places[source.size] = total - begin
            total += count
            pieces.append(bits)
        if not pieces:
            return None
        return cls(
            np.array(list(places), np.int64),
            np.array(list(places.values()), np.int64),
            np.concatenate(pieces).view(np.int64),
        )

    def deleted(self, spark: SparkSession) -> Column:
        """A column that says whether a row of the scan is deleted; never NULL.

        A row of a file of another size fails the job (OTHER_SIZE).
        """
        arrays = (self.sizes, self.places, self.words)
        key = ("files", *(blake2b(array.tobytes()).digest() for array in arrays))
        return kept(spark, key, sum(array.nbytes for array in arrays), lambda: self.test(spark))

    def test(self, spark: SparkSession) -> Column:
        """What `deleted` answers, built anew."""
        sizes, places = (pa.array(values, pa.int64()) for values in (self.sizes, self.places))
        known = scalar(spark, pa.MapArray.from_arrays([0, len(sizes)], sizes, places))
        unknown = F.expr(f"CAST(raise_error({sql_string(OTHER_SIZE)}) AS bigint)")
        place = F.coalesce(F.try_element_at(known, F.col(FILE_SIZE)), unknown)
        index = F.greatest(word_of_row() + place, F.lit(-1).cast("bigint")).cast("int")
        return is_set(spark, self.words, index)
