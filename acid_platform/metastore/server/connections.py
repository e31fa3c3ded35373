"""The server's side of all connections: one selector and no threads, so no client blocks another.

Handshakes, partial messages and slow readers are tracked per connection and continue when bytes
arrive. A client that breaks the protocol loses its connection; the others do not notice. Whoever
has not proved the key makes room for others (P75). `Reception` parses what comes in, and knows who
waits for which answer.
"""

from __future__ import annotations

import json
import logging
import os
import re
import selectors
import socket
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from acid_platform.base.ports import FewLines, Pace, Strangers, most_connections
from acid_platform.errors import AcidError, MetastoreUnavailable
from acid_platform.metastore import wire
from acid_platform.metastore.endpoint import Home, parse_address, show_address
from acid_platform.metastore.messages import JsonObject, json_text, read_operation
from acid_platform.metastore.rules.turn import Reply, error_reply
from acid_platform.metastore.server.group_commit import Request

if TYPE_CHECKING:
    from acid_platform.metastore.tls import Layer, Served

_LOG = logging.getLogger("acid_platform.metastore")

GREETING_SECONDS = 10.0
"""A connection that has not completed its handshake by then is dropped."""
SLOW_READER_SECONDS = 30.0
"""A connection that accepts no bytes of its answer for so long is dropped."""
_TAKEN_BYTES = 1 << 16
"""Bytes of an answer for which a client may take so long."""
MESSAGE_SECONDS = 60.0
"""A message is whole by then, or its connection is dropped."""
MESSAGES_AT_ONCE = 64
"""Messages of one connection before others have their turn."""
MOST_STRANGERS, MOST_OF_ONE = 256, 128
"""The most connections with an unfinished handshake, of all and of one address; a further one
evicts the oldest."""
SILENT_SECONDS = 2.0
"""A connection to a port with TLS that has sent nothing by then is told that TLS is needed: whoever
speaks TLS speaks first, and others wait for the metastore's greeting."""
_READ = 1 << 18
_ACCEPTED_AT_ONCE = 16
"""New connections between two looks at what the others have sent."""


@dataclass(frozen=True, slots=True)
class Listener:
    """A listening socket, the key of its clients, and the certificate if they use TLS."""

    sock: socket.socket
    key: bytes
    certificate: Served | None = None


class Connection:
    __slots__ = (
        "challenge", "closed", "frames", "greeted", "key", "layer", "out", "since", "sock", "taken"
    )  # fmt: skip

    def __init__(self, sock: socket.socket, key: bytes, layer: Layer | None = None) -> None:
        self.sock, self.key, self.layer = sock, key, layer
        self.greeted = self.closed = False
        self.challenge = wire.challenge()
        self.frames = wire.Frames(wire.LARGEST_GREETING)
        self.out = bytearray()
        self.since = time.monotonic()
        """When it connected, or when the client last accepted bytes of its answer."""

    @property
    def remote(self) -> bool:
        return self.sock.family != socket.AF_UNIX


