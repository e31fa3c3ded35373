"""What a Parquet file would unpack to, by its own bytes, before any of it is decoded (P65).

Arrow believes the footer and the header of each page: room is made for what they say, and damaged
metadata of a column end the process as soon as they are asked for. So both are read here first,
as Thrift's compact protocol writes them: a field that is written twice, or with a type that is not
its own, is none of any writer, and is refused, since readers differ about it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from acid_platform.base.file_bounds import (
    BATCH_BYTES,
    LARGEST_FOOTER,
    LARGEST_PIECE,
    MOST_PARTS,
    MOST_REPEATED,
    MOST_UNPACKED,
)
from acid_platform.base.first_use import Recent
from acid_platform.errors import CorruptFile, UnsupportedLayout
from acid_platform.formats.thrift import Shape, ThriftBytes

_GROUPS = 4
_CODEC, _VALUES, _STORED, _DATA_AT, _DICTIONARY_AT = 4, 5, 7, 9, 11
_FOOTER: Shape = {
    _GROUPS: {1: {3: dict.fromkeys((_CODEC, _VALUES, _STORED, _DATA_AT, _DICTIONARY_AT))}, 3: None}
}
_COLUMNS, _CHUNK, _ROWS_OF_GROUP = 1, 3, 3
_KIND, _SIZE, _PACKED = 1, 2, 3
_V1, _DICTIONARY, _V2 = 5, 7, 8
_PAGE: Shape = {
    _KIND: None,
    _SIZE: None,
    _PACKED: None,
    _V1: dict.fromkeys((1, 2, 3, 4)),
    _DICTIONARY: dict.fromkeys((1, 2)),
    _V2: dict.fromkeys((1, 4, 5, 6, 7)),
}


# --- chunks and pages -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Stored:
    """What the footer says of a column of a row group."""

    codec: int
    values: int
    size: int
    at: int


@dataclass(frozen=True, slots=True)
class _Group:
    rows: int
    chunks: tuple[_Stored, ...]


def _least(number: int) -> int:
    if number < 0:
        raise ValueError(f"{number:,} is less than nothing")
    return number


def _stored(read: dict[int, int] | None, path: str) -> _Stored:
    if read is None:
        raise UnsupportedLayout(f"{path} has columns that are encrypted, or in another file")
    at, dictionary = read[_DATA_AT], read.get(_DICTIONARY_AT, 0)
    if 0 < dictionary < at:
        at = dictionary
    return _Stored(read[_CODEC], *map(_least, (read[_VALUES], read[_STORED], at)))


_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 8}
_OFFSET, _POINTER = 4, 16
_CODECS = {0: None, 1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}
_LENGTHS, _PREFIXED, _RUNS = 6, 7, 3
"""Encodings: two that tell the lengths of texts, and the one of levels."""
ROWS_AT_ONCE = 1 << 17
_MANY_ROWS = 1 << 22
_OLD_WRITERS = 100
"""Bytes that Arrow reads beyond a chunk, as some writers left out the header of a page."""
_HEADERS = (1 << 8, 1 << 12, 1 << 16, 1 << 20, 1 << 24)
"""Bytes to look at for the header of a page; Arrow reads at most the last."""


@dataclass(frozen=True, slots=True)
class _Page:
    """What the header of a page says, and where its content begins."""

    at: int
    size: int
    packed: int
    values: int
    encoding: int
    dictionary: bool
    levels: tuple[int, ...] | None
    """Bytes of levels before the values, which are packed by themselves; None: all are packed."""
    is_packed: bool


def page_at(stream: Any, at: int, path: str) -> _Page:
    """The page whose header begins there. Raises CorruptFile for one that can't be read."""
    reason = ""
    for length in _HEADERS:
        stream.seek(at)
        content = bytes(stream.read(length))
        try:
            thrift = ThriftBytes(content)
            return _page(thrift.struct(_PAGE), at + thrift.at)
        except IndexError:
            if len(content) < length:
                break
        except (KeyError, ValueError) as error:
            reason = f" ({error})"
            break
    raise CorruptFile(
        f"{path}: the header of a page of Parquet at byte {at:,} can't be read{reason}; restore it"
        " or drop its transaction"
    )


