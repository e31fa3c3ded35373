"""The keys of the rows of a stripe, as they are stored or as they follow from the positions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np


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
    """Keys that the file stores, int64 (n,) each."""

    write_ids: np.ndarray
    buckets: np.ndarray
    row_ids: np.ndarray

    def survivors(self, wanted: RowFilter, rows: int) -> np.ndarray:  # noqa: ARG002
        return wanted.survivors(self.write_ids, self.buckets, self.row_ids)

    def of(self, keep: np.ndarray) -> tuple[np.ndarray, ...]:
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
"""The keys of all rows of a stripe; None if nobody needs them."""
