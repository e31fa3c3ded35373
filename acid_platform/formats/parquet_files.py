"""Parquet files by the types that Parquet says, whoever wrote them (P64).

Arrow's writers, and so those of pandas and Polars, add a note to the footer that names Arrow's own
types, such as `large_string` or dictionaries. No other reader knows it, and the values beneath are
plain texts and numbers; it is not read here. What a file would unpack to is looked at before it is
read (P65).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice

import pyarrow as pa
from pyarrow import parquet

from acid_platform.base.file_bounds import (
    BATCH_BYTES,
    LARGEST_FOOTER,
    LARGEST_NUMBERS,
    LARGEST_PIECE,
    MOST_NESTED,
    MOST_UNPACKED,
)
from acid_platform.errors import CorruptFile, UnsupportedLayout

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
    return _MAGIC + tail[-length - _END :]


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


def _bounded(
    file: parquet.ParquetFile, index: int, names: Sequence[str], path: str, rows: int
) -> Iterator[pa.RecordBatch]:
    chunks = _chunks(file, index, names)
    most = max(LARGEST_PIECE, MOST_UNPACKED * sum(chunk.total_compressed_size for chunk in chunks))
    read = 0
    for batch in file.iter_batches(rows, [index], list(names), use_threads=False):
        read += batch.nbytes
        if read > most:
            raise _too_large(path, index, read)
        yield batch


def _chunks(
    file: parquet.ParquetFile, index: int, names: Sequence[str]
) -> list[parquet.ColumnChunkMetaData]:
    # Metadata of a damaged chunk would end the process; reading a row of it raises an error.
    list(islice(file.first_rows.iter_batches(1, [index], list(names), use_threads=False), 1))
    group, leaves = file.metadata.row_group(index), file.schema
    places = (n for n in range(len(leaves)) if _is_part(leaves.column(n).path, names))
    return [group.column(column) for column in places]


def _is_part(path: str, names: Sequence[str]) -> bool:
    return path in names or path.partition(".")[0] in names


def _rows_at_once(
    file: parquet.ParquetFile, index: int, names: Sequence[str], path: str
) -> int | None:
    """How many rows of a row group to read together; None: all. Its footer says little of that: a
    long value that is stored once may be the value of every row."""
    chunks = _chunks(file, index, names)
    stored = MOST_UNPACKED * sum(chunk.total_compressed_size for chunk in chunks)
    packed = sum(
        max(chunk.total_uncompressed_size, _unpacked(file, chunk, path)) for chunk in chunks
    )
    fixed = sum(chunk.num_values * _WIDTHS.get(chunk.physical_type, _OFFSET) for chunk in chunks)
    if packed > max(stored, LARGEST_PIECE) or fixed > max(stored, LARGEST_NUMBERS):
        raise _too_large(path, index, max(packed, fixed))
    rows = int(file.metadata.row_group(index).num_rows)
    at_once = _ROWS if rows > _MANY_ROWS else rows
    for chunk in chunks:
        if chunk.physical_type != "BYTE_ARRAY":
            continue
        if not {"RLE_DICTIONARY", "PLAIN_DICTIONARY", "DELTA_BYTE_ARRAY"} & {*chunk.encodings}:
            continue
        if chunk.num_values * chunk.total_uncompressed_size <= LARGEST_PIECE:
            continue
        longest = _longest(file, chunk)
        if chunk.num_values * longest > LARGEST_PIECE:
            if chunk.num_values != rows:  # one row may have all values
                raise _too_large(path, index, chunk.num_values * longest)
            at_once = min(at_once, max(1, BATCH_BYTES // longest))
    return at_once if at_once < rows else None


def _unpacked(file: parquet.ParquetFile, chunk: parquet.ColumnChunkMetaData, path: str) -> int:
    """How many bytes the pages of a column unpack to, which the footer need not say. Pages in an
    object store are not looked at: each would be a request."""
    stream, total = file.reader_stream, 0
    if not (path.startswith("/") or isinstance(stream, pa.BufferReader)):
        return 0
    at = min(chunk.data_page_offset, chunk.dictionary_page_offset or chunk.data_page_offset)
    end = min(at + chunk.total_compressed_size, stream.size())
    while 0 <= at < end:
        for length in (_HEADER, _LONG_HEADER):
            with suppress(IndexError):
                stream.seek(at)
                header = bytes(stream.read(length))
                size, packed = _page_sizes(header)
                at, total = at + _struct_end(header, 0) + packed, total + size
                break
        else:
            return total  # as Arrow will find
    return total


_HEADER, _LONG_HEADER = 1 << 8, 1 << 24
"""Bytes of the header of a page; Arrow reads at most so many."""


def _number_at(content: bytes, at: int) -> tuple[int, int]:
    """A number of variable length, and where it ends. Raises IndexError."""
    value = shift = 0
    while True:
        byte, at = content[at], at + 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def _struct_end(content: bytes, at: int) -> int:
    """Where a struct of Thrift's compact protocol ends. Raises IndexError."""
    while (head := content[at]) != 0:
        at += 1
        if head < 16:
            at = _number_at(content, at)[1]
        at = _value_end(content, at, head & 15)
    return at + 1


def _value_end(content: bytes, at: int, kind: int) -> int:
    if kind in (1, 2):  # a boolean is told by its kind
        return at
    if kind in (4, 5, 6):
        return _number_at(content, at)[1]
    if kind == 8:
        length, at = _number_at(content, at)
        return at + length
    if kind == 12:
        return _struct_end(content, at)
    if kind in (3, 7):
        return at + (1 if kind == 3 else 8)
    raise IndexError("no header of a page has such a value")


def _too_large(path: str, index: int, size: int) -> CorruptFile:
    return CorruptFile(
        f"{path}: row group {index} takes few bytes in the file, and its values would take"
        f" {size >> 20:,} MB; write it again with smaller row groups"
    )


def _longest(file: parquet.ParquetFile, chunk: parquet.ColumnChunkMetaData) -> int:
    """The bytes of the longest text in a dictionary, or more than it can have."""
    try:
        start, end = int(chunk.dictionary_page_offset), int(chunk.data_page_offset)
        if "DELTA_BYTE_ARRAY" in chunk.encodings or not 0 < end - start <= LARGEST_FOOTER:
            return int(chunk.total_uncompressed_size)
        stream = file.reader_stream
        stream.seek(start)
        page = bytes(stream.read(end - start))
        size, packed = _page_sizes(page)
        body = page[-packed:]
        if chunk.compression in _CODECS and size <= LARGEST_FOOTER:
            body = pa.Codec(chunk.compression.lower()).decompress(body, size, asbytes=True)
        elif chunk.compression != "UNCOMPRESSED":
            return int(chunk.total_uncompressed_size)
        longest = at = 0
        while at < len(body):
            length = int.from_bytes(body[at : at + 4], "little")
            longest, at = max(longest, length), at + 4 + length
        return max(longest, 1)
    except (ValueError, TypeError, IndexError, OSError, pa.ArrowException):
        return int(chunk.total_uncompressed_size)


def _page_sizes(header: bytes) -> tuple[int, int]:
    """The sizes of a page before and after compression, the second and third number of a header in
    Thrift's compact protocol. Raises IndexError."""
    numbers, at = [], 0
    for _ in range(3):
        value, at = _number_at(header, at + 1)
        numbers.append(value >> 1)
    return numbers[1], numbers[2]
