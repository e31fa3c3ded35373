"""Finds errors that are none of ours in what the servers log (a hook for every fuzz of theirs)."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from acid_platform.errors import AcidError


class _RawErrors(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, str] = {}

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, AcidError):
            frame = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{type(error).__name__} in {frame.filename}:{frame.lineno}"
            self.seen.setdefault(place, f"{record.getMessage()[:200]}: {error!s:.200}")


@contextmanager
def no_raw_errors() -> Iterator[None]:
    """Fails if the servers log an exception that is not one of acid_platform.errors meanwhile."""
    log, raw = logging.getLogger("acid_platform"), _RawErrors()
    log.addHandler(raw)
    try:
        yield
    finally:
        log.removeHandler(raw)
    assert not raw.seen, raw.seen
