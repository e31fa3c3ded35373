"""How clients are served: a connection with its login, messages in and answers out, and the time
that each may take; what clients may use, how fast they may call, and the threads that answer by
turns.

An idle connection holds no thread. Its bytes are collected by the event loop; only a whole message
goes to a worker, so a slow client keeps nobody waiting.
"""

from __future__ import annotations

import asyncio
import logging
import struct
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, cast

from acid_platform.base.ports import network_of
from acid_platform.errors import AcidError
from acid_platform.gateway import framing
from acid_platform.gateway.authorization import Caller
from acid_platform.gateway.framing import Cutter, Limits, MalformedMessage, Message
from acid_platform.gateway.logins import user_of

if TYPE_CHECKING:
    from acid_platform.gateway.gateway_server import GatewayServer
    from acid_platform.gateway.logins import Proof

Work = Callable[[], None]
_LOG = logging.getLogger(__name__)


class Workers:
    """Runs work in threads. A thread keeps its connection to the metastore between two works.

    Users take turns, so that one with a thousand calls delays another by one call each (P76).
    """

    def __init__(self, most: int, share: int = 0, leave: Callable[[], None] = lambda: None) -> None:
        """`share`: how many threads the work of one user may have at a time; 0 for all.

        `leave` is called in each thread when it ends.
        """
        self._most, self._share, self._leave = most, share or most, leave
        self._condition = threading.Condition()
        self._waiting: OrderedDict[str, deque[Work]] = OrderedDict()
        """The work of each user that no thread has begun; whose turn is next comes first."""
        self._rank: dict[str, int] = {}
        """The ranks of those who wait that are not 0."""
        self._running: Counter[str] = Counter()
        self._idle = self._threads = 0
        self._closed = False

    @property
    def threads(self) -> int:
        return self._threads

    @property
    def waiting(self) -> int:
        """The works that no thread has begun."""
        return sum(map(len, [*self._waiting.values()]))

    def waiting_of(self, user: str) -> int:
        return len(self._waiting.get(user, ()))

    def submit(self, work: Work, user: str = "", rank: int = 0) -> None:
        """What `work` raises is logged. Users of a lower rank have their turns before others."""
        with self._condition:
            queue = self._waiting.setdefault(user, deque())
            queue.append(work)
            if rank:
                self._rank[user] = rank
            else:
                self._rank.pop(user, None)
            if self._running[user] + len(queue) > self._share:
                return  # a thread of this user's work takes it
            if self._idle >= self.waiting or self._threads >= self._most:
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
            self._rank.clear()
            self._condition.notify_all()

    def _run(self) -> None:
        while (turn := self._next()) is not None:
            user, work = turn
            try:
                work()
            except Exception:
                _LOG.exception("a thread's work failed")
            finally:
                self._done(user)
        self._leave()

    def _next(self) -> tuple[str, Work] | None:
        """The work of the user whose turn it is; None if there will be none."""
        with self._condition:
            self._idle += 1
            while not self._closed:
                for user in self._turns():
                    queue = self._waiting[user]
                    if self._running[user] < self._share:
                        self._idle -= 1
                        self._running[user] += 1
                        work = queue.popleft()
                        if queue:
                            self._waiting.move_to_end(user)
                        else:
                            del self._waiting[user]
                            self._rank.pop(user, None)
                        return user, work
                self._condition.wait()
            self._idle -= 1
            return None

    def _turns(self) -> list[str]:
        """Who waits, in order."""
        if not self._rank:
            return [*self._waiting]
        return sorted(self._waiting, key=lambda user: self._rank.get(user, 0))

    def _done(self, user: str) -> None:
        with self._condition:
            self._running[user] -= 1
            if self._running[user] <= 0:
                del self._running[user]


_WINDOW = 60.0
_REMEMBERED = 10_000
"""Clients that are remembered."""


@dataclass(frozen=True, slots=True)
class Bounds:
    connections: int = 1000
    message_seconds: float = 60.0
    """How long a message may take to arrive once its first bytes are there, and an answer to
    leave."""
    message: Limits = field(default_factory=Limits)
    login_seconds: float = 10.0
    """How long a client that has to log in may take, the handshake of TLS included or not."""
    threads: int = 64
    """Calls that are answered at the same time."""
    buffer: int = 256 << 20
    """Bytes of unfinished messages in all connections together."""
    rate: int = 0
    """Calls per second of one user, or of one address without login; 0 for any number."""
    failures: int = 10
    """Failed logins per minute of one address; further ones are not checked."""


