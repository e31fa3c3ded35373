"""Patterns of `date_format`, which are Java's, in DuckDB's SQL."""

from __future__ import annotations

import re

from acid_platform.engine.local.translation.duckdb_failures import needs_spark
from acid_platform.engine.local.translation.duckdb_types import text
from acid_platform.errors import NeedsSpark

_PIECE = re.compile(
    r"(?P<letters>([A-Za-z])\2*)|'(?P<quoted>(?:[^']|'')*)'|(?P<other>.)", re.DOTALL
)
_STRFTIME = {
    "yyyy": "%Y", "yy": "%y", "MMMM": "%B", "MMM": "%b", "MM": "%m", "M": "%-m",
    "dd": "%d", "d": "%-d", "DDD": "%j", "D": "%-j", "EEEE": "%A", "EEE": "%a", "EE": "%a",
    "E": "%a", "HH": "%H", "H": "%-H", "hh": "%I", "h": "%-I", "mm": "%M", "m": "%-M",
    "ss": "%S", "s": "%-S", "a": "%p",
}  # fmt: skip
_RESERVED = "[]{}#'"


def formatted(timestamp: str, pattern: str) -> str:
    """SQL of a timestamp as text. Raises NeedsSpark for letters that are not translated."""
    parts, plain = [], ""
    for piece in _PIECE.finditer(pattern):
        letters, quoted, other = piece["letters"], piece["quoted"], piece["other"]
        if letters in _STRFTIME:
            plain += _STRFTIME[letters]
        elif letters and (letters == "y" or re.fullmatch("S{1,6}", letters)):
            parts += [_strftime(timestamp, plain), _number(timestamp, letters)]
            plain = ""
        elif letters or (other and other in _RESERVED):
            raise NeedsSpark(f"date_format with {letters or other}")
        else:
            written = other if quoted is None else quoted.replace("''", "'") or "'"
            plain += written.replace("%", "%%")
    whole = " || ".join(filter(None, [*parts, _strftime(timestamp, plain)])) or "''"
    years = needs_spark("the text of a date beyond the years 1 to 9999")
    return (
        f"CASE WHEN {timestamp} IS NULL THEN NULL"
        f" WHEN year({timestamp}) NOT BETWEEN 1 AND 9999 THEN {years} ELSE {whole} END"
    )


def _strftime(timestamp: str, pattern: str) -> str:
    return f"strftime({timestamp}, {text(pattern)})" if pattern else ""


def _number(timestamp: str, letters: str) -> str:
    if letters == "y":
        return f"CAST(year({timestamp}) AS VARCHAR)"
    return f"left(strftime({timestamp}, '%f'), {len(letters)})"
