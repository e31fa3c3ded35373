"""Expressions with a pattern: RLIKE and the like, whose patterns are Java's, and `date_format`.

A pattern has to be a literal, which is written anew for DuckDB: only what Java and RE2 match alike,
everything else is refused by name. Within that, both prefer the match that begins first, then the
first alternative, then the longest (or shortest, with `?`) repetition.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from sqlglot import exp

from acid_platform.engine.local.translation.casts import Typed, cast
from acid_platform.engine.local.translation.duckdb_sql import (
    BOOLEAN,
    DATE,
    STRING,
    TIMESTAMP,
    needs_spark,
    spark_name,
    text,
)
from acid_platform.errors import NeedsSpark
from acid_platform.layout.types import HiveType
from acid_platform.predicates.grammar import UNIT

if TYPE_CHECKING:
    from acid_platform.engine.local.translation.expressions import Translator

LINE_ENDS = r"\n\r\x{85}\x{2028}\x{2029}"
"""What ends a line in Java, as members of a class. In RE2 only `\\n` does."""
_BLANKS = r"\t\n\x{B}\f\r\x{20}"
"""Java's `\\s`; RE2's lacks the vertical tab."""
_CLASSES = {"d": r"0-9", "w": r"0-9A-Za-z_", "s": _BLANKS}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_COUNT = re.compile(r"\{(\d{1,4})(?:,(\d{1,4})?)?\}", re.ASCII)
_MOST = 1000
"""RE2 repeats no more often."""


@dataclass(frozen=True, slots=True)
class Re2Pattern:
    text: str
    groups: int
    may_be_empty: bool
    """Whether it matches an empty text. Both then find other matches in a longer one."""
    at_end: bool
    """Whether it has a `$`, which in Java also matches before a line's end at the end."""


@dataclass(frozen=True, slots=True)
class _Part:
    text: str
    may_be_empty: bool
    groups: int = 0
    """How many groups are inside, the own one not counted."""
    repeats: bool = True
    """Whether a repetition may follow."""


def re2_pattern(java: str) -> Re2Pattern:
    """The pattern in RE2's syntax. Raises NeedsSpark, which names what is not known to be equal."""
    reader = _Reader(java)
    whole = reader.alternatives()
    if reader.rest:
        reader.refuse("a ) without its (")
    return Re2Pattern(whole.text, reader.groups, whole.may_be_empty, reader.at_end)


def re2_replacement(java: str, groups: int) -> str:
    """What replaces a match, in RE2's syntax. Raises NeedsSpark."""
    parts, position = [], 0
    while position < len(java):
        char, following = java[position], java[position + 1 : position + 2]
        position += 1
        if char == "\\" and following:
            parts.append("\\\\" if following == "\\" else following)
            position += 1
        elif char == "$" and re.fullmatch(r"[0-9]", following) and int(following) <= groups:
            if groups > 9:
                raise NeedsSpark("regexp_replace with a pattern of more than 9 groups")
            parts.append(f"\\{following}")
            position += 1
        elif char in "\\$":
            raise NeedsSpark(f"regexp_replace by {java!r}: {char}{following} names no group")
        else:
            parts.append(char)
    return "".join(parts)


def _literal(char: str) -> str:
    return char if char.isascii() and char.isalnum() else f"\\x{{{ord(char):X}}}"