class CallRates:
    """`pause` is used from the event loop only, the rest from any thread."""

    def __init__(self, bounds: Bounds) -> None:
        self._rate, self._failures = bounds.rate, bounds.failures
        self._next: dict[str, float] = {}
        self._failed: dict[str, deque[float]] = {}
        self._tried: Counter[str] = Counter()
        """Logins that are checked now."""
        self._guard = threading.Lock()

    def pause(self, who: str, now: float) -> float:
        """The seconds for which a call has to wait; 0 for a client that is within its rate.

        A client may be up to one second's calls ahead. Its later calls wait, so nothing fails.
        """
        if not self._rate:
            return 0.0
        if len(self._next) >= _REMEMBERED:
            self._next = {address: at for address, at in self._next.items() if at > now}
        due = max(self._next.get(who, 0.0), now - 1.0) + 1.0 / self._rate
        self._next[who] = due
        return max(0.0, due - now)

    def begin_login(self, host: str) -> bool:
        """Whether a login of this address is checked: so many may fail in a minute.

        One that is being checked counts as failed until `end_login`, so that guesses at the same
        time are not more than guesses one after the other.
        """
        network = network_of(host)
        with self._guard:
            if len(self._recent(network)) + self._tried[network] >= self._failures:
                return False
            self._tried[network] += 1
            return True

    def end_login(self, host: str, failed: bool) -> None:
        network = network_of(host)
        with self._guard:
            self._tried[network] -= 1
            if not self._tried[network]:
                del self._tried[network]
            if failed:
                if len(self._failed) >= _REMEMBERED:
                    self._failed = {
                        key: times for key in [*self._failed] if (times := self._recent(key))
                    }
                self._recent(network).append(time.monotonic())

    def _recent(self, network: str) -> deque[float]:
        times = self._failed.setdefault(network, deque())
        while times and times[0] < time.monotonic() - _WINDOW:
            times.popleft()
        return times


_REFUSED_SECONDS = 5.0
"""How long a connection stays that is told why it is refused."""
_OF_STRANGERS = Limits(bytes=64 << 10, values=10_000)
"""What is read of a call whose client has to log in first: the call is refused."""
_OPENING = 5
"""Bytes that tell whether a connection begins with SASL."""


class Stage(Enum):
    OPENING = "nothing was read yet"
    LOGIN = "the client logs in"
    CALLS = "calls are answered"


