"""A cache of scans and their parts: frames over files, and delete tests.

Files of a snapshot never change. Spark takes 20 to 50 milliseconds to list and resolve a few files
again, and about 12 to load the bitmap of their deletes, which is much of a short query. The cache
holds plans, file sizes and bitmaps, never rows.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from pyspark.sql import SparkSession

MAX_ENTRIES = 128
MAX_BYTES = 64 << 20
"""The limit for everything in the cache, as memory of the JVM."""
FILE_BYTES = 1000
"""An estimate of the memory that the JVM needs for a file: its status and paths."""

_Part = TypeVar("_Part")
_kept: OrderedDict[Hashable, tuple[tuple[SparkSession, Any], int]] = OrderedDict()
_guard = threading.Lock()


def kept(spark: SparkSession, key: Hashable, size: int, make: Callable[[], _Part]) -> _Part:
    """The cached result of `make` for this key and session, or a new one. Thread-safe.

    The key must have everything that `make` depends on: for files, paths and sizes. `size` is in
    bytes.
    """
    key = (id(spark), key)  # the entry holds the session, so no other session gets its id
    with _guard:
        if key in _kept:
            _kept.move_to_end(key)
            cached: _Part = _kept[key][0][1]
            return cached
    made = make()
    if size > MAX_BYTES // 2:  # it would evict all others
        return made
    with _guard:
        _kept[key] = (spark, made), size
        while len(_kept) > MAX_ENTRIES or sum(one for _, one in _kept.values()) > MAX_BYTES:
            _kept.popitem(last=False)
    return made
