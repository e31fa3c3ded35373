"""Parquet files by the types that Parquet says, whoever wrote them (P64).

Arrow's writers, and so those of pandas and Polars, add a note to the footer that names Arrow's own
types, such as `large_string` or dictionaries. No other reader knows it, and the values beneath are
plain texts and numbers; it is not read here. What a file would unpack to is looked at before it is
read (P65).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from acid_platform.base.file_bounds import (
    BATCH_BYTES,
    LARGEST_FOOTER,
    LARGEST_NUMBERS,
    LARGEST_PIECE,
    MOST_NESTED,
    MOST_PARTS,
    MOST_UNPACKED,
)
from acid_platform.errors import CorruptFile, UnsupportedLayout
from acid_platform.values.arrow_types import filled, has_leaf, leaves

_MAGIC, _ENCRYPTED = b"PAR1", b"PARE"
_END = 8
"""Bytes after the footer: its length and the magic."""
_TAIL = 1 << 16
"""Bytes to read first, in which most footers are."""
_NOTE = b"\x18\x0cARROW:schema\x18"
_NO_NOTE = b"\x18\x0c-----:schema\x18"
"""The key of Arrow's note as Thrift writes it, and one of the same length that nobody knows."""


_OPTIONS = {
    "coerce_int96_timestamp_unit": "us",
    "arrow_extensions_enabled": False,
    "page_checksum_verification": True,
    "schema_depth_limit": 2 * MOST_NESTED,  # a list is two levels
}


def open_parquet(stream: pa.NativeFile, path: str) -> parquet.ParquetFile:
    """The file of a path, whose times of 96 bits are read in microseconds: nanoseconds end in 2262.

    Raises CorruptFile, UnsupportedLayout for an encrypted one, and Arrow's errors: call it inside
    of `reading`.
    """
    footer = _footer(stream, path).replace(_NOTE, _NO_NOTE)
    known = parquet.ParquetFile(pa.BufferReader(footer), **_OPTIONS).metadata
    file = parquet.ParquetFile(stream, metadata=known, **_OPTIONS)
    file.reader_stream = stream
    file.first_rows = parquet.ParquetFile(stream, metadata=known, pre_buffer=False, **_OPTIONS)
    return file


def noted_schema(stream: pa.NativeFile, path: str) -> pa.Schema:
    """The columns with the types of Arrow's note, some of which have no other meaning than there,
    such as the unit of a duration. Raises as `open_parquet`."""
    footer = pa.BufferReader(_footer(stream, path))
    return parquet.ParquetFile(footer, schema_depth_limit=2 * MOST_NESTED).schema_arrow


def _footer(stream: pa.NativeFile, path: str) -> bytes:
    """The footer between the magic bytes, as in a file of nothing else."""
    size = stream.size()
    stream.seek(max(0, size - _TAIL))
    tail = bytes(stream.read(_TAIL))
    magic, length = tail[-4:], int.from_bytes(tail[-_END:-4], "little")
    if magic == _ENCRYPTED:
        raise UnsupportedLayout(f"{path} is an encrypted Parquet file; decrypt it first")
    if len(tail) < _END + 4 or magic != _MAGIC:
        raise CorruptFile(f"{path} does not end as a Parquet file does; write it again")
    if length > min(size, LARGEST_FOOTER):
        raise CorruptFile(f"{path} says that its Parquet footer has {length:,} bytes")
    if length + _END > len(tail):
        stream.seek(max(0, size - length - _END))
        tail = bytes(stream.read(length + _END))
    stream.seek(0)
    footer = tail[-length - _END :]
    # Each struct ends with a zero, and most have a few more.
    if footer.count(0) > 4 * MOST_PARTS:
        raise CorruptFile(
            f"{path} has a Parquet footer of {length:,} bytes with more than {MOST_PARTS:,} columns"
            " in its row groups; write it again with larger row groups"
        )
    return _MAGIC + footer


def row_group_sizes(file: parquet.ParquetFile, path: str) -> list[int]:
    """The row count of each row group, from the footer.

    Raises CorruptFile if one is negative, or if they do not sum up to the footer's own count.
    """
    metadata = file.metadata
    sizes = [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)]
    counted = metadata.num_rows or sum(sizes)  # some writers leave it at 0
    if min(sizes, default=0) < 0 or sum(sizes) != counted:
        raise CorruptFile(
            f"{path}: its footer says {metadata.num_rows} rows, and {sizes} of its row groups;"
            " restore it or drop its transaction"
        )
    return sizes


