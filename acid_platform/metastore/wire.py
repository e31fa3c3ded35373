"""The protocol of a connection: frames, and the handshake that comes first.

A frame is a length of four bytes, followed by that many bytes. A length that is too large is
refused before any of its bytes are stored. In the handshake each end proves that it knows the key
without sending it: HMAC-SHA256 over the challenges of both ends. Until then a frame may have 512
bytes.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import select
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

from acid_platform.errors import MetastoreIncompatible

PROTOCOL = 5
"""Changes when old clients and new servers can't understand each other."""

PRIMARY, STANDBY, WAITING = "primary", "standby", "waiting"
"""The role that a server tells: it serves, follows a primary, or waits for its own standby."""

LARGEST_MESSAGE = 64 << 20
LARGEST_GREETING = 512
GREETING_SECONDS = 10.0
"""How long a client waits for each step of the server's part of the handshake."""

_LENGTH = struct.Struct("!I")


class Malformed(Exception):
    """The bytes are not a frame of an allowed length, or not a handshake."""


class Refused(Exception):
    """The other end does not accept our key, or does not know it."""


def frame(payload: bytes) -> bytes:
    return _LENGTH.pack(len(payload)) + payload


class Frames:
    """Cuts a stream of bytes into frames. Raises Malformed as soon as a length is too large."""

    __slots__ = ("_kept", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._kept = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The frames that are complete so far. `limit` may change between two frames."""
        kept = self._kept
        kept += data
        while len(kept) >= _LENGTH.size:
            size = _LENGTH.unpack_from(kept)[0]
            if size > self.limit:
                raise Malformed(f"a message of {size:,} bytes; at most {self.limit:,} are taken")
            end = _LENGTH.size + size
            if len(kept) < end:
                return
            payload = bytes(kept[_LENGTH.size : end])
            del kept[:end]
            yield payload


# --- handshake ----------------------------------------------------------------------------------


def challenge() -> str:
    return secrets.token_hex(32)


def greeting(own: str, proof: str | None = None, role: str = "", term: int = 0) -> bytes:
    """The first message of each end, and the second of the server, which has its proof and role."""
    fields: dict[str, object] = {"acid": PROTOCOL, "challenge": own}
    if proof is not None:
        fields["proof"] = proof
    if role:
        fields |= {"role": role, "term": term}
    return json.dumps(fields).encode()


def proof(key: bytes, end: str, of_server: str, of_client: str) -> str:
    """The proof of one end; the two proofs differ, so that neither end can echo the other's."""
    said = f"{end} {of_server} {of_client}".encode()
    return hmac.new(key, said, hashlib.sha256).hexdigest()


def read_greeting(payload: bytes) -> dict[str, Any]:
    """Raises Malformed."""
    try:
        said = json.loads(payload)
        if isinstance(said, dict) and (isinstance(said.get("acid"), int) or "refused" in said):
            return said
    except (ValueError, RecursionError):
        pass
    raise Malformed("these bytes are not the greeting of a metastore or of its client")


def proves(said: dict[str, Any], expected: str) -> bool:
    given = said.get("proof")
    return isinstance(given, str) and hmac.compare_digest(given.encode(), expected.encode())


# --- the client's end ---------------------------------------------------------------------------


class Channel:
    """A connection after its handshake: one message out, one answer in.

    Raises OSError (including TimeoutError), EOFError or Malformed, and can't be used afterwards.
    """

    def __init__(self, sock: socket.socket, key: bytes) -> None:
        self._sock = sock
        self._frames = Frames(LARGEST_MESSAGE)
        self._arrived: list[bytes] = []
        self._timeout: float | None = -1.0
        self.role, self.term = PRIMARY, 0
        try:
            self._greet(key)
        except BaseException:
            sock.close()
            raise

    def exchange(self, message: bytes, patience: float) -> bytes:
        """The answer, within `patience` seconds."""
        self._wait_at_most(patience)
        self._sock.sendall(frame(message))
        return self._receive(time.monotonic() + patience, patience)

    def close(self) -> None:
        self._sock.close()

    @property
    def ended(self) -> bool:
        """Whether the other end has closed the connection: nothing else can arrive between
        exchanges."""
        look = select.poll()
        look.register(self._sock, select.POLLIN)
        return bool(look.poll(0))

    def _wait_at_most(self, seconds: float) -> None:
        if seconds != self._timeout:
            self._sock.settimeout(seconds)
            self._timeout = seconds

    def _receive(self, deadline: float, patience: float) -> bytes:
        while not self._arrived:
            data = self._sock.recv(1 << 18)
            if not data:
                raise EOFError("the connection was closed")
            self._arrived.extend(self._frames.feed(data))
            if not self._arrived and time.monotonic() > deadline:
                raise TimeoutError(f"no answer within {patience:.0f} s")
        return self._arrived.pop(0)

    def _greet(self, key: bytes) -> None:
        """Raises Refused, Malformed, MetastoreIncompatible, OSError, EOFError."""
        self._wait_at_most(GREETING_SECONDS)
        self._frames.limit = LARGEST_GREETING
        deadline = time.monotonic() + GREETING_SECONDS
        theirs = read_greeting(self._receive(deadline, GREETING_SECONDS))
        require_protocol(theirs.get("acid"))
        own = challenge()
        asked = str(theirs.get("challenge"))
        self._sock.sendall(frame(greeting(own, proof(key, "client", asked, own))))
        answer = read_greeting(self._receive(deadline, GREETING_SECONDS))
        if "refused" in answer:
            raise Refused(str(answer["refused"]))
        if not proves(answer, proof(key, "server", asked, own)):
            raise Refused("it does not know the key itself")
        self.role, self.term = str(answer.get("role", PRIMARY)), int(answer.get("term", 0))
        self._frames.limit = LARGEST_MESSAGE


def require_protocol(theirs: object) -> None:
    """Raises MetastoreIncompatible."""
    if theirs != PROTOCOL:
        raise MetastoreIncompatible(
            f"the metastore speaks protocol {theirs}, this program {PROTOCOL}; use the same version"
            " of the program at both ends"
        )


def dial_unix(path: str, key: bytes) -> Channel:
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.settimeout(GREETING_SECONDS)
        sock.connect(path)
    except OSError:
        sock.close()
        raise
    return Channel(sock, key)


def dial_tcp(host: str, port: int, key: bytes) -> Channel:
    sock = socket.create_connection((host, port), timeout=GREETING_SECONDS)
    tune(sock)
    return Channel(sock, key)


def tune(sock: socket.socket) -> None:
    """Sends short messages without delay, and notices when the other machine has died."""
    if sock.family == socket.AF_UNIX:
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
