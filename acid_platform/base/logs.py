"""Spans of OpenTelemetry and logs: an entry is one line, and tells its transaction and run.

There are no spans in a process that has not imported OpenTelemetry. Who wants them configures it
before the first statement, or starts the process by `opentelemetry-instrument`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

from acid_platform.errors import shortened, visible

TRANSACTION, RUN, ENGINE = (f"acid_platform.{name}" for name in ("transaction", "run_id", "engine"))
_NOW: ContextVar[tuple[int, str]] = ContextVar("statement", default=(0, ""))


def _tracer() -> Any:
    """None in a process without OpenTelemetry."""
    trace = sys.modules.get("opentelemetry.trace")
    return trace and _tracer_of(trace)


@cache
def _tracer_of(trace: Any) -> Any:
    return trace.get_tracer("acid_platform")


@contextmanager
def statement_span(
    name: str, transaction: int = 0, run_id: str = "", **attributes: str
) -> Iterator[None]:
    """The block is a statement; 0: its transaction has not begun yet. An error of the block marks
    the span as failed."""
    now = _NOW.set((transaction, run_id))
    try:
        tracer = _tracer()
        if tracer is None:
            yield
            return
        ids: dict[str, int | str] = {TRANSACTION: transaction, RUN: run_id}
        known = {name: value for name, value in ids.items() if value}
        with tracer.start_as_current_span(name, attributes={**known, **attributes}):
            yield
    finally:
        _NOW.reset(now)


class StatementIds(logging.Filter):
    """Gives each record of a log `acid_transaction` and `acid_run`: those of the statement that
    runs, else 0 and an empty text. Add it to a handler, and name them in its format."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.acid_transaction, record.acid_run = _NOW.get()
        return True


class OneLine(logging.Formatter):
    """An entry of a log is one line; those of a traceback follow it, each indented. Of very long
    ones the end is left out."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return visible(shortened(super().formatMessage(record)))

    def formatException(self, ei: object) -> str:
        trace = super().formatException(ei)  # type: ignore[arg-type]
        return "\n".join(f"    {visible(shortened(line))}" for line in trace.split("\n"))


def log_to(handler: logging.Handler, fields: str) -> None:
    """Sends every log of this process to the handler, with these fields before each message."""
    handler.setFormatter(OneLine(f"{fields} %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
