"""Arrow tables as frames of pandas or Polars without another value in any place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from acid_platform.base import arrow_functions as pc
from acid_platform.storage.arrow_types import leaves

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

_EXACT = 1 << 53
"""A whole number up to this one is exact as a float."""


def to_frame(table: pa.Table) -> pd.DataFrame:
    """The rows as a frame, with dates as objects.

    pandas makes whole numbers beside NULLs floats. If that changes a number of the table, columns
    of whole numbers with NULLs have Python's integers instead.
    """
    rounded = any(map(_rounds, table.columns))
    frame: pd.DataFrame = table.to_pandas(date_as_object=True, integer_object_nulls=rounded)
    return frame


def polars_frame(table: pa.Table) -> pl.DataFrame:
    """The rows as a frame of Polars. Raises ModuleNotFoundError unless that is installed."""
    import polars

    frame: pl.DataFrame = polars.from_arrow(table)
    return frame


def _rounds(column: pa.ChunkedArray) -> bool:
    return any(
        part.type == pa.int64()
        and part.null_count > 0
        and any(abs(end) > _EXACT for end in pc.min_max(part).as_py().values() if end is not None)
        for chunk in column.chunks
        for part in leaves(chunk)
    )
