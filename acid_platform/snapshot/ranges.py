"""What a file's statistics tell of the values of a column. Pure.

Statistics may err on the wide side only: a bound that isn't sure is absent.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import Enum

MOST_TEXT = 32
"""Characters of a recorded bound: longer texts are cut where that is still a bound."""


class RangeKind(Enum):
    """How the bounds of a column are to be understood."""

    INTEGER = "i"
    DECIMAL = "d"
    """Bounds are texts such as `-1.50`, as JSON has no exact decimals."""
    DATE = "t"
    """Days since 1970."""
    TEXT = "s"
    OTHER = "-"
    """No bounds: only the number of NULLs is known."""


@dataclass(frozen=True, slots=True)
class ColumnRange:
    """`low` <= each value that is not NULL <= `high`; None: not known, or there is no value.

    `nulls` counts the NULLs of the file's rows; `values` says whether any row is not NULL.
    """

    kind: RangeKind
    low: int | Decimal | str | None
    high: int | Decimal | str | None
    nulls: int
    values: bool = True


def text_range(low: str, high: str, nulls: int) -> ColumnRange:
    """Of texts, whose order is that of their characters. A long `low` is cut, which is still a
    bound; a long `high` is left out."""
    return ColumnRange(
        RangeKind.TEXT, low[:MOST_TEXT], high if len(high) <= MOST_TEXT else None, nulls
    )
