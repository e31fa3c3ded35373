"""Rows out of a table: as other libraries read them by Arrow's C interface, without our help and in
batches, as frames of pandas and Polars, and as values of Python.

Frames have no other value in any place. Python lacks dates beyond the years 1 to 9999.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar

import pyarrow as pa

from acid_platform.base import arrow_functions as pc
from acid_platform.errors import WrongType
from acid_platform.values.arrow_types import leaves

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

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


class ArrowLender(ABC):
    """Rows for `polars.DataFrame(rows)`, `duckdb.sql("FROM rows")`, `pyarrow.table(rows)`,
    `pandas.DataFrame.from_arrow(rows)`, and whatever else asks for `__arrow_c_stream__`.

    A reader of another library raises an error of its own, with the text of ours.
    """

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The schema of the rows; nothing is read for it."""

    @abstractmethod
    def batches(self) -> pa.RecordBatchReader:
        """The rows in batches, for those that are larger than memory."""

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.batches().__arrow_c_stream__(requested_schema)


class Batched(Protocol):
    """A scan that is read in batches."""

    @property
    def schema(self) -> pa.Schema: ...

    def batches(self) -> Iterator[pa.RecordBatch]: ...


def streamed(opened: AbstractContextManager[Batched]) -> pa.RecordBatchReader:
    """The batches of a scan, which stays open until the last is read or the reader is gone.

    Raises what opening and reading it raises, and what the end of its block does.
    """
    with ExitStack() as opening:
        scan = opening.enter_context(opened)
        schema = scan.schema
        reading = opening.pop_all()

    def batches() -> Iterator[pa.RecordBatch]:
        with reading:
            yield from scan.batches()

    return pa.RecordBatchReader.from_batches(schema, batches())


_EXACT = 1 << 53
"""A whole number up to this one is exact as a float."""


def to_frame(table: pa.Table) -> pd.DataFrame:
    """The rows as a frame, with dates as objects. Raises WrongType for dates that Python lacks.

    pandas makes whole numbers beside NULLs floats. If that changes a number of the table, columns
    of whole numbers with NULLs have Python's integers instead.
    """
    rounded = any(map(_rounds, table.columns))
    with far_dates_named():
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
