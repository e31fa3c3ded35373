"""Rows as texts that are equal for every contender."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any


def canonical(row: Sequence[Any]) -> list[str]:
    """The values of a row as text."""
    return [_text(value) for value in row]


def _text(value: Any) -> str:
    if isinstance(value, datetime.datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    return str(float(value)) if isinstance(value, float) else str(value)