def _page(read: dict[int, Any], after: int) -> _Page:
    kind, size, packed = read[_KIND], _least(read[_SIZE]), _least(read[_PACKED])
    said = {0: _V1, 2: _DICTIONARY, 3: _V2}.get(kind)
    if said is None:
        return _Page(after, size, packed, 0, 0, False, None, True)
    inner = read[said]
    values = _least(inner[1])
    if said == _DICTIONARY:
        return _Page(after, size, packed, values, inner[2], True, None, True)
    if said == _V2:
        levels = (_least(inner[6]), _least(inner[5]))
        return _Page(after, size, packed, values, inner[4], False, levels, bool(inner.get(7, True)))
    if inner[2] in (_LENGTHS, _PREFIXED) and (inner[3], inner[4]) != (_RUNS, _RUNS):
        raise ValueError("its levels are in an encoding that no writer uses with that of its texts")
    return _Page(after, size, packed, values, inner[2], False, None, True)


class Chunk:
    """A column of a row group: the pages that a reader will find, and of what type its schema says
    that the values are. Raises CorruptFile."""

    def __init__(self, stream: Any, leaf: Any, stored: _Stored, path: str) -> None:
        self._stream, self._leaf, self._codec, self._path = stream, leaf, stored.codec, path
        self.name = leaf.path
        self.stored, self.nested = stored.size, leaf.max_repetition_level > 0
        fixed = leaf.physical_type == "FIXED_LEN_BYTE_ARRAY"
        self._length = leaf.length if fixed else 0
        self.has_texts = fixed or leaf.physical_type == "BYTE_ARRAY"
        self._pages = list(self._found(stored))
        own = [page.values for page in self._pages if not page.dictionary]
        self.values = max(stored.values, sum(own))
        self.fixed = self.values * (self._length or _width_of(leaf))
        """Bytes of the values in memory, without those of texts."""
        self.bare = self.values * _width_of(leaf)
        """As many as of nothing but NULL."""
        self.size = sum(
            max(page.size, page.values * _POINTER * page.dictionary) for page in self._pages
        )

    def _found(self, stored: _Stored) -> Iterator[_Page]:
        at, values = stored.at, 0
        end = min(at + stored.size + _OLD_WRITERS, self._stream.size())
        for _ in range(MOST_PARTS):
            if at >= end or values >= stored.values:
                break
            page = page_at(self._stream, at, self._path)
            if not page.dictionary:
                values += page.values
                if self.has_texts and page.encoding in (_LENGTHS, _PREFIXED):
                    self._require_counted(page)
            yield page
            at = page.at + page.packed

    @property
    def longest(self) -> int:
        """The bytes of the longest value that may be stored once for many rows, or more than it can
        have; 0: each is stored by itself, or has the width of its type."""
        if not self.has_texts or not any(
            page.dictionary or page.encoding == _PREFIXED for page in self._pages
        ):
            return 0
        if self._length:
            return int(self._length)
        page = next((page for page in self._pages if page.dictionary), None)
        if page is None or any(page.encoding == _PREFIXED for page in self._pages):
            return self.size
        body = self._body(page)
        if body is None:
            return self.size
        return max(_longest_of(body), 1)

    def _body(self, page: _Page) -> bytes | None:
        """What a page holds, unpacked; None if that can't be told."""
        self._stream.seek(page.at)
        levels = sum(page.levels or ())
        body = bytes(self._stream.read(page.packed))
        codec = _CODECS.get(self._codec, "") if page.is_packed else None
        if codec is None:
            return body[levels:]
        if not codec or page.size > LARGEST_FOOTER or levels > page.size:
            return None
        try:
            size = page.size - levels
            return bytes(pa.Codec(codec).decompress(body[levels:], size, asbytes=True))
        except (ValueError, TypeError, OSError, pa.ArrowException):
            return None

    def _require_counted(self, page: _Page) -> None:
        """Raises CorruptFile for a page of texts whose lengths are more than its values: Arrow
        makes room for as many as their own head says."""
        try:
            body = self._body(page)
            if body is None:
                raise ValueError("it can't be unpacked")
            at = 0
            if page.levels is None:
                for levels in (self._leaf.max_repetition_level, self._leaf.max_definition_level):
                    at += 4 + int.from_bytes(body[at : at + 4], "little") if levels else 0
            lengths = ThriftBytes(body, at)
            if page.encoding == _PREFIXED and at < len(body):
                _skip_deltas(lengths, page.values)
            if lengths.at < len(body):  # nothing but NULL has none
                _deltas(lengths, page.values)
        except (IndexError, ValueError) as error:
            raise CorruptFile(
                f"{self._path}: a page of texts at byte {page.at:,} can't be read: {error}; restore"
                " it or drop its transaction"
            ) from error


