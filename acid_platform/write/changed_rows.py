"""The rows that delete events name, as runs that a commit can send to the metastore."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from acid_platform.formats.data_file import FilePath
from acid_platform.formats.file_access import open_file, reading
from acid_platform.formats.keyed import KEY
from acid_platform.layout.file_entries import RecordedFiles
from acid_platform.storage.files import Files
from acid_platform.transactions.row_sets import RowSet
from acid_platform.values.arrow_numpy import group_begins

_MOST_RUNS = 1 << 20
"""While files are read, no more runs than this are kept."""


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """Rows of one entity: runs of consecutive rowIds, sorted by bucket property, write id, rowId.

    Each field but the last is an int64 array (n,). `exact` is False once rows between runs were
    added to shorten it.
    """

    buckets: np.ndarray
    write_ids: np.ndarray
    firsts: np.ndarray
    lasts: np.ndarray
    exact: bool = True

    @classmethod
    def of(cls, write_ids: np.ndarray, buckets: np.ndarray, row_ids: np.ndarray) -> ChangedRows:
        """The rows with these keys, arrays (n,) in any order."""
        keys = [np.asarray(part, np.int64) for part in (buckets, write_ids, row_ids)]
        if not len(keys[2]):
            return NO_ROWS
        # The rows of a file are in order already, so most of them become few runs here.
        starts = np.flatnonzero(_breaks(keys[0], keys[1], keys[2], keys[2]))
        firsts, lasts = keys[2][starts], keys[2][np.append(starts[1:], len(keys[2])) - 1]
        return _joined(keys[0][starts], keys[1][starts], firsts, lasts, True)

    @classmethod
    def union(cls, parts: Iterable[ChangedRows]) -> ChangedRows:
        every = [part for part in parts if len(part)]
        if len(every) < 2:
            return every[0] if every else NO_ROWS
        return _joined(
            np.concatenate([part.buckets for part in every]),
            np.concatenate([part.write_ids for part in every]),
            np.concatenate([part.firsts for part in every]),
            np.concatenate([part.lasts for part in every]),
            all(part.exact for part in every),
        )

    def __len__(self) -> int:
        return len(self.firsts)

    def shortened(self, runs: int) -> ChangedRows | None:
        """At most so many runs: the smallest gaps are filled; None if there are too many groups.

        A group has one bucket property and one write id.
        """
        if len(self) <= runs:
            return self
        news = group_begins(self.buckets, self.write_ids)
        groups = int(news.sum())
        if groups > runs:
            return None
        gaps = np.where(news, np.iinfo(np.int64).max, self.firsts - np.roll(self.lasts, 1))
        widest_gaps = np.sort(np.argpartition(-gaps, runs - 1)[:runs])
        lasts = self.lasts[np.append(widest_gaps[1:], len(self)) - 1]
        return ChangedRows(
            self.buckets[widest_gaps],
            self.write_ids[widest_gaps],
            self.firsts[widest_gaps],
            lasts,
            False,
        )

    def row_set(self, limit: int) -> RowSet | None:
        """The set as text of at most `limit` bytes, shortened if need be; None if that fails."""
        if not limit:
            return None
        rows = self.shortened(max(limit // 2, 1))  # a run takes two bytes at least
        while rows is not None and (size := rows._size()) > limit:
            rows = rows.shortened(int(len(rows) * min(limit / size, 0.9)))
        return None if rows is None else RowSet(rows._text())

    def _size(self) -> int:
        """The length of `_text`, which takes much longer to make."""
        begins = group_begins(self.buckets, self.write_ids)
        starts, group = np.flatnonzero(begins), np.cumsum(begins)
        lengths = self.lasts - self.firsts + 1
        buckets = self.buckets[starts]
        numbers = (
            np.where(begins, self.firsts, self.firsts - np.roll(self.firsts, 1)),
            lengths[np.isin(group, group[lengths != 1])],
            self.write_ids[starts],
            buckets[group_begins(buckets)],
        )
        digits = sum(int((np.searchsorted(_POWERS, each, "right") + 1).sum()) for each in numbers)
        signs = max(sum(map(len, numbers)) - 1, 0)  # one between each two numbers
        return digits + signs + (not self.exact)

    def _text(self) -> str:
        parts: list[str] = []
        starts = np.flatnonzero(group_begins(self.buckets, self.write_ids))
        before = None
        for start, end in pairwise([*starts, len(self)]):
            bucket, firsts = int(self.buckets[start]), self.firsts[start:end]
            steps = np.diff(firsts, prepend=0).tolist()
            lengths = self.lasts[start:end] - firsts + 1
            if bucket != before:
                parts.append(f"{' ' if parts else ''}{bucket}@")
            else:
                parts.append(";")
            parts.append(f"{self.write_ids[start]}:{','.join(map(str, steps))}")
            if (lengths != 1).any():
                parts.append("/" + ",".join(map(str, lengths.tolist())))
            before = bucket
        return ("" if self.exact else "~") + "".join(parts)


_POWERS = 10 ** np.arange(1, 19)
"""The least numbers of two digits, three, and so on."""
_NONE = np.empty(0, np.int64)
NO_ROWS = ChangedRows(_NONE, _NONE, _NONE, _NONE)


def deleted_rows(files: Files, directory: str, contents: RecordedFiles) -> ChangedRows:
    """The rows that the delete events of a published directory name; reads its files.

    Raises CorruptFile.
    """
    rows = NO_ROWS
    for entry in contents.files:
        for part in _read(files, f"{directory}/{entry.path}"):
            rows = ChangedRows.union([rows, part])
            if len(rows) > _MOST_RUNS:
                rows = rows.shortened(_MOST_RUNS // 2) or rows
    return rows


def _read(files: Files, path: str) -> Iterator[ChangedRows]:
    with reading(path):
        for ids in open_file(files, FilePath(path)).key_parts(*KEY):
            yield ChangedRows.of(*ids)


def _breaks(
    buckets: np.ndarray, write_ids: np.ndarray, firsts: np.ndarray, lasts: np.ndarray
) -> np.ndarray:
    """Mask (n,): a run does not follow at once on the run before."""
    breaks = group_begins(buckets, write_ids)
    breaks[1:] |= firsts[1:] != lasts[:-1] + 1
    return breaks


def _joined(
    buckets: np.ndarray, write_ids: np.ndarray, firsts: np.ndarray, lasts: np.ndarray, exact: bool
) -> ChangedRows:
    """Sorts runs, and joins those that touch or overlap."""
    order = np.lexsort((firsts, write_ids, buckets))
    buckets, write_ids, firsts, lasts = (
        part[order] for part in (buckets, write_ids, firsts, lasts)
    )
    if not len(firsts):
        return ChangedRows(buckets, write_ids, firsts, lasts, exact)
    begins = group_begins(buckets, write_ids)
    # The highest row so far in each group: runs of one statement never overlap, but sets may.
    group = np.cumsum(begins)
    span = int(lasts.max()) + 2
    reach = np.maximum.accumulate(lasts + group * span) - group * span
    begins[1:] |= firsts[1:] > reach[:-1] + 1
    starts = np.flatnonzero(begins)
    ends = np.append(starts[1:], len(firsts)) - 1
    return ChangedRows(buckets[starts], write_ids[starts], firsts[starts], reach[ends], exact)
