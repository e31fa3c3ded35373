"""A cache of frames over files, and of tests for deleted rows.

Files of a snapshot never change. Spark takes 20 to 50 milliseconds to list and resolve a few files
again, and about 12 to load the bitmap of their deletes, which is much of a short query. The cache
holds plans, file sizes and bitmaps, never rows.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from pyspark.sql import SparkSession

from acid_platform.base.recent import Recent

MAX_ENTRIES = 128
MAX_BYTES = 64 << 20
"""The limit for everything in the cache, as memory of the JVM."""
FILE_BYTES = 1000
"""An estimate of the memory that the JVM needs for a file: its status and paths."""

_Part = TypeVar("_Part")
_parts: Recent[Hashable, tuple[SparkSession, Any]] = Recent(MAX_ENTRIES, MAX_BYTES)


def cached(spark: SparkSession, key: Hashable, size: int, make: Callable[[], _Part]) -> _Part:
    """The cached result of `make` for this key and session, or a new one. Thread-safe.

    The key must have everything that `make` depends on: for files, paths and sizes. `size` is in
    bytes.
    """
    key = (id(spark), key)  # the entry holds the session, so no other session gets its id
    entry = _parts.get(key)
    if entry is None:
        entry = spark, make()
        _parts.put(key, entry, size)
    part: _Part = entry[1]
    return part
