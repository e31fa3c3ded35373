"""The protocol of a connection: frames, and the handshake that comes first.

A frame is a length of four bytes, followed by that many bytes. A length that is too large is
refused before any of its bytes are stored. In the handshake each end proves that it knows the key
without sending it: HMAC-SHA256 over the challenges of both ends. Until then a frame may have 512
bytes and has to match one regular expression, so no parser reads what a stranger sends, and none of
it is repeated anywhere.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from acid_platform.errors import MetastoreIncompatible

if TYPE_CHECKING:
    import ssl

PROTOCOL = 1
"""Changes when old clients and new servers can't understand each other."""

LEADER, STANDBY = "leader", "standby"
"""The role that a server tells: it leads its log, or stands by."""

LARGEST_MESSAGE = 64 << 20
LARGEST_GREETING = 512
GREETING_SECONDS = 10.0
"""How long a client waits for each step of the server's part of the handshake."""

LOOK_SECONDS = 2.0
"""After so many seconds without an answer a client looks whether another one leads, and
again after as many."""

SILENCE_SECONDS = 10.0
"""After so many seconds without a sign of life from the other machine a connection ends."""

NEEDS_TLS = b'{"refused": "tls"}'
"""What a server with TLS says, in plain bytes, to a client that waits for its greeting."""

_LENGTH = struct.Struct("!I")


class Malformed(Exception):
    """The bytes are not a frame of an allowed length, or not a handshake."""


class Refused(Exception):
    """The other end does not accept our key, or does not know it."""


class NoTls(Exception):
    """The server asks for TLS."""


def frame(payload: bytes) -> bytes:
    return _LENGTH.pack(len(payload)) + payload


