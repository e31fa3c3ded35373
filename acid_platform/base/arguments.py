"""Arguments of another kind than a call takes, told before anything is done with them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from numbers import Integral
from typing import Any

from acid_platform.errors import InvalidExpression, Terminal, WrongType


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
    for one in value or ():
        require_kind("one of " + argument, one, str, expected, error)


def require_limit(limit: object) -> None:
    """None, or a number of rows. Raises WrongType."""
    if isinstance(limit, bool) or not isinstance(limit, Integral | None) or (limit or 0) < 0:
        require_kind("limit", limit, (), "a whole number that is not negative")
