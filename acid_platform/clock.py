"""The clocks of a process; tests and the simulator put their own in their place.

The wall clock tells times that people see. Somebody may set it at any time, by a day too, so no
timeout counts by it: timeouts count by the steady clock, which nobody can set (P29).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

LONGEST_LOOK_AWAY = 2_000
"""Milliseconds that count at most between two looks at the steady clock of a process: while it is
stopped, it can't hear that others are alive."""


@dataclass(frozen=True, slots=True)
class Moment:
    """One moment by both clocks, in milliseconds."""

    wall: int
    """Since 1970 UTC."""
    steady: int
    """Since a start that means nothing, and is another one after a restart."""


class Clock(Protocol):
    def moment(self) -> Moment: ...


class SystemClock:
    """The steady clock stands still while the machine sleeps, and while this process is stopped.

    For the second it has to be looked at regularly, by one thread.
    """

    def __init__(self) -> None:
        self._looked = self._monotonic()
        self._steady = 0

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC."""
        return time.time_ns() // 1_000_000

    def moment(self) -> Moment:
        now = self._monotonic()
        self._steady += min(now - self._looked, LONGEST_LOOK_AWAY)
        self._looked = now
        return Moment(self.now_ms(), self._steady)

    @staticmethod
    def _monotonic() -> int:
        return time.monotonic_ns() // 1_000_000


class ManualClock:
    """A clock that moves only when told to."""

    def __init__(self, start_ms: int = 1_700_000_000_000, steady_ms: int = 5_000) -> None:
        self._wall, self._steady = start_ms, steady_ms

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC."""
        return self._wall

    def moment(self) -> Moment:
        return Moment(self._wall, self._steady)

    def advance(self, milliseconds: int) -> None:
        """Time passes."""
        self._wall += milliseconds
        self._steady += milliseconds

    def set_wall(self, milliseconds: int) -> None:
        """Somebody moves the wall clock by so much; no time passes."""
        self._wall += milliseconds
