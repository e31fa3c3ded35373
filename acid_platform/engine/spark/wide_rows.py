"""How many rows go from Spark to Python at once.

Spark ends a batch at 10,000 rows, or when it has 64 MB. To know the latter it measures the batch
after each row, which takes half the time of an INSERT. A statement of ours measures each row
instead: the length of its texts. If there is a row with more than WIDEST bytes, the job stops and
runs again as Spark would run it, and later statements on that table do so at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar
from weakref import WeakKeyDictionary

from pyspark.sql import DataFrame, SparkSession

from acid_platform.engine.spark.failures import WIDE_ROWS, RowsTooWide
from acid_platform.layout.sql_text import quoted, sql_string
from acid_platform.layout.types import Column

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
