"""Measuring the peak memory of this process, its JVM and Spark's Python workers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil

INTERVAL_SECONDS = 0.1


@dataclass(slots=True)
class Peak:
    """Peak resident memory in bytes."""

    jvm: int = 0
    worker: int = 0
    """The largest Python worker; each runs one task."""
    driver: int = 0
    """This process."""

    def as_json(self) -> dict[str, int]:
        return {
            "jvm MB": self.jvm >> 20,
            "largest worker MB": self.worker >> 20,
            "driver MB": self.driver >> 20,
        }


@contextmanager
def peak_memory() -> Iterator[Peak]:
    """Samples this process and its descendants ten times a second while the block runs."""
    peak, done = Peak(), threading.Event()

    def watch() -> None:
        ended = False
        while not ended:  # sample at least once
            ended = done.wait(INTERVAL_SECONDS)
            peak.driver = max(peak.driver, psutil.Process().memory_info().rss)
            for child in psutil.Process().children(recursive=True):
                try:
                    name, size = child.name(), child.memory_info().rss
                except psutil.Error:  # it has ended meanwhile
                    continue
                if name == "java":
                    peak.jvm = max(peak.jvm, size)
                elif name.startswith("python"):
                    peak.worker = max(peak.worker, size)

    thread = threading.Thread(target=watch, name="memory", daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()
