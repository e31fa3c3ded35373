"""A progress bar on stderr, if that is a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress() -> Iterator[Callable[[str, int, int | None], None]]:
    """Yields a function that takes `(what, count, total)`, None for an unknown total; the bar
    disappears after the block."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None)
        yield lambda what, count, total: bar.update(
            task, description=what, completed=count, total=total
        )
