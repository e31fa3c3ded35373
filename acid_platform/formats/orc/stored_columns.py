"""The columns of a stripe as their bytes in an ORC file: streams in blocks, and row indexes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from isal import isal_zlib

from acid_platform.errors import UnsupportedLayout
from acid_platform.formats.orc.column_statistics import ColumnStatistics, message
from acid_platform.formats.orc.encoding import EncodedColumn, StreamKind
from acid_platform.formats.orc.protobuf import delimited, number, packed

BLOCK = 1 << 16
"""Compression block size: the most that a reader inflates in vain when it seeks a row group."""
_TINY = 128
"""Bytes of a block that would hardly become fewer: calling a codec takes longer than it saves."""


def _deflated(content: memoryview) -> bytes:
    return bytes(isal_zlib.compress(content, level=1, wbits=-15))


def _arrow(codec: str) -> Callable[[memoryview], bytes]:
    return lambda content: bytes(pa.compress(content, codec, asbytes=True))


@dataclass(frozen=True, slots=True)
class Blocks:
    """A stream as stored in the file."""

    content: bytes
    starts: tuple[int, ...] | None
    """The byte at which each block begins, and the end; None without compression."""

    def position(self, byte: int) -> tuple[int, ...]:
        """The position of a byte of the stream: its block, and the bytes to skip once inflated."""
        if self.starts is None:
            return (byte,)
        block, skipped = divmod(byte, BLOCK)
        if byte and block == len(self.starts) - 1:  # some readers refuse to seek to the end
            return self.starts[block - 1], BLOCK
        return self.starts[block], skipped


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """One column of one stripe, as its bytes in the file."""

    index: bytes
    streams: tuple[tuple[StreamKind, bytes], ...]
    encoding: bytes
    statistics: ColumnStatistics


@dataclass(frozen=True, slots=True)
class BlockCodec:
    """A codec of ORC, and how it compresses a block."""

    number: int
    compress: Callable[[memoryview], bytes] | None

    def blocks(self, content: bytes) -> Blocks:
        """A stream in this codec."""
        if self.compress is None:
            return Blocks(content, None)
        parts: list[bytes | memoryview] = []
        starts = [0]
        for at in range(0, len(content), BLOCK):
            block = memoryview(content)[at : at + BLOCK]
            small = self.compress(block) if len(block) > _TINY else block
            stored = len(small) >= len(block)  # the lowest bit says: stored uncompressed
            body = block if stored else small
            parts += [(len(body) << 1 | stored).to_bytes(3, "little"), body]
            starts.append(starts[-1] + 3 + len(body))
        return Blocks(b"".join(parts), tuple(starts))

    def stored(self, column: EncodedColumn) -> StoredColumn:
        """A column in this codec."""
        streams = [self.blocks(stream.content) for stream in column.streams]
        return StoredColumn(
            self.blocks(_row_index(column, streams)).content,
            tuple(
                (stream.kind, blocks.content)
                for stream, blocks in zip(column.streams, streams, strict=True)
            ),
            _encoding(column),
            ColumnStatistics.together(column.groups),
        )


_CODECS = {
    "uncompressed": BlockCodec(0, None),
    "zlib": BlockCodec(1, _deflated),
    "snappy": BlockCodec(2, _arrow("snappy")),
    "lz4": BlockCodec(4, _arrow("lz4_raw")),
    "zstd": BlockCodec(5, _arrow("zstd")),
}
WRITTEN_CODECS = tuple(_CODECS)


def written_codec(codec: str) -> str:
    """The codec of a small file: the table's own, or zlib if that can't be written here."""
    return codec if codec in _CODECS else "zlib"


def require_codec(codec: str, path: str) -> BlockCodec:
    """The codec of this name. Raises UnsupportedLayout if it can't be written here."""
    if codec not in _CODECS:
        compressed = ", ".join(name for name in _CODECS if name != "uncompressed")
        raise UnsupportedLayout(
            f"{path}: the codec {codec} can't be written; set the table's"
            f" orc.compress to none, {compressed}"
        )
    return _CODECS[codec]


def _row_index(column: EncodedColumn, stored: Sequence[Blocks]) -> bytes:
    """ORC's RowIndex: the positions of each row group in the streams, and its statistics."""
    sought = [
        (stream.seeks, blocks)
        for stream, blocks in zip(column.streams, stored, strict=True)
        if stream.seeks
    ]
    entries = []
    for group, statistics in enumerate(column.groups):
        places = [
            position
            for seeks, blocks in sought
            for position in (*blocks.position(seeks[group][0]), *seeks[group][1:])
        ]
        entries.append(
            delimited(1, packed(1, places) + delimited(2, message(statistics, column.type)))
        )
    return b"".join(entries)


def _encoding(column: EncodedColumn) -> bytes:
    size = number(2, column.dictionary_size) if column.dictionary_size else b""
    return delimited(2, number(1, column.encoding) + size)
