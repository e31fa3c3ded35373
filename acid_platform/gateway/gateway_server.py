"""The listening socket: accepts connections, and gives their calls to workers."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
import time
from asyncio import sslproto
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from acid_platform.errors import AcidError, InvalidDefinition
from acid_platform.gateway import gateway_tls, sasl
from acid_platform.gateway.bounds import Bounds, CallRates
from acid_platform.gateway.caller import Caller
from acid_platform.gateway.client_connection import ClientConnection
from acid_platform.gateway.gateway import Gateway
from acid_platform.gateway.gateway_tls import Tls
from acid_platform.gateway.users import Users

Work = Callable[[], None]


class Workers:
    """Runs work in threads. A thread keeps its connection to the metastore between two works."""

    def __init__(self, most: int, leave: Callable[[], None] = lambda: None) -> None:
        """`leave` is called in each thread when it ends."""
        self._most, self._leave = most, leave
        self._condition = threading.Condition()
        self._waiting: deque[Work] = deque()
        self._idle = self._threads = 0
        self._closed = False

    @property
    def threads(self) -> int:
        return self._threads

    @property
    def waiting(self) -> int:
        """The works that no thread has begun."""
        return len(self._waiting)

    def submit(self, work: Work) -> None:
        """What `work` raises is logged."""
        with self._condition:
            self._waiting.append(work)
            if self._idle >= len(self._waiting) or self._threads >= self._most:
                self._condition.notify()
                return
            self._threads += 1
            number = self._threads
        # Daemons: a call that hangs must not keep the process from ending.
        threading.Thread(target=self._run, daemon=True, name=f"gateway-{number}").start()

    def close(self) -> None:
        """What waits is forgotten; threads end after the work that they do."""
        with self._condition:
            self._closed = True
            self._waiting.clear()
            self._condition.notify_all()

    def _run(self) -> None:
        while (work := self._next()) is not None:
            try:
                work()
            except Exception:
                _LOG.exception("a thread's work failed")
        self._leave()

    def _next(self) -> Work | None:
        with self._condition:
            self._idle += 1
            while not self._waiting and not self._closed:
                self._condition.wait()
            self._idle -= 1
            return None if self._closed else self._waiting.popleft()


_LOG = logging.getLogger(__name__)
_RETRY_SECONDS = 0.2
_TICK_SECONDS = 5.0
_END_SECONDS = 10.0
"""How long running calls may go on after the gateway was stopped."""
_LOGINS = 2
"""Passwords that are checked at the same time: each takes 128 MiB of memory."""
_MOST_WAITING = 1000
"""Logins that wait for their check; further ones are refused."""
_TLS_BUFFER = 32 << 10
_TOLD_REFUSALS = 64
"""Connections above the limit that are told why they are refused; further ones are just closed."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Who may come in: with neither, everybody who reaches the port."""

    tls: Tls | None = None
    users: Users | None = None

    @property
    def closed(self) -> bool:
        """Whether a client has to say who it is."""
        return self.users is not None or bool(self.tls and self.tls.ca)


@dataclass(slots=True)
class GatewayCounters:
    """What happened since the start."""

    accepted: int = 0
    refused: int = 0
    failed_logins: int = 0
    calls: int = 0
    slowed: int = 0


