"""What clients may use, how fast they may call, and the threads that answer: users take turns."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from acid_platform.base.ports import network_of
from acid_platform.gateway.framing import Limits

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
