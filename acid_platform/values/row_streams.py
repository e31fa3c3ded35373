"""Rows batch by batch: those that are written, of which few are in memory at a time (P59), and
those out of a table, by Arrow's C interface, as frames, and as values of Python.

Frames have no other value in any place. Python lacks dates beyond the years 1 to 9999.

A frame of Spark of rows that a client has is kept in its driver's heap, as long as it lives and
several times as large. So many rows go to a Spark of this machine by Parquet files in a private
directory, and to another one piece by piece, each of which its executors keep.
"""

from __future__ import annotations

import os
import shutil
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from contextvars import ContextVar
from itertools import chain, count, islice
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pyarrow as pa
from pyarrow import ipc

from acid_platform.base.first_use import ClosedAfter
from acid_platform.base.first_use import arrow_functions as pc
from acid_platform.base.local_files import process_directory, scratch_directory
from acid_platform.errors import PublicationFailed, RowsTaken, WrongType
from acid_platform.values.arrow_types import leaves
from acid_platform.values.stored_values import instants

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    from pyspark.sql import DataFrame, SparkSession


class SpilledBatches(ClosedAfter):
    """Takes batches with one schema, then gives them in any order; `with` removes the file.

    Raises PublicationFailed if the directory for temporary files can't take them.
    """

    def __init__(self, schema: pa.Schema) -> None:
        with _asking():
            self._directory = scratch_directory("rows")
            self._path = os.path.join(self._directory.name, "rows.arrow")
            self._sink = pa.OSFile(self._path, "wb")
            self._writer = ipc.new_file(self._sink, schema)
        self._reader: ipc.RecordBatchFileReader | None = None
        self._count = 0

    def add(self, batch: pa.RecordBatch) -> int:
        """Returns the number by which `read` gives the batch."""
        with _asking():
            self._writer.write_batch(batch)
        self._count += 1
        return self._count - 1

    def read(self, number: int) -> pa.RecordBatch:
        """A batch that was added. After the first call no other can be added."""
        if self._reader is None:
            with _asking():
                self._finish()
            self._reader = ipc.open_file(pa.OSFile(self._path))
        return self._reader.get_batch(number)

    def table(self) -> pa.Table:
        """All batches. The table reads the file as memory that the system may take back."""
        with _asking():
            self._finish()
        return ipc.open_file(pa.memory_map(self._path)).read_all()

    def _finish(self) -> None:
        if not self._sink.closed:
            try:
                self._writer.close()
            finally:
                self._sink.close()

    def close(self) -> None:
        with suppress(OSError):  # of a full disk, which a batch has told
            self._finish()
        self._reader = None
        self._directory.cleanup()


@contextmanager
def _asking() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise PublicationFailed(
            f"rows that don't fit into memory can't be kept on disk: {error}; free space, or"
            " let TMPDIR name a larger directory, and run the statement again"
        ) from error


HELD_BYTES = 32 << 20
"""Rows of a source that takes no more are held as a table, which can be read again."""
_SPILLED_BYTES = 128 << 20
"""A table that is made of a stream lies in memory up to this size, and else in a file."""
_TAKEN = (
    "a RecordBatchReader gives its rows once, as any stream does, and these were taken before: give"
    " reader.read_all(), or a new reader for each attempt"
)