class GatewayServer:
    """Accepts connections and answers their messages until `stop`."""

    def __init__(
        self,
        gateway: Gateway,
        host: str,
        port: int,
        bounds: Bounds | None = None,
        entry: Entry | None = None,
        report: Callable[[GatewayServer], None] | None = None,
    ) -> None:
        """Listens at once; port 0 takes a free one. `report` is called every few
        seconds, in a thread of its own.

        Raises InvalidDefinition.
        """
        self.bounds, self.entry = bounds or Bounds(), entry or Entry()
        self.counters = GatewayCounters()
        self._gateway, self._report = gateway, report
        self._context = self._new_context()
        self._stamp = self.entry.tls.stamp if self.entry.tls else ()
        self._users = self.entry.users.secrets() if self.entry.users else {}
        self._workers = Workers(self.bounds.threads, gateway.leave)
        self._logins, self._reports = Workers(_LOGINS), Workers(1)
        self._rates = CallRates(self.bounds)
        self._stopping, self._stopped = threading.Event(), threading.Event()
        self._serving = False
        self._open: set[ClientConnection] = set()
        self._above: set[ClientConnection] = set()
        self._waiting_bytes = 0
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._listener = socket.create_server((host, port), family=family, backlog=1024)
        except OSError as error:
            raise InvalidDefinition(
                f"can't listen on {host}:{port}: {error}; choose another --listen"
            ) from error
        self._listener.setblocking(False)

    def _new_context(self) -> ssl.SSLContext | None:
        if self.entry.tls is None:
            return None
        # Each connection with TLS has a buffer of this size for as long as it lives, 256 KiB by
        # default: 2,000 idle connections would take 540 MiB.
        sslproto.SSLProtocol.max_size = _TLS_BUFFER
        return self.entry.tls.context(required=self.entry.users is None)

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._listener.getsockname()[:2]
        return str(host), int(port)

    @property
    def connections(self) -> int:
        return len(self._open)

    @property
    def threads(self) -> int:
        return self._workers.threads

    @property
    def waiting_bytes(self) -> int:
        """The bytes of unfinished messages in all connections."""
        return self._waiting_bytes

    # --- life -----------------------------------------------------------------------------------

    def serve(self) -> None:
        self._serving = True
        try:
            asyncio.run(self._serve())
        finally:
            self._listener.close()
            self._workers.close()
            self._logins.close()
            self._reports.close()
            self._stopped.set()

    def stop(self) -> None:
        """Accepts nothing more, lets running calls end for some seconds, closes the rest."""
        self._stopping.set()
        if not self._serving:
            self._listener.close()
            return
        self._stopped.wait(_END_SECONDS + _TICK_SECONDS)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        accepting = asyncio.create_task(self._accept())
        ticked = 0.0
        while not self._stopping.is_set():
            if self._loop.time() - ticked >= _TICK_SECONDS:
                ticked = self._loop.time()
                self._tick()
            await asyncio.sleep(0.05)
        accepting.cancel()
        self._listener.close()
        for connection in [*self._open, *self._above]:
            if not connection.busy:
                connection.end()
        deadline = self._loop.time() + _END_SECONDS
        while any(one.busy for one in self._open) and self._loop.time() < deadline:
            await asyncio.sleep(0.02)
        await asyncio.sleep(0)  # the last answers leave
        for connection in [*self._open, *self._above]:
            connection.end()
        await asyncio.sleep(0)

    def _tick(self) -> None:
        """Takes a renewed certificate, sends former users away, and reports."""
        certificate = self.entry.tls
        try:
            if certificate is not None and self._context is not None:
                stamp = certificate.stamp
                if stamp != self._stamp:
                    certificate.context(False)  # a wrong pair of files must not replace a good one
                    certificate.load(self._context)
                    self._stamp = stamp
                    _LOG.info("new connections get the certificate that %s has now", certificate)
            self._dismiss()
            if self._report is not None and not self._reports.waiting:
                self._reports.submit(partial(self._report, self))
        except (OSError, AcidError) as error:
            _LOG.warning("%s", error)
        except Exception:  # the gateway goes on
            _LOG.exception("what is due every few seconds failed")

    def _dismiss(self) -> None:
        """Closes the connections of users who are gone, or have another password since the last
        time. Raises InvalidDefinition for a file of users that is wrong."""
        if self.entry.users is None:
            return
        users = self.entry.users.secrets()
        salts = {name: secret.salt for name, secret in users.items()}
        former = {name for name, secret in self._users.items() if salts.get(name) != secret.salt}
        self._users = users
        for connection in [*self._open] if former else ():
            if connection.by_password and connection.caller.user in former:
                reason = "the user is gone from the file of users, or has another password there"
                self._later(partial(connection.end, reason))

    # --- accepting ------------------------------------------------------------------------------

    async def _accept(self) -> None:
        greeting: set[asyncio.Task[None]] = set()
        while True:
            try:
                accepted, peer = await self._loop.sock_accept(self._listener)
            except OSError:
                _LOG.warning("accepting a connection failed", exc_info=True)
                await asyncio.sleep(_RETRY_SECONDS)  # as when no file descriptor is left
                continue
            connection = self._admitted(f"{peer[0]}:{peer[1]}")
            if connection is None:
                accepted.close()
                continue
            task = asyncio.create_task(self._greet(accepted, connection))
            greeting.add(task)
            task.add_done_callback(greeting.discard)

    def _admitted(self, peer: str) -> ClientConnection | None:
        """A connection, which may be above the limit and will say so; None for too many of
        those."""
        if len(self._open) < self.bounds.connections:
            self.counters.accepted += 1
            connection = ClientConnection(self, peer)
            self._open.add(connection)
            return connection
        self.counters.refused += 1
        if len(self._above) >= _TOLD_REFUSALS:
            return None
        reason = (
            f"too many connections: {self.bounds.connections} are open (--connections); try again"
            " later"
        )
        connection = ClientConnection(self, peer, reason)
        self._above.add(connection)
        return connection

    async def _greet(self, accepted: socket.socket, connection: ClientConnection) -> None:
        """Shakes hands, and lets the connection begin."""
        try:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            await self._loop.connect_accepted_socket(
                lambda: connection,
                accepted,
                ssl=self._context,
                ssl_handshake_timeout=self.bounds.login_seconds if self._context else None,
            )
        except Exception as error:  # whatever a handshake raises ends this connection alone
            self.left(connection)
            reason = gateway_tls.reason_of(error)
            _LOG.warning("%s: no TLS connection: %s", connection.caller, reason)
            with suppress(OSError):
                accepted.close()

    # --- what connections need ------------------------------------------------------------------

    def left(self, connection: ClientConnection) -> None:
        self._open.discard(connection)
        self._above.discard(connection)

    def buffered(self, change: int) -> bool:
        """Counts bytes that wait in connections; False if there are too many of them."""
        self._waiting_bytes += change
        return self._waiting_bytes <= self.bounds.buffer

    def must_log_in(self, caller: Caller) -> bool:
        return self.entry.closed and not caller.user

    def refuse(self, payload: bytes, reason: str) -> bytes:
        return self._gateway.refuse(payload, reason)

    def log_in(self, login: sasl.Login, caller: Caller, reply: Callable[[str], None]) -> None:
        """Checks a password; `reply` gets the reason of a refusal, or an empty text."""
        users = self.entry.users
        if users is None:
            reply("this gateway has no file of users; connect without SASL")
            return
        if self._logins.waiting >= _MOST_WAITING:
            reply("too many logins wait; try again later")
            return

        def check() -> None:
            # Counted when the check begins, since logins wait for each other.
            if not self._rates.begin_login(caller.host):
                reason = "too many failed logins from this address; try again in a minute"
            else:
                reason = "nobody can log in now; the gateway's log says why"
                try:
                    right = users.verify(login.user, login.password)
                    reason = "" if right else "wrong user or password"
                except Exception:  # as a file of users that is wrong
                    _LOG.exception("a login can't be checked")
                finally:
                    self._rates.end_login(caller.host, bool(reason))
            self._later(lambda: checked(reason))

        def checked(reason: str) -> None:
            if reason:
                self.counters.failed_logins += 1
            reply(reason)

        self._logins.submit(check)

    def answer(self, payload: bytes, caller: Caller, reply: Callable[[bytes], None]) -> None:
        self.counters.calls += 1

        def work() -> None:
            try:
                answer = self._gateway.answer(payload, caller)
            except Exception:
                _LOG.exception("%s: a call failed", caller)
                answer = self.refuse(payload, "the gateway failed; its log says why")
            self._later(lambda: reply(answer))

        pause = self._rates.pause(caller.user or caller.host, time.monotonic())
        if pause:
            self.counters.slowed += 1
            self._loop.call_later(pause, self._workers.submit, work)
        else:
            self._workers.submit(work)

    def _later(self, tell: Callable[[], None]) -> None:
        """Calls from the event loop, unless it has ended."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(tell)