def batches_of(
    file: parquet.ParquetFile, names: Sequence[str], path: str
) -> Iterator[pa.RecordBatch]:
    """These columns of the file, some rows at a time. Raises CorruptFile as `row_group`."""
    for index in range(file.num_row_groups):
        rows = _rows_at_once(file, index, names, path)
        yield from _bounded(file, index, names, path, min(rows or _ROWS, _ROWS))


def require_bounded(stream: pa.NativeFile, path: str) -> None:
    """Looks at a file of which somebody else will read whole row groups, and reads those that might
    be too large. Raises CorruptFile as `row_group`, and what `open_parquet` raises."""
    file = open_parquet(stream, path)
    names = file.schema_arrow.names
    for index in range(file.num_row_groups):
        rows = _rows_at_once(file, index, names, path)
        if rows is not None:
            for _ in _bounded(file, index, names, path, rows):
                pass
    stream.seek(0)


def has_fine_times(stream: pa.NativeFile, path: str, columns: Sequence[str] | None = None) -> bool:
    """Whether a time of these columns, or of all, has digits below a microsecond. Raises as
    `require_bounded`."""
    nanos, micros = (
        parquet.ParquetFile(stream, coerce_int96_timestamp_unit=unit) for unit in ("ns", "us")
    )
    names = [
        field.name
        for field in nanos.schema_arrow
        if has_leaf(field.type, _is_fine) and (columns is None or field.name in columns)
    ]
    if not names:
        return False
    require_bounded(stream, path)
    pairs = zip(nanos.iter_batches(columns=names), micros.iter_batches(columns=names), strict=True)
    return any(
        _has_lost_digits(fine, cut)
        for fine_batch, cut_batch in pairs
        for pair in zip(fine_batch.columns, cut_batch.columns, strict=True)
        for fine, cut in zip(*map(leaves, pair), strict=True)
        if _is_fine(fine.type)
    )


def _is_fine(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.unit == "ns")


def _has_lost_digits(nanos: pa.Array, micros: pa.Array) -> bool:
    """Whether microseconds lose digits. Values of 96 bits that overflow nanoseconds, of which
    `micros` has the microseconds, are skipped."""
    fine = filled(nanos, 0) % 1000 != 0
    if not _is_fine(micros.type):
        fine &= np.abs(filled(micros, 0)) < (1 << 63) // 1000
    return bool(fine.any())


def row_group(file: parquet.ParquetFile, index: int, names: Sequence[str], path: str) -> pa.Table:
    """These columns of a row group.

    Raises CorruptFile if its values would have more than LARGEST_PIECE bytes, and more than
    MOST_UNPACKED times as many as in the file.
    """
    rows = _rows_at_once(file, index, names, path)
    if rows is None:
        return file.read_row_group(index, columns=list(names))
    batches = list(_bounded(file, index, names, path, rows))
    if not batches:
        return file.read_row_group(index, columns=list(names))
    return pa.Table.from_batches(batches)


_ROWS = 1 << 17
_MANY_ROWS = 1 << 22
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 8}
_OFFSET = 4
_CODECS = {"SNAPPY", "GZIP", "ZSTD", "BROTLI", "LZ4_RAW"}


@dataclass(frozen=True, slots=True)
class _Chunk:
    """A column of a row group, and of what type its schema says that the values are."""

    stored: parquet.ColumnChunkMetaData
    kind: str
    length: int
    """Bytes of each value, if the type says so; else 0."""

    @property
    def width(self) -> int:
        """The bytes of a value in memory, without those of a text."""
        return self.length or _WIDTHS.get(self.kind, _OFFSET)

    def repeats(self, pages: Sequence[_Page]) -> bool:
        """Whether a value may be longer than its bytes in the file."""
        if pages:
            return any(page.dictionary or page.encoding == _PREFIXED for page in pages)
        return not _REPEATING.isdisjoint(self.stored.encodings)


def _bounded(
    file: parquet.ParquetFile, index: int, names: Sequence[str], path: str, rows: int
) -> Iterator[pa.RecordBatch]:
    chunks = _chunks(file, index, names)
    stored = sum(chunk.stored.total_compressed_size for chunk in chunks)
    most = max(LARGEST_PIECE, MOST_UNPACKED * stored)
    read = 0
    for batch in file.iter_batches(rows, [index], list(names), use_threads=False):
        read += batch.nbytes
        if read > most:
            raise _too_large(path, index, read)
        yield batch


def _chunks(file: parquet.ParquetFile, index: int, names: Sequence[str]) -> list[_Chunk]:
    # Metadata of a damaged chunk would end the process; reading a row of it raises an error.
    list(islice(file.first_rows.iter_batches(1, [index], list(names), use_threads=False), 1))
    group, leaves = file.metadata.row_group(index), file.schema
    found = ((n, leaves.column(n)) for n in range(len(leaves)))
    return [
        _Chunk(group.column(n), leaf.physical_type, leaf.length if _is_fixed(leaf) else 0)
        for n, leaf in found
        if _is_part(leaf.path, names)
    ]


