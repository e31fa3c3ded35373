"""Counting the syncs to disk of a process."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil


def count_syncs(process: psutil.Process, work: Callable[[], None]) -> tuple[str, int | None]:
    """The method of counting, and the number of fsync and fdatasync calls while `work` ran.

    strace counts the calls themselves. Without strace, the write calls in /proc/PID/io are counted
    instead, since the kernel has no counter of syncs: a durable write makes one write to the log.
    """
    if shutil.which("strace") is None:
        before = process.io_counters().write_count
        work()
        return "write calls of /proc/PID/io", process.io_counters().write_count - before
    with tempfile.NamedTemporaryFile("r") as trace:
        tracer = subprocess.Popen(
            [
                "strace",
                "-f",
                "-qq",
                "-e",
                "trace=fsync,fdatasync",
                "-o",
                trace.name,
                "-p",
                str(process.pid),
            ],
            stderr=subprocess.DEVNULL,
        )
        try:
            _until_traced(process)
            work()
        finally:
            tracer.send_signal(signal.SIGINT)
            tracer.wait()
        text = Path(trace.name).read_text()
    return "strace", len(re.findall(r"(?:fdatasync|fsync)\(.*= 0$", text, re.MULTILINE))


def _until_traced(process: psutil.Process) -> None:
    status = Path(f"/proc/{process.pid}/status")
    deadline = time.monotonic() + 10
    while "TracerPid:\t0\n" in status.read_text():
        if time.monotonic() > deadline:
            raise TimeoutError("strace did not attach to the metastore")
        time.sleep(0.01)
