"""Spark's exceptions as the platform's: what the caller can act on, under a name of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.errors.exceptions import captured
from pyspark.sql import DataFrame, SparkSession

from acid_platform.errors import (
    AcidError,
    InvalidExpression,
    SnapshotExpired,
    UnknownColumn,
    UnsupportedLayout,
    WrongType,
)

_MISSING_FILE = re.compile(r"FILE_NOT_EXIST|FileNotFoundException|does not exist")
_ACID_FILE = re.compile(r"\S*/(?:base|delta|delete_delta)_\d+\S*/bucket_\d+\w*")
_VALUE_ERROR = re.compile(
    r"\[(?:CAST_OVERFLOW|CAST_INVALID_INPUT|NUMERIC_VALUE_OUT_OF_RANGE|ARITHMETIC_OVERFLOW"
    r"|NUMERIC_OUT_OF_SUPPORTED_RANGE|INVALID_INLINE_TABLE\.FAILED_SQL_EXPRESSION_EVALUATION)"
    r"[^\]]*\][^\n]*"
)


_NO_SOURCE = re.compile(r"AVRO_DATA_SOURCE_NOT_ENABLED")
_TEXT_LOST = re.compile(r"\[TEXT_VALUE_LOST\] ([^\n]*)")

OTHER_PARTITION = "[OTHER_PARTITION]"
"""Begins the message of a job that met a row of another partition than it was to write."""
_OTHER_PARTITION = re.compile(r"\[OTHER_PARTITION\] ([^\n]*?)(?: SQLSTATE: \w+)?$", re.MULTILINE)


def translated(error: BaseException) -> AcidError | None:
    """The platform's error that a Spark exception stands for, or None."""
    text = str(error)
    if _MISSING_FILE.search(text) and (path := _ACID_FILE.search(text)):
        return SnapshotExpired(
            f"{path[0]} is gone: the read lease of this DataFrame has ended and the"
            " Cleaner removed what newer snapshots do not need; call read() again"
        )
    if _NO_SOURCE.search(text):
        return UnsupportedLayout(
            "avro files need a package that Spark does not bring: put"
            " org.apache.spark:spark-avro_2.13 of your Spark version into spark.jars.packages")
    if lost := _TEXT_LOST.search(text):
        return WrongType(f"{lost[1]}; store the table as json, orc or parquet")
    if other := _OTHER_PARTITION.search(text):
        return WrongType(f"{other[1]}; leave the column out, or write without partition=")
    if value := _VALUE_ERROR.search(text):
        return WrongType(f"a value does not fit its column: {value[0]}")
    if isinstance(error, ParseException):
        return InvalidExpression(f"not a SQL expression: {_first_line(text)}")
    if isinstance(error, AnalysisException):
        if "UNRESOLVED_COLUMN" in text:
            return UnknownColumn(_first_line(text))
        return InvalidExpression(_first_line(text))
    return None


def _first_line(text: str) -> str:
    return next((line for line in text.splitlines() if line.strip()), "no text")


@contextmanager
def raise_as_ours() -> Iterator[None]:
    """Inside the block, Spark's exceptions are raised as the platform's where one fits."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        ours = translated(error)
        if ours is None:
            raise
        raise ours from error


def is_connect(spark: SparkSession) -> bool:
    """Whether the session is a client of a Spark Connect server."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def analysed(frame: DataFrame) -> DataFrame:
    """The same frame; its errors are raised now, as a classic session does by itself.

    Spark Connect looks at a frame only when it is run.
    """
    if is_connect(frame.sparkSession):
        _ = frame.schema
    return frame


def install_expiry(spark: SparkSession) -> None:
    """Make every later Spark action raise SnapshotExpired where a read lease has ended (P12).

    A DataFrame outlives the call that made it and any frame may be derived from it, so the only
    place that sees all actions is PySpark's own conversion of JVM and server exceptions. Anything
    but a vanished ACID file passes through unchanged. Calling this again changes nothing.
    """
    module: Any = captured
    if is_connect(spark):
        from pyspark.sql.connect.client import core  # needs grpc: only where Connect is in use

        module = core
    original = module.convert_exception
    if getattr(original, "_acid_platform", False):
        return

    def convert(*args: Any, **kwargs: Any) -> BaseException:
        converted: BaseException = original(*args, **kwargs)
        ours = translated(converted)
        return ours if isinstance(ours, SnapshotExpired) else converted

    convert._acid_platform = True  # type: ignore[attr-defined]
    module.convert_exception = convert
