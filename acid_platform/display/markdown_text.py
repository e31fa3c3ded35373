"""Texts of others as Markdown that shows just them: no link, picture or heading (P67)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from acid_platform.errors import visible

_MARKUP = re.compile(r"[\\|<>`\[\]~*]|&(?=#?\w+;)|(?<![^\W_])_|_(?![^\W_])")
_BEGINS_MARKUP = re.compile(
    r"^([ \t]*(?:\d{1,9}(?=[.)](?:\s|$))|(?=#{1,6}(?:\s|$)|[=+-](?:[=+-]|\s|$))))", re.MULTILINE
)
"""What begins a line as a heading, an item of a list, or an underline of a heading does."""
_LINKED = re.compile(r"(://|(?<=www)\.|@)", re.IGNORECASE)
"""Within these, pages make links of addresses that are not marked as such."""
_JOINER = "\u2060"
"""A character without width: an address with it is none."""


def code_block(text: str, language: str) -> str:
    """The text as it is, as a block of code: its fence is longer than any that the text has."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{visible(text, lines=True)}\n{fence}"


def escaped_text(text: str) -> str:
    """The text with its markup escaped, for a paragraph or a description."""
    escaped = _MARKUP.sub(r"\\\g<0>", visible(text, lines=True))
    escaped = _BEGINS_MARKUP.sub(r"\1\\", escaped)
    return _LINKED.sub(_JOINER + r"\1", escaped)


def escaped_line(text: str) -> str:
    """`escaped_text` in one line, for a heading, an item of a list or a cell of a table."""
    return escaped_text(" ".join(text.split()))


def escaped_items(lines: list[str]) -> str:
    return "\n".join(f"- {escaped_line(line)}" for line in lines)


def table_line(cells: Iterable[str]) -> str:
    """A line of a table."""
    return "".join(f"| {escaped_line(cell)} " for cell in cells) + "|"
