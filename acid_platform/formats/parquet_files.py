"""Parquet files by the types that Parquet says, whoever wrote them (P64).

Arrow's writers, and so those of pandas and Polars, add a note to the footer that names Arrow's own
types, such as `large_string` or dictionaries. No other reader knows it, and the values beneath are
plain texts and numbers; it is not read here. What a file would unpack to is looked at before it is
read (P65).
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from acid_platform.base.file_bounds import (
    LARGEST_DATABASE,
    LARGEST_FOOTER,
    LARGEST_PIECE,
    MOST_NESTED,
    MOST_PARTS,
)
from acid_platform.errors import CorruptFile, UnsupportedLayout
from acid_platform.formats.parquet_pages import ParquetBounds
from acid_platform.formats.thrift import ThriftBytes
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
    "arrow_extensions_enabled": False,
    "page_checksum_verification": True,
    "schema_depth_limit": 2 * MOST_NESTED,  # a list is two levels
}


def open_parquet(stream: pa.NativeFile, path: str, unit: str = "us") -> parquet.ParquetFile:
    """The file of a path. Times of 96 bits are read in microseconds: nanoseconds, which `unit` may
    ask for, end in 2262. Its `bounds` look at a row group before it is read.

    Raises CorruptFile, UnsupportedLayout for an encrypted one, and Arrow's errors: call it inside
    of `reading`.
    """
    footer = _footer(stream, path).replace(_NOTE, _NO_NOTE)
    ahead, opened = None, stream
    if not path.startswith("/") and not isinstance(stream, pa.BufferReader):
        ahead = AheadFile(stream)
        opened = pa.PythonFile(ahead, "r")
    options = _OPTIONS | {"coerce_int96_timestamp_unit": unit}
    known = parquet.ParquetFile(pa.BufferReader(footer), **options).metadata
    file = parquet.ParquetFile(opened, metadata=known, **options)
    file.as_stored = file
    bare, hold = footer[len(_MAGIC) : -_END], ahead.hold if ahead else None
    if any(has_leaf(kind, _is_narrow) for kind in file.schema_arrow.types):
        try:
            wide = _MAGIC + _with_whole_numbers(bare) + footer[-_END:]
        except (IndexError, KeyError, StopIteration, ValueError) as error:
            raise CorruptFile(f"{path} has a Parquet footer that can't be read: {error}") from error
        known = parquet.ParquetFile(pa.BufferReader(wide), **options).metadata
        file.as_stored = parquet.ParquetFile(opened, metadata=known, **options)
    _refuse_variants(bare, file, path)
    file.reader_stream, file.path = stream, path
    file.bounds = ParquetBounds(ahead or stream, bare, file.schema, path, hold)
    return file


def with_codes(file: parquet.ParquetFile, names: Sequence[str]) -> parquet.ParquetFile:
    """An open file, of which these texts come as they are stored, with a dictionary."""
    if file.as_stored is not file or not names:
        return file
    again = parquet.ParquetFile(
        file.reader_stream, metadata=file.metadata, read_dictionary=list(names), **_OPTIONS
    )
    again.as_stored, again.path, again.bounds = again, file.path, file.bounds
    return again


class _Places(ThriftBytes):
    """Finds where the values of a struct are written."""

    def places(self) -> Iterator[tuple[int, int]]:
        """The number of each field of a struct, and where its value begins."""
        number = 0
        while (head := self._content[self.at]) != 0:
            self.at += 1
            number = number + (head >> 4) if head > 15 else self._signed(4)
            yield number, self.at
            self._skip(head & 15, 0)
        self.at += 1

    def elements(self) -> Iterator[dict[int, int]]:
        """The places of each struct in a list."""
        for _ in range(self._list()[0]):
            yield dict(self.places())


_WIDE = 32
_SCHEMA_AT, _CONVERTED_AT, _LOGICAL_AT, _INTEGER_AT, _BITS_AT, _SIGN_AT = 2, 6, 10, 10, 1, 2
"""Fields of a footer, of a column in its schema, and of the type of a whole number."""
_VARIANT_AT = 16
_NARROW_KINDS, _WIDE_KIND = (22, 24, 30, 32), 34
"""UINT_8, UINT_16, INT_8 and INT_16, and INT_32, as they are written."""


def _with_whole_numbers(footer: bytes) -> bytes:
    """The footer with columns of 32 bits in place of those of 8 and 16, which have 32 bits in the
    file: Arrow would cut a number that is beyond its type."""
    content = bytearray(footer)
    schema = next(at for number, at in _Places(footer).places() if number == _SCHEMA_AT)
    for column in _Places(footer, schema).elements():
        if _CONVERTED_AT in column and footer[column[_CONVERTED_AT]] in _NARROW_KINDS:
            content[column[_CONVERTED_AT]] = _WIDE_KIND
        logical = column.get(_LOGICAL_AT)
        kinds = dict(_Places(footer, logical).places()) if logical else {}
        if _INTEGER_AT in kinds:
            whole = dict(_Places(footer, kinds[_INTEGER_AT]).places())
            if footer[whole[_BITS_AT]] < _WIDE:
                content[whole[_BITS_AT]] = _WIDE
                sign = whole[_SIGN_AT] - 1  # a boolean is told by the kind of its field
                content[sign] = content[sign] & 0xF0 | 1
    return bytes(content)


def _refuse_variants(footer: bytes, file: parquet.ParquetFile, path: str) -> None:
    """Raises UnsupportedLayout for a column of the type VARIANT: Arrow gives the two or three parts
    of its encoding, of which a reader that leaves out one has other values."""
    kinds = file.schema_arrow.types
    if b"metadata" not in footer or not any(map(pa.types.is_nested, kinds)):
        return
    places = _Places(footer)
    schema = next((at for number, at in places.places() if number == _SCHEMA_AT), None)
    for column in _Places(footer, schema).elements() if schema is not None else ():
        logical = column.get(_LOGICAL_AT)
        if logical and _VARIANT_AT in dict(_Places(footer, logical).places()):
            raise UnsupportedLayout(
                f"{path} has a column of the type VARIANT, which is not read yet; write it as JSON"
                " text, in Spark by to_json(column) and in DuckDB by CAST(column AS JSON)"
            )


def _is_narrow(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) and kind.bit_width < _WIDE)


def _as_typed(rows: pa.RecordBatch | pa.Table, file: parquet.ParquetFile) -> Any:
    """Rows of `file.as_stored` with the types of the file. Raises CorruptFile for a whole number
    that is beyond its type."""
    if file.as_stored is file:
        return rows
    for index, name in enumerate(rows.schema.names):
        kind = file.schema_arrow.field(name).type
        if rows.schema.types[index] != kind:
            try:
                column = rows.column(index).cast(kind)
            except pa.ArrowInvalid as error:
                raise CorruptFile(
                    f"{file.path}, column {name}, says that its type is {kind}, and holds"
                    f" another value: {error}; write the file again with a wider type"
                ) from error
            rows = rows.set_column(index, name, column)
    return rows


_GAP = 1 << 20
"""Bytes that are fetched with those before and after them rather than asking twice."""


class AheadFile(io.RawIOBase):
    """A file of an object store. The parts that will be decoded are fetched before, so that to look
    at the headers in them asks the store for nothing more."""

    def __init__(self, stream: Any) -> None:
        super().__init__()
        self._stream, self._size, self._at = stream, int(stream.size()), 0
        self._held: list[tuple[int, bytes]] = []

    def hold(self, parts: Sequence[tuple[int, int]]) -> None:
        """Fetches these parts, by their first bytes and lengths, in place of others."""
        joined = list[tuple[int, int]]()
        for start, length in sorted(parts):
            end = min(start + length, self._size)
            if joined and start <= joined[-1][1] + _GAP:
                joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
            else:
                joined.append((start, end))
        few = sum(end - start for start, end in joined) <= LARGEST_PIECE
        self._held = []
        for start, end in joined if few else ():
            self._held.append((start, self._stream.read_at(max(0, end - start), start)))

    def read(self, size: int = -1) -> bytes:
        start = self._at
        end = self._size if size < 0 else min(start + size, self._size)
        self._at = max(start, end)
        for begin, content in self._held:
            if begin <= start and end <= begin + len(content):
                return content[start - begin : end - begin]
        return bytes(self._stream.read_at(max(0, end - start), start))

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def size(self) -> int:
        return self._size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True


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
        raise CorruptFile(
            f"{path} does not end as a Parquet file does; restore it, or write it again"
        )
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


def batches_of(file: parquet.ParquetFile, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """These columns of the file, some rows at a time. Raises CorruptFile as `row_group`."""
    for index in range(file.num_row_groups):
        yield from _streamed(file, index, names)


def require_bounded(stream: pa.NativeFile, path: str) -> None:
    """Looks at a file of which somebody else will read whole row groups, and reads those that might
    be too large. Raises CorruptFile as `row_group`, and what `open_parquet` raises."""
    file = open_parquet(stream, path)
    names = file.schema_arrow.names
    for index in range(file.num_row_groups):
        room = file.bounds.require(index, names)
        if room.flat > max(LARGEST_DATABASE, room.most - room.flat):
            raise file.bounds.too_large(index, room.flat)
        if room.at_once is not None:
            for _ in _bounded(file, index, names, room.at_once, room.most):
                pass
    stream.seek(0)


def has_fine_times(stream: pa.NativeFile, path: str, columns: Sequence[str] | None = None) -> bool:
    """Whether a time of these columns, or of all, has digits below a microsecond. Raises as
    `batches_of`."""
    nanos, micros = (open_parquet(stream, path, unit) for unit in ("ns", "us"))
    names = [
        field.name
        for field in nanos.schema_arrow
        if has_leaf(field.type, is_fine) and (columns is None or field.name in columns)
    ]
    if not names:
        return False
    pairs = zip(batches_of(nanos, names), batches_of(micros, names), strict=True)
    return any(
        has_lost_digits(fine, cut)
        for fine_batch, cut_batch in pairs
        for pair in zip(fine_batch.columns, cut_batch.columns, strict=True)
        for fine, cut in zip(*map(leaves, pair), strict=True)
        if is_fine(fine.type)
    )


def is_fine(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.unit == "ns")


def has_lost_digits(nanos: pa.Array, micros: pa.Array) -> bool:
    """Whether microseconds lose digits. Values of 96 bits that overflow nanoseconds, of which
    `micros` has the microseconds, are skipped."""
    fine = filled(nanos, 0) % 1000 != 0
    return bool((fine & ~_beyond(micros)).any())


def overflows_nanoseconds(micros: pa.Array) -> bool:
    """Whether there are years that nanoseconds can't hold."""
    return bool(pa.types.is_timestamp(micros.type) and _beyond(micros).any())


