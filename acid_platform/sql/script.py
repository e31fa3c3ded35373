"""Splitting a script into its statements."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from acid_platform.layout.sql_text import pieces


@dataclass(frozen=True, slots=True)
class ScriptStatement:
    """A statement as the user wrote it, in its canonical form (`layout.sql_text`)."""

    text: str
    plain: str
    """The text on one line, by which commands are recognised."""

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the statement in upper case."""
        return tuple(word.upper() for word in re.findall(r"[A-Za-z_]+", self.plain))


def split(script: str) -> tuple[ScriptStatement, ...]:
    """The statements between semicolons that are not in quotes or comments.

    Raises InvalidExpression for a comment that is not closed.
    """
    return tuple(_split(script))


def _split(script: str) -> Iterator[ScriptStatement]:
    text: list[str] = []
    for piece in (*pieces(script, several=True), ";"):
        if piece != ";":
            text.append(piece)
            continue
        plain = "".join(" " if part == "\n" else part for part in text).strip()
        if plain:
            yield ScriptStatement("".join(text).strip(), plain)
        text = []