def _longest_of(body: bytes) -> int:
    """The most bytes of a text among those of a dictionary, each of which stands behind its length.

    Where three zeros stand only in lengths, as before texts of less than 256 bytes, all lengths are
    found at once: a dictionary has tens of thousands, and to go from one to the next takes longer
    than to decode the column.
    """
    content = np.frombuffer(body, np.uint8)
    high = (content[1:-2] == 0) & (content[2:-1] == 0) & (content[3:] == 0)
    at = np.flatnonzero(high)
    after = at + _OFFSET + content[at]
    if len(at) and at[0] == 0 and after[-1] == len(body) and (after[:-1] == at[1:]).all():
        return int(content[at].max())
    longest = start = 0
    while start < len(body):
        length = int.from_bytes(body[start : start + _OFFSET], "little")
        longest, start = max(longest, length), start + _OFFSET + length
    return longest


def _deltas(read: ThriftBytes, most: int) -> tuple[int, int, int]:
    """Reads the head of numbers in the encoding DELTA_BINARY_PACKED, of which there may be so many:
    the numbers in a block, the parts of a block, and all numbers."""
    in_block, parts, total = read.number(), read.number(), read.number()
    if total > most:
        raise ValueError(f"it says that it has {total:,} lengths, and it has {most:,} values")
    read.number()
    return in_block, parts, total


