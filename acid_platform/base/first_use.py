"""What a process makes or loads when it first needs it, and keeps: modules, threads, values."""

from __future__ import annotations

import atexit
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Generic, Protocol, Self, TypeVar


class _ArrowFunctions:
    """Arrow's functions (`pyarrow.compute`), which are made when one of them is first called.

    Arrow makes 300 of them, each with a documentation of its own. A count from records needs none.
    """

    def __getattr__(self, name: str) -> Any:
        import pyarrow.compute

        function = vars(self)[name] = getattr(pyarrow.compute, name)
        return function


arrow_functions = _ArrowFunctions()


class Closable(Protocol):
    def close(self) -> None: ...


class ClosedAfter:
    """A `with` block of it ends with `close`, whatever happened in it."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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


class _IdleThreads:
    """Pools of threads that wait for work, by their number of threads."""

    def __init__(self) -> None:
        self.pools: dict[int, list[LastingThreads]] = {}

    def close(self) -> None:
        for pools in self.pools.values():
            while pools:
                pools.pop().close()


_IDLE = PerProcess(_IdleThreads)
_MOST_IDLE = 4
"""As many pools of each size wait for work."""


@contextmanager
def lent_threads(number: int) -> Iterator[ThreadPoolExecutor]:
    """So many threads for the block alone, kept for the next one: to start them takes about a
    millisecond, and a statement reads two to five times.

    The block waits for what it submits. If it fails, nobody does, and what has not begun is
    cancelled.
    """
    waiting = _IDLE.get().pools.setdefault(number, [])
    try:
        threads = waiting.pop()
    except IndexError:
        threads = LastingThreads(number, "acid-read")
    try:
        yield threads
    except BaseException:
        threads.close()
        raise
    if len(waiting) < _MOST_IDLE:
        waiting.append(threads)
    else:
        threads.close()


_MOST = 8
"""More threads than this would hold more memory than they save time."""


def usable_cores() -> int:
    """How many cores this process is bound to (`taskset`, cpusets of a container), at most 8."""
    if hasattr(os, "sched_getaffinity"):
        return min(_MOST, len(os.sched_getaffinity(0)))
    return min(_MOST, os.cpu_count() or 1)


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """Values by key; the one that was not asked for longest makes room. Thread-safe.

    A value must not change, and must depend on nothing but its key.
    """

    def __init__(self, most: int, most_bytes: int = 0) -> None:
        """At most `most` values, whose sizes, as told to `put`, add up to `most_bytes` or less."""
        self._most, self._most_bytes = most, most_bytes
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._bytes = 0
        self._guard = threading.Lock()

    def get(self, key: K) -> V | None:
        with self._guard:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key][0]

    def put(self, key: K, value: V, size: int = 0) -> None:
        """Keeps the value of `size` bytes, unless it is so large that it would evict all others."""
        if size > self._most_bytes // 2:
            return
        with self._guard:
            self._remove(key)
            self._values[key] = value, size
            self._bytes += size
            while len(self._values) > self._most or self._bytes > self._most_bytes:
                self._remove(next(iter(self._values)))

    def clear(self) -> None:
        with self._guard:
            self._values.clear()
            self._bytes = 0

    def _remove(self, key: K) -> None:
        if key in self._values:
            self._bytes -= self._values.pop(key)[1]


def names_in(package: str, *modules: str) -> Callable[[str], Any]:
    """A package's `__getattr__`: looks for a name in one of its modules after the other, and loads
    no more of them than it has to."""

    def look_for(name: str) -> Any:
        if not name.startswith("_") and name not in modules:  # Python imports these by itself
            for module in modules:
                names = vars(import_module(f"{package}.{module}"))
                if name in names:
                    return vars(import_module(package)).setdefault(name, names[name])
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return look_for
