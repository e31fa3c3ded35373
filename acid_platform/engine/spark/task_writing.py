"""Work of ours in Spark's tasks: rows go in, one small record for each file comes out.

Spark ends a batch of rows for Python at 10,000 rows, or when it has 64 MB. To know the latter it
measures the batch after each row, which takes half the time of an INSERT. A statement of ours
measures each row instead: the length of its texts. If there is a row with more than WIDEST bytes,
the job stops and runs again as Spark would run it, and later statements on that table do so at
once.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from acid_platform.engine.spark.failures import WIDE_ROWS, RowsTooWide, raise_as_ours
from acid_platform.engine.spark.few_calls import mapped_in_arrow
from acid_platform.engine.spark.task_body import answers, write_rows
from acid_platform.layout.sql_text import quoted, sql_string
from acid_platform.layout.types import Column
from acid_platform.write.task_files import Received, StagedFile, TaskTarget

_ANSWER = T.StructType([T.StructField("answer", T.StringType())])


def write_in_tasks(
    frame: DataFrame, names: Sequence[str], target: TaskTarget
) -> tuple[list[StagedFile], Received]:
    """The files that the tasks have written, and the rows that they received.

    `names` are the frame's columns. Only what the last attempt of each task wrote is among the
    files. Raises Spark's exceptions.
    """
    rows = mapped_in_arrow(frame, names, partial(write_rows, target), _ANSWER).collect()
    records = [json.loads(row["answer"]) for row in rows]
    files = [StagedFile.unpacked(*record["file"]) for record in records if "file" in record]
    received = (Received(*record["received"]) for record in records if "received" in record)
    return files, sum(received, Received())


def in_tasks(spark: SparkSession, count: int, work: Callable[[int], str]) -> list[str]:
    """The results of `work` for each number below `count`, each computed in its own Spark task.

    Raises AcidError, Spark's exceptions.
    """
    if not count:
        return []

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield answers(work(index) for index in batch.column(0).to_pylist())

    with raise_as_ours():
        frame = mapped_in_arrow(spark.range(0, count, 1, count), ["id"], run, _ANSWER)
        return [row["answer"] for row in frame.collect()]


WIDEST = 20_000
"""Bytes of text in a row: 10,000 such rows take 200 MB."""

LIMIT = "spark.sql.execution.arrow.maxBytesPerBatch"
_NO_LIMIT = str((1 << 31) - 1)
"""With this value Spark does not measure."""

_TEXTS = ("string", "varchar", "char", "binary")
_Answer = TypeVar("_Answer")

_wide: set[str] = set()
"""Locations of tables to which a row with more than WIDEST bytes of text was written."""
_guard = threading.Lock()
_unlimited: WeakKeyDictionary[SparkSession, tuple[int, str]] = WeakKeyDictionary()
"""For each session, how many statements run without a limit, and the limit before them."""


def in_large_batches(
    frame: DataFrame,
    columns: Sequence[Column],
    location: str,
    run: Callable[[DataFrame], _Answer],
) -> _Answer:
    """The result of `run`, which sends the rows of a frame to Python: `columns`, and row keys.

    It runs a second time, without the test of the rows, if one is too wide for a large batch.
    """
    nested = any(column.type.children for column in columns)
    texts = [column.name for column in columns if column.type.kind in _TEXTS]
    if not nested and not (texts and location in _wide):
        try:
            with _without_limit(frame.sparkSession):
                return run(_tested(frame, texts))
        except RowsTooWide:
            _wide.add(location)
    return run(frame)


def _tested(frame: DataFrame, texts: Sequence[str]) -> DataFrame:
    """The frame, which fails with RowsTooWide at a row with more than WIDEST bytes in `texts`."""
    if not texts:
        return frame
    lengths = [f"coalesce(octet_length({quoted(name)}), 0)" for name in texts]
    error = f"CAST(raise_error({sql_string(WIDE_ROWS)}) AS boolean)"
    return frame.filter(f"{' + '.join(lengths)} <= {WIDEST} OR {error}")


@contextmanager
def _without_limit(spark: SparkSession) -> Iterator[None]:
    """Inside, jobs of this session send batches of any size; other threads' jobs too."""
    with _guard:
        running, before = _unlimited.get(spark) or (0, str(spark.conf.get(LIMIT)))
        ours = running > 0 or before != _NO_LIMIT
        if ours:
            spark.conf.set(LIMIT, _NO_LIMIT)
            _unlimited[spark] = running + 1, before
    if not ours:  # somebody else has set it, and takes it back
        yield
        return
    try:
        yield
    finally:
        with _guard:
            running, before = _unlimited.pop(spark)
            if running > 1:
                _unlimited[spark] = running - 1, before
            else:
                spark.conf.set(LIMIT, before)
