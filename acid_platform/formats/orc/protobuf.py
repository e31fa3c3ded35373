"""Reading and writing the fields of Protocol Buffers messages, for ORC's footers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple


class UnreadableMessage(ValueError):
    """Bytes that are no message."""


class Field(NamedTuple):
    """A field of a message: a varint's `value`, or the `payload` of a length-delimited field."""

    number: int
    value: int
    payload: bytes
    raw: bytes
    """The encoded field, including its key."""


_SHORT = [bytes([value]) for value in range(128)]
"""The numbers that take one byte, which most of a footer's do."""


def varint(value: int) -> bytes:
    if 0 <= value < 128:
        return _SHORT[value]
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def zigzag(value: int) -> int:
    """Zigzag encoding: numbers near 0 become small."""
    return value << 1 if value >= 0 else (-value << 1) - 1


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at byte `at`, and the byte after it.

    Raises UnreadableMessage if the data ends first, and for more than ten bytes: longer ones would
    take time in proportion to the square of their length.
    """
    shift = value = 0
    while shift < 70 and at < len(data):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if not byte & 128:
            return value, at
    raise UnreadableMessage("a number has more than 64 bits, or its bytes are cut off")


_WIDTHS = {1: 8, 5: 4}
"""The bytes of values of a fixed width, by their wire types."""


def fields(message: bytes) -> Iterator[Field]:
    """The fields of a message in order.

    Fields of other programs may have a fixed width, and are passed over. Raises UnreadableMessage.
    """
    at, size = 0, len(message)
    while at < size:
        start = at
        key = message[at]
        at += 1
        if key > 127:
            key, at = read_varint(message, start)
        value, payload = 0, b""
        if key & 7 == 0:
            value, at = read_varint(message, at)
        elif key & 7 == 2:
            length, at = read_varint(message, at)
            payload = message[at : at + length]
            at += length
        elif key & 7 in _WIDTHS:
            at += _WIDTHS[key & 7]
        else:
            raise UnreadableMessage(f"a field has the wire type {key & 7}")
        if at > size:
            raise UnreadableMessage("a field is cut off")
        yield Field(key >> 3, value, payload, message[start:at])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def delimited(field: int, payload: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(payload)) + payload


def packed(field: int, values: Iterable[int]) -> bytes:
    return delimited(field, b"".join(map(varint, values)))


def unpacked(message: bytes, field: int) -> list[int]:
    """The numbers of a repeated field, which may be packed or not: readers take both. Raises what
    `fields` raises."""
    numbers = []
    for part in fields(message):
        if part.number != field:
            continue
        if part.raw[0] & 7 == 0:
            numbers.append(part.value)
        at = 0
        while at < len(part.payload):
            value, at = read_varint(part.payload, at)
            numbers.append(value)
    return numbers
