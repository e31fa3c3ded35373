"""The listening socket: accepts connections, and gives their calls to workers.

Strangers make room for others (P75), users share the threads (P76), and who is taken out of the
file of users loses the connections (P77).
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
import time
from asyncio import sslproto
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from acid_platform.base.first_use import Recent
from acid_platform.base.ports import FewLines, Pace, Strangers, most_connections, network_of
from acid_platform.errors import AcidError, InvalidDefinition
from acid_platform.gateway import framing, logins
from acid_platform.gateway.authorization import Caller
from acid_platform.gateway.client_connection import (
    Bounds,
    CallRates,
    ClientConnection,
    Work,
    Workers,
)
from acid_platform.gateway.gateway import Gateway, Later
from acid_platform.gateway.logins import Proof, Tls, Users

_LOG = logging.getLogger(__name__)
_RETRY_SECONDS = 0.2
_TICK_SECONDS = 5.0
_END_SECONDS = 10.0
"""How long running calls may go on after the gateway was stopped."""
_LOGINS = 2
"""Passwords that are checked at the same time: each takes 128 MiB of memory."""
_MOST_WAITING, _MOST_OF_ONE = 1000, 100
"""Logins that wait for their check, of all and of one address; further ones are refused, but those
from addresses without a wrong password only where twice as many wait."""
_KNOWN = 10_000
"""Addresses that are remembered."""
_SITE = 48
"""Bits of an address of IPv6 that a provider gives to one customer."""
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
        threads = self.bounds.threads
        self._context = self._new_context()
        self._stamp: tuple[object, ...] = self.entry.tls.stamp if self.entry.tls else ()
        self._workers = Workers(threads, -(-threads // 2), gateway.leave)
        patient = max(1, threads // 4)
        self._patient = Workers(patient, -(-patient // 4), gateway.leave)
        """For calls that may wait for a lock; their threads are missing nowhere else."""
        self._logins, self._reports = Workers(_LOGINS), Workers(1)
        self._rates = CallRates(self.bounds)
        self._stopping, self._stopped = threading.Event(), threading.Event()
        self._serving = False
        self._open: set[ClientConnection] = set()
        self._above: set[ClientConnection] = set()
        self._most = min(self.bounds.connections, most_connections())
        # Where nobody has to log in, whoever has sent no call yet counts as a stranger.
        shares = (2, 4) if self.entry.closed else (1, 1)
        self._strangers = Strangers[ClientConnection](
            *(-(-self._most // share) for share in shares)
        )
        self._of_user: Counter[str] = Counter()
        """The connections of each user."""
        self.refusals = FewLines(_LOG)
        """What strangers may fill the log with."""
        self._checked = Strangers[ClientConnection](-(-self._most // 4), _MOST_OF_ONE + _LOGINS)
        """Those whose password waits for its check, or is checked."""
        self._known = Recent[str, bool](_KNOWN)
        """Addresses from which somebody has logged in; used from the event loop only."""
        self._wrong = Recent[str, int](_KNOWN)
        """How often others have tried a wrong password since the start, by the networks that one
        customer of a provider may have."""
        self._waiting_bytes = Counter[str]()
        """By user, or address without one."""
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
        return self._workers.threads + self._patient.threads

    @property
    def waiting_bytes(self) -> int:
        """The bytes of unfinished messages in all connections."""
        return self._waiting_bytes.total()

    # --- life -----------------------------------------------------------------------------------

    def serve(self) -> None:
        self._serving = True
        try:
            asyncio.run(self._serve())
        finally:
            self._listener.close()
            self._workers.close()
            self._patient.close()
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
        while any(connection.busy for connection in self._open) and self._loop.time() < deadline:
            await asyncio.sleep(0.02)
        await asyncio.sleep(0)  # the last answers leave
        for connection in [*self._open, *self._above]:
            connection.end()
        await asyncio.sleep(0)

    def _tick(self) -> None:
        """What is due every few seconds; a step that fails keeps no other from being done."""
        for due in (self._renew, self._dismiss, self._tell):
            try:
                due()
            except (OSError, AcidError) as error:
                _LOG.warning("%s", error)
            except Exception:  # the gateway goes on
                _LOG.exception("what is due every few seconds failed")

    def _renew(self) -> None:
        """Takes a renewed certificate. Raises OSError, InvalidDefinition for files that are missing
        or wrong: the certificate of before stays in use."""
        certificate = self.entry.tls
        if certificate is None or self._context is None:
            return
        stamp = certificate.stamp
        if stamp == self._stamp:
            return
        # Wrong files must not replace good ones: a new context, which reads all of them.
        self._context = certificate.context(required=self.entry.users is None)
        clients, self._stamp = stamp[2:] != self._stamp[2:], stamp
        _LOG.info("new connections get the certificate that %s has now", certificate)
        for connection in [*self._open] if clients else ():
            if connection.counted_for and connection.logged_in_by is None:
                connection.end(
                    "the authority of its certificate, or the list of revoked ones, is another now"
                )

    def _tell(self) -> None:
        if self._report is not None and not self._reports.waiting:
            self._reports.submit(partial(self._report, self))

    def _dismiss(self) -> None:
        """Closes the connections of users who are gone, or have another password than the one by
        which they logged in. Raises InvalidDefinition for a file of users that is wrong."""
        if self.entry.users is None:
            return
        present = self.entry.users.secrets()
        for connection in [*self._open]:
            if connection.logged_in_by is not None and not connection.logged_in_by.is_in(present):
                connection.end(
                    "the user is gone from the file of users, or has another password there"
                )

    # --- accepting ------------------------------------------------------------------------------

    async def _accept(self) -> None:
        greeting, pace = set[asyncio.Task[None]](), Pace()
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
            else:
                connection.greeting = task = asyncio.create_task(self._greet(accepted, connection))
                greeting.add(task)
                task.add_done_callback(greeting.discard)
            await asyncio.sleep(pace.took())  # what has arrived is read before the next one comes

    def _admitted(self, peer: str) -> ClientConnection | None:
        """A new connection, for which a stranger may have to go.

        If all have logged in, it is above the limit and will say so; None for too many of those.
        """
        connection = ClientConnection(self, peer)
        if len(self._open) >= self._most and not self._make_room():
            self.counters.refused += 1
            if len(self._above) >= _TOLD_REFUSALS:
                return None
            reason = f"too many connections: {self._most} are open (--connections); try again later"
            connection = ClientConnection(self, peer, reason)
            self._above.add(connection)
            return connection
        self.counters.accepted += 1
        self._open.add(connection)
        crowded_out = self._strangers.come(connection, connection.caller.host)
        if crowded_out is not None:
            self._turn_away(crowded_out)
        return connection

    def _make_room(self) -> bool:
        """Whether a stranger had to go for a new connection."""
        oldest = self._strangers.oldest()
        if oldest is not None:
            self._turn_away(oldest)
        return oldest is not None

    def _turn_away(self, stranger: ClientConnection) -> None:
        self.counters.refused += 1
        stranger.end("it made room for newer connections: " + stranger.state)
        self.left(stranger)

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
        except asyncio.CancelledError:
            self.left(connection)
            accepted.close()
        except Exception as error:  # whatever a handshake raises ends this connection alone
            self.left(connection)
            reason = logins.reason_of(error)
            self.refusals.note("%s: no TLS connection: %s", connection.caller, reason)
            with suppress(OSError):
                accepted.close()

    # --- what connections need ------------------------------------------------------------------

    def settled(self, connection: ClientConnection) -> None:
        """The client has begun to log in, or needs no login and has sent a call."""
        self._strangers.leave(connection)

    def entered(self, connection: ClientConnection) -> str:
        """Counts a connection whose user is known; why it can't stay, or an empty text."""
        user, share = connection.caller.user, -(-self._most // 2)
        if self._of_user[user] >= share:
            return (
                f"user {user} has {share} connections open, half of what the gateway takes"
                " (--connections)"
            )
        self._of_user[user] += 1
        connection.counted_for = user
        self.settled(connection)
        return ""

    def left(self, connection: ClientConnection) -> None:
        self._open.discard(connection)
        self._above.discard(connection)
        self._strangers.leave(connection)
        self._checked.leave(connection)
        if user := connection.counted_for:
            connection.counted_for = ""
            self._of_user[user] -= 1
            if not self._of_user[user]:
                del self._of_user[user]

    def buffered(self, connection: ClientConnection, change: int) -> bool:
        """Counts bytes that wait in connections; False if there are too many of them, or one user
        has more than half."""
        who = connection.caller.user or network_of(connection.caller.host)
        self._waiting_bytes[who] += change
        of_one = self._waiting_bytes[who]
        if not of_one:
            del self._waiting_bytes[who]
        most = self.bounds.buffer
        return of_one <= most // 2 and self._waiting_bytes.total() <= most

    def must_log_in(self, caller: Caller) -> bool:
        return self.entry.closed and not caller.user

    def refuse(self, payload: bytes, reason: str) -> bytes:
        return self._gateway.refuse(payload, reason)

    def log_in(
        self,
        login: framing.Login,
        connection: ClientConnection,
        reply: Callable[[Proof | None, str], None],
    ) -> None:
        """Checks a password; `reply` gets what it was checked by, or the reason of a refusal.

        Passwords that wait make room for each other, beside those who have not sent one: nobody
        checks one whose client has gone. Those of an address from which somebody has logged in come
        first, and then those of addresses from which the fewest wrong ones came: whoever guesses
        from many addresses keeps nobody waiting who comes from another one.
        """
        self.settled(connection)
        users, caller = self.entry.users, connection.caller
        if users is None:
            reply(None, "this gateway has no file of users; connect without SASL")
            return
        network, site = network_of(caller.host), network_of(caller.host, _SITE)
        known = self._known.get(network) is not None
        queue = network if known else site
        rank = -1 if known else self._wrong.get(site) or 0
        of_one, of_all = self._logins.waiting_of(queue), self._logins.waiting
        if of_one >= _MOST_OF_ONE or of_all >= _MOST_WAITING * (1 if rank > 0 else 2):
            reply(None, "too many logins wait; try again later")
            return
        crowded_out = self._checked.come(connection, caller.host)
        if crowded_out is not None:
            self._turn_away(crowded_out)

        def check() -> None:
            proof = None
            if connection not in self._checked:
                return
            # Counted when the check begins, since logins wait for each other.
            if not self._rates.begin_login(caller.host):
                reason = "too many failed logins from this address; try again in a minute"
            else:
                reason = "nobody can log in now; the gateway's log says why"
                try:
                    proof = users.verify(login.user, login.password)
                    reason = "wrong user or password"
                except Exception:  # as a file of users that is wrong
                    _LOG.exception("a login can't be checked")
                finally:
                    self._rates.end_login(caller.host, proof is None)
            self._later(partial(checked, proof, reason))

        def checked(proof: Proof | None, reason: str) -> None:
            self._checked.leave(connection)
            try:
                # The file may have changed during the check.
                left = proof is not None and not proof.is_in(users.secrets())
            except InvalidDefinition:
                left = True
            if proof is None or left:
                self.counters.failed_logins += 1
                proof = None
                self._wrong.put(site, (self._wrong.get(site) or 0) + 1)
            else:
                self._known.put(network, True)
            reply(proof, "" if proof else reason)

        self._logins.submit(check, queue, rank)

    def answer(self, payload: bytes, caller: Caller, reply: Callable[[bytes], None]) -> None:
        self.counters.calls += 1
        who = caller.user or network_of(caller.host)
        workers = self._patient if self._gateway.may_wait(payload) else self._workers

        def work(begin: Callable[[], bytes | Later]) -> None:
            try:
                answer = begin()
            except Exception:
                _LOG.exception("%s: a call failed", caller)
                answer = self.refuse(payload, "the gateway failed; its log says why")
            if isinstance(answer, Later):  # until then it holds no thread
                again = partial(work, answer.go_on)
                self._later(partial(self._loop.call_later, answer.pause, submit, again))
            else:
                self._later(partial(reply, answer))

        def submit(this: Work) -> None:
            workers.submit(this, who)

        begin = partial(work, partial(self._gateway.begin, payload, caller))
        pause = self._rates.pause(who, time.monotonic())
        if pause:
            self.counters.slowed += 1
            self._loop.call_later(pause, submit, begin)
        else:
            submit(begin)

    def _later(self, tell: Callable[[], object]) -> None:
        """Calls from the event loop, unless it has ended."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(tell)
