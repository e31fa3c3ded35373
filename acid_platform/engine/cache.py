"""What scans are made of, kept for the reads that come after: frames over files, tests for deletes.

Files of a snapshot never change, and Spark takes 20 to 50 milliseconds to list and resolve a few of
them again, and a dozen to take over the bitmap of their deletes: much of a short query. What is
kept are plans, file sizes and bitmaps, never rows.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from pyspark.sql import Column, DataFrame, SparkSession

MAX_ENTRIES = 64
MAX_BYTES = 64 << 20
"""Of all that is kept, in the JVM."""
FILE_BYTES = 1000
"""An estimate of what the JVM holds of a file: its status and paths."""

_Part = TypeVar("_Part", DataFrame, Column)
_kept: OrderedDict[Hashable, tuple[tuple[SparkSession, Any], int]] = OrderedDict()
_guard = threading.Lock()


def kept(spark: SparkSession, key: Hashable, size: int, make: Callable[[], _Part]) -> _Part:
    """What `make` made for an equal key of this session, or a new one; thread-safe.

    The key must tell everything that `make` depends on: of files, their paths and sizes. `size`
    in bytes.
    """
    key = (id(spark), key)  # kept with its session, so that no other gets that id
    with _guard:
        if key in _kept:
            _kept.move_to_end(key)
            found: _Part = _kept[key][0][1]
            return found
    made = make()
    if size > MAX_BYTES // 2:  # it would drive out all others
        return made
    with _guard:
        _kept[key] = (spark, made), size
        while len(_kept) > MAX_ENTRIES or sum(one for _, one in _kept.values()) > MAX_BYTES:
            _kept.popitem(last=False)
    return made
