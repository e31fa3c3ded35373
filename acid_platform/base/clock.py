"""The clocks of the metastore process; tests and the simulator replace them.

The wall clock gives the times that people see. It may be set at any time, even by a day, so no
timeout uses it: timeouts use the steady clock, which can't be set (P29).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

MAX_STEP_MS = 2_000
"""The most that one reading may advance the steady clock: while a process is suspended, it can't
receive heartbeats."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment on both clocks, in milliseconds."""

    wall: int
    """Since 1970 UTC."""
    steady: int
    """Since an arbitrary start, which differs after a restart."""


def wall_ms() -> int:
    """Milliseconds since 1970 UTC."""
    return time.time_ns() // 1_000_000


def elapsed_seconds() -> float:
    """A clock that also counts the time that this machine or process slept: a lease ends then."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


class Clock(Protocol):
    def moment(self) -> Moment: ...


class SystemClock:
    """The steady clock stops while the machine sleeps, and while this process is suspended.

    The latter works only if one thread reads it regularly.
    """

    def __init__(self) -> None:
        self._read_at = self._monotonic()
        self._steady = 0

    def moment(self) -> Moment:
        now = self._monotonic()
        self._steady += min(now - self._read_at, MAX_STEP_MS)
        self._read_at = now
        return Moment(wall_ms(), self._steady)

    @staticmethod
    def _monotonic() -> int:
        return time.monotonic_ns() // 1_000_000
