"""What several tests run beside each other, or in another process."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

_ROOT = Path(__file__).parent.parent
_T = TypeVar("_T")


def at_once(*calls: Callable[[], _T]) -> list[_T | Exception]:
    """What calls that begin at the same moment return or raise, each in a thread of its own."""
    ready = threading.Barrier(len(calls))

    def run(call: Callable[[], _T]) -> _T | Exception:
        ready.wait()
        try:
            return call()
        except Exception as error:
            return error

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


def without_java(code: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Runs Python code in a process that finds no Java."""
    return subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": "", "PYTHONPATH": str(_ROOT), "HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
