"""User metadata added to the tail of a finished ORC file (spark.md section 4).

An ORC footer is a protobuf message, so appending serialised `UserMetadataItem`s (field 5) behind
it, as one more uncompressed chunk, gives a valid longer footer; the postscript is rewritten with
the new length. Spark's and Arrow's writers have no option for these keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from acid_platform.errors import CorruptFile

TAIL_BYTES = 1 << 14
"""Enough of a file's end: the postscript is at most 255 bytes."""

_FOOTER_LENGTH = 1
_COMPRESSION = 2
_USER_METADATA = 5
_MAGIC = b"ORC"


@dataclass(frozen=True, slots=True)
class NewTail:
    """Cut `drop` bytes off the end of the file, then append `append`."""

    drop: int
    append: bytes


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    shift = value = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if not byte & 128:
            return value, at


def _fields(message: bytes) -> Iterator[tuple[int, int, bytes]]:
    """(field number, varint value or 0, raw bytes with key) of each field."""
    at = 0
    while at < len(message):
        start = at
        key, at = _read_varint(message, at)
        value = 0
        if key & 7 == 0:
            value, at = _read_varint(message, at)
        elif key & 7 == 2:
            length, at = _read_varint(message, at)
            at += length
        else:
            raise ValueError(f"wire type {key & 7}")
        yield key >> 3, value, message[start:at]


def _delimited(field: int, payload: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(payload)) + payload


def with_user_metadata(tail: bytes, items: Mapping[str, bytes], path: str) -> NewTail:
    """The change that adds `items` to the file whose last bytes are `tail`.

    `path` is for the error text. Raises CorruptFile when the tail is not an ORC postscript.
    """
    length = tail[-1] if tail else 0
    postscript = tail[-1 - length:-1]
    if length < 4 or len(postscript) < length or not postscript.endswith(_MAGIC):
        raise CorruptFile(f"{path} does not end in an ORC postscript; was its writer killed?")
    try:
        fields = list(_fields(postscript))
    except (IndexError, ValueError) as error:
        raise CorruptFile(f"{path} has an unreadable ORC postscript: {error}") from error
    compressed = any(number == _COMPRESSION and value for number, value, _ in fields)
    extra = b"".join(
        _delimited(_USER_METADATA, _delimited(1, key.encode()) + _delimited(2, value))
        for key, value in items.items()
    )
    if compressed:  # a chunk header: length and the bit that says "stored as it is"
        extra = (len(extra) << 1 | 1).to_bytes(3, "little") + extra
    renewed = b"".join(
        _varint(_FOOTER_LENGTH << 3) + _varint(value + len(extra))
        if number == _FOOTER_LENGTH else raw
        for number, value, raw in fields
    )
    return NewTail(1 + length, extra + renewed + bytes([len(renewed)]))
