"""PostgreSQL's protocol, read-only: a port on which psql, drivers and BI tools read the tables.

By hand, since no library held on 30 November 2026: riffq has no wheel for Python 3.11 on Linux, its
source needs a repository beside the index, and it neither cancels a statement nor bounds strangers;
buenavista has no TLS and no cancel, and keeps passwords as they are. A password is asked for in
clear text, inside of TLS: of scrypt's hashes no SCRAM can be made."""

from __future__ import annotations

import asyncio
import secrets
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol

from acid_platform.base.ports import network_of
from acid_platform.errors import AcidError
from acid_platform.gateway import logins
from acid_platform.gateway import postgres_messages as wire
from acid_platform.gateway.authorization import Authorizer, Caller, Guard
from acid_platform.gateway.client_connection import Bounds, Workers
from acid_platform.gateway.gateway_server import Entry
from acid_platform.gateway.guarded_port import ClientRefused, GuardedPort
from acid_platform.gateway.logins import Proof
from acid_platform.gateway.postgres_session import ClientGone, Session
from acid_platform.gateway.postgres_settings import STATES
from acid_platform.metastore.client.metastore import Metastore

DATABASE = "acid"
"""The one database of the port."""
_MOST_SESSIONS, _MOST_COMPUTING = 128, 4
_END_SECONDS = 5.0
"""How long statements may take to end after the server was stopped."""
_LONGEST_START = 8 << 10
"""Bytes of what a stranger sends."""


class Reading(Protocol):
    """What computes the statements of one session, in one thread at a time but for `interrupt`."""

    def describe(self, query: str) -> tuple[list[tuple[str, str]], list[str]]:
        """The columns with DuckDB's types, and the types of its parameters, UNKNOWN where nothing
        tells. Raises AcidError, ReadOnlyTxn for what changes something."""

    def run(
        self, query: str, selected: str, values: Sequence[tuple[Any, str]]
    ) -> Iterator[list[list[Any]]]:
        """Rows by columns, in parts. `selected`: the SELECT of `query` that is computed instead;
        each value goes with the type to which DuckDB casts it, or an empty text."""

    def settle(self) -> None:
        """The transaction has ended: the next statement takes a new snapshot."""

    def place(self, search_path: Sequence[str], as_of: str, settings: dict[str, str]) -> None:
        """Where names are looked for, which snapshot is read, and what pg_settings shows.
        Raises AcidError."""

    def interrupt(self) -> None:
        """Ends what is computed, from any thread."""

    def close(self) -> None: ...


OpenReading = Callable[[str, Callable[[str], bool]], Reading]
"""Makes what computes for a user, who may read the tables that the function says."""


