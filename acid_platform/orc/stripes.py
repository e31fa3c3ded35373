"""The stripes of an ORC file: where each is, its writer's time zone, and one alone as a file."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from acid_platform.orc.protobuf import delimited, fields, number, read_varint
from acid_platform.orc.tail import Postscript

UTC = "GMT"
_MAGIC = b"ORC"
_HEADER_LENGTH, _CONTENT_LENGTH, _STRIPES, _ROWS, _STATISTICS = 1, 2, 3, 6, 7
_USER_METADATA, _WRITER, _VERSION = 5, 9, 12
_CPP = 1
_STORED, _ZLIB, _SNAPPY, _ZSTD = 0, 1, 2, 5
_ZONE = 3


@dataclass(frozen=True, slots=True)
class Stripe:
    """A stripe by its first byte and the lengths of its parts in bytes."""

    offset: int
    index: int
    data: int
    footer: int
    rows: int

    @property
    def footer_offset(self) -> int:
        return self.offset + self.index + self.data


def stripes(footer: bytes) -> Iterator[Stripe]:
    """The stripes that a file's footer names. Raises IndexError, ValueError."""
    for field in fields(footer):
        if field.number == _STRIPES:
            values = {each.number: each.value for each in fields(field.payload)}
            yield Stripe(*(values.get(key, 0) for key in range(1, 6)))


def is_ours(footer: bytes) -> bool:
    """Whether this platform wrote the file: with the id of ORC's C++ writer, but no version of it.

    Its timestamps are in UTC.
    """
    values = {field.number: field.value for field in fields(footer)}
    return values.get(_WRITER) == _CPP and _VERSION not in values


def decompressed(chunks: bytes, compression: int) -> bytes | None:
    """The content of compressed chunks; None for a codec that is not known here.

    Raises IndexError, ValueError, zlib.error, ArrowException.
    """
    if compression == _STORED:
        return chunks
    if compression not in (_ZLIB, _SNAPPY, _ZSTD):
        return None
    parts, at = [], 0
    while at < len(chunks):
        header = int.from_bytes(chunks[at : at + 3], "little")
        at += 3 + (header >> 1)
        part = chunks[at - (header >> 1) : at]
        parts.append(part if header & 1 else _expanded(part, compression))
    return b"".join(parts)


def _expanded(part: bytes, compression: int) -> bytes:
    if compression == _ZLIB:
        return zlib.decompress(part, wbits=-zlib.MAX_WBITS)
    if compression == _SNAPPY:
        size, _ = read_varint(part, 0)
        return bytes(pa.decompress(part, size, "snappy"))
    with pa.CompressedInputStream(pa.BufferReader(part), "zstd") as stream:
        return bytes(stream.read())


def writer_zone(stripe_footer: bytes) -> str:
    """The time zone of a stripe's timestamps; UTC if it names none.

    Raises IndexError, ValueError.
    """
    for field in fields(stripe_footer):
        if field.number == _ZONE and field.payload:
            return field.payload.decode()
    return UTC


def alone_in_utc(
    stripe: Stripe, body: bytes, stripe_footer: bytes, footer: bytes, postscript: Postscript
) -> bytes:
    """A file of this stripe alone, which says that its timestamps are in UTC.

    `body`: the stripe's bytes before its footer; `stripe_footer` and `footer`: decompressed.
    """
    described = postscript.chunks(
        b"".join(field.raw for field in fields(stripe_footer) if field.number != _ZONE)
        + delimited(_ZONE, UTC.encode())
    )
    start = len(_MAGIC)
    lengths = (start, stripe.index, stripe.data, len(described), stripe.rows)
    left_out = (_HEADER_LENGTH, _CONTENT_LENGTH, _STRIPES, _USER_METADATA, _ROWS, _STATISTICS)
    tail = postscript.chunks(
        number(_HEADER_LENGTH, start)
        + number(_CONTENT_LENGTH, start + len(body) + len(described))
        + delimited(_STRIPES, b"".join(number(key, one) for key, one in enumerate(lengths, 1)))
        + b"".join(field.raw for field in fields(footer) if field.number not in left_out)
        + number(_ROWS, stripe.rows)
    )
    return _MAGIC + body + described + tail + postscript.renewed(len(tail), metadata=0)
