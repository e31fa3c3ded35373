"""Bitmaps by file: which scans may use them, and that they find exactly the deleted rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from acid_platform.engine.spark import file_bitmap
from acid_platform.engine.spark.file_bitmap import FileBitmap
from acid_platform.snapshot.ranges import KeyRanges
from acid_platform.snapshot.sources import Source, SourceKind
from acid_platform.storage.deletes import NO_DELETES, DeleteKeys

P = 1 << 29


def source(size: int, write_id: int, rows: tuple[int, int], bucket: int = P) -> Source:
    keys = KeyRanges((write_id, write_id), (bucket, bucket), rows)
    return Source(f"f{size}", SourceKind.ACID, size, "d", write_id, write_id, keys=keys)


def deletes(*keys: tuple[int, int, int]) -> DeleteKeys:
    return DeleteKeys(*np.array(sorted(keys), np.int64).reshape(-1, 3).T)


def found(bitmap: FileBitmap, size: int, rows: range) -> list[int]:
    """The deleted ones of the rows, as the SQL test finds them."""
    place = int(bitmap.places[bitmap.sizes.tolist().index(size)])
    gone = []
    for row in rows:
        index = max((row >> 6) + place, -1)
        word = int(bitmap.words[index]) if 0 <= index < len(bitmap.words) else 0
        if word >> (row & 63) & 1:
            gone.append(row)
    return gone


def test_P14_each_file_has_the_deleted_rows_of_its_own_write_id_bucket_and_entity() -> None:
    first = deletes((1, P, 0), (1, P, 63), (1, P, 64), (1, P + 1, 5), (2, P, 1000), (2, P, 5000))
    files = [
        (first, source(10, 1, (0, 99))),
        (first, source(40, 2, (1000, 4999))),  # not row 5000, which is in another file
        (first, source(30, 3, (0, 9))),
        (NO_DELETES, source(20, 1, (0, 99))),  # of another partition
        (deletes((1, P, 7)), source(50, 1, (0, 99))),
    ]
    bitmap = FileBitmap.build(files)
    assert bitmap is not None
    assert bitmap.sizes.tolist() == [50, 40, 30, 20, 10]
    assert found(bitmap, 10, range(100)) == [0, 63, 64]
    assert found(bitmap, 40, range(1000, 5000)) == [1000]
    assert found(bitmap, 50, range(100)) == [7]
    for size, rows in ((30, range(10)), (20, range(100))):
        assert found(bitmap, size, rows) == []


def test_P14_a_scan_whose_files_or_rows_are_not_told_apart_uses_the_other_bitmap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gone = deletes((1, P, 5))
    one, other = source(10, 1, (0, 9)), source(20, 2, (0, 9))
    assert one.keys is not None
    assert FileBitmap.build([(gone, one), (gone, other)]) is not None
    same_size = replace(other, size=10)
    assert FileBitmap.build([(gone, one), (gone, same_size)]) is None
    assert FileBitmap.build([(gone, one), (gone, other), (gone, replace(other, path="x"))])
    several = replace(other, keys=replace(one.keys, write_ids=(1, 2)))
    assert FileBitmap.build([(gone, one), (gone, several)]) is None
    buckets = replace(other, keys=replace(one.keys, buckets=(P, P + 1)))
    assert FileBitmap.build([(gone, one), (gone, buckets)]) is None
    assert FileBitmap.build([(gone, one), (gone, replace(other, keys=None))]) is None
    assert FileBitmap.build([(gone, one), (gone, replace(other, keys=None, rows=0))])
    assert FileBitmap.build([(gone, other)]) is None, "nothing is deleted"
    monkeypatch.setattr(file_bitmap, "MAX_FILES", 1)
    assert FileBitmap.build([(gone, one), (gone, other)]) is None
    monkeypatch.setattr(file_bitmap, "MAX_WORDS", 0)
    assert FileBitmap.build([(gone, one)]) is None
