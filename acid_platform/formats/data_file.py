"""Rows with their keys in memory, and what other rooms ask of a data file, whatever its format.

A change is the keys of its rows, the write ids that made it, and the rows' values in flat columns.
How a file stores that is the business of its format.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from acid_platform.errors import AcidError, CorruptFile, UnsupportedLayout
from acid_platform.layout.file_entries import ColumnRange, FileEntry, Footer, KeyRanges
from acid_platform.values.arrow_types import from_numpy

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
        """The keys of the rows of the mask, or of the rows with these numbers."""
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
    """The numbers of the rows of the mask, int64 (n,); its first row has the number `first`. Those
    of rows that are given by their numbers from 0 on go on from there."""
    if keep.dtype != bool:
        return np.asarray(keep + first)
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


def mixed_times(path: str) -> UnsupportedLayout:
    """The error for times of which no unit holds all."""
    return UnsupportedLayout(
        f"{path} holds times with nanoseconds beside years that nanoseconds can't hold; round them"
        " where they are written"
    )


ColumnOfFile: TypeAlias = str | KeyPart
"""A column of values by its name in the file, or a part of the keys."""


class WideTimestamps(Exception):
    """A file holds timestamps that do not fit nanoseconds: read it again with unit `us`."""


class DataSource(Protocol):
    """A file that can be opened."""

    @property
    def path(self) -> str: ...

    @property
    def format(self) -> str | None:
        """None: its first bytes tell whether it is ORC or Parquet."""
        ...

    @property
    def length(self) -> int | None:
        """How many of its bytes a streaming writer committed; None: all."""
        ...

    @property
    def keyed(self) -> bool | None:
        """Whether it stores the keys of its rows; None: its footer tells."""
        ...


@dataclass(frozen=True, slots=True)
class FilePath:
    """A file that nobody has recorded."""

    path: str
    format: str | None = "orc"
    length: int | None = None
    keyed: bool | None = None


class DataFile:
    """An open file. Its members raise Arrow's errors: use them inside of `reading`.

    A format without keys has none of the members that speak of them.
    """

    path: str
    has_checked_text = False
    """Whether it is known that its texts are UTF-8: those of others may hold any bytes."""
    has_old_decimals = False
    """Whether it has decimals without a scale, as Hive 0.11 wrote them."""
    has_texts_as_bytes = False
    """Whether its bytes may be texts: old writers did not say which are."""
    decodes_in_threads = False
    """Whether `decode` uses threads of its own."""
    has_checksums = False
    """Whether its writers add checksums to what they write, which `decode` compares."""
    by_columns = False
    """Whether its rows are in the order of columns, and their keys in any (P85)."""
    has_key_index = False
    """Whether it has an index of its keys, which is written only if they ascend."""

    @property
    def rows(self) -> int:
        raise NotImplementedError

    @property
    def piece_rows(self) -> list[int]:
        """The rows of each piece that can be decoded by itself. Raises CorruptFile."""
        raise NotImplementedError

    @property
    def names(self) -> list[str]:
        """The columns of values, without those of the keys. Raises CorruptFile."""
        raise NotImplementedError

    @property
    def ids(self) -> Mapping[int, str]:
        """The name of each column by its id, under which the table knows it whatever it is called;
        empty for a format that knows columns by their names."""
        return {}

    @property
    def summary(self) -> Footer:
        """What a record says of the file."""
        raise NotImplementedError

    def type_of(self, column: ColumnOfFile) -> pa.DataType:
        raise NotImplementedError

    def decode(
        self,
        piece: int,
        columns: Collection[ColumnOfFile],
        as_stored: bool = False,
        coded: bool = False,
    ) -> dict[ColumnOfFile, pa.Array]:
        """Columns of one piece. If they may be `coded`, texts may come with a dictionary (`plain`).

        Timestamps are in nanoseconds if all of them fit, else in microseconds; wall clock times
        are those of the writer's time zone. Days before 15 October 1582 are those that the writer
        meant, unless `as_stored`. Raises CorruptFile, UnsupportedLayout.
        """
        raise NotImplementedError

    def has_fine_times(self) -> bool:
        """Whether a timestamp has digits below the microsecond."""
        raise NotImplementedError

    def finer_times(
        self, piece: int, decoded: Mapping[ColumnOfFile, pa.Array]
    ) -> Mapping[ColumnOfFile, pa.Array]:
        """Columns of a piece in nanoseconds, of whose times the decoded columns lack digits. Raises
        UnsupportedLayout for those that have years beyond nanoseconds, too; CorruptFile."""
        raise NotImplementedError

    # --- statistics ----------------------------------------------------------------------------

    def piece_ranges(
        self,
        column: str,  # noqa: ARG002, of formats that know some
    ) -> Sequence[ColumnRange | None]:
        """The bounds of a column's values in each piece, as far as they are known; empty if none
        are."""
        return ()

    @property
    def ranges(self) -> Mapping[str, ColumnRange]:
        """The known bounds of each column's values, as FileEntry has them."""
        return {}

    @property
    def key_ranges(self) -> KeyRanges | None:
        """The bounds of the keys, if all rows are known to be inserted ones with complete keys."""
        return None

    # --- keys ----------------------------------------------------------------------------------

    @property
    def key_columns(self) -> list[str]:
        """The name of each KeyPart in the file. Raises CorruptFile."""
        raise NotImplementedError

    def key_parts(self, *parts: KeyPart) -> Iterator[list[np.ndarray]]:
        """These parts of the keys of all rows, int64 (n,) each, in batches in file order.

        Raises CorruptFile, also for a row without a key.
        """
        raise NotImplementedError

    def changes(
        self,
        run: KeyRun | None = None,
        deletes: bool = False,
        timestamps: str = "ns",
        values: bool = True,
    ) -> Iterator[Keyed]:
        """All rows, or delete events if it is a file of these, in batches in file order.

        `run`: the keys of the rows, if the file stores none. `values` False: they are not needed.
        Texts may come with a dictionary (`plain`).
        `timestamps` `us` also decodes years after 2262, for which `ns` raises WideTimestamps.
        Raises CorruptFile, UnsupportedLayout for events of another kind, CompactionRefused for
        Gregorian days before 1582.
        """
        raise NotImplementedError

    def bounds(self, part: KeyPart) -> tuple[int, int]:
        """The lowest and the highest of a part of the keys; read if no statistics tell them.

        Raises CorruptFile for a row without it.
        """
        raise NotImplementedError

    def updates(self, events: int) -> np.ndarray:
        """Mask (events,): which of its delete events belong to updates. Raises CorruptFile."""
        raise NotImplementedError

    def holds_deletes(self) -> bool:
        """Whether all rows are delete events. Raises UnsupportedLayout if they have values."""
        return False

    def key_index_flaw(self, ids: Sequence[np.ndarray]) -> tuple[str, bool] | None:
        """What is wrong with the index of keys, and whether it does harm; None if nothing is.

        `ids`: the write ids, bucket properties and rowIds of all rows.
        """
        raise NotImplementedError


class FileWriter(Protocol):
    """Writes one file, which is complete once `close` has returned.

    Without rows no file is written, unless it was begun to be written `always`.
    """

    path: str
    rows: int
    """Rows written so far."""

    def put(self, rows: Keyed) -> None:
        """Append rows, with the columns' types (`arrow_type`), in order. Raises CorruptFile if keys
        do not ascend (F7)."""
        ...

    def close(self) -> int:
        """Finish the file; returns its row count."""
        ...

    def give_up(self) -> None:
        """Close the incomplete file."""
        ...

    def record(self, name: str) -> FileEntry:
        """The record of the finished file under this name. Nothing is read: the writer has counted
        the rows and knows its footer (P26)."""
        ...
