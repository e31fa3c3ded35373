"""What was written reaches the disk: the one place that syncs local files and directories (P27).

A file that was written is on the disk once the file was synced, and is found there under its name
once its directory was. Neither follows from the other, nor from the end of the process that wrote.
"""

from __future__ import annotations

import fcntl
import os
import stat
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

_THREADS = 16
"""The disk makes several syncs that come at once durable with one write of its journal."""


def sync_data(file: int) -> None:
    """The content of an open file. Raises OSError."""
    if sys.platform == "darwin":
        # There fsync leaves the bytes in the cache of the disk; DuckDB does the same.
        fcntl.fcntl(file, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(file)


def sync_path(path: str | os.PathLike[str]) -> None:
    """The content of a file, whoever wrote it; or the names in a directory. Raises OSError."""
    file = os.open(path, os.O_RDONLY)
    try:
        if stat.S_ISDIR(os.fstat(file).st_mode):
            os.fsync(file)
        else:
            sync_data(file)
    finally:
        os.close(file)


def sync_paths(paths: Iterable[str]) -> None:
    """Each path once, several at a time; all are tried. Raises the first OSError."""
    wanted = list(dict.fromkeys(paths))
    if len(wanted) < 2:
        for path in wanted:
            sync_path(path)
        return
    with ThreadPoolExecutor(min(_THREADS, len(wanted))) as pool:
        for done in [pool.submit(sync_path, path) for path in wanted]:
            done.result()


def nearest(path: str) -> str:
    """The path itself if it is there, else the lowest directory above it that is."""
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return path


def make_directory(path: str | os.PathLike[str], mode: int = 0o777) -> None:
    """The directory, and those above that are missing, under names that are on the disk.

    `mode` is that of the directory itself. Raises OSError.
    """
    wanted = os.path.abspath(path)
    last = nearest(wanted)
    if last == wanted and os.path.isdir(wanted):
        return
    if above := os.path.dirname(wanted):
        os.makedirs(above, exist_ok=True)
    os.makedirs(wanted, mode, exist_ok=True)
    sync_paths(_between(os.path.dirname(wanted), last))


def _between(low: str, high: str) -> list[str]:
    """`low` and the directories above it, up to `high`."""
    found = [low]
    while low != high and len(low) > len(high):
        low = os.path.dirname(low)
        found.append(low)
    return found
