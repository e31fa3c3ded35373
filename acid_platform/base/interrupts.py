"""Ctrl-C stops what DuckDB computes."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Interruptible(Protocol):
    """A DuckDB connection, as far as it is needed here."""

    def interrupt(self) -> None: ...


COMPUTING: list[Interruptible] = []
"""What computes now, in any thread."""


@contextmanager
def heeding_signals() -> Iterator[None]:
    """A block in which Ctrl-C stops what DuckDB computes, and raises KeyboardInterrupt.

    DuckDB looks for signals only where it comes back to Python, which it may not do for minutes.
    Only the main thread gets signals: in another one the block does nothing more.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    read, write = os.pipe()
    os.set_blocking(write, False)

    def watch() -> None:
        while os.read(read, 1)[0] == signal.SIGINT:
            for connection in list(COMPUTING):
                connection.interrupt()

    watcher = threading.Thread(target=watch, name="acid-signals", daemon=True)
    watcher.start()
    before = signal.set_wakeup_fd(write)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.write(write, b"\0")
        watcher.join()
        os.close(read)
        os.close(write)
