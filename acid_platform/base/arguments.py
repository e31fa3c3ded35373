"""Arguments and texts of callers: what a call does not take is told before anything is done with
it, a misspelt name gets the nearest one, and patterns of names are matched.

Hive's patterns of names need no regular expression (P73): `*` and `%` stand for any text, `|`
separates alternatives, and letter case is ignored. The work is in proportion to the pattern and the
name: a part of the pattern is looked for behind the one before it, and nothing is tried twice.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from numbers import Integral
from typing import Any

from acid_platform.errors import InvalidDefinition, InvalidExpression, Terminal, WrongType


def require_kind(
    argument: str,
    value: object,
    kinds: type | tuple[type, ...],
    expected: str,
    error: type[Terminal] = WrongType,
) -> None:
    """Raises the error unless the value is of one of the kinds; `expected` says what to pass."""
    if not isinstance(value, kinds):
        given = repr(value)
        shown = given if len(given) <= 80 else f"{given[:60]}… (a {type(value).__name__})"
        raise error(f"{argument}={shown}: pass {expected}")


def require_condition(argument: str, value: object, *others: type) -> None:
    """A text of SQL, or one of the others. Raises InvalidExpression."""
    expected = "SQL text such as 'id > 5'"
    require_kind(argument, value, (str, *others), expected, InvalidExpression)


def require_texts(
    argument: str, value: Any, expected: str, error: type[Terminal] = WrongType
) -> None:
    """None, or a mapping of texts to texts."""
    require_kind(argument, value, (Mapping, type(None)), expected, error)
    for name, text in (value or {}).items():
        require_kind("a name in " + argument, name, str, expected, error)
        require_kind(f"{argument}[{name!r}]", text, str, expected, error)


def require_list(
    argument: str, value: Any, expected: str, error: type[Terminal] = WrongType
) -> None:
    """None, or a list of texts; a text is none, though Python would take its letters."""
    if isinstance(value, str) or (value is not None and not isinstance(value, Collection)):
        require_kind(argument, value, type(None), expected, error)
    for item in value or ():
        require_kind("one of " + argument, item, str, expected, error)


def require_limit(limit: object) -> None:
    """None, or a number of rows. Raises WrongType."""
    if isinstance(limit, bool) or not isinstance(limit, Integral | None) or (limit or 0) < 0:
        require_kind("limit", limit, (), "a whole number that is not negative")


def nearest_name(name: str, names: Iterable[str], similarity: float = 0.6) -> str | None:
    """The most similar of `names`. None if no name is similar, or if `name` is one of them: then it
    is not misspelt, and what is wrong with it is something else."""
    known = list(names)
    if name in known:
        return None
    return next(iter(get_close_matches(name, known, 1, similarity)), None)


_HALF = re.compile("[\ud800-\udfff]")
"""Half of a character, which no text in UTF-8 can hold."""


def has_half_character(text: str) -> bool:
    """Whether a text of Python holds a lone surrogate."""
    return _HALF.search(text) is not None


def refuse_half_characters(
    text: str, what: str = "the text", error: type[Terminal] = InvalidExpression
) -> None:
    """Raises the error for a text that no file, no message and no engine takes; `what` has it."""
    if half := _HALF.search(text):
        near = text[max(half.start() - 20, 0) : half.end() + 20]
        raise error(f"{what} {near!a} holds half of a character (a lone surrogate); correct it")


LONGEST = 10_000
"""Characters of a pattern."""
MOST_STARRED = 100
"""Alternatives with a star: each of them is compared with each name."""


@dataclass(frozen=True, slots=True)
class NamePattern:
    """Names that are one of these, or have one of these series of parts in it, with any text
    between two parts. A `?` in a part stands for any one character."""

    names: frozenset[str]
    series: tuple[tuple[str, ...], ...]

    def matches(self, name: str) -> bool:
        lower = name.lower()
        return lower in self.names or any(_has(lower, parts) for parts in self.series)


def name_pattern(text: str | None) -> NamePattern:
    """The pattern; None and the empty text match every name. Raises InvalidDefinition."""
    alternatives = {part.strip() for part in _checked(text or "*").lower().split("|")}
    series = {
        alternative.replace("%", "*")
        for alternative in alternatives
        if "*" in alternative or "%" in alternative
    }
    plain = {
        alternative.replace("?", _NO_NAME)
        for alternative in alternatives
        if not ("*" in alternative or "%" in alternative)
    }
    return _pattern(frozenset(plain), {part.replace("?", _NO_NAME) for part in series})


def dotted_pattern(text: str) -> NamePattern:
    """Hive's other form, in which `.*` stands for any text and `.` for any one character.

    It may have letters, digits and `_` besides. Raises InvalidDefinition.
    """
    return _pattern(frozenset(), {_checked(text).lower().replace(".*", "*").replace(".", "?")})


_NO_NAME = "\0"
"""What no name has: a `?` that somebody wrote is no wildcard."""


def _checked(text: str) -> str:
    if len(text) > LONGEST:
        raise InvalidDefinition(
            f"a pattern of {len(text):,} characters; a pattern of names has at most {LONGEST:,}"
        )
    return text


def _pattern(names: frozenset[str], series: set[str]) -> NamePattern:
    if len(series) > MOST_STARRED:
        raise InvalidDefinition(
            f"a pattern of {len(series):,} alternatives with a star; at most {MOST_STARRED} are"
            " compared with each name: ask for fewer, or for all"
        )
    return NamePattern(names, tuple(_without_empty(part.split("*")) for part in sorted(series)))


def _without_empty(parts: list[str]) -> tuple[str, ...]:
    """The parts without what several stars in a row leave between them."""
    return (parts[0], *filter(None, parts[1:-1]), *parts[1:][-1:])


def _has(name: str, parts: tuple[str, ...]) -> bool:
    """Whether the name begins with the first part, ends with the last, and has the others in
    between in their order."""
    first, *between = parts
    if sum(map(len, parts)) > len(name) or not _is_at(name, 0, first):
        return False
    if not between:
        return len(first) == len(name)
    last, start = between.pop(), len(first)
    end = len(name) - len(last)
    if not _is_at(name, end, last):
        return False
    for part in between:
        start = _found(name, part, start, end)
        if start < 0:
            return False
        start += len(part)
    return start <= end


def _found(name: str, part: str, start: int, end: int) -> int:
    if "?" not in part:
        return name.find(part, start, end)
    places = range(start, end - len(part) + 1)
    return next((index for index in places if _is_at(name, index, part)), -1)


def _is_at(name: str, index: int, part: str) -> bool:
    if "?" not in part:
        return name.startswith(part, index)
    letters = name[index : index + len(part)]
    return all(wanted in ("?", letter) for wanted, letter in zip(part, letters, strict=True))