def _skip_deltas(read: ThriftBytes, most: int) -> None:
    in_block, parts, total = _deltas(read, most)
    if not parts or in_block < 8 * parts:
        raise ValueError("its blocks have no numbers")
    left = total - 1
    while left > 0:
        read.number()
        for width in read.take(parts):
            if left > 0:
                read.take(width * (in_block // parts) // 8)
            left -= in_block // parts


class Room(NamedTuple):
    """How columns of a row group may be read."""

    at_once: int | None
    """How many rows to read together; None: all."""
    streamed: int
    """How many, where the rows before are not kept."""
    flat: int
    """Bytes of the values of all rows, if all of them are NULL."""
    most: int
    """Bytes that all rows may take."""


_groups: Recent[tuple[bytes, int, int], list[_Group]] = Recent(10_000, 32 << 20)
"""By a footer, its columns and the size of its file: each row group opens the file anew, and to
read a footer takes longer than to decode a few columns of a row group."""
_KEPT = 200
"""Bytes that a column of a row group takes there, about."""


class ParquetBounds:
    """What the row groups of a file take in memory."""

    def __init__(
        self,
        stream: Any,
        footer: bytes,
        leaves: Any,
        path: str,
        fetch: Callable[[list[tuple[int, int]]], None] | None = None,
    ) -> None:
        """`leaves`: the columns of its schema. `fetch` is told which parts of the file will be
        read, by their first bytes and lengths."""
        self._stream, self._footer, self._path, self._fetch = stream, footer, path, fetch
        self._leaves = [leaves.column(index) for index in range(len(leaves))]

    @cached_property
    def groups(self) -> list[_Group]:
        """Raises CorruptFile, UnsupportedLayout for encrypted columns."""
        size = int(self._stream.size())
        key = (self._footer, len(self._leaves), size)
        if (known := _groups.get(key)) is not None:
            return known
        try:
            groups = [
                _Group(
                    _least(group[_ROWS_OF_GROUP]),
                    tuple(_stored(column.get(_CHUNK), self._path) for column in group[_COLUMNS]),
                )
                for group in ThriftBytes(self._footer).struct(_FOOTER).get(_GROUPS, [])
            ]
            for group in groups:
                if len(group.chunks) != len(self._leaves):
                    raise ValueError("a row group has other columns than it declares")
                if any(chunk.at + chunk.size > size for chunk in group.chunks):
                    raise ValueError(f"a row group ends after byte {size:,}, where the file ends")
        except (IndexError, KeyError, TypeError, ValueError) as error:
            raise CorruptFile(
                f"{self._path} has a Parquet footer that can't be read: {error}; restore it or drop"
                " its transaction"
            ) from error
        _groups.put(key, groups, len(self._footer) + sum(_KEPT * len(g.chunks) for g in groups))
        return groups

    def _chunks(self, index: int, names: Sequence[str]) -> list[Chunk]:
        chunks = zip(self._leaves, self.groups[index].chunks, strict=True)
        parts = [(leaf, chunk) for leaf, chunk in chunks if _is_part(leaf.path, names)]
        if self._fetch is not None:
            self._fetch([(chunk.at, chunk.size + _OLD_WRITERS) for _, chunk in parts])
        return [Chunk(self._stream, leaf, chunk, self._path) for leaf, chunk in parts]

    def require(self, index: int, names: Sequence[str]) -> Room:
        """How to read these columns of a row group.

        Raises CorruptFile if its texts and lists would take more than LARGEST_PIECE bytes, and more
        than MOST_UNPACKED times as many as in the file, and for a column with more values than so
        few bytes can have.
        """
        rows, chunks = self.groups[index].rows, self._chunks(index, names)
        for chunk in chunks:
            if chunk.values > MOST_REPEATED * max(1, chunk.stored):
                raise CorruptFile(
                    f"{self._path}: row group {index}, column {chunk.name}: {chunk.stored:,} bytes"
                    f" would hold {chunk.values:,} values; write it again with smaller row groups"
                )
        most = max(LARGEST_PIECE, MOST_UNPACKED * sum(chunk.stored for chunk in chunks))
        # One row may have all values of a column of lists: it is no column of many NULLs.
        lists = sum(chunk.fixed for chunk in chunks if chunk.nested)
        if (size := max(lists, sum(chunk.size for chunk in chunks))) > most:
            raise self.too_large(index, size)
        flat = sum(chunk.bare for chunk in chunks if not chunk.nested)
        at_once = ROWS_AT_ONCE if rows > _MANY_ROWS or flat > most else max(rows, 1)
        for chunk in chunks:
            longest = chunk.longest if chunk.values * chunk.size > LARGEST_PIECE else 0
            if chunk.values * longest > LARGEST_PIECE:
                if chunk.nested:
                    raise self.too_large(index, chunk.values * longest)
                at_once = min(at_once, max(1, BATCH_BYTES // longest))
        streamed = min(at_once, ROWS_AT_ONCE, max(1, BATCH_BYTES * max(rows, 1) // max(flat, 1)))
        return Room(at_once if at_once < rows else None, streamed, flat, most + flat)

    def piece_of(self, index: int, rows: int) -> int:
        """How many rows of a row group to read as a piece: all, unless its columns would take far
        more memory than it has bytes, as those of nothing but NULL. Raises CorruptFile."""
        if rows * self._width <= LARGEST_PIECE:
            return max(1, rows)
        stored = sum(chunk.size for chunk in self.groups[index].chunks)
        if rows > MOST_REPEATED * max(1, stored):
            raise self.too_large(index, rows * self._width)
        if rows * self._width <= MOST_UNPACKED * stored:
            return rows
        return max(1, LARGEST_PIECE // 4 // self._width)

    @cached_property
    def _width(self) -> int:
        """Bytes of a row of nothing but NULL."""
        return sum(_width_of(leaf) for leaf in self._leaves if not leaf.max_repetition_level)

    def too_large(self, index: int, size: int) -> CorruptFile:
        return CorruptFile(
            f"{self._path}: row group {index} takes few bytes in the file, and its values would"
            f" take {size >> 20:,} MB; write it again with smaller row groups"
        )


def _width_of(leaf: Any) -> int:
    """Bytes of a value in memory, without those of a text."""
    if leaf.physical_type == "FIXED_LEN_BYTE_ARRAY" or leaf.logical_type.type == "DECIMAL":
        return _POINTER
    return _WIDTHS.get(leaf.physical_type, _OFFSET)


def _is_part(path: str, names: Sequence[str]) -> bool:
    return path in names or path.partition(".")[0] in names
