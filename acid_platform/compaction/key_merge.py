"""Events of several ACID files in key order, streamed through Arrow batch by batch.

Keys are (originalTransaction, bucket property, rowId). Where files do not overlap, batches pass
through as they are; where they do, each piece ends at the smallest last key of the batches in hand.
Memory: two batches for each file that overlaps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter

import numpy as np
import pyarrow as pa

from acid_platform.formats.orc import open_orc, reading
from acid_platform.layout import schema
from acid_platform.layout.schema import RowKey, ascend
from acid_platform.scan.deletes import require_operation
from acid_platform.scan.source_files import SourceFile, SourceKind
from acid_platform.storage.files import Files
from acid_platform.write.row_events import insert_events


@dataclass(frozen=True, slots=True)
class Decoding:
    """How the events of the files are read."""

    delete_events: bool = False
    """All files hold delete events; otherwise all hold insert events."""
    timestamps: str = "ns"
    """Unit of timestamps: `ns` is fast, `us` also holds years after 2262."""


_UNCHECKED = {schema.RAW_TEXT: "perhaps"}


def has_checked_text(batch: pa.RecordBatch) -> bool:
    """Whether it is known of a batch of `event_batches` that its texts are UTF-8."""
    return schema.RAW_TEXT.encode() not in (batch.schema.metadata or {})


def _keys(batch: pa.RecordBatch) -> tuple[np.ndarray, ...]:
    """originalTransaction, bucket, rowId, currentTransaction of a batch of five or six columns."""
    return tuple(
        batch.column(1 + i).to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
        for i in range(4)
    )


def event_batches(
    files: Files, source: SourceFile, decoding: Decoding, keys_only: bool = False
) -> Iterator[pa.RecordBatch]:
    """The six ACID columns of all events in file order, or the first five with `keys_only`.

    Raises CorruptFile, UnsupportedLayout for events of another operation, CompactionRefused for
    Gregorian days before 1582, and WideTimestamps.
    """
    path, raw = source.path, source.kind is SourceKind.RAW
    with reading(path):
        file = open_orc(files, path, source.length)
        if raw:
            columns = list(file.schema.names)[: 1 if keys_only else None]
        else:
            columns = file.acid_columns()[: 5 if keys_only else 6]
    operation = schema.DELETE_EVENT if decoding.delete_events else schema.INSERT_EVENT
    decoded = file.batches(columns, decoding.timestamps)
    row_id = source.first_row_id
    while True:
        with reading(path):
            batch = next(decoded, None)
        if batch is None:
            return
        if not batch.num_rows:
            continue
        if raw:
            rows = pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema))
            batch = insert_events(rows, source.write_id, source.bucket, row_id)
            row_id += batch.num_rows
        file.refuse_gregorian(batch)
        require_operation(batch.column(0).to_numpy(zero_copy_only=False), operation, path)
        yield batch if file.has_checked_text else batch.replace_schema_metadata(_UNCHECKED)


def _last(keys: tuple[np.ndarray, ...]) -> RowKey:
    return int(keys[0][-1]), int(keys[1][-1]), int(keys[2][-1])


def _not_above(keys: tuple[np.ndarray, ...], bound: RowKey) -> int:
    """How many of the sorted keys are at or below `bound`."""
    w, b, r = keys[:3]
    within_bucket = (b < bound[1]) | ((b == bound[1]) & (r <= bound[2]))
    return int(np.count_nonzero((w < bound[0]) | ((w == bound[0]) & within_bucket)))


class SortedFile:
    """The batches of one file in key order; holds one batch at a time.

    Opening it reads all keys once: `buckets` are the bucket properties of its rows. Raises what
    `event_batches` raises.
    """

    def __init__(self, files: Files, source: SourceFile, decoding: Decoding) -> None:
        self.files, self.source, self.decoding = files, source, decoding
        self.first: RowKey | None = None
        self.ascending = True
        self.buckets: set[int] = set()
        previous: RowKey | None = None
        for batch in event_batches(files, source, decoding, keys_only=True):
            w, b, r, _ = _keys(batch)
            self.buckets |= {int(b[0])} if b.min() == b.max() else set(np.unique(b).tolist())
            at, end = 0, len(r) - 1
            if not ascend(w, b, r):
                order = np.lexsort((r, b, w))
                self.ascending &= bool((np.diff(order) > 0).all())
                at, end = order[0], order[-1]
            least = int(w[at]), int(b[at]), int(r[at])
            self.ascending &= previous is None or previous <= least
            previous = int(w[end]), int(b[end]), int(r[end])
            self.first = least if self.first is None else min(self.first, least)
        self.batches: Iterator[pa.RecordBatch] = iter(())
        self.batch: pa.RecordBatch | None = None
        self.keys: tuple[np.ndarray, ...] = ()

    def start(self) -> None:
        self.batches = event_batches(self.files, self.source, self.decoding)
        if not self.ascending:  # older compactions sorted by bucket first: sort the whole file
            table = pa.Table.from_batches(list(self.batches)).combine_chunks()
            batch = table.to_batches()[0]
            w, b, r, _ = _keys(batch)
            self.batches = iter([batch.take(pa.array(np.lexsort((r, b, w))))])
        self.fill()

    def fill(self) -> None:
        self.batch = next(self.batches, None)
        self.keys = _keys(self.batch) if self.batch is not None else ()

    def take(self, bound: RowKey) -> tuple[pa.RecordBatch, tuple[np.ndarray, ...]] | None:
        """The next rows at or below `bound`, and their keys; None if the batch has none."""
        assert self.batch is not None
        count = _not_above(self.keys, bound)
        if not count:
            return None
        taken = self.batch.slice(0, count), tuple(k[:count] for k in self.keys)
        if count == self.batch.num_rows:
            self.fill()
        else:
            self.batch = self.batch.slice(count)
            self.keys = tuple(k[count:] for k in self.keys)
        return taken


def merged_pieces(
    files: Sequence[SortedFile],
) -> Iterator[list[tuple[pa.RecordBatch, tuple[np.ndarray, ...], SourceFile]]]:
    """A k-way merge in pieces in key order: each is a list of (batch, its keys, its file), still to
    be merged.

    All keys of a piece are below those of the next one.
    """
    waiting = sorted(
        ((file.first, file) for file in files if file.first is not None),
        key=itemgetter(0),
        reverse=True,
    )
    active: list[SortedFile] = []
    while waiting or active:
        bound = min((_last(file.keys) for file in active), default=None)
        while waiting and (bound is None or waiting[-1][0] <= bound):
            _, file = waiting.pop()
            file.start()
            active.append(file)
            bound = min(_last(each.keys) for each in active)
        assert bound is not None
        group = []
        for file in active:
            taken = file.take(bound)
            if taken:
                group.append((*taken, file.source))
        active = [file for file in active if file.batch is not None]
        yield group
