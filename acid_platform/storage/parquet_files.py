"""Parquet files by the types that Parquet says, whoever wrote them (P64).

Arrow's writers, and so those of pandas and Polars, add a note to the footer that names Arrow's own
types, such as `large_string` or dictionaries. No other reader knows it, and the values beneath are
plain texts and numbers; it is not read here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyarrow import parquet

from acid_platform.base.file_bounds import LARGEST_FOOTER, MOST_NESTED
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
    return parquet.ParquetFile(stream, metadata=known, **_OPTIONS)


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


def batches_of(
    file: parquet.ParquetFile, names: Sequence[str], rows: int = 1 << 17
) -> Iterator[pa.RecordBatch]:
    """These columns of the file, at most so many rows at a time."""
    yield from file.iter_batches(rows, columns=list(names), use_threads=False)