def _is_fixed(leaf: parquet.ColumnSchema) -> bool:
    return bool(leaf.physical_type == "FIXED_LEN_BYTE_ARRAY")


def _is_part(path: str, names: Sequence[str]) -> bool:
    return path in names or path.partition(".")[0] in names


def _rows_at_once(
    file: parquet.ParquetFile, index: int, names: Sequence[str], path: str
) -> int | None:
    """How many rows of a row group to read together; None: all. Its footer says little of that: a
    long value that is stored once may be the value of every row. So the pages are looked at, as
    Arrow will find them: what the footer says of sizes, types and encodings is not believed."""
    chunks = _chunks(file, index, names)
    stored = MOST_UNPACKED * sum(chunk.stored.total_compressed_size for chunk in chunks)
    pages = [_pages(file, chunk.stored, path) for chunk in chunks]
    said = [
        max(chunk.stored.total_uncompressed_size, sum(page.size for page in found))
        for chunk, found in zip(chunks, pages, strict=True)
    ]
    rows = int(file.metadata.row_group(index).num_rows)
    fixed = [chunk.stored.num_values * chunk.width for chunk in chunks]
    # One row may have all values of a column of lists: it is no column of many NULLs.
    lists = [
        size for chunk, size in zip(chunks, fixed, strict=True) if chunk.stored.num_values != rows
    ]
    if (most := max(sum(said), sum(lists))) > max(stored, LARGEST_PIECE):
        raise _too_large(path, index, most)
    if sum(fixed) > max(stored, LARGEST_NUMBERS):
        raise _too_large(path, index, sum(fixed))
    at_once = _ROWS if rows > _MANY_ROWS else rows
    for chunk, found, size in zip(chunks, pages, said, strict=True):
        values, texts = chunk.stored.num_values, chunk.kind == "BYTE_ARRAY" or chunk.length
        if not texts or not chunk.repeats(found):
            continue
        if values * (chunk.length or size) <= LARGEST_PIECE:
            continue
        longest = chunk.length or _longest(file, chunk.stored, found, size)
        if values * longest > LARGEST_PIECE:
            if values != rows:
                raise _too_large(path, index, values * longest)
            at_once = min(at_once, max(1, BATCH_BYTES // longest))
    return at_once if at_once < rows else None


@dataclass(frozen=True, slots=True)
class _Page:
    """What the header of a page says, and where its content begins."""

    at: int
    size: int
    packed: int
    dictionary: bool
    encoding: int


_KIND, _SIZE, _PACKED, _VALUES = 1, 2, 3, 1
"""Fields of a page's header, and of the one in it that tells of values."""
_DATA = {0: (5, 2), 3: (8, 4)}
"""By the kind of a page with values: the field of their header, and in it that of the encoding."""
_DICTIONARY, _PREFIXED = 2, 7
_REPEATING = {"RLE_DICTIONARY", "PLAIN_DICTIONARY", "DELTA_BYTE_ARRAY"}


def _pages(file: parquet.ParquetFile, chunk: parquet.ColumnChunkMetaData, path: str) -> list[_Page]:
    """The pages of a column. Those in an object store are not looked at: each would be a request.

    Raises CorruptFile for a header that can't be read, which Arrow might read otherwise.
    """
    stream, pages, values = file.reader_stream, list[_Page](), 0
    if not (path.startswith("/") or isinstance(stream, pa.BufferReader)):
        return pages
    at = min(chunk.data_page_offset, chunk.dictionary_page_offset or chunk.data_page_offset)
    end = min(at + chunk.total_compressed_size, stream.size())
    while 0 <= at < end and values < chunk.num_values:
        header, after = _header(stream, at, path)
        size, packed = (header.numbers.get(part, 0) for part in (_SIZE, _PACKED))
        if size < 0 or packed < 0:
            raise CorruptFile(f"{path} has a page of Parquet of {min(size, packed):,} bytes")
        kind = header.numbers.get(_KIND, 0)
        part, encoding = _DATA.get(kind, (0, 0))
        data = header.structs.get(part, {})
        pages.append(_Page(after, size, packed, kind == _DICTIONARY, data.get(encoding, 0)))
        values += data.get(_VALUES, 0)
        at = after + packed
    return pages


_HEADERS = (1 << 8, 1 << 12, 1 << 16, 1 << 20, 1 << 24)
"""Bytes to look at for the header of a page; Arrow reads at most the last."""
_DEEPEST, _LONGEST_NUMBER = 20, 10


@dataclass(frozen=True, slots=True)
class _Struct:
    """The numbers of a struct of Thrift's compact protocol, and those of the structs in it, by the
    numbers of the fields. Of two values of one field the last one counts."""

    numbers: dict[int, int] = field(default_factory=dict)
    structs: dict[int, dict[int, int]] = field(default_factory=dict)


def _header(stream: pa.NativeFile, at: int, path: str) -> tuple[_Struct, int]:
    for length in _HEADERS:
        stream.seek(at)
        content = bytes(stream.read(length))
        with suppress(IndexError):
            read = _Struct()
            return read, at + _struct_end(content, 0, read)
        if len(content) < length:
            break
    raise CorruptFile(
        f"{path}: the header of a page of Parquet at byte {at:,} can't be read; restore it or drop"
        " its transaction"
    )


def _number_at(content: bytes, at: int) -> tuple[int, int]:
    """A number of variable length, and where it ends. Raises IndexError."""
    value = 0
    for index in range(_LONGEST_NUMBER):
        byte = content[at + index]
        value |= (byte & 127) << 7 * index
        if byte < 128:
            return value, at + index + 1
    raise IndexError("a number is longer than any")


def _signed_at(content: bytes, at: int) -> tuple[int, int]:
    value, at = _number_at(content, at)
    return value >> 1 ^ -(value & 1), at


def _struct_end(content: bytes, at: int, read: _Struct, depth: int = 0) -> int:
    """Where a struct ends. Raises IndexError."""
    if depth > _DEEPEST:
        raise IndexError("no header of a page is nested so deeply")
    number = 0
    while (head := content[at]) != 0:
        at, kind = at + 1, head & 15
        if head < 16:
            number, at = _signed_at(content, at)
        else:
            number += head >> 4
        if kind in (4, 5, 6):
            read.numbers[number], at = _signed_at(content, at)
        elif kind == 12:
            inner = _Struct()
            at = _struct_end(content, at, inner, depth + 1)
            read.structs[number] = inner.numbers
        else:
            at = _value_end(content, at, kind, depth + 1)
    return at + 1


def _value_end(content: bytes, at: int, kind: int, depth: int) -> int:
    """Where the value of a field ends. Raises IndexError."""
    if kind in (1, 2):  # a boolean is told by its kind
        return at
    if kind in (4, 5, 6):
        return _number_at(content, at)[1]
    if kind == 8:
        length, at = _number_at(content, at)
        return at + length
    if kind == 12:
        return _struct_end(content, at, _Struct(), depth + 1)
    if kind in (3, 7):
        return at + (1 if kind == 3 else 8)
    if kind in (9, 10) and depth < _DEEPEST:
        head, at = content[at], at + 1
        count = head >> 4
        if count == 15:
            count, at = _number_at(content, at)
        return _elements_end(content, at, (head & 15,), count, depth)
    if kind == 11 and depth < _DEEPEST:
        count, at = _number_at(content, at)
        if not count:
            return at
        return _elements_end(content, at + 1, (content[at] >> 4, content[at] & 15), count, depth)
    raise IndexError("no header of a page has such a value")


def _elements_end(content: bytes, at: int, kinds: tuple[int, ...], count: int, depth: int) -> int:
    for _ in range(count):
        for kind in kinds:
            at = at + 1 if kind in (1, 2) else _value_end(content, at, kind, depth + 1)
        if at > len(content):
            raise IndexError("it ends within a list")
    return at


def _too_large(path: str, index: int, size: int) -> CorruptFile:
    return CorruptFile(
        f"{path}: row group {index} takes few bytes in the file, and its values would take"
        f" {size >> 20:,} MB; write it again with smaller row groups"
    )


def _longest(
    file: parquet.ParquetFile,
    chunk: parquet.ColumnChunkMetaData,
    pages: Sequence[_Page],
    size: int,
) -> int:
    """The bytes of the longest text in a dictionary, or more than it can have."""
    page = next((page for page in pages if page.dictionary), None)
    if page is None or any(page.encoding == _PREFIXED for page in pages):
        return size
    try:
        file.reader_stream.seek(page.at)
        body = bytes(file.reader_stream.read(page.packed))
        if chunk.compression in _CODECS and page.size <= LARGEST_FOOTER:
            codec = pa.Codec(chunk.compression.lower())
            body = codec.decompress(body, page.size, asbytes=True)
        elif chunk.compression != "UNCOMPRESSED":
            return size
        longest = at = 0
        while at < len(body):
            length = int.from_bytes(body[at : at + 4], "little")
            longest, at = max(longest, length), at + 4 + length
        return max(longest, 1)
    except (ValueError, TypeError, IndexError, OSError, pa.ArrowException):
        return size
