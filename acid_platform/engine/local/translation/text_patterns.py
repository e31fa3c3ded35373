"""Expressions with a pattern: RLIKE and the like, whose patterns are Java's, and `date_format`.

A pattern has to be a literal, which is written anew for DuckDB: only what Java and RE2 match alike,
everything else is refused by name. Within that, both prefer the match that begins first, then the
first alternative, then the longest (or shortest, with `?`) repetition.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import partial
from typing import NoReturn

from acid_platform.engine.local.translation.casts import Typed
from acid_platform.engine.local.translation.duckdb_sql import BOOLEAN, needs_spark, text
from acid_platform.engine.local.translation.signatures import add, called, row
from acid_platform.errors import NeedsSpark

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


def _matched(value: Typed, pattern: Typed, sql: str) -> str:
    """`sql` with the text and the pattern in its two places. Raises NeedsSpark."""
    found = re2_pattern(str(pattern.literal))
    if found.may_be_empty and not sql.startswith(("regexp_matches", "regexp_extract(")):
        raise NeedsSpark(f"{pattern.literal!r}, which may match nothing")
    first_only = sql.startswith(("regexp_matches", "CASE", "regexp_extract(", "regexp_replace"))
    if re.search(r"(?<!\[)\^", found.text) and not first_only:
        raise NeedsSpark(f"several matches of a pattern with ^: {pattern.literal!r}")
    result = sql.format(value.sql, text(found.text))
    if not found.at_end:
        return result
    unsure = needs_spark("$ in a pattern for a text that ends in the end of a line")
    ended = f"regexp_matches({value.sql}, '[{LINE_ENDS}]$')"
    return f"CASE WHEN {ended} THEN {unsure} ELSE {result} END"


# fmt: off
for _call, _gives, _sql in (
    ("regexp|rlike|regexp_like", "boolean", "regexp_matches({}, {})"),
    ("regexp_count", "int", "len(regexp_extract_all({}, {}))"),
    ("regexp_substr", "string", "list_extract(regexp_extract_all({}, {}), 1)"),
    ("regexp_instr", "int", "CASE WHEN regexp_matches({0}, {1}) THEN"
     " length(list_extract(string_split_regex({0}, {1}), 1)) + 1 WHEN {0} IS NOT NULL THEN 0 END"),
    ("split", "strings", "string_split_regex({}, {})"),
):
    add(f"{_call}(text, word)", _gives, partial(_matched, sql=_sql))
# fmt: on


@row("regexp_instr(text, word, digits)", gives="int")
def _placed(value: Typed, pattern: Typed, group: Typed) -> Typed:
    """The place of the whole match, whatever the group, which only has to be there."""
    if group.literal != 0:
        raise NeedsSpark("regexp_instr with a group")
    return called("regexp_instr", value, pattern)


@row("split(text, word, digits)", gives="strings")
def _split(value: Typed, pattern: Typed, most: Typed) -> str:
    if not isinstance(most.literal, int) or most.literal > 0:
        raise NeedsSpark("split with a limit")
    return _matched(value, pattern, "string_split_regex({}, {})")


def _group(pattern: Typed, group: Typed | None) -> int:
    groups = re2_pattern(str(pattern.literal)).groups
    wanted = 1 if group is None else group.literal
    if not isinstance(wanted, int) or not 0 <= wanted <= min(groups, 9):
        raise NeedsSpark(
            f"the group {wanted} of {pattern.literal!r}, whose pattern has {groups} groups"
        )
    return wanted


@row("regexp_extract(text, word)", "regexp_extract(text, word, digits)", gives="string")
def _extracted(value: Typed, pattern: Typed, group: Typed | None = None) -> str:
    return _matched(value, pattern, f"regexp_extract({{}}, {{}}, {_group(pattern, group)})")


@row("regexp_extract_all(text, word)", "regexp_extract_all(text, word, digits)", gives="strings")
def _all_extracted(value: Typed, pattern: Typed, group: Typed | None = None) -> str:
    found = f"regexp_extract_all({{}}, {{}}, {_group(pattern, group)})"
    return _matched(value, pattern, f"list_transform({found}, lambda x: coalesce(x, ''))")


@row("regexp_replace(text, word, word)", "regexp_replace(text, word, word, digits)", gives="string")
def _replaced(value: Typed, pattern: Typed, new: Typed, first: Typed | None = None) -> str:
    if first is not None and first.literal != 1:
        raise NeedsSpark("regexp_replace from another position than 1")
    groups = re2_pattern(str(pattern.literal)).groups
    by = text(re2_replacement(str(new.literal), groups)).replace("{", "{{").replace("}", "}}")
    return _matched(value, pattern, f"regexp_replace({{}}, {{}}, {by}, 'g')")


@row("like(text, word)", "like escape(text, word, word)")
def _like(value: Typed, pattern: Typed, by: Typed | None = None) -> Typed:
    """LIKE with a literal pattern, in which only `_`, `%` and the escape may be escaped."""
    written, escape = str(pattern.literal), "\\" if by is None else str(by.literal)
    if len(escape) != 1 or escape in "_%":
        raise NeedsSpark(f"LIKE with the escape {escape!r}")
    sign = re.escape(escape)
    if re.search(f"{sign}(?![_%{sign}])", re.sub(f"{sign}{sign}", "", written)):
        raise NeedsSpark(f"LIKE with {written!r}, whose escape stands before another character")
    end = f" ESCAPE {text(escape)}" if escape in written else ""
    return Typed(f"({value.sql} LIKE {text(written)}{end})", BOOLEAN)


@row("ilike(text, word)", "ilike escape(text, word, word)")
def _ilike(value: Typed, pattern: Typed, by: Typed | None = None) -> Typed:
    """As `like`, where letters of ASCII are equal in both cases. The rest is left to Spark."""
    written = str(pattern.literal)
    if not written.isascii():
        raise NeedsSpark("ILIKE with a pattern that is not ASCII")
    lower = replace(value, sql=f"lower({value.sql})")
    found = _like(lower, replace(pattern, literal=written.lower()), by)
    unsure = needs_spark("ILIKE of a text with other letters than those of ASCII")
    beyond = f"regexp_matches({value.sql}, '[^\\x{{00}}-\\x{{7F}}]')"
    return Typed(f"(CASE WHEN {beyond} THEN {unsure} ELSE {found.sql} END)", BOOLEAN)


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
