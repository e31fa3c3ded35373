"""Rows with their keys: the form in memory of what a statement changes, whatever a file stores.

A change is the keys of its rows, the write ids that made it, and the rows' values in flat columns.
How a file stores that is the business of its format.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from acid_platform.errors import AcidError, CorruptFile, UnsupportedLayout
from acid_platform.values.arrow_numpy import from_numpy

INSERT_EVENT, DELETE_EVENT = 0, 2
"""What an event does; 1, an update, is of files of ACID version 1 alone."""


class KeyPart(IntEnum):
    """What a file with keys says of each row beside its values."""

    EVENT = 0
    """INSERT_EVENT or DELETE_EVENT."""
    WRITE_ID = 1
    BUCKET = 2
    """The bucket property."""
    ROW_ID = 3
    CHANGED_BY = 4
    """The write id of the event: of a deleted row, another than that of its key."""


KEY = (KeyPart.WRITE_ID, KeyPart.BUCKET, KeyPart.ROW_ID)


class RowFilter(Protocol):
    """Chooses rows by their keys."""

    def survivors(self, w: np.ndarray, b: np.ndarray, r: np.ndarray) -> np.ndarray:
        """Mask (n,) of the rows (write id, bucket property, rowId) that are wanted."""
        ...

    def survivors_of_run(self, write_id: int, bucket: int, first: int, rows: int) -> np.ndarray:
        """As `survivors`, for so many rows with the rowIds from `first` on."""
        ...


@dataclass(frozen=True, slots=True)
class StoredKeys:
    """Keys that somebody has stored, whole numbers (n,) each."""

    write_ids: np.ndarray
    buckets: np.ndarray
    row_ids: np.ndarray

    def survivors(self, wanted: RowFilter, rows: int) -> np.ndarray:  # noqa: ARG002
        return wanted.survivors(self.write_ids, self.buckets, self.row_ids)

    def of(self, keep: np.ndarray | slice) -> tuple[np.ndarray, ...]:
        """The keys of the rows of the mask."""
        return self.write_ids[keep], self.buckets[keep], self.row_ids[keep]


@dataclass(frozen=True, slots=True)
class KeyRun:
    """Keys that follow from the positions: none is made for a row that nobody keeps."""

    write_id: int
    bucket: int
    first: int
    """The rowId of the first row; each other row has the next one."""

    def survivors(self, wanted: RowFilter, rows: int) -> np.ndarray:
        return wanted.survivors_of_run(self.write_id, self.bucket, self.first, rows)

    def of(self, keep: np.ndarray) -> tuple[np.ndarray, ...]:
        row_ids = numbers_kept(keep, self.first)
        return np.full(len(row_ids), self.write_id), np.full(len(row_ids), self.bucket), row_ids


def numbers_kept(keep: np.ndarray, first: int) -> np.ndarray:
    """The numbers of the rows of the mask, int64 (n,); its first row has the number `first`."""
    return np.arange(first, first + len(keep)) if keep.all() else np.flatnonzero(keep) + first


RowKeys: TypeAlias = StoredKeys | KeyRun | None
"""The keys of all rows of a piece; None if nobody needs them, or if they have none."""


@dataclass(frozen=True, slots=True)
class Keyed:
    """Inserted rows or, without values, deleted ones."""

    keys: RowKeys
    """None for rows of an insert-only table."""
    changed_by: np.ndarray | int
    """The write id of each event, (n,), or of all."""
    values: pa.RecordBatch | None
    """The columns of the table, in order."""
    checked: bool = True
    """Whether it is known that the texts are UTF-8; those in files of others may hold any bytes."""
    updated: np.ndarray | None = None
    """Mask (n,): which of the deleted rows live on with new values; None: nobody says."""

    def __len__(self) -> int:
        if self.values is not None:
            return int(self.values.num_rows)
        assert isinstance(self.keys, StoredKeys), "a deleted row is named by its key"
        return len(self.keys.row_ids)

    def stored(self) -> Keyed:
        """The rows with an array for each part of their keys."""
        assert self.keys is not None
        if isinstance(self.keys, StoredKeys):
            return replace(self, changed_by=self.makers())
        every = np.ones(len(self), bool)
        return replace(self, keys=StoredKeys(*self.keys.of(every)), changed_by=self.makers())

    def makers(self) -> np.ndarray:
        """The write id of each event, int64 (n,)."""
        if isinstance(self.changed_by, int):
            return np.full(len(self), self.changed_by)
        return self.changed_by

    @property
    def ids(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The write id, bucket property and rowId of each row, (n,); of stored keys."""
        assert isinstance(self.keys, StoredKeys)
        return self.keys.write_ids, self.keys.buckets, self.keys.row_ids

    def chosen(self, rows: np.ndarray | slice) -> Keyed:
        """Some of the rows, by a mask, their places or a slice; of stored keys."""
        assert isinstance(self.keys, StoredKeys) and not isinstance(self.changed_by, int)
        keys, makers = StoredKeys(*self.keys.of(rows)), self.changed_by[rows]
        return Keyed(keys, makers, _chosen(self.values, rows), self.checked)


def _chosen(values: pa.RecordBatch | None, rows: np.ndarray | slice) -> pa.RecordBatch | None:
    if values is None:
        return None
    if isinstance(rows, slice):
        start, end, _ = rows.indices(values.num_rows)
        return values.slice(start, end - start)
    if rows.dtype == bool:
        return values if rows.all() else values.filter(from_numpy(rows))
    return values.take(from_numpy(rows))


def in_key_order(parts: Sequence[Keyed]) -> Iterator[Keyed]:
    """The rows of several parts, with stored keys and equal columns, in the order of their keys.

    They are one part again, unless their texts have more bytes than an array holds.
    """
    w, b, r = (np.concatenate(ids) for ids in zip(*(part.ids for part in parts), strict=True))
    order = np.lexsort((r, b, w))
    keys = StoredKeys(w[order], b[order], r[order])
    makers = np.concatenate([part.makers() for part in parts])[order]
    checked = all(part.checked for part in parts)
    batches = [part.values for part in parts if part.values is not None]
    if not batches:
        yield Keyed(keys, makers, None, checked)
        return
    start = 0
    table = pa.Table.from_batches(batches).take(from_numpy(order))
    for values in table.combine_chunks().to_batches():
        rows = slice(start, start + values.num_rows)
        yield Keyed(StoredKeys(*keys.of(rows)), makers[rows], values, checked)
        start += values.num_rows


def require_operation(operation: np.ndarray, expected: int, path: str) -> None:
    """Raises unless all events have the operation `expected`: version 2 never mixes them (F22).

    Raises UnsupportedLayout for an operation that only ACID version 1 mixes in, CorruptFile for an
    unknown number.
    """
    wrong = operation[operation != expected]
    if len(wrong):
        raise wrong_operation(int(wrong[0]), expected, path)


def wrong_operation(operation: int, expected: int, path: str) -> AcidError:
    """The error that `require_operation` raises."""
    if operation in (0, 1, 2):
        return UnsupportedLayout(
            f"{path} holds events of operation {operation} where all must be {expected}: it is a"
            " file of ACID version 1; run a major compaction with Hive 2 and upgrade the table"
        )
    return CorruptFile(
        f"{path} holds an event of the unknown operation {operation}; restore the file"
    )
