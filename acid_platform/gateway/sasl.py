"""SASL over Thrift: the messages before the first call, in which a client says who it is.

A message is a status byte, the length of its content in four bytes, and the content. The client
sends START with a mechanism and then its response; the server answers COMPLETE, or BAD with the
reason. Afterwards both sides send frames. Only PLAIN is spoken: a user and a password.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

from acid_platform.gateway.framing import MalformedMessage

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
