"""Syncing local files and directories to the disk (P27).

Only this module does it: the linter refuses `os.fsync` elsewhere.

A file's content is on the disk after the file was synced; its name is there after its directory was
synced. Neither implies the other, and the end of the process that wrote them implies none.
"""

from __future__ import annotations

import fcntl
import os
import stat
import sys
from collections.abc import Iterable
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext

from acid_platform.base.per_process import LastingThreads, PerProcess

_THREADS = 16
"""The file system makes concurrent syncs durable with one write of its journal."""
_FEW = PerProcess(lambda: LastingThreads(_THREADS, "acid-sync"))
"""For few paths; more get threads of their own, so that no other statement waits for them."""


def sync_data(file: int) -> None:
    """Syncs the content of an open file. Raises OSError."""
    if sys.platform == "darwin":
        # There fsync leaves the bytes in the cache of the disk; DuckDB does the same.
        fcntl.fcntl(file, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(file)


def sync_path(path: str | os.PathLike[str]) -> None:
    """Syncs a file's content, whoever wrote it, or the names in a directory. Raises OSError."""
    file = os.open(path, os.O_RDONLY)
    try:
        if stat.S_ISDIR(os.fstat(file).st_mode):
            os.fsync(file)
        else:
            sync_data(file)
    finally:
        os.close(file)


def sync_paths(paths: Iterable[str]) -> None:
    """Syncs each path once, several at a time, even if one fails. Raises the first OSError."""
    distinct = list(dict.fromkeys(paths))
    if not distinct:
        return
    first, *others = distinct
    threads: AbstractContextManager[Executor] = ThreadPoolExecutor(_THREADS)
    if len(others) < _THREADS:
        threads = nullcontext(_FEW.get())
    with threads as pool:
        syncing = [pool.submit(sync_path, path) for path in others]
        try:
            sync_path(first)
        finally:
            wait(syncing)
    for each in syncing:
        each.result()


def nearest(path: str) -> str:
    """The path itself if it exists, else the nearest directory above it that exists."""
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return path


def make_directory(path: str | os.PathLike[str], mode: int = 0o777) -> None:
    """Makes the directory and missing ones above it, and syncs their names to the disk.

    `mode` applies to the directory itself. Raises OSError.
    """
    directory = os.path.abspath(path)
    last = nearest(directory)
    if last == directory and os.path.isdir(directory):
        return
    if above := os.path.dirname(directory):
        os.makedirs(above, exist_ok=True)
    os.makedirs(directory, mode, exist_ok=True)
    sync_paths(_between(os.path.dirname(directory), last))


def _between(low: str, high: str) -> list[str]:
    """`low` and the directories above it, up to `high`."""
    directories = [low]
    while low != high and len(low) > len(high):
        low = os.path.dirname(low)
        directories.append(low)
    return directories
