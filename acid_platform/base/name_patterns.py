"""Hive's patterns of names, matched without a regular expression (P73).

`*` and `%` stand for any text, `|` separates alternatives, and letter case is ignored. The work is
in proportion to the pattern and the name: a part of the pattern is looked for behind the one before
it, and nothing is tried twice.
"""

from __future__ import annotations

from dataclasses import dataclass

from acid_platform.errors import InvalidDefinition

LONGEST = 10_000
"""Characters of a pattern."""
MOST = 100
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
    series = {one.replace("%", "*") for one in alternatives if "*" in one or "%" in one}
    plain = {one.replace("?", _NO_NAME) for one in alternatives if not ("*" in one or "%" in one)}
    return _pattern(frozenset(plain), {one.replace("?", _NO_NAME) for one in series})


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
    if len(series) > MOST:
        raise InvalidDefinition(
            f"a pattern of {len(series):,} alternatives with a star; at most {MOST} are compared"
            " with each name: ask for fewer, or for all"
        )
    return NamePattern(names, tuple(_without_empty(one.split("*")) for one in sorted(series)))


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
    return next((place for place in places if _is_at(name, place, part)), -1)


def _is_at(name: str, place: int, part: str) -> bool:
    if "?" not in part:
        return name.startswith(part, place)
    letters = name[place : place + len(part)]
    return all(wanted in ("?", letter) for wanted, letter in zip(part, letters, strict=True))