class _Reader:
    def __init__(self, java: str) -> None:
        self.java, self.position = java, 0
        self.groups, self.at_end = 0, False

    @property
    def rest(self) -> str:
        return self.java[self.position :]

    def refuse(self, what: str) -> NoReturn:
        raise NeedsSpark(f"the regular expression {self.java!r} with {what}")

    def taken(self, text: str) -> bool:
        """Whether the rest begins with the text, which is then behind."""
        if not self.rest.startswith(text):
            return False
        self.position += len(text)
        return True

    def alternatives(self) -> _Part:
        parts = [self.sequence()]
        while self.taken("|"):
            parts.append(self.sequence())
        text = "|".join(part.text for part in parts)
        inside = sum(part.groups for part in parts)
        return _Part(text, any(part.may_be_empty for part in parts), inside)

    def sequence(self) -> _Part:
        parts = []
        while self.rest and self.rest[0] not in "|)":
            parts.append(self.repeated(self.atom()))
        text = "".join(part.text for part in parts)
        inside = sum(part.groups for part in parts)
        return _Part(text, all(part.may_be_empty for part in parts), inside)

    def atom(self) -> _Part:
        char = self.rest[0]
        if self.taken("("):
            return self.group()
        if self.taken("["):
            return _Part(self.members(), False)
        if self.taken("\\"):
            return _Part(self.escaped(), False)
        self.position += 1
        match char:
            case ".":
                return _Part(f"[^{LINE_ENDS}]", False)
            case "^":
                return _Part("^", True, repeats=False)
            case "$":
                self.at_end = True
                return _Part("$", True, repeats=False)
            case "*" | "+" | "?" | "{" | "}" | "]" | "\0":
                self.refuse(f"{char!r} here")
        return _Part(_literal(char), False)

    def group(self) -> _Part:
        captures = not self.taken("?:")
        if captures and self.rest.startswith("?"):
            self.refuse(f"({self.rest[:2]}")
        self.groups += captures
        inside = self.alternatives()
        if not self.taken(")"):
            self.refuse("a ( without its )")
        opening = "(" if captures else "(?:"
        # A group that is repeated has one value, that of its last time; those inside it have not.
        return _Part(f"{opening}{inside.text})", inside.may_be_empty, inside.groups + captures)

    def repeated(self, part: _Part) -> _Part:
        if self.rest[:1] not in ("*", "+", "?", "{"):
            return part
        count = _COUNT.match(self.rest)
        sign = count[0] if count else self.rest[0]
        if sign == "{" or (count and max(int(count[1]), int(count[2] or 0)) > _MOST):
            self.refuse("this {")
        if count and count[2] and int(count[1]) > int(count[2]):
            self.refuse(sign)
        self.position += len(sign)
        if not part.repeats or part.may_be_empty:
            self.refuse(f"{sign} after what may be empty")
        own = part.text.startswith("(") and not part.text.startswith("(?:")
        if sign != "?" and part.groups > own:
            self.refuse(f"{sign} after groups in a group")
        lazy = "?" if self.taken("?") else ""
        if self.rest[:1] in ("*", "+", "?", "{"):
            self.refuse(f"{sign}{lazy}{self.rest[0]}")
        least = {"*": 0, "?": 0, "+": 1}.get(sign, int(count[1]) if count else 0)
        return _Part(f"{part.text}{sign}{lazy}", least == 0, part.groups, repeats=False)

    def escaped(self) -> str:
        """An escape outside of a class."""
        char = self.rest[:1]
        if char and char.lower() in _CLASSES:
            self.position += 1
            return f"[{'^' if char.isupper() else ''}{_CLASSES[char.lower()]}]"
        return _literal(self.escaped_character())

    def escaped_character(self) -> str:
        char = self.rest[:1]
        self.position += 1
        if char in _CONTROLS:
            return _CONTROLS[char]
        if not char or not char.isascii() or char.isalnum() or ord(char) < 32:
            self.refuse(f"\\{char}")
        return char

    def members(self) -> str:
        """A class, after its `[`."""
        text = "[^" if self.taken("^") else "["
        first = True
        while first or not self.rest.startswith("]"):
            if not self.rest or self.rest[0] in "[]" or self.rest.startswith("&&"):
                self.refuse(f"[{self.rest[:2]} in a class")
            if self.rest[0] == "\\" and self.rest[1:2] in _CLASSES:
                text += _CLASSES[self.rest[1]]
                self.position += 2
                self.require_no_range()
            else:
                text += self.member(first)
            first = False
        self.position += 1
        return f"{text}]"

    def member(self, first: bool) -> str:
        """A character of a class, or a range of them."""
        if self.rest[0] == "-" and not (first or self.rest[1:2] == "]"):
            self.refuse("this - in a class")
        low = self.character()
        if not self.rest.startswith("-") or self.rest[1:2] == "]":
            return _literal(low)
        self.position += 1
        if self.rest[:1] in ("", "[", "-") or (
            self.rest[0] == "\\" and self.rest[1:2].lower() in _CLASSES
        ):
            self.refuse("this - in a class")
        high = self.character()
        if low > high:
            self.refuse(f"{low}-{high} in a class")
        self.require_no_range()
        return f"{_literal(low)}-{_literal(high)}"

    def character(self) -> str:
        if self.taken("\\"):
            return self.escaped_character()
        char = self.rest[0]
        if char == "\0":
            self.refuse(r"\0")
        self.position += 1
        return char

    def require_no_range(self) -> None:
        if self.rest.startswith("-") and self.rest[1:2] != "]":
            self.refuse("this - in a class")


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
    result = unless_line_ends(pattern, value.sql, sql.format(value.sql, text(pattern.text)))
    return Typed(f"({result})", kind), pattern


def unless_line_ends(pattern: Re2Pattern, value: str, result: str) -> str:
    """SQL of the result, which is left to Spark where `$` may match before a line's end."""
    if not pattern.at_end:
        return result
    unsure = needs_spark("$ in a pattern for a text that ends in the end of a line")
    ended = f"regexp_matches({value}, '[{LINE_ENDS}]$')"
    return f"CASE WHEN {ended} THEN {unsure} ELSE {result} END"


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
    return Typed(f"({formatted(value.sql, pattern)})", STRING)


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
