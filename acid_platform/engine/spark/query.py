"""A SELECT over scans as Spark runs it, and a read of one table.

Each placeholder in the text is a frame, and nothing else is visible. The frames are named in the
statement only, so that no view is left behind, and no view can refer to a newer snapshot (P18).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO

import pyarrow as pa
import sqlglot
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from sqlglot import exp
from sqlglot.errors import SqlglotError

from acid_platform.base.arguments import require_limit
from acid_platform.engine.interface import ChangeRead, EngineName, Result, Sources, TableRead
from acid_platform.engine.spark.failures import (
    analysed,
    first_line,
    raise_as_ours,
    unknown_there,
)
from acid_platform.engine.spark.few_calls import over_frames
from acid_platform.engine.spark.in_subqueries import with_unknowns
from acid_platform.engine.spark.input_rows import column_of
from acid_platform.engine.spark.scan import change_frame, read_frame
from acid_platform.engine.spark.spark_types import marked_columns, marked_type, shown, without_types
from acid_platform.errors import InvalidExpression
from acid_platform.layout.types import Column, require_columns
from acid_platform.predicates.char_literals import refuse_blanks
from acid_platform.predicates.known_columns import require_names, unresolved_column
from acid_platform.scan.scans import Scan
from acid_platform.values.arrow_types import is_utf8
from acid_platform.values.wall_clocks import wall_clocks


@dataclass(frozen=True, repr=False)
class SparkResult(Result):
    """The rows of a DataFrame."""

    frame: DataFrame
    reason: str = "a DataFrame of Spark"
    engine: EngineName = "spark"

    @property
    def columns(self) -> list[str]:
        return list(self.frame.columns)

    @property
    def schema(self) -> pa.Schema:
        return self.to_arrow(0).schema

    def declared(self) -> tuple[Column, ...]:
        return tuple(column_of(field) for field in self.frame.schema.fields)

    def to_arrow(self, limit: int | None = None) -> pa.Table:
        """Raises AcidError if the query fails, such as InvalidExpression for a division by zero."""
        require_limit(limit)
        frame = self.frame if limit is None else self.frame.limit(limit)
        try:
            with raise_as_ours():
                kinds = [marked_type(field) for field in frame.schema.fields]
                rows = wall_clocks(frame.toArrow(), kinds)
        except PySparkException as error:
            raise InvalidExpression(f"the query failed: {first_line(str(error))}") from error
        except ValueError as error:  # Arrow can't hold array<void>, the type of array()
            raise InvalidExpression(
                f"the query has a column that can't be read: {first_line(str(error))}; cast"
                " NULL and empty values to a type, such as CAST(array() AS array<string>)"
            ) from error
        for name, column in zip(rows.column_names, rows.columns, strict=True):
            if not is_utf8(column):
                raise InvalidExpression(
                    f"the column {name} has text that is not UTF-8; decode(CAST({name} AS binary),"
                    " 'ISO-8859-1'), or its encoding, reads it"
                )
        return rows

    def batches(self) -> pa.RecordBatchReader:
        return self.to_arrow().to_reader()

    def to_spark(self) -> DataFrame:
        return self.frame

    def renamed(self, names: Sequence[str]) -> SparkResult:
        return SparkResult(self.frame.toDF(*names), self.reason)

    def in_one_file(self) -> SparkResult:
        return SparkResult(self.frame.coalesce(1), self.reason)

    def plan(self) -> str:
        """Spark's own explanation of the query."""
        with redirect_stdout(StringIO()) as printed:
            self.frame.explain("formatted")
        return printed.getvalue().strip()

    def count(self) -> int:
        return self.frame.count()


def table_rows(
    spark: Callable[[], SparkSession],
    scan: Scan,
    columns: Sequence[str] | None,
    where: str | None,
    row_id: bool,
    table: str,
) -> DataFrame:
    """The rows of a scan, in no particular order. Spark starts only after the names were checked.

    Raises UnknownColumn, InvalidExpression.
    """
    every = (*scan.columns, *scan.partition_columns)
    require_columns(columns or (), every, table)
    if where is not None:
        require_names(where, every, table)
    session = spark()
    with raise_as_ours():
        return analysed(shown(read_frame(session, scan, columns, row_id, where)))


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
    spark: SparkSession,
    text: str,
    sources: Sources,
    more_frames: Mapping[str, DataFrame] | None = None,
) -> DataFrame:
    """The result of `text` over its `sources`, and over `more_frames` by placeholder.

    Raises UnknownColumn, which suggests the nearest name, InvalidExpression.
    """
    frames = dict(more_frames or {})
    own = [column for source in sources.values() for column in _columns(source)]
    marked = [column for frame in frames.values() for column in marked_columns(frame)]
    refuse_blanks(text, [*own, *marked])
    text = with_unknowns(text)
    with raise_as_ours():
        for name, source in sources.items():
            if isinstance(source, ChangeRead):
                frames[name] = change_frame(spark, source.scan.wanting(source.columns))
            else:
                frames[name] = read_frame(
                    spark,
                    source.scan,
                    source.columns,
                    source.row_id,
                    source.where,
                    source.file_name,
                )
        try:
            return analysed(over_frames(spark, text, frames))
        except AnalysisException as error:
            if not str(error.getCondition()).startswith("UNRESOLVED_COLUMN"):
                raise
            unresolved = str((error.getMessageParameters() or {}).get("objectName"))
            names = [name for frame in frames.values() for name in frame.columns]
            names = [name for name in names if not name.startswith("__")]
            names += [column.name for column in own]
            if unresolved.replace("`", "").lower() in names:
                raise unknown_there(unresolved.replace("`", ""), first_line(str(error))) from error
            raise unresolved_column(unresolved, names) from error


def _columns(source: TableRead | ChangeRead) -> tuple[Column, ...]:
    """All columns that a query may name, but for virtual ones."""
    if isinstance(source, ChangeRead):
        return tuple(source.scan.columns)
    return (*source.scan.columns, *source.scan.partition_columns)