class RowStream:
    """Many rows, in batches with one schema. `again` reads them anew; None: nobody can."""

    def __init__(
        self,
        schema: pa.Schema,
        batches: Iterable[pa.RecordBatch],
        again: Callable[[], Iterable[pa.RecordBatch]] | None = None,
    ) -> None:
        self.schema = schema
        self._next: Iterable[pa.RecordBatch] | None = batches
        self._again = again
        self.failure: Exception | None = None
        """What the source raised, which is not the failure of whoever writes its rows."""

    @property
    def gone(self) -> bool:
        """Whether the rows were taken, and there is no way to have them again."""
        return self._next is None and self._again is None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows. Raises RowsTaken, and whatever their source raises."""
        batches, self._next = self._next, None
        if batches is None:
            if self._again is None:
                raise RowsTaken(_TAKEN)
            batches = self._again()
        return self._read(iter(batches))

    def _read(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from batches
        except Exception as error:
            self.failure = error
            raise

    def became(self, table: pa.Table) -> None:
        """The rows are those of the table from now on, which a reader of all of them has made."""
        self.schema, self._next, self._again = table.schema, None, table.to_batches

    def with_constants(self, values: dict[str, pa.Scalar]) -> RowStream:
        """These rows with more columns, each of which has one value. Takes the rows of this one."""
        fields = [pa.field(name, value.type) for name, value in values.items()]
        schema = pa.schema([*self.schema, *fields])

        def added(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                constants = [pa.repeat(value, batch.num_rows) for value in values.values()]
                yield pa.RecordBatch.from_arrays([*batch.columns, *constants], schema=schema)

        again = self._again
        return RowStream(
            schema, added(self.batches()), None if again is None else lambda: added(again())
        )


def table_or_stream(
    schema: pa.Schema,
    source: Iterable[pa.RecordBatch],
    again: Callable[[], Iterable[pa.RecordBatch]] | None = None,
) -> pa.Table | RowStream:
    """The rows of a source as a table, or as a stream if they are many."""
    batches = iter(source)
    first, size = [], 0
    for batch in batches:
        first.append(batch)
        size += batch.nbytes
        if size > HELD_BYTES:
            return RowStream(schema, chain(first, batches), again)
    return pa.Table.from_batches(first, schema)


_taken: weakref.WeakSet[Any] = weakref.WeakSet()
"""The readers and iterators whose rows were taken; they have no others."""


def once(source: Any) -> Any:
    """The iterator or reader, which may be asked for once. Raises RowsTaken."""
    with suppress(TypeError):  # of a kind that can't be remembered so
        if source in _taken:
            raise RowsTaken(_TAKEN)
        _taken.add(source)
    return source


def _first(parts: Iterator[pa.Table], most: int) -> tuple[list[pa.Table], bool]:
    """Parts until they have more than `most` bytes, and whether there are no others."""
    first, size = [], 0
    for part in parts:
        first.append(part)
        size += part.nbytes
        if size > most:
            return first, False
    return first, True


def table_of_parts(parts: Iterator[pa.Table]) -> pa.Table:
    """Parts with one schema as a table, whose rows lie in a private file if they are many.

    The file has no name by then: it goes with the table, or with this process.
    """
    first, are_all = _first(parts, _SPILLED_BYTES)
    if are_all:
        return pa.concat_tables(first)
    with SpilledBatches(first[0].schema) as spilled:
        for part in chain(first, parts):
            for batch in part.to_batches():
                spilled.add(batch)
        return spilled.table()


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


_PIECE_BYTES = 8 << 20
_HELD_BYTES = 32 << 20
"""Rows that take no more are one frame of rows in the driver."""
_T = TypeVar("_T")
_directories: ContextVar[list[str] | None] = ContextVar("directories", default=None)
"""Those of the statement that this thread runs."""


@contextmanager
def removed_afterwards() -> Iterator[None]:
    """Removes after the block the files that frames of the block read; those of others stay as long
    as this process, since anybody may use such a frame."""
    made: list[str] = []
    before = _directories.set(made)
    try:
        yield
    finally:
        _directories.reset(before)
        for directory in made:
            shutil.rmtree(directory, ignore_errors=True)


def frame_of(
    spark: SparkSession, tables: Iterable[pa.Table], make: Callable[[pa.Table], DataFrame]
) -> DataFrame:
    """The rows of the tables, one or more, which have one schema; `make` makes a frame of few of
    them. Raises PublicationFailed if files of many rows can't be written."""
    rest = iter(tables)
    first, are_all = _first(rest, _HELD_BYTES)
    if are_all:
        return make(pa.concat_tables(first))
    rows = chain(_drained(first), rest)
    if hasattr(spark, "_jsparkSession") and str(spark.conf.get("spark.master")).startswith("local"):
        return _by_files(spark, rows)
    frames = [make(piece).localCheckpoint(True) for table in rows for piece in _divided(table)]
    while len(frames) > 1:  # pairs of pairs: a union looks at all that is below it
        pairs = iter(frames)
        frames = [first.union(other) if other else first for first, other in _pairs(pairs)]
    return frames[0]


def _by_files(spark: SparkSession, tables: Iterable[pa.Table]) -> DataFrame:
    from pyarrow import parquet  # its writer loads slowly

    directory = process_directory("spark-rows")
    if directory is None:
        raise PublicationFailed(
            "no directory for temporary files can be made, through which many rows go to Spark: let"
            " TMPDIR name one, and run the statement again"
        )
    if (made := _directories.get()) is not None:
        made.append(directory)
    number, writer, path = count(), None, ""
    for table in tables:
        ready = instants(table)
        try:
            if writer is None:
                path = os.path.join(directory, f"{next(number):06}.parquet")
                writer = parquet.ParquetWriter(path, ready.schema, store_schema=False)
            writer.write_table(ready)
            if os.path.getsize(path) > _FILE_BYTES:
                writer.close()
                writer = None
        except OSError as error:
            raise PublicationFailed(
                f"{directory}, through which many rows go to Spark, can't be written: {error}; free"
                " space, or let TMPDIR name a larger directory, and run the statement again"
            ) from error
    if writer is not None:
        writer.close()
    return spark.read.option("datetimeRebaseMode", "CORRECTED").parquet(directory)


_FILE_BYTES = 128 << 20


def _drained(tables: list[_T]) -> Iterator[_T]:
    tables.reverse()
    while tables:
        yield tables.pop()


def _pairs(items: Iterator[DataFrame]) -> Iterator[tuple[DataFrame, DataFrame | None]]:
    while pair := tuple(islice(items, 2)):
        yield pair[0], pair[1] if len(pair) > 1 else None


def _divided(table: pa.Table) -> Iterator[pa.Table]:
    most = max(1, len(table) * _PIECE_BYTES // (table.nbytes or 1))
    return (table.slice(start, most) for start in range(0, len(table), most))
