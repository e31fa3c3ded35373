"""A port for strangers and users: who gets a connection, a thread and a check of a password.

Strangers make room for others, users share threads and connections, and passwords are checked a few
at a time (P34, P75, P76). What is said on a connection is for the subclasses, of which each speaks
one protocol."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from acid_platform.base.ports import FewLines, Pace, Strangers, most_connections, network_of
from acid_platform.errors import AcidError, InvalidDefinition
from acid_platform.gateway.authorization import Caller
from acid_platform.gateway.client_connection import Bounds, CallRates, Workers
from acid_platform.gateway.gateway_server import Entry
from acid_platform.gateway.logins import Proof

_LOG = logging.getLogger(__name__)
_LOGINS, _MOST_WAITING, _MOST_OF_ONE = 2, 400, 100
"""Passwords that are checked at a time; those that wait, of all and of one address."""
_TICK_SECONDS = 5.0
_T = TypeVar("_T")
_Task = asyncio.Task[None]


class ClientRefused(Exception):
    """Why a client gets no answer but this; `status` is the number that HTTP has for it."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status, self.why = status, why


class GuardedPort(ABC):
    """Accepts connections and converses with their clients until `stop`."""

    def __init__(
        self,
        host: str,
        port: int,
        bounds: Bounds | None = None,
        entry: Entry | None = None,
        leave: Callable[[], None] = lambda: None,
    ) -> None:
        """Listens at once; port 0 takes a free one. `leave`: see Workers. Raises
        InvalidDefinition."""
        self.bounds, self.entry = bounds or Bounds(), entry or Entry()
        self._loop = asyncio.new_event_loop()
        self._context = self._new_context()
        self._stamp = self.entry.tls.stamp if self.entry.tls else ()
        self._workers = Workers(self.bounds.threads, -(-self.bounds.threads // 2), leave)
        self._logins, self._rates = Workers(_LOGINS), CallRates(self.bounds)
        self._most = min(self.bounds.connections, most_connections())
        self._strangers = Strangers[_Task](-(-self._most // 2), -(-self._most // 4))
        self._open: dict[_Task, str] = {}
        """The connections, each with its user once that is known."""
        self._of_user = Counter[str]()
        """How many of them each user has."""
        self.refusals = FewLines(_LOG)
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._listener = socket.create_server((host, port), family=family, backlog=1024)
        except OSError as error:
            raise InvalidDefinition(
                f"can't listen on {host}:{port}: {error}; choose another address"
            ) from error
        self._listener.setblocking(False)

    @abstractmethod
    async def _converse(self, accepted: socket.socket, caller: Caller) -> None:
        """Serves a connection, which is closed afterwards."""

    def _new_context(self) -> ssl.SSLContext | None:
        tls = self.entry.tls
        return None if tls is None else tls.context(required=self.entry.users is None)

    @property
    @abstractmethod
    def address(self) -> str:
        """Where clients find it."""

    @property
    def host_and_port(self) -> str:
        host, port = self._listener.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    # --- life -----------------------------------------------------------------------------------

    def serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        tasks = [self._loop.create_task(self._accept()), self._loop.create_task(self._tick())]
        try:
            self._loop.run_forever()
        finally:
            tasks = [*asyncio.all_tasks(self._loop)]
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self._listener.close()
            self._workers.close()
            self._logins.close()
            self._loop.close()

    def stop(self) -> None:
        """Ends all connections."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._loop.stop)

    def tidy(self) -> None:  # noqa: B027, a port may have nothing to do
        """Called every few seconds, in a thread."""

    async def _tick(self) -> None:
        """Takes a renewed certificate, and tidies up."""
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            with suppress(ClientRefused, AcidError):  # the next time tries again
                await self._in(self._workers, self.tidy, "")
            tls = self.entry.tls
            try:
                if tls is not None and tls.stamp != self._stamp:
                    self._context, self._stamp = self._new_context(), tls.stamp
                    _LOG.info("new connections get the certificate that %s has now", tls)
            except (OSError, AcidError) as error:
                _LOG.warning("%s", error)

    async def _accept(self) -> None:
        pace = Pace()
        while True:
            try:
                accepted, peer = await self._loop.sock_accept(self._listener)
            except OSError:
                await asyncio.sleep(0.2)  # as when no file descriptor is left
                continue
            if len(self._open) >= self._most and not self._make_room():
                accepted.close()
            else:
                caller = Caller(f"{peer[0]}:{peer[1]}")
                task = self._loop.create_task(self._converse(accepted, caller))
                self._open[task] = ""
                task.add_done_callback(partial(self._ended, accepted))
                gone = self._strangers.come(task, caller.host)
                if gone is not None:
                    gone.cancel()
            await asyncio.sleep(pace.took())

    def _make_room(self) -> bool:
        """Whether a stranger had to go for a new connection."""
        oldest = self._strangers.oldest()
        if oldest is not None:
            oldest.cancel()
            self._left(oldest)
        return oldest is not None

    def _ended(self, accepted: socket.socket, task: _Task) -> None:
        accepted.close()
        self._left(task)

    def _left(self, task: _Task) -> None:
        self._strangers.leave(task)
        if user := self._open.pop(task, ""):
            self._of_user[user] -= 1
            if not self._of_user[user]:
                del self._of_user[user]

    def _entered(self, user: str) -> None:
        """This connection is no stranger's any more. Raises ClientRefused."""
        task = asyncio.current_task()
        assert task is not None
        if self._of_user[user] >= -(-self._most // 2):
            raise ClientRefused(429, "half of all connections are yours already")
        self._strangers.leave(task)
        self._of_user[user] += 1
        self._open[task] = user

    # --- work -----------------------------------------------------------------------------------

    async def _in(self, workers: Workers, work: Callable[[], _T], who: str) -> _T:
        """What the work returns, in a thread. Raises what it raises, and for an error of nobody's
        ClientRefused."""
        done: asyncio.Future[_T] = self._loop.create_future()

        def ended(set_it: Callable[[], None]) -> None:
            if not done.done():
                set_it()

        def run() -> None:
            if done.cancelled():
                return  # the client has gone
            try:
                result = work()
                tell = partial(done.set_result, result)
            except Exception as error:
                if not isinstance(error, (ClientRefused, AcidError)):
                    _LOG.exception("a request failed")
                    error = ClientRefused(500, "the server failed; its log says why")
                tell = partial(done.set_exception, error)
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(ended, tell)

        workers.submit(run, who)
        return await done

    async def _checked(self, name: str, password: str, caller: Caller) -> Proof:
        """What proves the password. Raises ClientRefused."""
        users, network = self.entry.users, network_of(caller.host)
        if users is None:
            raise ClientRefused(401, "clients log in here with a certificate")
        waiting = self._logins.waiting
        if waiting >= _MOST_WAITING or self._logins.waiting_of(network) >= _MOST_OF_ONE:
            raise ClientRefused(503, "too many logins wait")

        def check() -> Proof | None:
            if not self._rates.begin_login(caller.host):
                raise ClientRefused(429, "too many failed logins; try in a minute")
            proof = None
            try:
                proof = users.verify(name, password)
            finally:
                self._rates.end_login(caller.host, proof is None)
            return proof

        proof = await self._in(self._logins, check, network)
        if proof is None:
            raise ClientRefused(401, "wrong user or password")
        return proof
