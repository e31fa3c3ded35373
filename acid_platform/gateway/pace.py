"""How fast a client may call and try passwords."""

from __future__ import annotations

import time
from collections import deque

from acid_platform.gateway.bounds import Bounds

_WINDOW = 60.0
_KNOWN = 10_000
"""Clients that are remembered."""


class Pace:
    """Used from the event loop only."""

    def __init__(self, bounds: Bounds) -> None:
        self._rate, self._failures = bounds.rate, bounds.failures
        self._next: dict[str, float] = {}
        self._failed: dict[str, deque[float]] = {}

    def pause(self, who: str, now: float) -> float:
        """The seconds for which a call has to wait; 0 for a client that is within its rate.

        A client may be up to one second's calls ahead. Its later calls wait, so nothing fails.
        """
        if not self._rate:
            return 0.0
        if len(self._next) >= _KNOWN:
            self._next = {one: at for one, at in self._next.items() if at > now}
        due = max(self._next.get(who, 0.0), now - 1.0) + 1.0 / self._rate
        self._next[who] = due
        return max(0.0, due - now)

    def may_log_in(self, host: str) -> bool:
        """Whether a login of this address is checked: it may fail so many times a minute."""
        return len(self._recent(host)) < self._failures

    def failed(self, host: str) -> None:
        if len(self._failed) >= _KNOWN:
            self._failed = {one: times for one in [*self._failed] if (times := self._recent(one))}
        self._recent(host).append(time.monotonic())

    def _recent(self, host: str) -> deque[float]:
        times = self._failed.setdefault(host, deque())
        while times and times[0] < time.monotonic() - _WINDOW:
            times.popleft()
        return times
