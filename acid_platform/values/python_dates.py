"""Dates and moments beyond the years 1 to 9999, which Python's types can't hold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import pyarrow as pa

from acid_platform.base import arrow_functions as pc
from acid_platform.errors import WrongType

Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)
_BEYOND = "out of range"
"""What Arrow's and Python's errors about such a date say."""


@contextmanager
def far_dates_named() -> Iterator[None]:
    """Raises WrongType if the block makes Python's values of such dates."""
    try:
        yield
    except (OverflowError, ValueError) as error:
        if _BEYOND not in str(error):
            raise
        raise WrongType(
            f"a date or timestamp beyond the years 1 to 9999 is no value of Python ({error}): use"
            " to_arrow(), or leave out its column"
        ) from error


def far_dates_as_text(rows: Rows) -> Rows:
    """The rows, with text in the columns that hold such a date."""
    for number, field in enumerate(rows.schema):
        if pa.types.is_date(field.type) or pa.types.is_timestamp(field.type):
            column = rows.column(number)
            try:
                pc.min_max(column).as_py()
            except (OverflowError, ValueError):
                rows = rows.set_column(number, field.name, column.cast(pa.string()))
    return rows
