"""Decoded columns of local files, kept in this process's memory for the next statement (P79).

No writer changes a committed file, so its columns need not be decoded twice, and a file of which
all that is asked for is kept is not opened: to read a footer takes longer than to find ten columns.
A file is known by its inode, size and time of change: one that was replaced by another of its name
is decoded anew.
"""

from __future__ import annotations

import os
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa

from acid_platform.base.first_use import PerProcess, Recent
from acid_platform.base.local_files import identity_of
from acid_platform.errors import InvalidDefinition
from acid_platform.formats.data_file import ColumnOfFile, DataFile
from acid_platform.layout.file_entries import ColumnRange
from acid_platform.values.arrow_types import plain

SETTING = "ACID_KEPT_MEMORY"
MOST_BYTES = 512 << 20
MEMORY_SHARE = 8
"""One part of so many of the machine's memory is kept at most."""

Columns: TypeAlias = dict[ColumnOfFile, pa.Array]
MOST_FILES = 10_000


@dataclass(frozen=True, slots=True)
class Shape:
    """What a scan has to know of a file whose columns are decoded; see DataFile."""

    piece_rows: list[int]
    names: list[str]
    ids: Mapping[int, str]
    has_checked_text: bool
    has_texts_as_bytes: bool
    decodes_in_threads: bool
    ranges: dict[str, Sequence[ColumnRange | None]] = field(default_factory=dict)
    """The known bounds of the columns that somebody has asked for."""

    @classmethod
    def of(cls, file: DataFile) -> Shape:
        """Raises CorruptFile."""
        return cls(
            file.piece_rows,
            file.names,
            file.ids,
            file.has_checked_text,
            file.has_texts_as_bytes,
            file.decodes_in_threads,
        )


class KeptFile(DataFile):
    """A file of a known shape, which is opened when something else of it is asked for."""

    def __init__(self, identity: Hashable, shape: Shape, open: Callable[[], DataFile]) -> None:
        """`identity`: of which file the columns are kept."""
        self.identity, self._shape, self._open = identity, shape, open
        self.has_checked_text = shape.has_checked_text
        self.has_texts_as_bytes = shape.has_texts_as_bytes
        self.decodes_in_threads = shape.decodes_in_threads

    @cached_property
    def _opened(self) -> DataFile:
        return self._open()

    @property
    def rows(self) -> int:
        return sum(self._shape.piece_rows)

    @property
    def piece_rows(self) -> list[int]:
        return self._shape.piece_rows

    @property
    def names(self) -> list[str]:
        return self._shape.names

    @property
    def ids(self) -> Mapping[int, str]:
        return self._shape.ids

    def piece_ranges(self, column: str) -> Sequence[ColumnRange | None]:
        ranges = self._shape.ranges
        if column not in ranges:
            ranges[column] = self._opened.piece_ranges(column)
        return ranges[column]

    @property
    def key_columns(self) -> list[str]:
        return self._opened.key_columns

    def type_of(self, column: ColumnOfFile) -> pa.DataType:
        return self._opened.type_of(column)

    def decode(
        self,
        piece: int,
        columns: Collection[ColumnOfFile],
        as_stored: bool = False,
        coded: bool = False,
    ) -> Columns:
        return self._opened.decode(piece, columns, as_stored, coded)

    def finer_times(
        self, piece: int, decoded: Mapping[ColumnOfFile, pa.Array]
    ) -> Mapping[ColumnOfFile, pa.Array]:
        return self._opened.finer_times(piece, decoded)


