"""Rows that belong to partitions and buckets, put in order in bounded memory.

What does not fit into memory lies in a private file, sorted piece by piece (P59). So each bucket of
a partition gets one file, in the order in which its rows came, however many there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count, groupby, pairwise
from operator import itemgetter

import numpy as np
import pyarrow as pa

from acid_platform.base.first_use import ClosedAfter
from acid_platform.engine.local import engine
from acid_platform.engine.local.event_files import EventFiles, sorted_runs
from acid_platform.layout.bucketing import bucket_ids
from acid_platform.values.partition_texts import RowPartitions, texts_in
from acid_platform.values.row_streams import SpilledBatches
from acid_platform.write.publishing import WriteTarget
from acid_platform.write.task_files import file_rows, files_needed

_SORTED_BYTES = 1 << 27
"""How many bytes of rows are sorted at a time."""
_FILE_BYTES = 1 << 30
"""About how many bytes of rows a file gets at most, if a table without buckets may have another."""


class PlacedRows(ClosedAfter):
    """Takes rows with their partitions and buckets, then writes them; `with` removes what it kept.

    `buckets`, int64 (n,), are None for a table without buckets. Raises PublicationFailed, and what
    EventFiles raises.
    """

    def __init__(self, files: EventFiles) -> None:
        self._files = files
        self._held: list[tuple[pa.Table, RowPartitions, np.ndarray | None]] = []
        self._bytes = 0
        self._spilled: SpilledBatches | None = None
        self._numbers: dict[tuple[int, str], list[int]] = {}
        """The batches in the file, by bucket and partition."""

    def add(self, rows: pa.Table, places: RowPartitions, buckets: np.ndarray | None) -> None:
        self._held.append((rows, places, buckets))
        self._bytes += rows.nbytes
        if self._bytes >= _SORTED_BYTES:
            self._spill()

    def write(self) -> None:
        """Writes all rows."""
        if self._spilled is None:
            if self._held:
                self._files.insert(*self._together())
            return
        self._spill()
        next_ids: dict[int, int] = {}
        for bucket, partition in sorted(self._numbers, key=lambda key: (key[0], texts_in(key[1]))):
            batches = self._batches(self._numbers[bucket, partition])
            numbered: Iterable[tuple[int, pa.RecordBatch]] = ((bucket, each) for each in batches)
            if bucket == _NO_BUCKET:
                numbered = in_files(batches, None)
            for number, pieces in groupby(numbered, key=itemgetter(0)):
                first = next_ids.get(number, 0)
                rows = self._files.insert_run(
                    (piece for _, piece in pieces), partition, number, first
                )
                next_ids[number] = first + rows

    def _batches(self, numbers: Iterable[int]) -> Iterator[pa.RecordBatch]:
        assert self._spilled is not None
        for number in numbers:
            engine.check()
            yield self._spilled.read(number)

    def _together(self) -> tuple[pa.Table, RowPartitions, np.ndarray]:
        """The rows that are held; without buckets, numbers of files stand for them."""
        tables, places, buckets = zip(*self._held, strict=True)
        rows = pa.concat_tables(tables)
        if self._spilled is not None:
            numbers = [np.full(len(table), _NO_BUCKET) for table in tables]
        else:
            numbers = np.split(
                _file_numbers(len(rows)), np.cumsum([len(table) for table in tables])
            )
        given = [
            number if own is None else own for number, own in zip(numbers, buckets, strict=False)
        ]
        return rows, RowPartitions.joined(places), np.concatenate(given)

    def _spill(self) -> None:
        """Puts the rows that are held into the file, sorted."""
        if not self._held:
            return
        if self._spilled is None:
            self._spilled = SpilledBatches(self._held[0][0].schema)
        for bucket, partition, run in sorted_runs(*self._together()):
            numbers = self._numbers.setdefault((bucket, partition), [])
            numbers += map(self._spilled.add, run.combine_chunks().to_batches())
        self._held, self._bytes = [], 0

    def close(self) -> None:
        if self._spilled is not None:
            self._spilled.close()


_NO_BUCKET = -1


def buckets_of(values: pa.Table, target: WriteTarget) -> np.ndarray | None:
    """The bucket number of each row by Hive's hash, int64 (n,); None for a table without buckets.

    Raises InvalidDefinition for a bucket column that can't be hashed.
    """
    if target.buckets is None:
        return None
    kinds = {column.name: column.type for column in target.columns}
    names = target.buckets.columns
    return bucket_ids(
        [values.column(name).combine_chunks() for name in names],
        [kinds[name] for name in names],
        target.buckets.count,
        target.buckets.version,
    ).astype(np.int64)


def _file_numbers(rows: int) -> np.ndarray:
    """The number of the file of each row, int64 (n,)."""
    sizes = list(_sizes(rows))
    return np.repeat(np.arange(len(sizes)), sizes)


def _sizes(rows: int | None) -> Iterator[int]:
    """How many rows each file of a table without buckets gets, of so many rows; None: of an unknown
    number."""
    if rows is None:
        return map(file_rows, count())
    files = files_needed(rows)
    ends = [-(-number * rows // files) for number in range(files + 1)]
    return (end - start for start, end in pairwise(ends))


def in_files(
    batches: Iterable[pa.RecordBatch], rows: int | None
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The batches, divided where a file ends, each with the number of its file; `rows`: how many
    they have together, if that is known."""
    sizes = _sizes(rows)
    number, left, room = 0, next(sizes), _FILE_BYTES
    for batch in batches:
        while batch.num_rows:
            if not left or (rows is None and room <= 0):
                number, left, room = number + 1, next(sizes), _FILE_BYTES
            piece = batch.slice(0, left)
            yield number, piece
            left, room = left - len(piece), room - piece.nbytes
            batch = batch.slice(len(piece))
