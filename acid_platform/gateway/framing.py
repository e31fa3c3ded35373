"""Cuts messages out of the bytes that arrive, and refuses what can't be one within the limits.

A message in the binary protocol carries no length, so its end is found by walking over its fields;
a framed message is preceded by its length and walked over too. The walk goes on where it stopped
when more bytes arrive, so a slow client costs no thread and no second walk. What passes here can be
decoded without reading past the end, without deep recursion and with memory in proportion to its
bytes.

Before the first call a client may say who it is by SASL. A message of it is a status byte, the
length of its content in four bytes, and the content. The client sends START with a mechanism and
then its response; the server answers COMPLETE, or BAD with the reason. Afterwards both sides send
frames. Only PLAIN is spoken: a user and a password."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum

VERSION_1 = 0x8001
_STOP, _BOOL, _BYTE, _DOUBLE, _I16, _I32, _I64 = 0, 2, 3, 4, 6, 8, 10
_STRING, _STRUCT, _MAP, _SET, _LIST = 11, 12, 13, 14, 15
_FIXED = {_BOOL: 1, _BYTE: 1, _DOUBLE: 8, _I16: 2, _I32: 4, _I64: 8}
_HEADS = {**dict.fromkeys(_FIXED, 0), _STRING: 4, _STRUCT: 0, _MAP: 6, _SET: 5, _LIST: 5}
"""Bytes in front of the content of a value: its size, and the types of its elements."""
CALLS, ANSWERS = frozenset({1, 4}), frozenset({2, 3})
"""Types of messages: calls, and calls that want no answer; replies and exceptions."""
_FRAME = 4
_AT_ONCE = 20_000
"""Values that are walked over before other connections have their turn."""


class MalformedMessage(Exception):
    """The bytes are no message that is accepted; the connection has to end."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a message may need."""

    bytes: int = 16 << 20
    values: int = 250_000
    """Fields and elements: a million of them take more than two seconds to decode."""
    text: int = 1 << 20
    """Bytes of one text."""
    depth: int = 40
    name: int = 200
    """Bytes of the name of a call."""
    kinds: frozenset[int] = CALLS


@dataclass(frozen=True, slots=True)
class Message:
    """A call as bytes of the binary protocol, and whether it came in a frame."""

    payload: bytes
    framed: bool


class Cutter:
    """Collects the bytes of one connection, and cuts messages out of them."""

    def __init__(self, limits: Limits, only_frames: bool = False) -> None:
        """`only_frames`: every message has to be framed, as after SASL."""
        self._limits, self._only_frames = limits, only_frames
        self._buffer = bytearray()
        self._walk: _Walk | None = None
        self.has_more = False
        """Whether `next` stopped to let others have their turn, and goes on when it is called."""
        self._frame = 0
        """The length of the frame that is read; 0 for a message without a frame."""

    def feed(self, content: bytes | bytearray) -> None:
        self._buffer += content

    @property
    def pending(self) -> int:
        """The number of bytes that no message has used yet."""
        return len(self._buffer)

    def next(self) -> Message | None:
        """The next message, or None until more bytes arrive. Raises MalformedMessage."""
        if self._walk is None and not self._begin():
            return None
        assert self._walk is not None
        framed = bool(self._frame)
        start = _FRAME if framed else 0
        if framed and len(self._buffer) < start + self._frame:
            return None  # a frame is looked at when it is whole
        end = start + self._frame if framed else len(self._buffer)
        self.has_more = False
        if not self._walk.advance(end):
            if self._walk.paused:
                self.has_more = True
                return None
            if framed:
                raise MalformedMessage("a message does not end inside its frame")
            return None
        at = self._walk.at
        if framed and at != end:
            raise MalformedMessage(
                f"a frame of {self._frame} bytes has {end - at} bytes after its message"
            )
        payload = bytes(memoryview(self._buffer)[start:at])
        del self._buffer[:at]
        self._walk, self._frame = None, 0
        return Message(payload, framed)

    def end(self) -> None:
        """The stream has ended. Raises MalformedMessage inside a message."""
        if self._buffer:
            raise MalformedMessage(
                f"the connection ended inside a {'frame' if self._frame else 'message'}"
            )

    def _begin(self) -> bool:
        """Looks at the first four bytes of a message or frame; False if they are not there yet."""
        if len(self._buffer) < _FRAME:
            return False
        head = bytes(self._buffer[:_FRAME])
        (word,) = struct.unpack("!I", head)
        if word >> 16 == VERSION_1 and not self._only_frames:
            self._walk = _Walk(self._buffer, 0, self._limits)
            return True
        if not _FRAME <= word <= self._limits.bytes:
            raise MalformedMessage(
                f"{head!r} begins neither a message of the binary protocol nor a frame of at most"
                f" {self._limits.bytes:,} bytes; Thrift is spoken here, not HTTP or TLS"
                if not self._only_frames
                else f"{head!r} begins no frame of at most {self._limits.bytes:,} bytes"
            )
        self._frame, self._walk = word, _Walk(self._buffer, _FRAME, self._limits)
        return True


