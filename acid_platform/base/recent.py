"""What was computed last, for calls that come again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

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
