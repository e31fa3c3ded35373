"""The listening socket and a thread for each connection."""

from __future__ import annotations

import logging
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from acid_platform.errors import InvalidDefinition
from acid_platform.gateway.framing import Limits, Malformed, Message, read_message

_LOG = logging.getLogger(__name__)
_ACCEPT_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Bounds:
    """What clients may use of this process."""

    connections: int = 1000
    message_seconds: float = 60.0
    """How long a message may take to arrive once its first bytes are there."""
    message: Limits = field(default_factory=Limits)


class Server:
    """Accepts connections and answers their messages until `stop`.

    `answer` gets a message's bytes and the peer's address, and returns the bytes of its answer. It
    is called from the connection's thread. `leave` is called when the thread ends.
    """

    def __init__(
        self,
        host: str,
        port: int,
        answer: Callable[[bytes, str], bytes],
        leave: Callable[[], None] = lambda: None,
        bounds: Bounds | None = None,
    ) -> None:
        """Listens at once; port 0 takes a free one. Raises InvalidDefinition."""
        self._answer, self._leave = answer, leave
        self._bounds = bounds or Bounds()
        self._stopping = threading.Event()
        self._guard = threading.Lock()
        self._open: dict[socket.socket, threading.Thread] = {}
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._listener = socket.create_server((host, port), family=family, backlog=128)
        except OSError as error:
            raise InvalidDefinition(
                f"can't listen on {host}:{port}: {error}; choose another --listen"
            ) from error
        self._listener.settimeout(_ACCEPT_SECONDS)

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._listener.getsockname()[:2]
        return str(host), int(port)

    @property
    def connections(self) -> int:
        return len(self._open)

    def serve(self) -> None:
        """Accepts connections until `stop`."""
        while not self._stopping.is_set():
            try:
                connection, peer = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:
                if self._stopping.is_set():
                    break
                _LOG.warning("accepting a connection failed", exc_info=True)
                time.sleep(_ACCEPT_SECONDS)  # as when no file descriptor is left
                continue
            self._admit(connection, f"{peer[0]}:{peer[1]}")

    def stop(self, patience: float = 10.0) -> None:
        """Accepts nothing more, lets running calls end for `patience` seconds, closes the rest."""
        self._stopping.set()
        self._listener.close()
        with self._guard:
            threads = dict(self._open)
        for connection in threads:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RD)  # an idle connection ends at once
        deadline = time.monotonic() + patience
        for thread in threads.values():
            thread.join(max(0.0, deadline - time.monotonic()))
        for connection in threads:
            with suppress(OSError):
                connection.close()

    def _admit(self, connection: socket.socket, peer: str) -> None:
        if len(self._open) >= self._bounds.connections:
            _LOG.warning(
                "%s: refused, %s connections are open (--connections)", peer, len(self._open)
            )
            connection.close()
            return
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        thread = threading.Thread(
            target=self._converse, args=(connection, peer), daemon=True, name=f"gateway-{peer}"
        )
        with self._guard:
            self._open[connection] = thread
        thread.start()

    def _converse(self, connection: socket.socket, peer: str) -> None:
        """Answers one message after the other until the client leaves or sends what is none."""
        stream = _Stream(connection, self._bounds.message_seconds)
        try:
            while not self._stopping.is_set():
                message = read_message(stream.read, self._bounds.message)
                if message is None:
                    break
                stream.rest()
                self._reply(connection, message, peer)
        except Malformed as error:
            _LOG.warning("%s: closed: %s", peer, error)
        except OSError as error:
            _LOG.info("%s: the connection ended: %s", peer, error)
        except Exception:
            _LOG.exception("%s: closed after an unexpected error", peer)
        finally:
            with self._guard:
                self._open.pop(connection, None)
            with suppress(OSError):
                connection.close()
            self._leave()

    def _reply(self, connection: socket.socket, message: Message, peer: str) -> None:
        answer = self._answer(message.payload, peer)
        frame = struct.pack("!I", len(answer)) if message.framed else b""
        connection.settimeout(self._bounds.message_seconds)
        connection.sendall(frame + answer)


class _Stream:
    """Reads a connection, and limits the time from the first byte of a message to its last."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self._connection, self._seconds = connection, seconds
        self._buffer = bytearray()
        self._deadline: float | None = None

    def rest(self) -> None:
        """The message is complete; the client may take any time until the next one."""
        self._deadline = None

    def read(self, count: int) -> bytes:
        """`count` bytes, or fewer at the end. Raises OSError, TimeoutError."""
        while len(self._buffer) < count:
            if self._deadline is None and not self._buffer:
                self._connection.settimeout(None)
            else:
                if self._deadline is None:
                    self._deadline = time.monotonic() + self._seconds
                left = self._deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError("a message did not arrive in time")
                self._connection.settimeout(left)
            got = self._connection.recv(max(65536, min(count - len(self._buffer), 1 << 20)))
            if not got:
                break
            if self._deadline is None:
                self._deadline = time.monotonic() + self._seconds
            self._buffer += got
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken
