"""What clients may use of the gateway's process, and how fast they may call and try passwords."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from dataclasses import dataclass, field

from acid_platform.base.strangers import network_of
from acid_platform.gateway.framing import Limits

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
            self._next = {one: at for one, at in self._next.items() if at > now}
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
                        one: times for one in [*self._failed] if (times := self._recent(one))
                    }
                self._recent(network).append(time.monotonic())

    def _recent(self, network: str) -> deque[float]:
        times = self._failed.setdefault(network, deque())
        while times and times[0] < time.monotonic() - _WINDOW:
            times.popleft()
        return times
