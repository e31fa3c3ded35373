"""Column statistics in the form of ORC's footers and row indexes, and the ranges that follow from
them, on which a reader may rely for pruning.

Readers skip data by them, so bounds may only be too wide. With a NaN they are minus and plus
infinity; a bound of zero gets the sign that includes both zeros; and the local timestamp bounds,
which only older readers use, are a day wider than the true ones, for any time zone.

Ranges are of types whose bounds are reliable whoever wrote the file: whole numbers, decimals,
dates, string and varchar. Not floating point, since writers disagree about NaN; not timestamps,
since old writers used the machine's time zone; not CHAR, since padding differs.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from acid_platform.formats.data_file import INSERT_EVENT
from acid_platform.formats.orc.events import ACID_COLUMNS
from acid_platform.formats.orc.protobuf import (
    delimited,
    fields,
    number,
    packed,
    unpacked,
    varint,
    zigzag,
)
from acid_platform.formats.orc.tail import KIND, KINDS, ROWS, STATISTICS, SUBTYPES, TYPES
from acid_platform.layout.file_entries import (
    MOST_COLUMNS,
    ColumnRange,
    KeyRanges,
    RangeKind,
    text_range,
)
from acid_platform.layout.types import INTEGRAL, HiveType

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


_NAMES = 3
_VALUES, _INTEGER_PART, _TEXT_PART, _DECIMAL_PART, _DATE_PART = 1, 2, 4, 6, 7
_LOW, _HIGH = 1, 2
_INTEGER_KINDS = [KINDS[name] for name in INTEGRAL]
_TEXT_KINDS = (KINDS["string"], KINDS["varchar"])


def column_ranges(footer: bytes, acid: bool) -> dict[str, ColumnRange]:
    """The ranges of the columns by their name in lower case.

    With `acid`, the columns are the fields of `row` of a file of insert events. Columns without
    usable statistics are left out; if the footer can't be parsed, all are.
    """
    try:
        return dict(_ranges(footer, acid))
    except (IndexError, ValueError, InvalidOperation):
        return {}


def key_ranges(footer: bytes) -> KeyRanges | None:
    """The ranges of the row keys of a file with ACID columns.

    None unless the statistics show that all rows are insert events with complete keys.
    """
    try:
        types, statistics, rows = _described(footer)
        columns = unpacked(types[0], SUBTYPES) if types else []
        if len(columns) != len(ACID_COLUMNS) or not rows:
            return None
        of_keys = [_range(statistics[column], KINDS["bigint"], rows) for column in columns[:5]]
    except (IndexError, ValueError):
        return None
    bounds = [
        (each.low, each.high)
        for each in of_keys
        if each is not None
        and not each.nulls
        and isinstance(each.low, int)
        and isinstance(each.high, int)
    ]
    if len(bounds) < len(of_keys) or bounds[0] != (INSERT_EVENT, INSERT_EVENT):
        return None
    if min(low for low, _ in bounds) < 0:  # scans take a negative number for a missing key
        return None
    return KeyRanges(*bounds[1:4])


def _described(footer: bytes) -> tuple[list[bytes], list[bytes], int]:
    """The types and the statistics of all columns, and the number of rows.

    No types if the statistics can't be used.
    """
    types, statistics, rows = [], [], 0
    for field in fields(footer):
        if field.number == TYPES:
            types.append(field.payload)
        elif field.number == STATISTICS:
            statistics.append(field.payload)
        elif field.number == ROWS:
            rows = field.value
    if len(statistics) != len(types) or _count(statistics[0]) != rows:
        # Hive's minor compaction writes no row index, and then counts no values either.
        return [], [], rows
    return types, statistics, rows


def _ranges(footer: bytes, acid: bool) -> Iterator[tuple[str, ColumnRange]]:
    types, statistics, rows = _described(footer)
    if not types:
        return
    root = unpacked(types[0], SUBTYPES)[-1] if acid else 0
    names = [field.payload.decode() for field in fields(types[root]) if field.number == _NAMES]
    columns = unpacked(types[root], SUBTYPES)
    for name, column in [*zip(names, columns, strict=True)][:MOST_COLUMNS]:
        kind = next((field.value for field in fields(types[column]) if field.number == KIND), 0)
        column_range = _range(statistics[column], kind, rows)
        if column_range is not None:
            yield name.lower(), column_range


def _count(statistics: bytes) -> int | None:
    """The number of values that are not NULL; for the root column, of rows."""
    return next((field.value for field in fields(statistics) if field.number == _VALUES), None)


def _range(statistics: bytes, kind: int, rows: int) -> ColumnRange | None:
    count: int | None = None
    parts: dict[int, bytes] = {}
    for field in fields(statistics):
        if field.number == _VALUES:
            count = field.value
        elif field.payload:
            parts[field.number] = field.payload
    if count is None or count > rows:
        return None
    nulls = rows - count
    unknown = ColumnRange(RangeKind.OTHER, None, None, nulls, count > 0)
    if not count:
        return unknown
    if kind in _INTEGER_KINDS and _INTEGER_PART in parts:
        low, high = _numbers(parts[_INTEGER_PART])
        return ColumnRange(RangeKind.INTEGER, low, high, nulls)
    if kind == KINDS["date"] and _DATE_PART in parts:
        low, high = _numbers(parts[_DATE_PART])
        return ColumnRange(RangeKind.DATE, low, high, nulls)
    if kind == KINDS["decimal"] and _DECIMAL_PART in parts:
        texts = _texts(parts[_DECIMAL_PART])
        if texts is not None:
            return ColumnRange(RangeKind.DECIMAL, Decimal(texts[0]), Decimal(texts[1]), nulls)
    if kind in _TEXT_KINDS and _TEXT_PART in parts:
        texts = _texts(parts[_TEXT_PART])
        if texts is not None:
            return text_range(*texts, nulls)
    return unknown


def _numbers(message: bytes) -> tuple[int | None, int | None]:
    numbers = {field.number: field.value >> 1 ^ -(field.value & 1) for field in fields(message)}
    return numbers.get(_LOW), numbers.get(_HIGH)


def _texts(message: bytes) -> tuple[str, str] | None:
    """The lowest and the highest text; None if the writer truncated or omitted one."""
    texts = {
        field.number: field.payload.decode()
        for field in fields(message)
        if field.number in (_LOW, _HIGH)
    }
    return (texts[_LOW], texts[_HIGH]) if len(texts) == 2 else None
