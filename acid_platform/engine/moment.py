"""The moment of a statement: what CURRENT_TIMESTAMP is in all of its parts, in UTC."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime

_MOMENT: ContextVar[datetime | None] = ContextVar("moment", default=None)


@contextmanager
def one_moment() -> Iterator[None]:
    """A block in which `moment` always returns the same; that of the block around it, if any."""
    if _MOMENT.get() is not None:
        yield
        return
    before = _MOMENT.set(datetime.now(UTC))
    try:
        yield
    finally:
        _MOMENT.reset(before)


def moment() -> datetime:
    """The time at which the statement that this thread runs began; now if there is none."""
    return _MOMENT.get() or datetime.now(UTC)