class _Walk:
    """Walks over one message; `at` is the place in the buffer up to which it has come.

    The walk is a generator, which stops where bytes are missing and goes on when they are there.
    """

    def __init__(self, buffer: bytearray, at: int, limits: Limits) -> None:
        self.at = self._end = at
        self._buffer, self._limits = buffer, limits
        self._most = at + limits.bytes
        self._values = limits.values
        self._pause_at = self._values - _AT_ONCE
        self.paused = False
        """Whether it stopped although more bytes are there."""
        self._steps = self._message()

    def advance(self, end: int) -> bool:
        """Goes on to the end of the message (True) or of the bytes. Raises MalformedMessage."""
        self._end, self.paused = end, False
        return next(self._steps, True)

    def _pauses(self) -> bool:
        if self._values > self._pause_at:
            return False
        self._pause_at = self._values - _AT_ONCE
        self.paused = True
        return True

    def _message(self) -> Iterator[bool]:
        """Passes version, type, name and sequence number, and the arguments."""
        while self.at + 8 > self._end:
            yield False
        word, size = struct.unpack_from("!Ii", self._buffer, self.at)
        if word >> 16 != VERSION_1:
            raise MalformedMessage(
                f"a frame begins with {bytes(self._buffer[self.at : self.at + 4])!r}, not with a"
                " message of the binary protocol"
            )
        kind = word & 0xFF
        if word & 0xFF00 or kind not in self._limits.kinds:
            what = "a call" if self._limits.kinds is CALLS else "an answer"
            raise MalformedMessage(f"a message of type {kind} is not {what}")
        if _sized(size) > self._limits.name:
            raise MalformedMessage(f"the name of a call has {size:,} bytes")
        self._pass(8 + size + 4)
        yield from self._struct(1)
        while self.at > self._end:
            yield False

    def _struct(self, depth: int) -> Iterator[bool]:
        """Passes the fields of a struct at this depth, and its end."""
        while True:
            while self.at >= self._end:
                yield False
            kind = self._buffer[self.at]
            if kind == _STOP:
                self._pass(1)
                return
            if kind not in _HEADS:
                raise MalformedMessage(f"a message has a value of the unknown type {kind}")
            while self.at + 3 + _HEADS[kind] > self._end:
                yield False
            self._pass(3)
            self._count(1)
            if self._pauses():
                yield False
            yield from self._value(kind, depth)

    def _value(self, kind: int, depth: int) -> Iterable[bool]:
        """Passes a value whose head has arrived; returns the walk over the values inside of it."""
        if kind in _FIXED:
            self._pass(_FIXED[kind])
        elif kind == _STRING:
            (size,) = struct.unpack_from("!i", self._buffer, self.at)
            self._pass(4 + _sized(size))
            if size > self._limits.text:
                raise MalformedMessage(
                    f"a text has {size:,} bytes; at most {self._limits.text:,} are read"
                )
        elif depth > self._limits.depth:
            raise MalformedMessage(f"a message is nested deeper than {self._limits.depth} levels")
        elif kind == _STRUCT:
            return self._struct(depth + 1)
        else:
            return self._collection(2 if kind == _MAP else 1, depth + 1)
        return ()

    def _collection(self, types: int, depth: int) -> Iterator[bool]:
        """Passes a list, set or map, whose values take so many types in turn."""
        kinds = tuple(self._buffer[self.at : self.at + types])
        (size,) = struct.unpack_from("!i", self._buffer, self.at + types)
        count = _sized(size)
        self._pass(types + 4)
        if not count:
            return
        if unknown := [kind for kind in kinds if kind not in _HEADS]:
            raise MalformedMessage(f"a message has elements of the unknown type {unknown[0]}")
        self._count(count * types)
        if all(kind in _FIXED for kind in kinds):
            self._pass(count * sum(_FIXED[kind] for kind in kinds))
            return
        for number in range(count):
            if number % _AT_ONCE == _AT_ONCE - 1:
                self.paused = True
                yield False
            for kind in kinds:
                while self.at + _HEADS[kind] > self._end:
                    yield False
                yield from self._value(kind, depth)

    def _pass(self, count: int) -> None:
        """Skips bytes; they may not have arrived yet."""
        self.at += count
        if self.at > self._most:
            raise MalformedMessage(f"a message has more than {self._limits.bytes:,} bytes")

    def _count(self, values: int) -> None:
        self._values -= values
        if self._values < 0:
            raise MalformedMessage(f"a message has more than {self._limits.values:,} values")


