"""Rows of several files in key order, streamed through Arrow batch by batch.

Where files do not overlap, batches pass through as they are; where they do, each piece ends at the
smallest last key of the batches in hand. Memory: two batches for each file that overlaps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter

import numpy as np

from acid_platform.formats.file_access import open_file, reading
from acid_platform.formats.keyed import Keyed, KeyRun, in_key_order
from acid_platform.layout.schema import RowKey, ascend
from acid_platform.scan.source_files import RowIdentity, SourceFile
from acid_platform.storage.files import Files


@dataclass(frozen=True, slots=True)
class Decoding:
    """How the rows of the files are read."""

    delete_events: bool = False
    """All files hold delete events; otherwise all hold inserted rows."""
    timestamps: str = "ns"
    """Unit of timestamps: `ns` is fast, `us` also holds years after 2262."""


def changes(
    files: Files, source: SourceFile, decoding: Decoding, values: bool = True
) -> Iterator[Keyed]:
    """All rows of a file with stored keys, in file order. Raises as `DataFile.changes`."""
    run = None
    if source.identity is RowIdentity.RUN:
        run = KeyRun(source.write_id, source.bucket, source.first_row_id)
    with reading(source.path):
        file = open_file(files, source)
    for rows in file.changes(run, decoding.delete_events, decoding.timestamps, values):
        yield rows.stored()


def _last(rows: Keyed) -> RowKey:
    w, b, r = rows.ids
    return int(w[-1]), int(b[-1]), int(r[-1])


def _not_above(rows: Keyed, bound: RowKey) -> int:
    """How many of the sorted keys are at or below `bound`."""
    w, b, r = rows.ids
    within_bucket = (b < bound[1]) | ((b == bound[1]) & (r <= bound[2]))
    return int(np.count_nonzero((w < bound[0]) | ((w == bound[0]) & within_bucket)))


class SortedFile:
    """The rows of one file in key order; holds one batch at a time.

    Opening it reads all keys once: `buckets` are the bucket properties of its rows. Raises what
    `changes` raises.
    """

    def __init__(self, files: Files, source: SourceFile, decoding: Decoding) -> None:
        self.files, self.source, self.decoding = files, source, decoding
        self.first: RowKey | None = None
        self.ascending = True
        self.buckets: set[int] = set()
        previous: RowKey | None = None
        for batch in changes(files, source, decoding, values=False):
            w, b, r = batch.ids
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
        self.batches: Iterator[Keyed] = iter(())
        self.batch: Keyed | None = None

    def start(self) -> None:
        self.batches = changes(self.files, self.source, self.decoding)
        if not self.ascending:  # older compactions sorted by bucket first: sort the whole file
            self.batches = in_key_order(list(self.batches))
        self.fill()

    def fill(self) -> None:
        self.batch = next(self.batches, None)

    def take(self, bound: RowKey) -> Keyed | None:
        """The next rows at or below `bound`; None if the batch has none."""
        assert self.batch is not None
        count = _not_above(self.batch, bound)
        if not count:
            return None
        taken = self.batch
        if count == len(taken):
            self.fill()
        else:
            taken, self.batch = taken.chosen(slice(0, count)), taken.chosen(slice(count, None))
        return taken


def merged_pieces(files: Sequence[SortedFile]) -> Iterator[list[tuple[Keyed, SourceFile]]]:
    """A k-way merge in pieces in key order: each is a list of rows and their file, still to be
    merged.

    All keys of a piece are below those of the next one.
    """
    waiting = sorted(
        ((file.first, file) for file in files if file.first is not None),
        key=itemgetter(0),
        reverse=True,
    )
    active: list[SortedFile] = []
    while waiting or active:
        bound = min((_last(file.batch) for file in active if file.batch), default=None)
        while waiting and (bound is None or waiting[-1][0] <= bound):
            _, file = waiting.pop()
            file.start()
            active.append(file)
            bound = min(_last(each.batch) for each in active if each.batch)
        assert bound is not None
        group = [(rows, file.source) for file in active if (rows := file.take(bound)) is not None]
        active = [file for file in active if file.batch is not None]
        yield group