def _beyond(micros: pa.Array) -> Any:
    if is_fine(micros.type):
        return np.zeros(len(micros), bool)
    return np.abs(filled(micros, 0)) >= (1 << 63) // 1000


def row_group(file: parquet.ParquetFile, index: int, names: Sequence[str]) -> pa.Table:
    """These columns of a row group. Raises CorruptFile as `ParquetBounds.require`."""
    room = file.bounds.require(index, names)
    at_once = room.at_once
    batches = [] if at_once is None else list(_bounded(file, index, names, at_once, room.most))
    if not batches:
        return _as_typed(file.as_stored.read_row_group(index, columns=list(names)), file)
    return pa.Table.from_batches(batches)


def parts_of(
    file: parquet.ParquetFile, index: int, names: Sequence[str], rows: int
) -> Iterator[pa.Table]:
    """These columns of a row group, so many rows at a time. Raises CorruptFile as `row_group`."""
    held, missing = list[pa.RecordBatch](), rows
    for batch in _streamed(file, index, names):
        while batch.num_rows:
            held.append(batch.slice(0, missing))
            batch, missing = batch.slice(missing), missing - held[-1].num_rows
            if not missing:
                yield pa.Table.from_batches(held)
                held, missing = [], rows
    if held:
        yield pa.Table.from_batches(held)


def _streamed(
    file: parquet.ParquetFile, index: int, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    room = file.bounds.require(index, names)
    return _bounded(file, index, names, room.streamed, room.most)


def _bounded(
    file: parquet.ParquetFile, index: int, names: Sequence[str], rows: int, most: int
) -> Iterator[pa.RecordBatch]:
    """Some rows at a time. Raises CorruptFile for more bytes than that."""
    read = 0
    for batch in file.as_stored.iter_batches(rows, [index], list(names), use_threads=False):
        read += batch.nbytes
        if read > most:
            raise file.bounds.too_large(index, read)
        yield _as_typed(batch, file)
