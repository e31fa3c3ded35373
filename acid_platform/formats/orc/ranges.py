"""Column ranges from the statistics of an ORC footer, on which a reader may rely for pruning.

Only types whose bounds are reliable whoever wrote the file: whole numbers, decimals, dates, string
and varchar. Not floating point, since writers disagree about NaN; not timestamps, since old writers
used the machine's time zone; not CHAR, since padding differs.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal, InvalidOperation

from acid_platform.formats.keyed import INSERT_EVENT
from acid_platform.formats.orc.events import ACID_COLUMNS
from acid_platform.formats.orc.protobuf import fields, unpacked
from acid_platform.formats.orc.tail import KIND, KINDS, ROWS, STATISTICS, SUBTYPES, TYPES
from acid_platform.layout.file_entries import ColumnRange, KeyRanges, RangeKind, text_range
from acid_platform.layout.types import INTEGRAL

MOST_COLUMNS = 64
"""Only this many first columns of a table have ranges, to keep the records small."""

_NAMES = 3
_COUNT, _INTEGERS, _TEXTS, _DECIMALS, _DATES = 1, 2, 4, 6, 7
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
    return next((field.value for field in fields(statistics) if field.number == _COUNT), None)


def _range(statistics: bytes, kind: int, rows: int) -> ColumnRange | None:
    count: int | None = None
    parts: dict[int, bytes] = {}
    for field in fields(statistics):
        if field.number == _COUNT:
            count = field.value
        elif field.payload:
            parts[field.number] = field.payload
    if count is None or count > rows:
        return None
    nulls = rows - count
    unknown = ColumnRange(RangeKind.OTHER, None, None, nulls, count > 0)
    if not count:
        return unknown
    if kind in _INTEGER_KINDS and _INTEGERS in parts:
        low, high = _numbers(parts[_INTEGERS])
        return ColumnRange(RangeKind.INTEGER, low, high, nulls)
    if kind == KINDS["date"] and _DATES in parts:
        low, high = _numbers(parts[_DATES])
        return ColumnRange(RangeKind.DATE, low, high, nulls)
    if kind == KINDS["decimal"] and _DECIMALS in parts:
        texts = _texts(parts[_DECIMALS])
        if texts is not None:
            return ColumnRange(RangeKind.DECIMAL, Decimal(texts[0]), Decimal(texts[1]), nulls)
    if kind in _TEXT_KINDS and _TEXTS in parts:
        texts = _texts(parts[_TEXTS])
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