class PostgresServer(GuardedPort):
    """Serves sessions of PostgreSQL's clients until `stop`."""

    def __init__(
        self,
        metastore: Metastore,
        open_reading: OpenReading,
        host: str,
        port: int,
        bounds: Bounds | None = None,
        entry: Entry | None = None,
        authorizer: Authorizer | None = None,
        seconds: float = 300.0,
    ) -> None:
        """`seconds`: how long a statement may take, its rows with it. `authorizer` None allows
        everything. Listens at once; port 0 takes a free one. Raises InvalidDefinition."""
        bounds = bounds or Bounds()
        few = replace(bounds, connections=min(bounds.connections, _MOST_SESSIONS))
        super().__init__(host, port, few, entry, metastore.disconnect)
        threads = min(self.bounds.threads, _MOST_COMPUTING)
        self.computing = Workers(threads, -(-threads // 2), metastore.disconnect)
        self.seconds, self._open_reading = seconds, open_reading
        self._guard = Guard(metastore, authorizer)
        self._cancels: dict[tuple[int, int], Session] = {}
        """Sessions by the two numbers with which their clients cancel a statement."""
        self.ending: set[Session] = set()
        """Sessions whose clients have gone, until what they compute has ended."""

    @property
    def address(self) -> str:
        """Where clients find the database."""
        mode = "" if self.entry.tls is None else "?sslmode=require"
        return f"postgresql://{self.host_and_port}/{DATABASE}{mode}"

    def serve(self) -> None:
        super().serve()
        until = time.monotonic() + _END_SECONDS
        while self.ending and time.monotonic() < until:
            for session in [*self.ending]:
                session.interrupt()
            time.sleep(0.02)
        self.computing.close()

    def later(
        self, seconds: float, call: Callable[..., None], *given: object
    ) -> asyncio.TimerHandle:
        """Calls it in the event loop, unless that has ended."""
        return self._loop.call_later(seconds, call, *given)

    async def compute(self, work: Callable[[], Any], who: str) -> Any:
        return await self._in(self.computing, work, who)

    async def _converse(self, accepted: socket.socket, caller: Caller) -> None:
        transport: asyncio.Transport | None = None
        writer: asyncio.StreamWriter | None = None
        session: Session | None = None
        try:
            async with asyncio.timeout(self.bounds.login_seconds):
                start = await self._opened(accepted)
                if start is None:
                    return
                reader, writer, first = start
                transport = writer.transport  # type: ignore[assignment]
                parameters = await self._started(reader, first)
                proof = await self._logged_in(reader, writer, parameters, caller)
            key = (secrets.randbits(31), secrets.randbits(31))
            session = Session(self, reader, writer, caller, proof, self._reading(caller))
            self._cancels[key] = session
            try:
                await session.serve(parameters, key)
            finally:
                del self._cancels[key]
        except ClientRefused as refused:
            self.refusals.note("%s: refused: %s", caller, refused.why)
            await _last_word(writer, STATES.get(refused.status, "XX000"), refused.why)
        except AcidError as error:  # a wrong file of users, a certificate of nobody, a bad start
            self.refusals.note("%s: refused: %s", caller, error)
            why = "nobody can log in so; the log of the server says why"
            await _last_word(writer, "28000", why)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, ClientGone) as error:
            self.refusals.note("%s: closed: %s", caller, logins.reason_of(error) or "too late")
        finally:
            if session is not None:
                session.end()
            if transport is not None:
                transport.abort()

    async def _opened(
        self, accepted: socket.socket
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes] | None:
        """The streams, inside of TLS if there is, and the eight bytes that begin the session's
        start; None after a request to cancel."""
        head, context = await self._exactly(accepted, 8), None
        while (code := _code(head)) in (wire.TLS_REQUEST, wire.GSS_REQUEST):
            if code == wire.TLS_REQUEST and self._context is not None:
                context = self._context
                await self._loop.sock_sendall(accepted, b"S")
                break
            await self._loop.sock_sendall(accepted, b"N")
            head = await self._exactly(accepted, 8)
        if code == wire.CANCEL_REQUEST:
            self._cancel(await self._exactly(accepted, 8))
            return None
        streams = await self._streams(accepted, context)
        if context is not None:
            head = await streams[0].readexactly(8)
            if _code(head) == wire.CANCEL_REQUEST:
                self._cancel(await streams[0].readexactly(8))
                return None
        elif self._context is not None:
            why = "this server wants TLS: connect with sslmode=require"
            await _last_word(streams[1], "28000", why)
            return None
        return *streams, head

    def _cancel(self, key: bytes) -> None:
        session = self._cancels.get(struct.unpack("!ii", key))
        if session is not None:
            session.cancel()

    async def _exactly(self, accepted: socket.socket, size: int) -> bytes:
        """Never more bytes than these: what follows may belong to TLS."""
        found = b""
        while len(found) < size:
            part = await self._loop.sock_recv(accepted, size - len(found))
            if not part:
                raise ClientGone("the client left")
            found += part
        return found

    async def _streams(
        self, accepted: socket.socket, context: ssl.SSLContext | None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader = asyncio.StreamReader(64 << 10)
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await self._loop.connect_accepted_socket(
            lambda: protocol,
            accepted,
            ssl=context,
            ssl_handshake_timeout=self.bounds.login_seconds if context else None,
        )
        return reader, asyncio.StreamWriter(transport, protocol, reader, self._loop)

    async def _started(self, reader: asyncio.StreamReader, head: bytes) -> dict[str, str]:
        """What the client says of itself. Raises ClientRefused, InvalidExpression."""
        length, version = struct.unpack("!ii", head)
        if version >> 16 != 3 or not 8 < length <= _LONGEST_START:
            raise ClientRefused(403, "that is no start of a session in PostgreSQL's protocol 3")
        body = wire.Body(await reader.readexactly(length - 8))
        parameters: dict[str, str] = {}
        while name := body.text():
            parameters[name] = body.text()
        if parameters.get("replication", "false") not in ("false", "off", "no", "0"):
            raise ClientRefused(403, "nothing is replicated from here")
        return parameters

    async def _logged_in(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        parameters: dict[str, str],
        caller: Caller,
    ) -> Proof | None:
        """What proves the user's password. Raises ClientRefused."""
        user, proof = parameters.get("user", ""), None
        if self.entry.closed:
            caller.user = logins.user_of(writer.get_extra_info("peercert"))
            if caller.user and caller.user != user:
                raise ClientRefused(403, f"the certificate is of {caller.user!r}, not of {user!r}")
            if not caller.user:
                writer.write(wire.message(b"R", struct.pack("!i", 3)))
                kind, length = struct.unpack("!ci", await reader.readexactly(5))
                if kind != b"p" or not 4 < length <= _LONGEST_START:
                    raise ClientRefused(401, "a password was asked for")
                password = wire.Body(await reader.readexactly(length - 4)).text()
                proof = await self._checked(user, password, caller)
                caller.user = proof.user
        self._entered(caller.user or network_of(caller.host))
        database = parameters.get("database") or user
        if database != DATABASE:
            raise ClientRefused(
                403, f"there is no database {database!r} here; connect to {DATABASE!r}"
            )
        return proof

    def _reading(self, caller: Caller) -> Reading:
        return self._open_reading(caller.user, lambda table: self._guard.may_read(table, caller))

    def require_user(self, proof: Proof | None) -> None:
        """Raises ClientGone for a user who has gone, or has another password now."""
        users = self.entry.users
        if proof is not None and users is not None and not proof.is_in(users.secrets()):
            raise ClientGone("the user was taken out of the file of users")


def _code(head: bytes) -> int:
    """What a connection begins with: a version of the protocol, or a request in its place."""
    (code,) = struct.unpack_from("!i", head, 4)
    return int(code)


async def _last_word(writer: asyncio.StreamWriter | None, code: str, why: str) -> None:
    if writer is not None:
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(5):
                writer.write(wire.failure(code, why, "FATAL"))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
