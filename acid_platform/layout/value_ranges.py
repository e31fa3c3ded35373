"""Bounds of a column's values, from a file's statistics.

A range may be too wide but never too narrow: an uncertain bound is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import Enum

MOST_TEXT = 32
"""The longest recorded text bound in characters; a longer one is cut if the result is a bound."""


class RangeKind(Enum):
    """The type of the bounds of a column."""

    INTEGER = "i"
    DECIMAL = "d"
    """Bounds are exact decimals, which the JSON form stores as texts such as `-1.50`."""
    DATE = "t"
    """Days since 1970."""
    TEXT = "s"
    OTHER = "-"
    """No bounds: only the number of NULLs is known."""


@dataclass(frozen=True, slots=True)
class ColumnRange:
    """Every value that is not NULL lies in `low`..`high`; None: unknown, or there is no value.

    `nulls` is the number of NULLs in the file; `values` tells whether any row is not NULL.
    """

    kind: RangeKind
    low: int | Decimal | str | None
    high: int | Decimal | str | None
    nulls: int
    values: bool = True


@dataclass(frozen=True, slots=True)
class KeyRanges:
    """What the statistics of a file say of its row keys, inclusive bounds.

    A file has them only if all of its rows are insert events with a complete key.
    """

    write_ids: tuple[int, int]
    buckets: tuple[int, int]
    """Bucket properties, not bucket numbers."""
    row_ids: tuple[int, int]

    def without_gaps(self, rows: int | None) -> bool:
        """Whether so many rows have these keys one after another, with one write id and bucket.

        The rowIds of a file are unique (P15).
        """
        (first, last), one = self.row_ids, len({*self.write_ids}) == len({*self.buckets}) == 1
        return one and rows == last - first + 1


def text_range(low: str, high: str, nulls: int) -> ColumnRange:
    """The range of texts, which are ordered by code points.

    A long `low` is cut, which still leaves a bound; a long `high` is left out.
    """
    return ColumnRange(
        RangeKind.TEXT, low[:MOST_TEXT], high if len(high) <= MOST_TEXT else None, nulls
    )
