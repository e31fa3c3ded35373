"""Splitting a script into its statements."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_PIECE = re.compile(
    r"""(?P<comment>--[^\n]*|/\*.*?\*/)
      | (?P<quoted>'(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" | `[^`]*`)
      | (?P<end>;)
      | (?P<space>\s+)
      | .""",
    re.DOTALL | re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Written:
    """A statement as the user wrote it."""

    text: str
    plain: str
    """The text without comments and on one line, by which commands are recognised."""

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the statement in upper case."""
        return tuple(word.upper() for word in re.findall(r"[A-Za-z_]+", self.plain))


def split(script: str) -> tuple[Written, ...]:
    """The statements between semicolons that are not in quotes or comments."""
    return tuple(_split(script))


def _split(script: str) -> Iterator[Written]:
    start, plain = 0, ""
    for piece in _PIECE.finditer(f"{script}\n;"):
        if piece["end"]:
            if plain.strip():
                yield Written(script[start : piece.start()].strip(), plain.strip())
            start, plain = piece.end(), ""
        elif piece["comment"] or piece["space"]:
            plain += "" if plain.endswith(" ") else " "
        else:
            plain += piece[0]
