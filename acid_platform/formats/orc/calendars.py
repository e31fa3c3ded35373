"""Days before 15 October 1582, which ORC's Java writers count in the Julian calendar.

Hive and Spark write Julian days and convert them back when they read. A file's footer names its
calendar only if it is the proleptic Gregorian one. Arrow treats every day as Gregorian, so it would
show 0001-01-01 two days early.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from acid_platform.values.arrow_types import (
    FIRST_GREGORIAN,
    has_ancient,
    integer_of,
    units_per_day,
    with_leaves,
)


def as_written(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch of a file that names no calendar, with its days as the writer meant them."""
    return pa.RecordBatch.from_arrays(
        [_mapped(column, from_julian) for column in batch.columns], schema=batch.schema
    )


def to_be_stored(array: pa.Array) -> pa.Array:
    """The array with its dates and timestamps as a file that names no calendar stores them.

    The days from 5 to 14 October 1582, which that calendar leaves out, become 15 October, as in
    Spark.
    """
    return _mapped(array, to_julian) if has_ancient(array) else array


def from_julian(days: np.ndarray) -> np.ndarray:
    """Julian days since 1970, int64 (n,), as Gregorian days that show the same date.

    29 February of a year that is not a Gregorian leap year becomes 1 March, as in Spark.
    """
    number = days + 2_440_588 + 32_082  # since 1 March of the year -4800
    year = (4 * number + 3) // 1461
    rest = number - 1461 * year // 4
    month = (5 * rest + 2) // 153
    day = rest - (153 * month + 2) // 5
    months = 12 * (year - 4800 - 1970) + month + 2
    first = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    return np.where(days < FIRST_GREGORIAN, first + day, days)


def to_julian(days: np.ndarray) -> np.ndarray:
    """Gregorian days since 1970, int64 (n,), as Julian days that show the same date."""
    ancient = np.minimum(days, FIRST_GREGORIAN).astype("datetime64[D]")
    first = ancient.astype("datetime64[M]")
    months = first.astype(np.int64) + 12 * 1970
    month = months % 12 + 1
    early = month < 3
    year = months // 12 + 4800 - early
    day = (ancient - first).astype(np.int64) + 1
    number = day + (153 * (month + 12 * early - 3) + 2) // 5 + 365 * year + year // 4 - 32_083
    return np.where(days < FIRST_GREGORIAN, np.minimum(number - 2_440_588, FIRST_GREGORIAN), days)


def shown_day(day: int) -> int:
    """A day of a file that does not name its calendar, as a Gregorian day since 1970."""
    return int(from_julian(np.array([day]))[0]) if day < FIRST_GREGORIAN else day


def _mapped(array: pa.Array, renumbered: Callable[[np.ndarray], np.ndarray]) -> pa.Array:
    def changed(leaf: pa.Array) -> pa.Array:
        kind, per_day = leaf.type, units_per_day(leaf.type)
        stored = leaf.cast(integer_of(kind)).fill_null(0).to_numpy(zero_copy_only=False)
        days, rest = np.divmod(stored.astype(np.int64), per_day)
        made = renumbered(days) * per_day + rest
        missing = leaf.is_null().to_numpy(zero_copy_only=False)
        return pa.array(made, integer_of(kind), mask=missing).cast(kind)

    return with_leaves(array, lambda kind: units_per_day(kind) > 0, changed)
