"""Values as SQL text."""

from __future__ import annotations

import re

from acid_platform.errors import InvalidExpression

_HALF = re.compile("[\ud800-\udfff]")
"""Half of a character, which no text in UTF-8 can hold."""


def has_half_character(text: str) -> bool:
    """Whether a text of Python holds a lone surrogate."""
    return _HALF.search(text) is not None


def refuse_half_characters(text: str) -> None:
    """Raises InvalidExpression for SQL that neither engine can be given."""
    if (half := _HALF.search(text)) is not None:
        start = max(half.start() - 20, 0)
        raise InvalidExpression(
            f"the text {text[start : half.end() + 20]!a} holds half of a character (a lone"
            " surrogate); correct it"
        )


def sql_string(text: str) -> str:
    """The text as a string literal of Spark's and Hive's SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
