"""A clock that stands still."""

from __future__ import annotations

from acid_platform.base.clock import Moment


class ManualClock:
    """A clock that moves only when a test moves it."""

    def __init__(self, start_ms: int = 1_700_000_000_000, steady_ms: int = 5_000) -> None:
        self._wall, self._steady = start_ms, steady_ms

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC."""
        return self._wall

    def moment(self) -> Moment:
        return Moment(self._wall, self._steady)

    def advance(self, milliseconds: int) -> None:
        """Advances both clocks."""
        self._wall += milliseconds
        self._steady += milliseconds

    def set_wall(self, milliseconds: int) -> None:
        """Moves only the wall clock, as if somebody set it."""
        self._wall += milliseconds
