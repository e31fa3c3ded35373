"""Expressions with a pattern: RLIKE and the like, whose patterns are Java's, and `date_format`.

A pattern has to be a literal, which is written anew for DuckDB.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sqlglot import exp

from acid_platform.engine.local.translation.casts import Typed, cast
from acid_platform.engine.local.translation.duckdb_failures import needs_spark
from acid_platform.engine.local.translation.duckdb_types import (
    BOOLEAN,
    DATE,
    STRING,
    TIMESTAMP,
    spark_name,
    text,
)
from acid_platform.engine.local.translation.java_patterns import (
    LINE_ENDS,
    Re2Pattern,
    re2_pattern,
    re2_replacement,
)
from acid_platform.errors import NeedsSpark
from acid_platform.layout.types import HiveType
from acid_platform.predicates.grammar import UNIT

if TYPE_CHECKING:
    from acid_platform.engine.local.translation.expressions import Translator


def rlike(translator: Translator, node: exp.RegexpLike) -> Typed:
    return _matched(translator, node, "RLIKE", "regexp_matches({}, {})", BOOLEAN)[0]


def regexp_extract(translator: Translator, node: exp.RegexpExtract) -> Typed:
    group = translator.value(node.args["group"]).literal
    sql = f"regexp_extract({{}}, {{}}, {group})"
    value, pattern = _matched(translator, node, "regexp_extract", sql, STRING)
    if not isinstance(group, int) or not 0 <= group <= min(pattern.groups, 9):
        raise NeedsSpark(f"{node.sql('spark')}, whose pattern has {pattern.groups} groups")
    return value


def regexp_replace(translator: Translator, node: exp.RegexpReplace) -> Typed:
    new, first = node.args["replacement"], node.args.get("position")
    if not (isinstance(new, exp.Literal) and new.is_string):
        raise NeedsSpark("regexp_replace by anything but a literal text")
    if first is not None and translator.value(first).literal != 1:
        raise NeedsSpark("regexp_replace from another position than 1")
    groups = _pattern_of(node, "regexp_replace").groups
    by = text(re2_replacement(new.this, groups)).replace("{", "{{").replace("}", "}}")
    sql = f"regexp_replace({{}}, {{}}, {by}, 'g')"
    value, pattern = _matched(translator, node, "regexp_replace", sql, STRING)
    if pattern.may_be_empty:
        raise NeedsSpark(f"regexp_replace of {pattern.text!r}, which may match nothing")
    return value


def _matched(
    translator: Translator, node: exp.Expr, shown: str, sql: str, kind: HiveType
) -> tuple[Typed, Re2Pattern]:
    """`sql` with the text and the pattern in its two places, and that pattern."""
    value, pattern = translator.value(node.this), _pattern_of(node, shown)
    if value.type != STRING:
        raise NeedsSpark(f"{shown} of {spark_name(value.type)}")
    result = sql.format(value.sql, text(pattern.text))
    if pattern.at_end:
        unsure = needs_spark("$ in a pattern for a text that ends in the end of a line")
        ended = f"regexp_matches({value.sql}, '[{LINE_ENDS}]$')"
        result = f"CASE WHEN {ended} THEN {unsure} ELSE {result} END"
    return Typed(f"({result})", kind, value.fails), pattern


def _pattern_of(node: exp.Expr, shown: str) -> Re2Pattern:
    pattern = node.expression
    if not (isinstance(pattern, exp.Literal) and pattern.is_string):
        raise NeedsSpark(f"{shown} with a pattern that is no literal")
    return re2_pattern(pattern.this)


# --- dates ---------------------------------------------------------------------------------------

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


def date_format(translator: Translator, node: exp.TimeToStr) -> Typed:
    time = node.this.this if isinstance(node.this, exp.TimeStrToTime) else node.this
    value, pattern = translator.value(time), node.meta.get(UNIT)
    if pattern is None:
        raise NeedsSpark("date_format with a pattern that is no literal")
    if value.type not in (DATE, TIMESTAMP, STRING):
        raise NeedsSpark(f"date_format of {spark_name(value.type)}")
    value = cast(value, TIMESTAMP)
    return Typed(f"({_formatted(value.sql, pattern)})", STRING, value.fails)


def _formatted(timestamp: str, pattern: str) -> str:
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