def _sized(size: int) -> int:
    if size < 0:
        raise MalformedMessage(f"a message has a negative size, {size}")
    return size


_HEAD = 5
_MOST = 4096
"""Bytes of a message."""
_KERBEROS = (
    "Kerberos (GSSAPI) is not spoken here, because a ticket can't be checked without the keytab and"
    " the libraries of a Kerberos realm; use PLAIN over TLS (hive.metastore.client.auth.mode=PLAIN)"
    " or a client certificate, and set hive.metastore.sasl.enabled=false or Trino's"
    " hive.metastore.authentication.type=NONE"
)
_OTHERS = {
    "GSSAPI": _KERBEROS,
    "GSS-SPNEGO": _KERBEROS,
    "DIGEST-MD5": "delegation tokens (DIGEST-MD5) are not given out here; use PLAIN",
}


class SaslStatus(IntEnum):
    START = 1
    OK = 2
    BAD = 3
    ERROR = 4
    COMPLETE = 5


@dataclass(frozen=True, slots=True)
class Login:
    """What the client says: its user and the proof."""

    user: str
    password: str


class LoginRefused(Exception):
    """The negotiation failed; the text is for the client."""


def begins(content: bytes | bytearray) -> bool:
    """Whether a connection's first five bytes begin SASL, and not a frame of 16 MiB."""
    return content[:4] == b"\x01\0\0\0" and content[4] != 0x80


def written(status: SaslStatus, content: bytes = b"") -> bytes:
    return struct.pack("!BI", status, len(content)) + content


def login(received: bytes | bytearray) -> Login | None:
    """Who wants to log in, by all bytes of the client so far; None until more arrive.

    Raises LoginRefused for what is answered with BAD, and MalformedMessage for what is no SASL.
    """
    opening, end = _message(received, 0)
    if opening is None:
        return None
    status, content = opening
    if status is not SaslStatus.START:
        raise MalformedMessage(f"SASL begins with {status.name}, not with START")
    mechanism = _shown(content)
    if mechanism != "PLAIN":
        reason = _OTHERS.get(mechanism, f"the mechanism {mechanism!r} is not spoken; use PLAIN")
        raise LoginRefused(reason)
    response, end = _message(received, end)
    if response is None:
        return None
    status, content = response
    if status not in (SaslStatus.OK, SaslStatus.COMPLETE):
        raise LoginRefused(f"the client ended the negotiation: {_shown(content)}")
    if len(received) > end:
        raise MalformedMessage("more bytes follow the client's response before it was answered")
    return _plain(content)


def _message(
    received: bytes | bytearray, start: int
) -> tuple[tuple[SaslStatus, bytes] | None, int]:
    """The message at this place, None until it is whole, and where it ends."""
    content = start + _HEAD
    if len(received) < content:
        return None, start
    number, size = struct.unpack_from("!BI", received, start)
    if number not in set(SaslStatus):
        raise MalformedMessage(f"{number} is not the status of a SASL message")
    if size > _MOST:
        raise MalformedMessage(f"a SASL message has {size:,} bytes; at most {_MOST:,} are read")
    end = content + size
    if len(received) < end:
        return None, start
    return (SaslStatus(number), bytes(received[content:end])), end


def _plain(content: bytes) -> Login:
    """The response of PLAIN: an identity to act as, the user, the password. Raises LoginRefused."""
    parts = content.split(b"\0")
    if len(parts) != 3:
        raise LoginRefused("the response of PLAIN has to be [identity] NUL user NUL password")
    try:
        acting, user, password = (part.decode() for part in parts)
    except UnicodeDecodeError as error:
        raise LoginRefused("user and password have to be UTF-8") from error
    if acting not in ("", user):
        raise LoginRefused(f"user {user!r} may not act as {acting!r}")
    if not user or not password:
        raise LoginRefused("user and password may not be empty")
    return Login(user, password)


def _shown(content: bytes) -> str:
    """A text of the client, safe to print and of bounded length."""
    return content[:60].decode("ascii", "replace").encode("ascii", "backslashreplace").decode()


def client_opening(user: str, password: str) -> bytes:
    """What a client sends to log in."""
    response = f"\0{user}\0{password}".encode()
    return written(SaslStatus.START, b"PLAIN") + written(SaslStatus.COMPLETE, response)
