"""What other rooms ask of a data file, open or being written, whatever its format."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from acid_platform.formats.keyed import Keyed, KeyPart, KeyRun
from acid_platform.layout.file_entries import ColumnRange, FileEntry, Footer, KeyRanges

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
    def summary(self) -> Footer:
        """What a record says of the file."""
        raise NotImplementedError

    def type_of(self, column: ColumnOfFile) -> pa.DataType:
        raise NotImplementedError

    def decode(
        self, piece: int, columns: Collection[ColumnOfFile], as_stored: bool = False
    ) -> dict[ColumnOfFile, pa.Array]:
        """Columns of one piece.

        Timestamps are in nanoseconds if all of them fit, else in microseconds; wall clock times
        are those of the writer's time zone. Days before 15 October 1582 are those that the writer
        meant, unless `as_stored`. Raises CorruptFile, UnsupportedLayout.
        """
        raise NotImplementedError

    def has_fine_times(self) -> bool:
        """Whether a timestamp has digits below the microsecond."""
        raise NotImplementedError

    # --- statistics ----------------------------------------------------------------------------

    @property
    def ranges(self) -> Mapping[str, ColumnRange]:
        """The known bounds of each column's values, by names in lower case."""
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
