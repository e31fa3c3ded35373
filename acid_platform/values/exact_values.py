"""Floats and texts as decimals, dates and timestamps: exactly what they say, or not at all."""

from __future__ import annotations

import datetime
import math
import re
from decimal import Decimal

import numpy as np

from acid_platform.layout.moments import moment_of_text

NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?", re.ASCII)
_CERTAIN_DIGITS = 15
"""A decimal with so many digits is a double of its own, which every language prints as it is."""
_WHOLE = 1 << 53
"""Each whole number up to this one is a double of its own."""


def decimal_of_float(value: float | np.floating) -> Decimal | None:
    """The number that the float is printed as, if it has at most 15 digits or is a whole one.

    `12.1` is 12.1, although no float is exactly that; `0.1 + 0.2`, NaN and infinity are None.
    """
    if not math.isfinite(value):
        return None
    double = float(value)
    if abs(double) <= _WHOLE and double.is_integer():
        return Decimal(int(double))
    number = Decimal(str(value))
    return number if len(number.normalize().as_tuple().digits) <= _CERTAIN_DIGITS else None


def decimal_of_text(text: str) -> Decimal | None:
    """The number that the text is, such as `-12.10` or `1e3`; None for anything else."""
    return Decimal(text) if NUMBER.fullmatch(text) else None


def day_of_text(text: str) -> datetime.date | None:
    """`2024-02-29`, also with the time of midnight; None for anything else."""
    return day_of(moment_of_text(text))


def day_of(moment: datetime.datetime | None) -> datetime.date | None:
    """The day that begins at the moment; None for any other one, and for one with a zone."""
    if moment is None or moment.tzinfo is not None or moment.time() != datetime.time():
        return None
    return moment.date()


def plain_text(value: object) -> str | None:
    """Texts, booleans and whole numbers as in SQL; None for anything else."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    return str(int(value)) if isinstance(value, int | np.integer) else None