class Connections:
    """All connections of the listeners, each with the key that its clients must know."""

    def __init__(self, listeners: Sequence[Listener]) -> None:
        self._selector = selectors.DefaultSelector()
        self._listeners = list(listeners)
        for listener in self._listeners:
            listener.sock.setblocking(False)
            self._selector.register(listener.sock, selectors.EVENT_READ, listener)
        self._bell_out, self._bell_in = os.pipe()
        for end in (self._bell_out, self._bell_in):
            os.set_blocking(end, False)
        self._selector.register(self._bell_out, selectors.EVENT_READ, None)
        self._connections: set[Connection] = set()
        self._strangers = Strangers[Connection](MOST_STRANGERS, MOST_OF_ONE)
        self._pace = Pace()
        self._resting: dict[Listener, float] = {}
        """Listeners that accept nothing more until then."""
        self._most = most_connections()
        self._slow: set[Connection] = set()
        self._unfinished: dict[Connection, float] = {}
        """Since when a message is not whole."""
        self._ahead: dict[Connection, None] = {}
        """Those of which more messages may be there than were taken."""
        self.role, self.epoch = wire.LEADER, 0
        """What clients are told at their handshake."""
        self.refused = 0
        """Connections that were dropped for what they sent or failed to send."""
        self._refusals = FewLines(_LOG)

    def __len__(self) -> int:
        return len(self._connections)

    @property
    def clients(self) -> int:
        """The number of connections with a finished handshake."""
        return len(self._connections) - len(self._strangers)

    def ring(self) -> None:
        """Ends a `wait` at once; safe in a signal handler."""
        with suppress(BlockingIOError):
            os.write(self._bell_in, b"!")

    def wait(self, seconds: float) -> list[tuple[Connection, bytes]]:
        """The messages of clients with a finished handshake, after at most so many seconds."""
        messages: list[tuple[Connection, bytes]] = []
        ahead, self._ahead = self._ahead, {}
        for connection in ahead:
            with self._alone(connection):
                self._take(connection, b"", messages)
        for key, events in self._selector.select(0 if ahead else self._wake(seconds)):
            endpoint = key.data
            if isinstance(endpoint, Connection):
                with self._alone(endpoint):
                    if events & selectors.EVENT_WRITE:
                        self._flush(endpoint)
                    elif endpoint not in ahead:
                        self._read(endpoint, messages)
            elif endpoint is None:
                with suppress(BlockingIOError):
                    os.read(self._bell_out, 4096)
            else:
                self._accept(endpoint)
        self._drop_late()
        return messages

    @contextmanager
    def _alone(self, connection: Connection) -> Iterator[None]:
        """Whatever is raised inside ends this connection and no other."""
        try:
            yield
        except Exception:
            _LOG.exception("a connection failed")
            self.drop(connection, "it failed")

    def send(self, connection: Connection, payload: bytes) -> None:
        """Sends what the connection accepts now, and the rest when it accepts more."""
        if connection.closed:
            return
        with self._alone(connection):
            data = wire.frame(payload)
            self._transmit(
                connection, data if connection.layer is None else connection.layer.sealed(data)
            )

    def _transmit(self, connection: Connection, data: bytes) -> None:
        if connection.out:
            connection.out += data
            return
        try:
            sent = connection.sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.drop(connection)
            return
        if sent < len(data):
            connection.out += data[sent:]
            # It must read its answer before the server reads its next message.
            connection.since = time.monotonic()
            self._slow.add(connection)
            self._selector.modify(connection.sock, selectors.EVENT_WRITE, connection)

    def drop(self, connection: Connection, why: str = "") -> None:
        """Closes the connection; `why` goes to the log if the client broke the protocol."""
        if connection.closed:
            return
        if why:
            self.refused += 1
            self._refusals.note("refused a connection: %s", why)
        connection.closed = True
        self._connections.discard(connection)
        self._strangers.leave(connection)
        self._slow.discard(connection)
        self._unfinished.pop(connection, None)
        self._ahead.pop(connection, None)
        with suppress(KeyError, ValueError):
            self._selector.unregister(connection.sock)
        connection.sock.close()

    def drop_remote(self) -> None:
        for connection in [each for each in self._connections if each.remote]:
            self.drop(connection)

    def close(self, seconds: float = 1.0) -> None:
        """Accepts no more connections, sends unsent answers for so many seconds, and closes all."""
        for listener in self._listeners:
            if listener not in self._resting:
                self._selector.unregister(listener.sock)
            listener.sock.close()
        deadline = time.monotonic() + seconds
        while self._slow and time.monotonic() < deadline:
            for key, events in self._selector.select(0.05):
                if isinstance(key.data, Connection) and events & selectors.EVENT_WRITE:
                    self._flush(key.data)
        for connection in list(self._connections):
            self.drop(connection)
        self._selector.close()
        os.close(self._bell_in)
        os.close(self._bell_out)

    # --- events -----------------------------------------------------------------------------

    def _wake(self, seconds: float) -> float:
        """Lets listeners that have rested accept again: how long to wait at most."""
        now = time.monotonic()
        for listener in [each for each, until in self._resting.items() if until <= now]:
            del self._resting[listener]
            self._selector.register(listener.sock, selectors.EVENT_READ, listener)
        return min([seconds, *(until - now for until in self._resting.values())])

    def _accept(self, listener: Listener) -> None:
        """Takes some of the connections that wait: a crowd costs the others few rounds."""
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                sock, peer = listener.sock.accept()
            except (BlockingIOError, ConnectionError):
                return
            except OSError as error:
                # Out of file descriptors: connections with an unfinished handshake make room.
                self._refusals.note("can't accept a connection: %s", error)
                for stranger in self._strangers:
                    self.drop(stranger, "no room for unfinished handshakes")
                time.sleep(0.01)
                return
            self._admit(listener, sock, str(peer[0]) if peer else "")
            if sock.family != socket.AF_UNIX and (pause := self._pace.took()):
                self._selector.unregister(listener.sock)
                self._resting[listener] = time.monotonic() + pause
                return

    def _admit(self, listener: Listener, sock: socket.socket, host: str) -> None:
        """Clients who have proved the key keep their places; a stranger gets what is left."""
        if len(self._connections) >= self._most:
            oldest = self._strangers.oldest()
            if oldest is None:
                self.refused += 1
                self._refusals.note("refused a connection: %d are open", self._most)
                sock.close()
                return
            self.drop(oldest, f"{self._most} connections are open")
        try:
            sock.setblocking(False)
            wire.tune(sock)
            layer = None if listener.certificate is None else listener.certificate.layer()
        except OSError as error:  # it has gone already, or no certificate can be used
            self._refusals.note("can't take a connection: %s", error)
            sock.close()
            return
        connection = Connection(sock, listener.key, layer)
        crowded_out = self._strangers.come(connection, host)
        if crowded_out is not None:
            self.drop(crowded_out, "too many unfinished handshakes")
        self._connections.add(connection)
        self._selector.register(sock, selectors.EVENT_READ, connection)
        self.send(connection, wire.greeting(connection.challenge))

    def _read(self, connection: Connection, messages: list[tuple[Connection, bytes]]) -> None:
        try:
            data = connection.sock.recv(_READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.drop(connection)
            return
        self._take(connection, data, messages)

    def _take(
        self, connection: Connection, data: bytes, messages: list[tuple[Connection, bytes]]
    ) -> None:
        """A few of the messages that are whole now."""
        if connection.closed or connection.out:  # `_flush` goes on with it
            return
        taken = 0
        try:
            if data and connection.layer is not None:
                data = self._opened(connection, connection.layer, data)
            for payload in islice(connection.frames.feed(data), MESSAGES_AT_ONCE):
                taken += 1
                if connection.greeted:
                    messages.append((connection, payload))
                elif not self._greeted(connection, payload):
                    return
        except wire.Malformed as error:
            self.drop(connection, str(error))
            return
        if taken:
            self._unfinished.pop(connection, None)
        if connection.frames.whole:
            self._ahead[connection] = None
        elif connection.frames.pending:
            self._unfinished.setdefault(connection, time.monotonic())

    def _opened(self, connection: Connection, layer: Layer, data: bytes) -> bytes:
        """The plain bytes in what has arrived. Raises Malformed."""
        try:
            return layer.opened(data)
        except OSError as error:  # SSLError is one
            raise wire.Malformed(f"no TLS, or it was ended: {error}") from error
        finally:
            if leaving := layer.leaving():
                self._transmit(connection, leaving)

    def _greeted(self, connection: Connection, payload: bytes) -> bool:
        """Whether the connection knows the key; if not, it is told so and dropped."""
        greeting = wire.read_greeting(payload)
        challenges = connection.challenge, greeting.challenge
        if greeting.protocol != wire.PROTOCOL:
            why = f"protocol {greeting.protocol} is not {wire.PROTOCOL}"
        elif not greeting.proves(wire.proof(connection.key, "client", *challenges)):
            why = "the key is wrong"
        else:
            answer = wire.proof(connection.key, "server", *challenges)
            self.send(
                connection, wire.greeting(connection.challenge, answer, self.role, self.epoch)
            )
            connection.greeted = True
            connection.frames.limit = wire.LARGEST_MESSAGE
            self._strangers.leave(connection)
            return True
        self.send(connection, wire.refusal(why))
        self.drop(connection, why)
        return False

    def _flush(self, connection: Connection) -> None:
        try:
            sent = connection.sock.send(connection.out)
        except BlockingIOError:
            return
        except OSError:
            self.drop(connection)
            return
        del connection.out[:sent]
        connection.since += sent * SLOW_READER_SECONDS / _TAKEN_BYTES
        connection.since = min(connection.since, time.monotonic())
        if not connection.out:
            self._slow.discard(connection)
            self._selector.modify(connection.sock, selectors.EVENT_READ, connection)
            self._ahead[connection] = None

    def _drop_late(self) -> None:
        now = time.monotonic()
        for stranger in self._strangers:  # the oldest comes first
            if now - stranger.since < min(SILENT_SECONDS, GREETING_SECONDS):
                break
            silent = stranger.layer is not None and not stranger.layer.heard
            if silent and now - stranger.since >= SILENT_SECONDS:
                self._transmit(stranger, wire.frame(wire.NEEDS_TLS))
                self.drop(stranger, "it waits for a greeting without TLS")
            elif now - stranger.since >= GREETING_SECONDS:
                self.drop(stranger, f"no handshake within {GREETING_SECONDS:g} s")
        for connection in [*self._slow]:
            if now - connection.since > SLOW_READER_SECONDS:
                self.drop(connection, f"did not take its answer for {SLOW_READER_SECONDS:g} s")
        for connection, begun in [*self._unfinished.items()]:
            if now - begun > MESSAGE_SECONDS:
                self.drop(connection, f"its message is not whole after {MESSAGE_SECONDS:g} s")


_LONGEST_REQUEST_ID = 64
_SURROGATE = re.compile(rb"\\u[dD][89abAB]")


@dataclass(frozen=True, slots=True)
class ListeningService:
    """How other machines reach a metastore: the address `host:port` at which it listens, the key of
    its clients, and the certificate if they use TLS."""

    address: str
    key: bytes = field(repr=False)
    certificate: Served | None = None


class Reception:
    """Listens at the directory's socket, if there is one, and for the service.

    Raises MetastoreUnavailable.
    """

    def __init__(
        self,
        home: Home | None,
        service: ListeningService | None,
        refuse: Callable[[str, str, Exception], Reply],
    ) -> None:
        """`refuse(id, op, error)` makes the answer to a request with wrong arguments."""
        self._refuse = refuse
        self._waiting: dict[str, Connection] = {}
        self.address = str(home.socket()) if home else ""
        self.certificate = service.certificate if service else None
        self.service = ""
        """The address of the service."""
        listeners = [Listener(self._bind(), home.authkey())] if home else []
        if service:
            listener = _listen(service.address)
            self.service = show_address(*listener.getsockname()[:2])
            listeners.append(Listener(listener, service.key, service.certificate))
        self.connections = Connections(listeners)

    def _bind(self) -> socket.socket:
        # The name appears only once the socket listens, and replaces that of a dead process.
        draft = f"{self.address}.{os.getpid() % 1_000_000}"
        with suppress(FileNotFoundError):
            os.unlink(draft)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(draft)
        os.chmod(draft, 0o600)
        listener.listen(128)
        self._socket = os.stat(draft).st_ino
        os.rename(draft, self.address)
        return listener

    def unbind(self) -> None:
        """Removes the socket's name, unless another process has taken it."""
        if not self.address:
            return
        with suppress(FileNotFoundError):
            if os.stat(self.address).st_ino == self._socket:
                os.unlink(self.address)

    def receive(self, seconds: float) -> list[Request]:
        """The requests that arrive within so many seconds."""
        requests = []
        for connection, payload in self.connections.wait(seconds):
            try:
                request_id, op, args = _message(payload)
            except Exception as error:  # whatever a parser raises for unexpected bytes
                self.connections.drop(
                    connection, f"a message that is not a request: {error!r:.200}"
                )
                continue
            self._waiting[request_id] = connection
            try:
                requests.append(Request(request_id, read_operation(op, args)))
            except AcidError as error:
                self.send([Reply(request_id, error_reply(error))])
            except Exception as error:  # missing arguments, or arguments of another type
                self.send([self._refuse(request_id, op, error)])
        return requests

    def send(self, replies: Iterable[Reply]) -> None:
        for reply in replies:
            connection = self._waiting.pop(reply.request_id, None)
            if connection is not None:
                self.connections.send(connection, json_text(reply.value).encode())

    def forget_closed(self) -> None:
        self._waiting = {
            request_id: connection
            for request_id, connection in self._waiting.items()
            if not connection.closed
        }

    @property
    def waiting(self) -> Collection[str]:
        return self._waiting

    def drop_remote(self) -> None:
        """Ends all connections over TCP: another metastore answers now."""
        self.connections.drop_remote()
        self.forget_closed()


def _message(payload: bytes) -> tuple[str, str, JsonObject]:
    """Id, operation and arguments of a request.

    Raises ValueError, KeyError, TypeError or RecursionError if the bytes are not a request. NaN,
    infinities and halves of characters beyond U+FFFF are refused: files can't hold them.
    """
    message = json.loads(payload.decode(), parse_constant=_no_number)
    if _SURROGATE.search(payload):
        json.dumps(message, ensure_ascii=False).encode()  # raises UnicodeEncodeError for a half
    request_id, op, args = message["id"], message["op"], message["args"]
    if not (isinstance(request_id, str) and isinstance(op, str) and isinstance(args, dict)):
        raise TypeError("id and op are texts, args is an object")
    if len(request_id) > _LONGEST_REQUEST_ID:
        raise ValueError("the id is too long")
    return request_id, op, args


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")


def _listen(address: str) -> socket.socket:
    """Raises MetastoreUnavailable, InvalidDefinition."""
    host, port = parse_address(address)
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise MetastoreUnavailable(f"the metastore can't listen on {address}: {error}") from error
