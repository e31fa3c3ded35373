"""What the records of files prove of the live values of a column: how many, least and greatest.

A file proves it if its record says that no row of it needs a test and none is deleted. The bounds
of the others only have to lie within the bounds of these; or they tell which few stripes are worth
reading, since no other can have a greater value.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from operator import itemgetter
from typing import Any

import pyarrow as pa

from acid_platform.base import arrow_functions as pc
from acid_platform.layout.file_entries import MOST_TEXT, ColumnRange, RangeKind
from acid_platform.layout.types import INTEGRAL, Column
from acid_platform.scan.deletes import DeleteKeys
from acid_platform.scan.row_regions import trusted_bound
from acid_platform.scan.scans import ArrowScan, EntityScan
from acid_platform.scan.source_files import RowIdentity, SourceFile
from acid_platform.values.arrow_types import arrow_type, scalar_of

_DECLARED: dict[RangeKind, tuple[str, ...]] = {
    RangeKind.INTEGER: INTEGRAL,
    RangeKind.DECIMAL: ("decimal",),
    RangeKind.DATE: ("date",),
    RangeKind.TEXT: ("string",),
}
"""The declared types whose values are those of the file, by the kind of its bounds."""
_FIRST_DAY = datetime.date(1970, 1, 1)
_BOUNDED = frozenset(kind for kinds in _DECLARED.values() for kind in kinds)


@dataclass(frozen=True, slots=True)
class RecordedFile:
    """A file of a scan; `whole`: whether all of its rows are known to be live."""

    entity: EntityScan
    """The file alone, with what deletes its rows."""
    source: SourceFile
    whole: bool

    @classmethod
    def of(cls, entity: EntityScan) -> RecordedFile:
        (source,) = entity.sources.inserts
        return cls(entity, source, _is_whole(source, entity.deletes))

    def range_of(self, column: Column) -> ColumnRange | None:
        """The bounds of a column, if the record has statistics of the file at all."""
        ranges = self.source.ranges
        # Files without statistics were once recorded as if they had nothing but NULL.
        if self.source.length is not None or not any(each.values for each in ranges.values()):
            return None
        return ranges.get(column.name)


def _is_whole(source: SourceFile, deletes: DeleteKeys) -> bool:
    if source.test_rows or source.above >= 0 or source.length is not None or source.rows is None:
        return False
    if source.identity is RowIdentity.STORED and source.keys is None:
        return False
    if not deletes.may_touch(source.low, source.high, source.number):
        return True
    keys = source.keys
    return (
        keys is not None
        and keys.without_gaps(source.rows)
        and not deletes.within(keys.write_ids[0], keys.buckets[0], *keys.row_ids)
    )


def recorded_count(files: Sequence[RecordedFile], column: Column | None) -> int | None:
    """The number of rows in which the column is not NULL, or of all; None if it is not proven."""
    total = 0
    for file in files:
        rows = file.source.rows
        if rows is None or not file.whole:
            return None
        if column is not None and rows:
            bounds = file.range_of(column)
            if bounds is None:
                return None
            rows -= bounds.nulls
        total += rows
    return total


def recorded_extreme(
    files: Sequence[RecordedFile], column: Column, greatest: bool, scan: ArrowScan | None = None
) -> pa.Scalar | None:
    """The least or the greatest value of the column, NULL without any; None if it is not proven.

    With their `scan`, files that are not whole are read as long as they may have a value beyond
    those that are known. Raises CorruptFile, UnsupportedLayout, NeedsSpark then.
    """
    if column.type.kind not in _BOUNDED:
        return None
    bounded: list[tuple[Any, RecordedFile]] = []
    for file in files:
        if file.source.rows == 0:
            continue
        bounds = file.range_of(column)
        if bounds is None:
            return None
        if bounds.values:
            bound = _exact(bounds, column, greatest)
            if bound is None:
                return None
            bounded.append((bound, file))
    bounded.sort(key=lambda each: not each[1].whole)
    bounded.sort(key=itemgetter(0), reverse=greatest)
    choose = max if greatest else min
    values: list[Any] = []
    for bound, file in bounded:
        if values and choose(bound, *values) in values:
            break
        if file.whole:
            values.append(bound)
        elif scan is None:
            return None
        else:
            values += _live_extreme(scan, file, column, bound, greatest)
    return _stored(choose(values, default=None), column)


def _live_extreme(
    scan: ArrowScan, file: RecordedFile, column: Column, bound: Any, greatest: bool
) -> list[Any]:
    """The least or the greatest live value in a file whose values reach no further than `bound`;
    empty without any."""
    of_file = replace(scan.scan, entities=(file.entity,))
    values: list[Any] = []
    # Values often ascend with the rows: the greatest one is looked for from the end.
    for batch in ArrowScan(of_file, (column.name,)).one_by_one(backwards=greatest):
        scalar = pc.min_max(batch.column(0))["max" if greatest else "min"]
        # Python has no days before the year 1.
        edge = scalar.value if isinstance(scalar, pa.Date32Scalar) else scalar.as_py()
        values += [] if edge is None else [edge]
        if edge == bound:
            break
    return values


def _exact(bounds: ColumnRange, column: Column, greatest: bool) -> int | Decimal | str | None:
    """The bound, if it is a value of the column as it is declared."""
    bound = trusted_bound(bounds.high if greatest else bounds.low, bounds.kind)
    if bound is None or column.type.kind not in _DECLARED.get(bounds.kind, ()):
        return None
    if isinstance(bound, str) and len(bound) >= MOST_TEXT:  # it may be cut
        return None
    return bound if _stored(bound, column) is not None else None


def _stored(value: int | Decimal | str | None, column: Column) -> pa.Scalar | None:
    """The value in the column's type; None if that does not hold it."""
    given: object = value
    try:
        if isinstance(value, int) and column.type.kind == "date":
            given = _FIRST_DAY + datetime.timedelta(value)
        scalar = scalar_of(given, arrow_type(column.type))
    except (pa.ArrowInvalid, OverflowError):
        return None
    return scalar
