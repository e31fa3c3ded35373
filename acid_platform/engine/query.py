"""A SELECT over scans: each placeholder of the text is one frame, nothing else is visible.

Frames are handed to Spark as arguments of the statement, so that no view is left behind and none
can serve a newer snapshot (P18).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from acid_platform.engine.failures import analysed, raise_as_ours
from acid_platform.engine.scan import TableScan, read_frame
from acid_platform.errors import AcidError, InvalidExpression, UnknownColumn


def run_query(
    spark: SparkSession, text: str, sources: Mapping[str, tuple[TableScan, bool]]
) -> DataFrame:
    """`sources`: placeholder → scan, and whether its row__id is read.

    Raises UnknownColumn with the nearest name there is, InvalidExpression.
    """
    frames: dict[str, Any] = {
        name: read_frame(spark, scan, row_id=row_id) for name, (scan, row_id) in sources.items()
    }
    if frames:  # with arguments, Spark takes every brace for one of them
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
            known = [name for frame in frames.values() for name in frame.columns]
            raise unknown_column(wanted, known) from error


def unknown_column(wanted: str, known: list[str]) -> UnknownColumn:
    """`wanted` as Spark spells it, such as "`t`.`nmae`"."""
    plain = wanted.replace("`", "")
    near = difflib.get_close_matches(plain.rpartition(".")[2].lower(), known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"columns are {', '.join(sorted(set(known)))}"
    return UnknownColumn(f"there is no column {plain}; {hint}")


def fetch(frame: DataFrame, limit: int | None = None) -> pa.Table:
    """All rows of a query, or the first `limit`. Raises AcidError for what fails on the way."""
    with expression_errors():
        return (frame if limit is None else frame.limit(limit)).toArrow()


@contextmanager
def expression_errors() -> Iterator[None]:
    """Errors of a running query, such as a division by zero, as InvalidExpression."""
    try:
        with raise_as_ours():
            yield
    except AcidError:
        raise
    except PySparkException as error:
        line = next((one for one in str(error).splitlines() if one.strip()), "no text")
        raise InvalidExpression(f"the query failed: {line}") from error