class KeptColumns:
    """Columns of pieces of files, at most `most_bytes` bytes of them. Thread-safe.

    What a scan has used makes no room for other columns of the same scan: of a table that is larger
    than the memory, each query finds what the first one has kept.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._kept: OrderedDict[Hashable, tuple[pa.Array, int, object]] = OrderedDict()
        self._bytes = 0
        self._guard = threading.Lock()
        self.shapes = Recent[Hashable, Shape](MOST_FILES if most_bytes else 0)

    @property
    def size(self) -> int:
        """The bytes that are kept."""
        return self._bytes

    def get(self, key: Hashable, scan: object) -> pa.Array | None:
        """The column, if it is kept, which `scan` uses."""
        with self._guard:
            if key not in self._kept:
                return None
            array, size, _ = self._kept.pop(key)
            self._kept[key] = array, size, scan
            return array

    def put(self, key: Hashable, array: pa.Array, scan: object) -> None:
        """Keeps a column that `scan` has decoded, if there is room."""
        size = array.get_total_buffer_size()
        with self._guard:
            if size > self._most:
                return
            if key in self._kept:
                self._bytes -= self._kept.pop(key)[1]
            while self._bytes + size > self._most:
                oldest, (_, freed, user) = next(iter(self._kept.items()))
                if user is scan:
                    return
                del self._kept[oldest]
                self._bytes -= freed
            self._kept[key] = array, size, scan
            self._bytes += size

    def close(self) -> None:
        """Keeps nothing any more."""
        with self._guard:
            self._kept.clear()
            self._bytes = 0
        self.shapes.clear()


class ScanColumns:
    """The columns of one scan, which are looked for among those that are kept."""

    def __init__(self, kept: KeptColumns) -> None:
        self._kept = kept

    def file(self, path: str, length: int | None, open: Callable[[], DataFile]) -> KeptFile:
        """The local file at `path` up to `length`, which `open` opens. Raises what that does, and
        FileNotFoundError."""
        identity = (path, length, *identity_of(path))
        shape = self._kept.shapes.get(identity)
        if shape is None:
            file = open()
            shape = Shape.of(file)
            self._kept.shapes.put(identity, shape)
            return KeptFile(identity, shape, lambda: file)
        return KeptFile(identity, shape, open)

    def of_piece(
        self,
        file: Hashable,
        piece: Hashable,
        names: Sequence[ColumnOfFile],
        decode: Callable[[Sequence[ColumnOfFile]], Columns],
        coded: bool = False,
    ) -> Columns:
        """These columns of a piece of a file: those that are kept, and of the others what `decode`
        makes; with dictionaries only if they may be `coded`. Raises what `decode` raises."""
        found: Columns = {}
        for name in names:
            if (array := self._kept.get((file, piece, name), self)) is not None:
                found[name] = array if coded else plain(array)
                if found[name] is not array:
                    self._kept.put((file, piece, name), found[name], self)
        if missing := [name for name in names if name not in found]:
            decoded = decode(missing)
            found |= decoded
            for name, array in decoded.items():
                self._kept.put((file, piece, name), array, self)
        return found


def memory_to_keep() -> int:
    """Bytes for kept columns, as the environment says (`ACID_KEPT_MEMORY=2g`; 0: nothing is kept),
    or an eighth of the machine's memory, at most 512 MiB. Raises InvalidDefinition."""
    text = os.environ.get(SETTING, "").strip()
    if not text:
        return min(MOST_BYTES, usable_memory() // MEMORY_SHARE)
    match = re.fullmatch(r"(\d{1,9})([kmg]?)b?", text.lower())
    if match is None:
        raise InvalidDefinition(f"{SETTING}={text} is no number of bytes such as 512m, 2g or 0")
    return int(match[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[match[2]]


def usable_memory() -> int:
    """The bytes of memory that this process may have: the machine's, or its container's."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")  # psutil is slow to import
    for limit in ("memory.max", "memory/memory.limit_in_bytes"):
        path = Path("/sys/fs/cgroup", limit)
        if path.is_file() and (text := path.read_text().strip()).isdecimal():
            memory = min(memory, int(text))
    return memory


KEPT: PerProcess[KeptColumns] = PerProcess(lambda: KeptColumns(memory_to_keep()))


def columns_to_keep() -> ScanColumns:
    """For a scan whose columns the next one shall find decoded. Raises InvalidDefinition."""
    return ScanColumns(KEPT.get())
