"""Column statistics in the form of ORC's footers and row indexes.

Readers skip data by them, so bounds may only be too wide. With a NaN they are minus and plus
infinity; a bound of zero gets the sign that includes both zeros; and the local timestamp bounds,
which only older readers use, are a day wider than the true ones, for any time zone.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from acid_platform.formats.orc.protobuf import delimited, number, packed, varint, zigzag
from acid_platform.layout.types import HiveType

_COUNT, _HAS_NULL = 1, 10
_NANOS_OF_MILLI = 1_000_000
_DAY = 86_400_000
_LARGEST_DECIMAL = 10**38


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """Statistics of some values of a column.

    `low`, `high` and `total` are None if the type lacks them or there is no value. They are
    numbers, unscaled decimals, nanoseconds or days since 1970, or bytes; the total of text and
    binary is their length, that of booleans the number of true values.
    """

    count: int = 0
    """The number of values that are not NULL."""
    has_null: bool = False
    low: Any = None
    high: Any = None
    total: Any = None

    @classmethod
    def together(cls, parts: Iterable[ColumnStatistics]) -> ColumnStatistics:
        """The statistics of the values of all parts."""
        merged = list(parts)
        if len(merged) == 1:
            return merged[0]
        lows, highs, totals = (
            [value for part in merged if (value := getattr(part, name)) is not None]
            for name in ("low", "high", "total")
        )
        return cls(
            sum(part.count for part in merged),
            any(part.has_null for part in merged),
            min(lows, default=None),
            max(highs, default=None),
            sum(totals[1:], totals[0]) if totals else None,
        )


def message(of: ColumnStatistics, kind: HiveType) -> bytes:
    """ORC's ColumnStatistics message for a column of this type."""
    body = b""
    if kind.kind == "decimal":
        body = delimited(6, _decimals(of, kind.sizes[1]))
    elif kind.kind in _MESSAGES:
        field, write = _MESSAGES[kind.kind]
        body = delimited(field, write(of))
    return number(_COUNT, of.count) + body + number(_HAS_NULL, int(of.has_null))


def float_bounds(low: float, high: float) -> tuple[float, float]:
    """Safe bounds for floating point numbers from `low` to `high`."""
    if math.isnan(low) or math.isnan(high):
        return -math.inf, math.inf
    return (-0.0 if low == 0 else low), (0.0 if high == 0 else high)


def _signed(field: int, value: int) -> bytes:
    return number(field, zigzag(value))


def _integers(of: ColumnStatistics) -> bytes:
    if of.low is None:
        return b""
    total = _signed(3, of.total) if -(1 << 63) <= of.total < 1 << 63 else b""
    return _signed(1, of.low) + _signed(2, of.high) + total


def _doubles(of: ColumnStatistics) -> bytes:
    values = (of.low, of.high, of.total)
    return b"".join(
        varint(field << 3 | 1) + struct.pack("<d", value)
        for field, value in enumerate(values, 1)
        if value is not None
    )


def _strings(of: ColumnStatistics) -> bytes:
    if of.low is None:
        return b""
    return delimited(1, of.low) + delimited(2, of.high) + _signed(3, of.total)


def _trues(of: ColumnStatistics) -> bytes:
    return packed(1, [of.total or 0])


def _decimals(of: ColumnStatistics, scale: int) -> bytes:
    if of.low is None:
        return b""
    total = delimited(3, _digits(of.total, scale)) if abs(of.total) < _LARGEST_DECIMAL else b""
    return delimited(1, _digits(of.low, scale)) + delimited(2, _digits(of.high, scale)) + total


def _digits(unscaled: int, scale: int) -> bytes:
    text = str(abs(unscaled)).rjust(scale + 1, "0")
    cut = len(text) - scale
    return f"{'-' * (unscaled < 0)}{text[:cut]}{'.' * (scale > 0)}{text[cut:]}".encode()


def _dates(of: ColumnStatistics) -> bytes:
    return b"" if of.low is None else _signed(1, of.low) + _signed(2, of.high)


def _sizes(of: ColumnStatistics) -> bytes:
    return _signed(1, of.total or 0)


def _instants(of: ColumnStatistics) -> bytes:
    if of.low is None:
        return b""
    (first, first_rest), (last, last_rest) = (
        divmod(nanoseconds, _NANOS_OF_MILLI) for nanoseconds in (of.low, of.high)
    )
    return (
        _signed(1, first - _DAY)
        + _signed(2, last + _DAY)
        + _signed(3, first)
        + _signed(4, last)
        + number(5, first_rest + 1)
        + number(6, last_rest + 1)
    )


_INTEGERS, _TEXT, _MOMENTS = (2, _integers), (4, _strings), (9, _instants)
_MESSAGES: dict[str, tuple[int, Callable[[ColumnStatistics], bytes]]] = {
    "tinyint": _INTEGERS,
    "smallint": _INTEGERS,
    "int": _INTEGERS,
    "bigint": _INTEGERS,
    "float": (3, _doubles),
    "double": (3, _doubles),
    "string": _TEXT,
    "char": _TEXT,
    "varchar": _TEXT,
    "boolean": (5, _trues),
    "date": (7, _dates),
    "binary": (8, _sizes),
    "timestamp": _MOMENTS,
    "timestamp with local time zone": _MOMENTS,
}
