"""Where requests come in and answers go out: sockets, parsing, and who waits for which answer."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from acid_platform.errors import AcidError, MetastoreUnavailable
from acid_platform.metastore.codec import JsonObject, json_text
from acid_platform.metastore.endpoint import Home, parse_address, show_address
from acid_platform.metastore.operations.base import read_operation
from acid_platform.metastore.rules.turn import Reply, error_reply
from acid_platform.metastore.server.connections import Connection, Connections, Listener
from acid_platform.metastore.server.group_commit import Request

if TYPE_CHECKING:
    from acid_platform.metastore.tls import Served

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
