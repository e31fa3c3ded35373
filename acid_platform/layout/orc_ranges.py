"""The ranges of columns out of the statistics of an ORC footer: what a reader may rest pruning on.

Only bounds that hold whoever wrote the file: whole numbers, decimals, days, and texts that are not
padded. Floating point numbers are left out, as writers disagree about NaN; timestamps, as old ones
kept them in the zone of their machine; CHAR, as its padding differs.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal, InvalidOperation

from acid_platform.layout.orc_tail import KIND, SUBTYPES, TYPES
from acid_platform.layout.protobuf import fields, unpacked
from acid_platform.snapshot.ranges import ColumnRange, RangeKind, text_range

MOST_COLUMNS = 64
"""Columns of a table that have ranges, from the first on: records stay small."""

_NAMES, _ROWS, _STATISTICS = 3, 6, 7
_COUNT, _INTEGERS, _TEXTS, _DECIMALS, _DATES = 1, 2, 4, 6, 7
_LOW, _HIGH = 1, 2
_INTEGER_KINDS, _DECIMAL_KIND, _DATE_KIND, _TEXT_KINDS = (1, 2, 3, 4), 14, 15, (7, 16)
"""ORC's numbers of BYTE, SHORT, INT, LONG; DECIMAL; DATE; STRING, VARCHAR."""


def column_ranges(footer: bytes, acid: bool) -> dict[str, ColumnRange]:
    """By name in lower case. `acid`: of the columns inside of `row`, of a file of insert events.

    What the footer does not tell, or tells in a way that can't be understood, is absent.
    """
    try:
        return dict(_ranges(footer, acid))
    except (IndexError, ValueError, InvalidOperation):
        return {}


def _ranges(footer: bytes, acid: bool) -> Iterator[tuple[str, ColumnRange]]:
    types, statistics, rows = [], [], 0
    for one in fields(footer):
        if one.number == TYPES:
            types.append(one.payload)
        elif one.number == _STATISTICS:
            statistics.append(one.payload)
        elif one.number == _ROWS:
            rows = one.value
    if len(statistics) != len(types):
        return
    root = unpacked(types[0], SUBTYPES)[-1] if acid else 0
    names = [one.payload.decode() for one in fields(types[root]) if one.number == _NAMES]
    columns = unpacked(types[root], SUBTYPES)
    for name, column in [*zip(names, columns, strict=True)][:MOST_COLUMNS]:
        kind = next((one.value for one in fields(types[column]) if one.number == KIND), 0)
        known = _range(statistics[column], kind, rows)
        if known is not None:
            yield name.lower(), known


def _range(statistics: bytes, kind: int, rows: int) -> ColumnRange | None:
    count: int | None = None
    parts: dict[int, bytes] = {}
    for one in fields(statistics):
        if one.number == _COUNT:
            count = one.value
        elif one.payload:
            parts[one.number] = one.payload
    if count is None or count > rows:
        return None
    nulls = rows - count
    unknown = ColumnRange(RangeKind.OTHER, None, None, nulls, count > 0)
    if not count:
        return unknown
    if kind in _INTEGER_KINDS and _INTEGERS in parts:
        low, high = _numbers(parts[_INTEGERS])
        return ColumnRange(RangeKind.INTEGER, low, high, nulls)
    if kind == _DATE_KIND and _DATES in parts:
        low, high = _numbers(parts[_DATES])
        return ColumnRange(RangeKind.DATE, low, high, nulls)
    if kind == _DECIMAL_KIND and _DECIMALS in parts:
        texts = _texts(parts[_DECIMALS])
        if texts is not None:
            return ColumnRange(RangeKind.DECIMAL, Decimal(texts[0]), Decimal(texts[1]), nulls)
    if kind in _TEXT_KINDS and _TEXTS in parts:
        texts = _texts(parts[_TEXTS])
        if texts is not None:
            return text_range(*texts, nulls)
    return unknown


def _numbers(message: bytes) -> tuple[int | None, int | None]:
    found = {one.number: one.value >> 1 ^ -(one.value & 1) for one in fields(message)}
    return found.get(_LOW), found.get(_HIGH)


def _texts(message: bytes) -> tuple[str, str] | None:
    """None where the writer cut them, or left one out."""
    found = {
        one.number: one.payload.decode() for one in fields(message) if one.number in (_LOW, _HIGH)
    }
    return (found[_LOW], found[_HIGH]) if len(found) == 2 else None
