"""Timestamps as texts: those that are read exactly, and the one that is written."""

from __future__ import annotations

import datetime
import re

_MOMENT = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)"
    r"(?:[ T](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?(Z|[+-]\d\d:\d\d)?)?",
    re.ASCII,
)


def moment_of_text(text: str) -> datetime.datetime | None:
    """`2024-02-29`, `2024-02-29 12:30` or `2024-02-29T12:30:01.5`; with `Z` or `+02:00` in UTC.

    None for anything else, also for digits below a microsecond.
    """
    parts = _MOMENT.fullmatch(text)
    if parts is None:
        return None
    *numbers, fraction, zone = parts.groups()
    digits = (fraction or "").ljust(6, "0")
    if digits[6:].strip("0"):
        return None
    year, month, day, hour, minute, second = (int(number or 0) for number in numbers)
    try:
        moment = datetime.datetime(year, month, day, hour, minute, second, int(digits[:6]))
        if zone is None:
            return moment
        offset = datetime.datetime.fromisoformat(f"2000-01-01T00:00:00{zone}").utcoffset()
        assert offset is not None
        return (moment - offset).replace(tzinfo=datetime.UTC)
    except (ValueError, OverflowError):  # such as the 30th of February
        return None


def text_of_moment(moment: datetime.datetime) -> str:
    """`2024-02-29 12:30:01.5`, as Spark and Hive cast a timestamp to string."""
    whole = moment.replace(microsecond=0).isoformat(" ")
    return f"{whole}.{moment.microsecond:06d}".rstrip("0") if moment.microsecond else whole
