"""Cuts messages out of a stream of bytes, and refuses what can't be a message within the limits.

A message in the binary protocol carries no length, so its end is found by walking over its fields;
a framed message is preceded by its length and walked over too. What passes here can be decoded
without reading past the end, without deep recursion and with memory in proportion to its bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

VERSION_1 = 0x8001
_SASL_START = 0x01000000
_STOP, _BOOL, _BYTE, _DOUBLE, _I16, _I32, _I64 = 0, 2, 3, 4, 6, 8, 10
_STRING, _STRUCT, _MAP, _SET, _LIST = 11, 12, 13, 14, 15
_FIXED = {_BOOL: 1, _BYTE: 1, _DOUBLE: 8, _I16: 2, _I32: 4, _I64: 8}
_KINDS = {*_FIXED, _STRING, _STRUCT, _MAP, _SET, _LIST}
_CALL, _ONEWAY = 1, 4


class Malformed(Exception):
    """The bytes are no message that is accepted; the connection has to end."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a message may need."""

    bytes: int = 64 << 20
    values: int = 4_000_000
    """Fields and elements: each takes tens of bytes of memory once it is decoded."""
    depth: int = 40
    name: int = 200
    """Bytes of the name of a call."""


@dataclass(frozen=True, slots=True)
class Message:
    """A call as bytes of the binary protocol, and whether it came in a frame."""

    payload: bytes
    framed: bool


def read_message(read: Callable[[int], bytes], limits: Limits) -> Message | None:
    """The next message; None at the end of the stream between two messages.

    `read(n)` returns exactly n bytes, or fewer (also none) at the end of the stream. Raises
    Malformed, and whatever `read` raises.
    """
    head = read(4)
    if not head:
        return None
    if len(head) < 4:
        raise Malformed("the connection ended inside a message")
    (word,) = struct.unpack("!I", head)
    if word >> 16 == VERSION_1:
        walk = _Walk(read, limits)
        walk.message(head)
        return Message(b"".join(walk.parts), False)
    if word == _SASL_START:
        raise Malformed(
            "the client asks for SASL, as with Kerberos, which the gateway does not speak; set"
            " hive.metastore.sasl.enabled=false, or Trino's hive.metastore.authentication.type=NONE"
        )
    if not 4 <= word <= limits.bytes:
        raise Malformed(
            f"{head!r} begins neither a message of the binary protocol nor a frame of at most"
            f" {limits.bytes:,} bytes; the gateway speaks Thrift, not HTTP or TLS"
        )
    body = _Body(read(word))
    if len(body.content) < word:
        raise Malformed("the connection ended inside a frame")
    inner = body.read(4)
    if struct.unpack("!I", inner)[0] >> 16 != VERSION_1:
        raise Malformed(f"a frame begins with {inner!r}, not with a message of the binary protocol")
    _Walk(body.read, limits).message(inner)
    if body.at != word:
        raise Malformed(f"a frame of {word} bytes has {word - body.at} bytes after its message")
    return Message(body.content, True)


class _Body:
    """The content of a frame as a stream."""

    def __init__(self, content: bytes) -> None:
        self.content, self.at = content, 0

    def read(self, count: int) -> bytes:
        taken = self.content[self.at : self.at + count]
        self.at += len(taken)
        return taken


class _Walk:
    """Walks over one message and collects its bytes in `parts`."""

    def __init__(self, read: Callable[[int], bytes], limits: Limits) -> None:
        self._read, self._limits = read, limits
        self._left, self._values = limits.bytes, limits.values
        self.parts: list[bytes] = []

    def message(self, head: bytes) -> None:
        self._left -= 4
        self.parts.append(head)
        if head[2] != 0 or head[3] not in (_CALL, _ONEWAY):
            raise Malformed(f"a message of type {head[3]} is not a call")
        name = self._size()
        if name > self._limits.name:
            raise Malformed(f"the name of a call has {name:,} bytes")
        self._take(name)
        self._take(4)  # the sequence number
        self._struct(0)

    def _take(self, count: int) -> bytes:
        if count > self._left:
            raise Malformed(f"a message has more than {self._limits.bytes:,} bytes")
        taken = self._read(count) if count else b""
        if len(taken) < count:
            raise Malformed("the connection ended inside a message")
        self._left -= count
        self.parts.append(taken)
        return taken

    def _size(self) -> int:
        (size,) = struct.unpack("!i", self._take(4))
        if size < 0:
            raise Malformed(f"a message has a negative size, {size}")
        return int(size)

    def _count(self, values: int) -> None:
        self._values -= values
        if self._values < 0:
            raise Malformed(f"a message has more than {self._limits.values:,} values")

    def _struct(self, depth: int) -> None:
        if depth > self._limits.depth:
            raise Malformed(f"a message is nested deeper than {self._limits.depth} levels")
        while (kind := self._take(1)[0]) != _STOP:
            self._take(2)
            self._count(1)
            self._value(kind, depth)

    def _value(self, kind: int, depth: int) -> None:
        if kind in _FIXED:
            self._take(_FIXED[kind])
        elif kind == _STRING:
            self._take(self._size())
        elif kind == _STRUCT:
            self._struct(depth + 1)
        elif kind in (_SET, _LIST):
            element = self._take(1)[0]
            self._elements((element,), self._size(), depth + 1)
        elif kind == _MAP:
            pair = self._take(2)
            self._elements((pair[0], pair[1]), self._size(), depth + 1)
        else:
            raise Malformed(f"a message has a value of the unknown type {kind}")

    def _elements(self, kinds: tuple[int, ...], count: int, depth: int) -> None:
        """`count` elements, each of one value (list, set) or two (map)."""
        if not count:
            return
        if depth > self._limits.depth:
            raise Malformed(f"a message is nested deeper than {self._limits.depth} levels")
        unknown = [kind for kind in kinds if kind not in _KINDS]
        if unknown:
            raise Malformed(f"a message has elements of the unknown type {unknown[0]}")
        self._count(count * len(kinds))
        if all(kind in _FIXED for kind in kinds):
            self._take(count * sum(_FIXED[kind] for kind in kinds))
            return
        for _ in range(count):
            for kind in kinds:
                self._value(kind, depth)
