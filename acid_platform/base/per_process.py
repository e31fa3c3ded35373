"""Something that each process makes for itself, and closes when it ends; its cores."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, Protocol, TypeVar


class Closable(Protocol):
    def close(self) -> None: ...


T = TypeVar("T", bound=Closable)


class PerProcess(Generic[T]):
    """Makes a thing when a process first asks for it. Thread-safe.

    After a fork the child makes its own. It keeps the parent's untouched until it ends: to close or
    destroy it in the child may wait for threads that only the parent has.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: dict[int, T] = {}
        self._guard = threading.Lock()
        os.register_at_fork(after_in_child=self._forked)
        atexit.register(self.close)

    def get(self) -> T:
        with self._guard:
            process = os.getpid()
            if process not in self._made:
                self._made[process] = self._make()
            return self._made[process]

    def close(self) -> None:
        """Closes what this process made, if anything; the next `get` makes another."""
        with self._guard:
            made = self._made.pop(os.getpid(), None)
        if made is not None:
            made.close()

    def _forked(self) -> None:
        """Another thread of the parent may have held the lock."""
        self._guard = threading.Lock()


class LastingThreads(ThreadPoolExecutor):
    """Threads that a process keeps, since to start them takes longer than what they do."""

    def close(self) -> None:
        self.shutdown(wait=False, cancel_futures=True)


_MOST = 8
"""More threads than this would hold more memory than they save time."""


def usable_cores() -> int:
    """How many cores this process is bound to (`taskset`, cpusets of a container), at most 8."""
    if hasattr(os, "sched_getaffinity"):
        return min(_MOST, len(os.sched_getaffinity(0)))
    return min(_MOST, os.cpu_count() or 1)
