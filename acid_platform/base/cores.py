"""The processor cores that this process may use."""

from __future__ import annotations

import os

_MOST = 8
"""More threads than this would hold more memory than they save time."""


def usable_cores() -> int:
    """How many cores this process is bound to (`taskset`, cpusets of a container), at most 8."""
    if hasattr(os, "sched_getaffinity"):
        return min(_MOST, len(os.sched_getaffinity(0)))
    return min(_MOST, os.cpu_count() or 1)
