"""Frames over data files, kept for the reads that come after.

Files of a snapshot never change, and Spark takes some 30 milliseconds to list and resolve a handful
of them again: much of a short query. What is kept are plans and file sizes, never rows.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable

from pyspark.sql import DataFrame, SparkSession

MAX_FRAMES = 64
MAX_FILES = 20_000
"""Of all frames that are kept; each file takes some hundred bytes in the JVM."""

_kept: OrderedDict[Hashable, tuple[DataFrame, int]] = OrderedDict()
_guard = threading.Lock()


def kept(
    spark: SparkSession, key: Hashable, files: int, make: Callable[[], DataFrame]
) -> DataFrame:
    """The frame that `make` made for an equal key of this session, or a new one; thread-safe.

    The key must tell everything that `make` depends on: for `files`, their paths and sizes.
    """
    key = (id(spark), key)  # the frame keeps its session, so no other gets that id
    with _guard:
        if key in _kept:
            _kept.move_to_end(key)
            return _kept[key][0]
    frame = make()
    with _guard:
        _kept[key] = frame, files
        while len(_kept) > MAX_FRAMES or sum(count for _, count in _kept.values()) > MAX_FILES:
            _kept.popitem(last=False)
    return frame
