"""Texts that somebody else wrote, for terminals and logs: control characters become visible.

A terminal obeys escape sequences, a log takes a line break for the next entry, and a change of the
writing direction shows a text in another order. What is shown is as Python writes it, such as
`\\x1b`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from difflib import get_close_matches

_SEEN = (
    "\x00-\x1f\x7f-\x9f"
    "\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff"  # breaks and directions
    "\ud800-\udfff"  # halves of characters, which no stream can encode
)
_ANY = re.compile(f"[{_SEEN}]")
_LAYOUT = "\n\t"


def visible(text: str, lines: bool = False) -> str:
    """The text with its control characters made visible; `lines`: but for breaks and tabs."""
    return _ANY.sub(_kept_layout if lines else _shown, text)


def _shown(one: re.Match[str]) -> str:
    return one[0].encode("unicode_escape", "backslashreplace").decode("ascii")


def _kept_layout(one: re.Match[str]) -> str:
    return one[0] if one[0] in _LAYOUT else _shown(one)


class OneLine(logging.Formatter):
    """An entry of a log is one line; those of a traceback follow it, each indented."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return visible(super().formatMessage(record))

    def formatException(self, ei: object) -> str:
        trace = super().formatException(ei)  # type: ignore[arg-type]
        return "\n".join(f"    {visible(line)}" for line in trace.split("\n"))


def log_to(handler: logging.Handler, fields: str) -> None:
    """Sends every log of this process to the handler, with these fields before each message."""
    handler.setFormatter(OneLine(f"{fields} %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def nearest_name(name: str, names: Iterable[str], similarity: float = 0.6) -> str | None:
    """The most similar of `names`. None if no name is similar, or if `name` is one of them: then it
    is not misspelt, and what is wrong with it is something else."""
    known = list(names)
    if name in known:
        return None
    return next(iter(get_close_matches(name, known, 1, similarity)), None)
