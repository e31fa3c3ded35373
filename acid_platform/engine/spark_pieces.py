"""Rows of this process as a frame of Spark, not all of them at once in its driver's heap (P59).

A frame of rows that a client has is kept in that heap, as long as it lives and several times as
large. So many rows go to a Spark of this machine by Parquet files in a private directory, and to
another one piece by piece, each of which its executors keep.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import chain, count, islice
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from acid_platform.base.local_files import process_directory
from acid_platform.errors import PublicationFailed
from acid_platform.values.stored_values import instants

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
    first, size = [], 0
    for table in rest:
        first.append(table)
        size += table.nbytes
        if size > _HELD_BYTES:
            break
    else:
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
