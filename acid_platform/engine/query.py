"""A SELECT over scans: each placeholder in the text is a frame, and nothing else is visible.

Spark gets the frames as arguments of the statement, so that no view is left behind, and no view can
refer to a newer snapshot (P18).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from acid_platform.engine.failures import analysed, raise_as_ours
from acid_platform.engine.input_rows import column_of
from acid_platform.engine.scan import TableScan, read_frame
from acid_platform.errors import AcidError, InvalidExpression, UnknownColumn
from acid_platform.layout.types import Column


@dataclass(frozen=True, slots=True)
class SourceRead:
    """What a query reads of a table; `columns` None: all. The scan applies `where`."""

    scan: TableScan
    columns: tuple[str, ...] | None = None
    where: str | None = None
    row_id: bool = False
    file_name: bool = False


Sources = Mapping[str, SourceRead]
"""By placeholder."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A predicate that also reads other tables: `SELECT * FROM <target> AS … WHERE …`.

    `target` and the keys of `sources` are placeholders in `text`. `pruning`: the part of the
    predicate that only reads the table itself.
    """

    text: str
    target: str
    sources: Sources
    pruning: str | None = None


_NO_FRAMES: Mapping[str, DataFrame] = MappingProxyType({})


def run_query(
    spark: SparkSession, text: str, sources: Sources, given: Mapping[str, DataFrame] = _NO_FRAMES
) -> DataFrame:
    """The result of `text` over its `sources`, and over the frames in `given` by placeholder.

    Raises UnknownColumn, which suggests the nearest name, InvalidExpression.
    """
    frames: dict[str, Any] = dict(given)
    with raise_as_ours():
        for name, one in sources.items():
            frames[name] = read_frame(
                spark, one.scan, one.columns, one.row_id, one.where, one.file_name
            )
    if frames:  # with arguments, Spark treats every brace as a placeholder
        text = text.replace("{", "{{").replace("}", "}}")
        for name in sorted(frames, key=len, reverse=True):
            text = text.replace(name, f"{{{name}}}")
    with raise_as_ours():
        try:
            return analysed(spark.sql(text, **frames))
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
                column.name
                for source in sources.values()
                for column in (*source.scan.columns, *source.scan.partition_columns)
            ]
            raise unresolved_column(wanted, known) from error


def unresolved_column(wanted: str, known: list[str]) -> UnknownColumn:
    """The error for a name as Spark spells it, such as "`t`.`nmae`"."""
    plain = wanted.replace("`", "")
    near = difflib.get_close_matches(plain.rpartition(".")[2].lower(), known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"columns are {', '.join(sorted(set(known)))}"
    return UnknownColumn(f"there is no column {plain}; {hint}")


def columns_of(frame: DataFrame) -> tuple[Column, ...]:
    """The columns of a query's result as a table declares them. Raises InvalidDefinition."""
    return tuple(column_of(field) for field in frame.schema.fields)


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
