"""Files of this machine: whose are obeyed (P68), private ones (P69), and syncing to the disk (P27).

Settings and code are found in directories around the current one, and some settings name programs.
In a directory of another user of the machine they would run that user's programs, so such a place
is refused, as git refuses it. What somebody names, by an option or in the environment, is that
person's choice.

Only this module makes temporary places: the linter refuses `tempfile` elsewhere. Rows that lie
there may be of tables that other users may not read. So a directory has mode 0700 from its
beginning and a file 0600, whatever the umask says, and a name is random: nobody can make it before.

Only this module syncs: the linter refuses `os.fsync` elsewhere. A file's content is on the disk
after the file was synced; its name is there after its directory was synced. Neither implies the
other, and the end of the process that wrote them implies none.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache
from multiprocessing.util import Finalize
from pathlib import Path
from typing import IO

from acid_platform.base.first_use import LastingThreads, PerProcess
from acid_platform.errors import OwnedByOthers

SAFE = "ACID_SAFE_DIRECTORY"
"""Directories of others that the user trusts, separated as in PATH; `*` trusts all."""


def require_own(directory: Path, *files: str, environment: Mapping[str, str] | None = None) -> None:
    """Raises OwnedByOthers unless the directory and these files in it, where they exist, are the
    user's, or root's. Links have to be, too (P68)."""
    environment = os.environ if environment is None else environment
    trusted = environment.get(SAFE, "").split(os.pathsep)
    if "*" in trusted or any(_same(directory, path) for path in trusted if path):
        return
    for path in (directory, *(directory / file for file in files)):
        for found in (path.lstat, path.stat):
            try:
                owner = found().st_uid
            except (FileNotFoundError, NotADirectoryError):
                continue
            if owner not in _own(environment):
                raise OwnedByOthers(
                    f"{path} belongs to another user, with the id {owner}: what is there would"
                    f" choose what runs as you. Work elsewhere, or if you trust that user, set"
                    f" {SAFE}={directory} in the environment"
                )


def _own(environment: Mapping[str, str]) -> set[int]:
    """The ids of the user and of root; under `sudo` also of whoever called it, as git has it."""
    own = {os.geteuid(), 0}
    caller = environment.get("SUDO_UID", "")
    if os.geteuid() == 0 and caller.isascii() and caller.isdigit():
        own.add(int(caller))
    return own


def _same(directory: Path, trusted: str) -> bool:
    return os.path.realpath(directory) == os.path.realpath(trusted)


ScratchDirectory = tempfile.TemporaryDirectory[str]
"""Removed by `cleanup`, at the end of a `with` block, and when this process ends."""


def scratch_directory(
    purpose: str, within: str | os.PathLike[str] | None = None
) -> ScratchDirectory:
    """A new directory; `purpose` becomes a part of its name. Raises OSError."""
    return tempfile.TemporaryDirectory(prefix=f"acid-{purpose}-", dir=within)


def scratch_file() -> IO[str]:
    """A file without a name, for text. Raises OSError."""
    return tempfile.TemporaryFile("w+")


def process_directory(purpose: str, longest: int | None = None) -> str | None:
    """A new directory, which is removed when this process ends, and not by a fork of it.

    Those that killed processes left are removed first. None if none can be made, or none whose path
    has at most `longest` bytes.
    """
    prefix = f"acid-{purpose}-held-"
    for parent in parents():
        _remove_left(parent, prefix)
        try:
            directory = tempfile.mkdtemp(prefix=prefix, dir=parent)
        except OSError:
            continue
        with suppress(OSError):  # a file system without locks
            _held(directory)
        # Processes of `multiprocessing` end without `atexit`, but not without this.
        Finalize(None, shutil.rmtree, (directory,), {"ignore_errors": True}, exitpriority=0)
        if longest is None or len(os.fsencode(directory)) <= longest:
            return directory
    return None


def _held(directory: str) -> int | None:
    """A lock of the directory that lasts as long as this process and its forks; None if another
    process has it. Raises OSError."""
    file = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(file)
        if error.errno not in (errno.EWOULDBLOCK, errno.EAGAIN):
            raise
        return None
    return file


_NEW_SECONDS = 3600.0
"""An older directory was locked by the process that made it, if that is still there."""


def _remove_left(parent: str, prefix: str) -> None:
    """Removes the directories of this user whose processes were killed: the system has let go of
    their locks, whatever the ids of processes are in another container."""
    with suppress(OSError):
        for entry in os.scandir(parent):
            if not entry.name.startswith(prefix) or not entry.is_dir(follow_symlinks=False):
                continue
            found = entry.stat(follow_symlinks=False)
            if found.st_uid != os.geteuid() or time.time() - found.st_mtime < _NEW_SECONDS:
                continue
            with suppress(OSError):
                lock = _held(entry.path)
                if lock is not None:
                    shutil.rmtree(entry.path, ignore_errors=True)
                    os.close(lock)


def spill_directory() -> str:
    """A new path in a directory of this process: who spills rows there makes and removes it. Empty
    if there is none."""
    directory = _spilled(os.getpid())
    return f"{directory}/{secrets.token_hex(8)}" if directory else ""


@cache
def _spilled(_process: int) -> str | None:
    return process_directory("duckdb")


def parents() -> tuple[str, str]:
    """The directory for temporary files, and one whose path is short enough for a socket."""
    return tempfile.gettempdir(), "/tmp"


def own_directory(path: Path) -> Path:
    """A directory with a name that processes of this user know; made if it is missing.

    Raises OwnedByOthers if another user made it, or others may use it.
    """
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise OwnedByOthers(
            f"{path} is no directory of this user alone: remove it, or name another directory for"
            " temporary files by TMPDIR"
        )
    return path


def create_private(path: str | os.PathLike[str]) -> IO[bytes]:
    """A new file for its owner only. Raises FileExistsError, OSError."""
    return open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "w+b")


def draft_beside(file: Path) -> tuple[IO[bytes], Path]:
    """A new file in the same directory, to be renamed to `file`, and its path. Raises OSError."""
    handle, draft = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    return open(handle, "w+b"), Path(draft)


_THREADS = 16
"""The file system makes concurrent syncs durable with one write of its journal."""
_FEW = PerProcess(lambda: LastingThreads(_THREADS, "acid-sync"))
"""For few paths; more get threads of their own, so that no other statement waits for them."""


def require_regular(path: str | os.PathLike[str]) -> None:
    """Raises OSError for what is there and is no file: reading a pipe or a device may not end."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(errno.EINVAL, "it is no file, and reading it may not end", os.fspath(path))


def identity_of(path: str) -> tuple[int, ...]:
    """The device, inode, size and time of change of a file: one that takes its place has others.
    Raises OSError."""
    status = os.stat(path)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


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
