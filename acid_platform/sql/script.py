"""A script as its statements. Pure."""

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
    """One statement as it was written."""

    text: str
    plain: str
    """Without comments, on one line: what commands are recognised by."""

    @property
    def words(self) -> tuple[str, ...]:
        """Its words in capitals, for messages."""
        return tuple(word.upper() for word in re.findall(r"[A-Za-z_]+", self.plain))


def split(script: str) -> tuple[Written, ...]:
    """The statements between semicolons; those in quotes and comments separate nothing."""
    return tuple(_split(script))


def _split(script: str) -> Iterator[Written]:
    start, plain = 0, ""
    for piece in _PIECE.finditer(f"{script};"):
        if piece["end"]:
            if plain.strip():
                yield Written(script[start : piece.start()].strip(), plain.strip())
            start, plain = piece.end(), ""
        elif piece["comment"] or piece["space"]:
            plain += "" if plain.endswith(" ") else " "
        else:
            plain += piece[0]
