"""How far long work is: told by whoever does it, shown by whoever has asked for it.

What is told is shown on the terminal of a command, or in the log of a run. Where nobody has asked,
telling costs next to nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

Show = Callable[[str, int, int | None], None]
"""Takes what is done, how much of it (rows, files or tables) and the total, if it is known."""

_lock = threading.RLock()
_shows: list[Show] = []
_read, _to_read = 0, 0


@contextmanager
def shown(show: Show) -> Iterator[None]:
    """Until the block ends, `show` is called with what any thread of this process tells."""
    global _read, _to_read
    with _lock:
        if not _shows:
            _read = _to_read = 0
        _shows.append(show)
    try:
        yield
    finally:
        with _lock:
            _shows.remove(show)


def is_shown() -> bool:
    return bool(_shows)


def tell(what: str, count: int, total: int | None = None) -> None:
    if _shows:
        with _lock:
            for show in _shows:
                show(what, count, total)


class Sized(Protocol):
    """What has files to be read, of so many bytes."""

    @property
    def read_bytes(self) -> int: ...


def tell_to_read(what: Sized) -> None:
    """Its files are going to be read, beside those that were told of before."""
    global _to_read
    if _shows:
        with _lock:
            _to_read += what.read_bytes


def tell_read(size: int) -> None:
    """So many bytes of files were read, or turned out not to be needed."""
    global _read
    if _shows:
        with _lock:
            _read += size
            tell("MB read", _read >> 20, max(_read, _to_read) >> 20)
