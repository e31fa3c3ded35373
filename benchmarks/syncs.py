"""How often a process asks the disk to keep what it wrote."""

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
    """How it was counted, and the fsync and fdatasync calls of the process while `work` ran.

    With strace the calls themselves. Without it nothing of the kernel counts them; then the write
    calls of /proc/PID/io stand for them, of which a durable write makes one to the log.
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
