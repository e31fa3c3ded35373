"""Rows that other libraries read by Arrow's C interface, without our help and in batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Protocol

import pyarrow as pa


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