class ClientConnection(asyncio.Protocol):
    """Runs in the event loop; `answer` and `log_in` work elsewhere and call back in the loop."""

    def __init__(self, server: GatewayServer, peer: str, refusal: str = "") -> None:
        """`refusal`: why the first call is answered with an error, and nothing else happens."""
        self.caller = Caller(peer)
        self._server, self._refusal = server, refusal
        self._stage = Stage.OPENING
        self._cutter = Cutter(_OF_STRANGERS)
        self._opening = bytearray()
        """The bytes before the first call: they tell whether SASL begins, and who logs in."""
        self._counted = 0
        self._busy = self._full = False
        self.greeting: asyncio.Task[None] | None = None
        """The handshake, until there is a transport."""
        self.counted_for = ""
        """The user whose connections include this one."""
        self.logged_in_by: Proof | None = None
        """The password by which the user logged in; None for a certificate, or no login."""
        self._over = False
        self._deadline: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None

    @property
    def busy(self) -> bool:
        """Whether a call or a login is under way."""
        return self._busy

    @property
    def state(self) -> str:
        """How far it has come, in words."""
        return self._stage.value

    # --- the transport's calls ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        # Not 0: asyncio's TLS would report an empty buffer as full, and never as empty again.
        self._transport.set_write_buffer_limits(high=1)
        try:
            self.caller.user = user_of(transport.get_extra_info("peercert"))
            if self.caller.user and not self._refusal:
                self._refusal = self._server.entered(self)
        except AcidError as error:
            self._refusal = str(error)
        if self._refusal:
            self._end_within(_REFUSED_SECONDS, "it was refused: " + self._refusal)
        elif self._server.must_log_in(self.caller):
            self._end_within(self._server.bounds.login_seconds, "nobody logged in in time")

    def data_received(self, data: bytes) -> None:
        if self._over:
            return
        try:
            if self._stage is Stage.OPENING:
                self._open(data)
            elif self._stage is Stage.LOGIN:
                self._opening += data
                self._log_in()
            else:
                self._cutter.feed(data)
                self._go_on()
        except MalformedMessage as error:
            self.end(str(error))

    def eof_received(self) -> bool:
        if not self._busy:
            try:
                self._cutter.end()
            except MalformedMessage as error:
                self.end(str(error))
        return False

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        if self._stage is Stage.CALLS and not self._busy:
            self._ready()

    def connection_lost(self, error: Exception | None) -> None:
        self._over = True
        if error is not None:
            _LOG.info("%s: the connection ended: %s", self.caller, error)
        self._end_deadline()
        self._server.buffered(self, -self._counted)
        self._counted = 0
        self._server.left(self)

    # --- login ----------------------------------------------------------------------------------

    def _open(self, data: bytes) -> None:
        self._opening += data
        if len(self._opening) < _OPENING:
            self._await_message()
            return
        if framing.begins(self._opening):
            self._stage = Stage.LOGIN
            self._end_within(self._server.bounds.login_seconds, "nobody logged in in time")
            self._log_in()
            return
        self._stage = Stage.CALLS
        if not self._refusal and self._server.must_log_in(self.caller):
            self._refusal = (
                "log in first: by SASL PLAIN (hive.metastore.client.auth.mode=PLAIN) or a client"
                " certificate"
            )
        if not self._refusal:
            self._end_deadline()
            self._cutter = Cutter(self._server.bounds.message)
        self._cutter.feed(self._opening)
        self._opening.clear()
        self._go_on()

    def _log_in(self) -> None:
        if self._busy:
            raise MalformedMessage("more bytes follow the client's response before it was answered")
        try:
            if self._refusal:
                raise framing.LoginRefused(self._refusal)
            login = framing.login(self._opening)
        except framing.LoginRefused as refused:
            self._refuse_login(str(refused))
            return
        if login is None:
            return
        self._opening.clear()
        if self.caller.user and self.caller.user != login.user:
            self._refuse_login(f"the certificate is of {self.caller.user!r}, not of {login.user!r}")
            return
        self._busy = True
        self._end_deadline()
        self._server.log_in(login, self, self._checked)

    def _checked(self, proof: Proof | None, reason: str) -> None:
        self._busy = False
        if self._over:
            return
        if proof is not None and not self.counted_for:
            self.caller.user = proof.user
            reason = self._server.entered(self)
        if proof is None or reason:
            self._refuse_login(reason)
            return
        self.logged_in_by = proof
        self._stage = Stage.CALLS
        self._cutter = Cutter(self._server.bounds.message, only_frames=True)
        self._write(framing.written(framing.SaslStatus.COMPLETE))

    def _refuse_login(self, reason: str) -> None:
        self._server.refusals.note("%s: login refused: %s", self.caller, reason)
        self._write(framing.written(framing.SaslStatus.BAD, reason.encode()))
        self._close()

    # --- calls ----------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Begins the next call if its message is whole. Raises MalformedMessage."""
        if self._busy or self._full or self._over:
            self._count()
            return
        message = self._cutter.next()
        self._count()
        if self._over:
            return
        if message is None:
            if self._cutter.has_more:  # after what others have sent
                asyncio.get_running_loop().call_soon(self._resume)
            if self._cutter.pending:
                self._await_message()
            return
        if self._refusal:
            self._server.refusals.note("%s: refused: %s", self.caller, self._refusal)
            self._write(_framed(message, self._server.refuse(message.payload, self._refusal)))
            self._close()
            return
        self._end_deadline()
        self._busy = True
        self._server.settled(self)
        assert self._transport is not None
        self._transport.pause_reading()
        self._server.answer(
            message.payload, self.caller, lambda answer: self._answered(message, answer)
        )

    def _resume(self) -> None:
        if not self._over:
            try:
                self._go_on()
            except MalformedMessage as error:
                self.end(str(error))

    def _answered(self, message: Message, answer: bytes) -> None:
        self._busy = False
        if not self._over:
            if answer:
                self._write(_framed(message, answer))
            if not self._full:
                self._ready()

    def _ready(self) -> None:
        assert self._transport is not None
        self._end_deadline()
        if not self._transport.is_closing():
            self._transport.resume_reading()
            self._resume()

    def _write(self, content: bytes) -> None:
        assert self._transport is not None
        self._end_within(self._server.bounds.message_seconds, "the client did not take its answer")
        self._transport.write(content)
        if not self._full:
            self._end_deadline()

    # --- the end --------------------------------------------------------------------------------

    def _count(self) -> None:
        """Tells the server how many bytes wait here."""
        change, self._counted = self._cutter.pending - self._counted, self._cutter.pending
        if change and not self._server.buffered(self, change) and change > 0:
            self.end("too many bytes wait in connections; try again later")

    def _await_message(self) -> None:
        """A message that has begun has to be whole in time."""
        if self._deadline is None:
            seconds = self._server.bounds.message_seconds
            self._end_within(seconds, "a message did not arrive in time")

    def _end_within(self, seconds: float, otherwise: str) -> None:
        self._end_deadline()
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(seconds, self.end, otherwise)

    def _end_deadline(self) -> None:
        """The client may take any time now."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _close(self) -> None:
        """Ends the connection when what was written has left."""
        assert self._transport is not None
        self._over = True
        self._end_within(_REFUSED_SECONDS, "the client did not take its answer")
        self._transport.close()

    def end(self, reason: str = "") -> None:
        """Ends the connection now."""
        if reason:
            self._server.refusals.note("%s: closed: %s", self.caller, reason)
        self._over = True
        if self._transport is not None:
            self._transport.abort()
        elif self.greeting is not None:
            self.greeting.cancel()


def _framed(message: Message, answer: bytes) -> bytes:
    return struct.pack("!I", len(answer)) + answer if message.framed else answer
