"""Unix sockets between this machine's Python processes and Spark's JVM.

Through Spark's default, TCP, the end of a task's rows often waits 40 ms: its last bytes are held
back until the bytes before them are acknowledged, and the acknowledgement is delayed. This would be
a quarter of a small INSERT.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from functools import cache

from acid_platform.engine.spark.cluster import is_local

_LONGEST = 57
"""Bytes of the directory's path: that of a socket in it is 43 longer, and macOS allows 103."""


def socket_settings(master: str) -> dict[str, str]:
    """Spark's settings for the sockets, in a private directory of this process; none for a cluster.

    Executors on other machines have no such directory. The directory is removed when this process
    ends; it stays, empty, if the process becomes another one, as a Spark Connect server does.
    """
    directory = _directory(os.getpid()) if is_local(master) and os.name == "posix" else None
    if directory is None:
        return {}
    return {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": directory,
    }


@cache
def _directory(process: int) -> str | None:
    """A directory of this process; None if none can be made whose path is short enough."""
    for parent in (tempfile.gettempdir(), "/tmp"):
        try:
            directory = tempfile.mkdtemp(prefix="acid-spark-", dir=parent)
        except OSError:
            continue
        atexit.register(_remove, process, directory)
        if len(os.fsencode(directory)) <= _LONGEST:
            return directory
    return None


def _remove(process: int, directory: str) -> None:
    if os.getpid() == process:  # a fork of it may end first
        shutil.rmtree(directory, ignore_errors=True)
