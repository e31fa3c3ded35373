"""The values of literals in a predicate, and which numbers Spark compares without rounding.

A value is exact, or an error is raised: Python's `decimal` never rounds it, and texts that Spark
would parse differently are refused.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from acid_platform.errors import InvalidExpression
from acid_platform.layout.types import HiveType

MOST_DIGITS = 38
"""The precision of Spark's widest decimal."""
_INTEGRAL_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
_FLOAT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIMESTAMP = re.compile(
    r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)?)?", re.ASCII
)


@dataclass(frozen=True, slots=True)
class Digits:
    """The digits before and after the point of a decimal(whole + scale, scale)."""

    whole: int
    scale: int


def digits_of_type(hive: HiveType) -> Digits | None:
    """The digits of a type of whole numbers or decimals; None for any other type."""
    if hive.kind == "decimal":
        precision, scale = hive.sizes
        return Digits(precision - scale, scale)
    whole = _INTEGRAL_DIGITS.get(hive.kind)
    return None if whole is None else Digits(whole, 0)


def digits_of_value(value: Decimal) -> Digits:
    """The digits of a literal without its trailing zeros, which change no comparison."""
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).rstrip("0") if exponent < 0 else ""
    scale = max(0, -exponent - (len(digits) - len(text))) if exponent < 0 else 0
    return Digits(max(0, len(digits) + exponent), scale)


def compared_exactly(numbers: Iterable[Digits]) -> bool:
    """Whether Spark's common decimal type holds all these numbers; otherwise it rounds.

    For example, `d = 1.5` is true for the value 2 of a decimal(38,0).
    """
    every = list(numbers)
    whole = max((digits.whole for digits in every), default=0)
    scale = max((digits.scale for digits in every), default=0)
    return whole + scale <= MOST_DIGITS


def beyond_bigint(value: int | Decimal) -> bool:
    """Whether a bigint can't hold the literal: Spark then decides by the literal alone, even for
    NULL."""
    return not -(1 << 63) <= value <= (1 << 63) - 1


def number(text: str) -> int | Decimal | float:
    """The value of an unquoted number: int, Decimal, or float if it has an exponent.

    Raises InvalidExpression if Spark has no such number.
    """
    if "e" in text.lower():
        try:
            value = float(text)
        except ValueError as error:
            raise InvalidExpression(f"{text!r} is not a number") from error
        if not math.isfinite(value):
            raise InvalidExpression(
                f"{text} is beyond the range of a double; write a smaller number"
            )
        return value
    try:
        exact = Decimal(text)
    except InvalidOperation as error:
        raise InvalidExpression(f"{text!r} is not a number") from error
    digits = digits_of_value(exact)
    _, all_digits, _ = exact.as_tuple()
    if max(len(all_digits), digits.scale) > MOST_DIGITS:
        raise InvalidExpression(
            f"{text} has more than the {MOST_DIGITS} digits of a decimal; write a shorter number"
        )
    return exact if "." in text else int(exact)


def negated(value: int | Decimal | float) -> int | Decimal | float:
    """`-value`, exactly: Python's unary minus rounds a Decimal to 28 digits."""
    return value.copy_negate() if isinstance(value, Decimal) else -value


def whole_number(text: str, shown: str) -> int:
    """Parses a string literal that is compared with a whole number.

    `shown` is the comparison as SQL, for errors. Raises InvalidExpression, as all functions below.
    """
    stripped = text.strip(" ")
    # Spark compares as bigint, and refuses what is none.
    digits = stripped.lstrip("+-0")
    if not _WHOLE.fullmatch(stripped) or len(digits) > 19 or beyond_bigint(int(stripped)):
        raise _refused(text, "whole number", shown)
    return int(stripped)


def finite_float(text: str, shown: str) -> float:
    stripped = text.strip(" ")
    if not _FLOAT.fullmatch(stripped):
        raise _refused(text, "number", shown)
    value = float(stripped)
    if not math.isfinite(value):
        raise _refused(text, "finite number", shown)
    return value


def date(text: str, shown: str) -> datetime.date:
    stripped = text.strip(" ")
    try:
        if not _DATE.fullmatch(stripped):
            raise ValueError(text)
        return datetime.date.fromisoformat(stripped)
    except ValueError:
        raise _refused(text, "date (YYYY-MM-DD)", shown) from None


def timestamp(text: str, shown: str) -> datetime.datetime:
    stripped = text.strip(" ")
    try:
        if not _TIMESTAMP.fullmatch(stripped):
            raise ValueError(text)
        moment = datetime.datetime.fromisoformat(stripped)
    except ValueError:
        raise _refused(text, "timestamp (YYYY-MM-DD HH:MM:SS)", shown) from None
    if moment.tzinfo is not None:  # P17: timestamps without a zone are in UTC
        return moment.astimezone(datetime.UTC).replace(tzinfo=None)
    return moment


def _refused(text: str, kind: str, shown: str) -> InvalidExpression:
    return InvalidExpression(
        f"{shown}: {text!r} is not a {kind}; write a literal of the column's type"
    )
