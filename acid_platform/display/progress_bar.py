"""A bar on the terminal that shows what a command tells of its progress."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from acid_platform.base.progress import is_shown, shown

if TYPE_CHECKING:
    from rich.progress import Progress


@contextmanager
def progress() -> Iterator[None]:
    """Shows what the block tells of its progress as a bar on a terminal, from the first second on;
    the bar disappears after the block, or by `hide_progress`."""
    if is_shown() or not sys.stderr.isatty():
        yield
        return
    try:
        with shown(_show):
            yield
    finally:
        hide_progress()


_drawing = threading.Lock()
"""Other threads may tell something while a line is printed."""
_bar: Progress | None = None
_bar_after = 0.0


def _show(what: str, count: int, total: int | None) -> None:
    global _bar, _bar_after
    with _drawing:
        if _bar is None:
            now = time.monotonic()
            _bar_after = _bar_after or now + 1
            if now < _bar_after:
                return
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

            columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            _bar = Progress(*columns, console=Console(stderr=True), transient=True)
            _bar.add_task("")
            _bar.start()
        _bar.update(_bar.task_ids[0], description=what, completed=count, total=total)


def hide_progress() -> None:
    """Takes the bar away, for a line to be printed; what is told a second later shows it again."""
    global _bar, _bar_after
    with _drawing:
        if _bar is not None:
            _bar.stop()
        _bar, _bar_after = None, 0.0