class Frames:
    """Cuts a stream of bytes into frames. Raises Malformed as soon as a length is too large."""

    __slots__ = ("_buffer", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._buffer = bytearray()

    @property
    def pending(self) -> bool:
        """Whether bytes wait here that no frame was made of."""
        return bool(self._buffer)

    @property
    def whole(self) -> bool:
        """Whether `feed` would have a frame, or refuse one, without more bytes."""
        if len(self._buffer) < _LENGTH.size:
            return False
        size = int(_LENGTH.unpack_from(self._buffer)[0])
        return size > self.limit or len(self._buffer) >= _LENGTH.size + size

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The frames that are complete so far. `limit` may change between two frames."""
        buffer = self._buffer
        buffer += data
        while len(buffer) >= _LENGTH.size:
            size = _LENGTH.unpack_from(buffer)[0]
            if size > self.limit:
                raise Malformed(f"a message of {size:,} bytes; at most {self.limit:,} are taken")
            end = _LENGTH.size + size
            if len(buffer) < end:
                return
            payload = bytes(buffer[_LENGTH.size : end])
            del buffer[:end]
            yield payload


# --- handshake ----------------------------------------------------------------------------------


def challenge() -> str:
    return secrets.token_hex(32)


def greeting(own: str, proof: str | None = None, role: str = "", epoch: int = 0) -> bytes:
    """The first message of each end, and the second of the server, which has its proof and role."""
    fields: dict[str, object] = {"acid": PROTOCOL, "challenge": own}
    if proof is not None:
        fields["proof"] = proof
    if role:
        fields |= {"role": role, "epoch": epoch}
    return json.dumps(fields).encode()


def proof(key: bytes, end: str, of_server: str, of_client: str) -> str:
    """The proof of one end; the two proofs differ, so that neither end can echo the other's."""
    text = f"{end} {of_server} {of_client}".encode()
    return hmac.new(key, text, hashlib.sha256).hexdigest()


_GREETING = re.compile(
    rb'\{"acid": (\d{1,9}), "challenge": "([0-9a-f]{64})"(?:, "proof": "([0-9a-f]{64})")?'
    rb'(?:, "role": "([a-z]{1,20})", "epoch": (\d{1,18}))?\}'
)
_OTHER_VERSION = re.compile(rb'\{"acid": (\d{1,9})[,}]')
_REFUSAL = re.compile(rb'\{"refused": "([\w .,:-]{1,200})"\}', re.ASCII)


@dataclass(frozen=True, slots=True)
class Greeting:
    """What one end says in the handshake; `refused` is the reason of a server that ends it."""

    protocol: int = 0
    challenge: str = ""
    proof: str = ""
    role: str = ""
    epoch: int = 0
    refused: str = ""

    def proves(self, expected: str) -> bool:
        """Whether it has this proof; compared in constant time."""
        return hmac.compare_digest(self.proof, expected)


def read_greeting(payload: bytes) -> Greeting:
    """What `greeting` or `refusal` wrote; of another version of the protocol only its number.

    Raises Malformed, without any of the bytes.
    """
    if match := _GREETING.fullmatch(payload):
        protocol, challenge, proof, role, epoch = (part.decode() for part in match.groups(b""))
        return Greeting(int(protocol), challenge, proof, role, int(epoch or 0))
    if other := _OTHER_VERSION.match(payload):
        number = int(other[1])
        if number != PROTOCOL:
            return Greeting(number)
    if refused := _REFUSAL.fullmatch(payload):
        return Greeting(refused=refused[1].decode())
    raise Malformed("these bytes are not the greeting of a metastore or of its client")


def refusal(why: str) -> bytes:
    """The last message of a server that does not let a client in."""
    return b'{"refused": "%s"}' % why.encode()


# --- the client's end ---------------------------------------------------------------------------


class Channel:
    """A connection after its handshake: one message out, one answer in.

    Raises OSError (including TimeoutError), EOFError or Malformed, and can't be used afterwards.
    """

    def __init__(
        self, sock: socket.socket, key: bytes, greeting_seconds: float = GREETING_SECONDS
    ) -> None:
        self._sock = sock
        self._frames = Frames(LARGEST_MESSAGE)
        self._arrived: list[bytes] = []
        self._timeout: float | None = -1.0
        self.role, self.epoch = LEADER, 0
        try:
            self._greet(key, greeting_seconds)
        except BaseException:
            sock.close()
            raise

    def exchange(
        self, message: bytes, patience: float, replaced: Callable[[], bool] | None = None
    ) -> bytes:
        """The answer, within `patience` seconds.

        While there is none, `replaced` is asked now and then whether another metastore has taken
        over; then there will be none.
        """
        self._wait_at_most(patience)
        self._sock.sendall(frame(message))
        if replaced is not None:
            self._wait_at_most(min(LOOK_SECONDS, patience))
        return self._receive(time.monotonic() + patience, patience, replaced)

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

    def _receive(
        self, deadline: float, patience: float, replaced: Callable[[], bool] | None = None
    ) -> bytes:
        while not self._arrived:
            try:
                data = self._sock.recv(1 << 18)
            except TimeoutError:
                if replaced is None or time.monotonic() > deadline:
                    raise
                if replaced():
                    raise EOFError("another metastore has taken over") from None
                continue
            if not data:
                raise EOFError("the connection was closed")
            self._arrived.extend(self._frames.feed(data))
            if not self._arrived and time.monotonic() > deadline:
                raise TimeoutError(f"no answer within {patience:.0f} s")
        return self._arrived.pop(0)

    def _greet(self, key: bytes, seconds: float) -> None:
        """Raises Refused, NoTls, Malformed, MetastoreIncompatible, OSError, EOFError."""
        self._wait_at_most(seconds)
        self._frames.limit = LARGEST_GREETING
        deadline = time.monotonic() + seconds
        first = self._receive(deadline, seconds)
        if first == NEEDS_TLS:
            raise NoTls
        theirs = read_greeting(first)
        if theirs.refused:
            raise Refused(theirs.refused)
        require_protocol(theirs.protocol)
        own = challenge()
        answer_proof = proof(key, "client", theirs.challenge, own)
        self._sock.sendall(frame(greeting(own, answer_proof)))
        answer = read_greeting(self._receive(deadline, seconds))
        if answer.refused:
            raise Refused(answer.refused)
        if not answer.proves(proof(key, "server", theirs.challenge, own)):
            raise Refused("it does not know the key itself")
        self.role, self.epoch = answer.role or LEADER, answer.epoch
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


def dial_tcp(
    host: str,
    port: int,
    key: bytes,
    tls: ssl.SSLContext | None = None,
    seconds: float = GREETING_SECONDS,
    silence: float = SILENCE_SECONDS,
) -> Channel:
    """Connects within `seconds`, and as many for each step of the handshake.

    With `tls`, the certificate must be valid for `host`: raises ssl.SSLError. The connection ends
    after `silence` seconds in which the other machine acknowledges nothing.
    """
    sock = socket.create_connection((host, port), timeout=seconds)
    tune(sock, silence)
    if tls is not None:
        sock = tls.wrap_socket(sock, server_hostname=host)
    return Channel(sock, key, seconds)


def tune(sock: socket.socket, silence: float | None = None) -> None:
    """Sends short messages without delay, and notices when the other machine has vanished: after
    about `silence` seconds, or two minutes."""
    if sock.family == socket.AF_UNIX:
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    idle, interval, count = 60, 15, 4
    options = {}
    if silence is not None:
        count = 3
        interval = max(1, round(silence / 5))
        idle = max(1, round(silence) - count * interval)
        # Also for what was sent and is not acknowledged, where no keep-alive is sent.
        options["TCP_USER_TIMEOUT"] = round(1000 * silence)
    options |= {"TCP_KEEPIDLE": idle, "TCP_KEEPINTVL": interval, "TCP_KEEPCNT": count}
    for name, value in options.items():
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
