"""A SELECT over scans: each placeholder in the text is a frame, and nothing else is visible.

The frames are named in the statement only, so that no view is left behind, and no view can refer to
a newer snapshot (P18).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from types import MappingProxyType

import pyarrow as pa
import sqlglot
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from sqlglot import exp
from sqlglot.errors import SqlglotError

from acid_platform.engine.reads import ChangeRead, Sources, TableRead
from acid_platform.engine.spark.change_frames import change_frame
from acid_platform.engine.spark.char_varchar import marked_columns, shown, without_types
from acid_platform.engine.spark.failures import analysed, raise_as_ours
from acid_platform.engine.spark.few_calls import over_frames
from acid_platform.engine.spark.scan import read_frame
from acid_platform.errors import AcidError, InvalidExpression
from acid_platform.layout.types import Column
from acid_platform.predicates.char_literals import comparable
from acid_platform.predicates.known_columns import unresolved_column

_NO_FRAMES: Mapping[str, DataFrame] = MappingProxyType({})


def result_of(spark: SparkSession, text: str, sources: Sources) -> DataFrame:
    """`run_query` for a caller. Spark takes the metadata of a UNION and the like from its left side
    alone, so that the columns of a statement with one are strings without trailing blanks."""
    frame = run_query(spark, text, sources)
    return without_types(frame) if _has_sets(text) else shown(frame)


def _has_sets(text: str) -> bool:
    if not _SETS.search(text):
        return False
    try:
        return sqlglot.parse_one(text, dialect="spark").find(exp.SetOperation) is not None
    except SqlglotError:
        return True


_SETS = re.compile(r"\b(UNION|INTERSECT|EXCEPT|MINUS)\b", re.IGNORECASE)


def run_query(
    spark: SparkSession, text: str, sources: Sources, given: Mapping[str, DataFrame] = _NO_FRAMES
) -> DataFrame:
    """The result of `text` over its `sources`, and over the frames in `given` by placeholder.

    Raises UnknownColumn, which suggests the nearest name, InvalidExpression.
    """
    frames = dict(given)
    text = comparable(
        text,
        {
            **{name: columns_of_source(one) for name, one in sources.items()},
            **{name: marked_columns(frame) for name, frame in given.items()},
        },
    )
    with raise_as_ours():
        for name, one in sources.items():
            if isinstance(one, ChangeRead):
                frames[name] = change_frame(spark, one.scan.wanting(one.columns))
            else:
                frames[name] = read_frame(
                    spark, one.scan, one.columns, one.row_id, one.where, one.file_name
                )
    with raise_as_ours():
        try:
            return analysed(over_frames(spark, text, frames))
        except AnalysisException as error:
            if not str(error.getCondition()).startswith("UNRESOLVED_COLUMN"):
                raise
            wanted = str((error.getMessageParameters() or {}).get("objectName"))
            known = [
                name
                for frame in frames.values()
                for name in frame.columns
                if not name.startswith("__")
            ]
            known += [
                column.name for source in sources.values() for column in columns_of_source(source)
            ]
            raise unresolved_column(wanted, known) from error


def columns_of_source(source: TableRead | ChangeRead) -> tuple[Column, ...]:
    """All columns that a query may name, but for virtual ones."""
    if isinstance(source, ChangeRead):
        return tuple(source.scan.columns)
    return (*source.scan.columns, *source.scan.partition_columns)


def fetch(frame: DataFrame, limit: int | None = None) -> pa.Table:
    """All rows of a query, or the first `limit`. Raises AcidError if the query fails."""
    with expression_errors():
        return (frame if limit is None else frame.limit(limit)).toArrow()


@contextmanager
def expression_errors() -> Iterator[None]:
    """Raises errors of a running query, such as a division by zero, as InvalidExpression."""
    try:
        with raise_as_ours():
            yield
    except AcidError:
        raise
    except PySparkException as error:
        line = next(
            (text_line for text_line in str(error).splitlines() if text_line.strip()), "no text"
        )
        raise InvalidExpression(f"the query failed: {line}") from error


def plan_text(frame: DataFrame) -> str:
    """Spark's own explanation of a query."""
    with redirect_stdout(StringIO()) as printed:
        frame.explain("formatted")
    return printed.getvalue().strip()
