"""The regions of rows in recorded files, by partition and statistics (P51). Parses no SQL."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Sequence
from decimal import Decimal
from functools import reduce

from acid_platform.layout.file_entries import ColumnRange, RangeKind, RecordedFiles
from acid_platform.layout.names import parse_partition
from acid_platform.layout.types import Column
from acid_platform.transactions.row_sets import EVERY, ColumnSpans, Region, Value
from acid_platform.values.arrow_types import FIRST_GREGORIAN

NUMBERS = ("tinyint", "smallint", "int", "bigint", "decimal")
COMPARABLE: dict[RangeKind, tuple[str, ...]] = {
    RangeKind.INTEGER: NUMBERS,
    RangeKind.DECIMAL: ("decimal",),
    RangeKind.DATE: ("date",),
    RangeKind.TEXT: ("string", "varchar"),
}
"""The declared types whose values compare like those of a range of this kind."""
FIRST_DAY = datetime.date(1970, 1, 1).toordinal()


def trusted_bound(bound: Value | None, kind: RangeKind) -> Value | None:
    """The bound, unless values compare otherwise than the statistics of some writer say.

    Days before 15 October 1582 are Julian in most files, and Java's writer shows bytes that are not
    UTF-8 as U+FFFD.
    """
    if kind is RangeKind.DATE and isinstance(bound, int) and bound < FIRST_GREGORIAN:
        return None
    return None if isinstance(bound, str) and "\ufffd" in bound else bound


def region_of_files(
    files: RecordedFiles, columns: Sequence[Column], only: Collection[str] | None = None
) -> Region:
    """The region of all rows of these files; `only`: by these of the table's columns."""
    kinds = {
        column.name: column.type.kind for column in columns if only is None or column.name in only
    }
    regions = []
    for file in files.files:
        if file.footer is not None and not file.footer.rows:
            continue
        # As for pruning: earlier versions took columns without statistics for nothing but NULL.
        ranges = file.ranges_of(columns)
        counted = any(column.values for column in ranges.values())
        spans = {
            name: _spans(known)
            for name, known in ranges.items()
            if counted and name in kinds and _comparable(known, kinds[name])
        }
        regions.append(Region(spans))
    return reduce(Region.either, regions) if regions else EVERY


def _comparable(known: ColumnRange, kind: str) -> bool:
    return not known.values or kind in COMPARABLE.get(known.kind, ())


def _spans(known: ColumnRange) -> ColumnSpans:
    if not known.values:
        return ColumnSpans.of(())
    low, high = (trusted_bound(bound, known.kind) for bound in (known.low, known.high))
    return ColumnSpans.of([(low, high)])


def region_of_partition(partition: str | None, columns: Sequence[Column]) -> Region:
    """The region of all rows of a partition; `columns` are the table's partition columns."""
    names = [column.name for column in columns]
    texts = parse_partition(partition, names) if partition else None
    spans = {}
    for column, text in zip(columns, texts or (), strict=False):
        if text is None:
            spans[column.name] = ColumnSpans.of(())
        elif (value := _value(text, column.type.kind)) is not None:
            spans[column.name] = ColumnSpans.of([(value, value)])
    return Region(spans)


def _value(text: str, kind: str) -> Value | None:
    """The value of a partition column; None if it is not known how it compares."""
    try:
        if kind in NUMBERS:
            number = Decimal(text)
            return number if number.is_finite() else None
        if kind == "date":
            return datetime.date.fromisoformat(text).toordinal() - FIRST_DAY
    except (ValueError, ArithmeticError):
        return None
    return text if kind in COMPARABLE[RangeKind.TEXT] else None
