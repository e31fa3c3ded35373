"""Translating Spark's exceptions into the platform's errors, which a caller can act on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

from py4j.protocol import Py4JJavaError
from pyarrow import ArrowException
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.errors.exceptions import captured
from pyspark.sql import DataFrame, SparkSession

from acid_platform import errors
from acid_platform.base.object_store import hadoop_fault, without_connector
from acid_platform.engine.spark.jvm import SOON, current
from acid_platform.errors import (
    AcidError,
    CorruptFile,
    InvalidExpression,
    PublicationFailed,
    SnapshotExpired,
    SparkMisconfigured,
    UnknownColumn,
    UnsupportedLayout,
    UnsupportedStatement,
    WrongType,
)
from acid_platform.formats.data_file import DELETE_EVENT, INSERT_EVENT, wrong_operation
from acid_platform.values.fitting import (
    constraint_violated,
    refuse_early_day,
    refuse_other_partition,
    refuse_timestamp,
    refuse_too_long,
)
from acid_platform.values.rows import spark_lost_behind
from acid_platform.values.stored_values import fine_times

_MISSING_FILE = re.compile(r"FILE_NOT_EXIST|FileNotFoundException|does not exist")
_ACID_FILE = re.compile(r"\S*/(?:base|delta|delete_delta)_\d+\S*/bucket_\d+\w*")
_VALUE_ERROR = re.compile(
    r"\[(?:CAST_OVERFLOW|CAST_INVALID_INPUT|NUMERIC_VALUE_OUT_OF_RANGE|(?:BINARY_)?ARITHMETIC_OVERFLOW"
    r"|NUMERIC_OUT_OF_SUPPORTED_RANGE|INVALID_INLINE_TABLE\.FAILED_SQL_EXPRESSION_EVALUATION)"
    r"[^\]]*\][^\n]*"
)
_DATA_EXCEPTION = re.compile(
    r"(\[[A-Z_.]+\] (?:(?! SQLSTATE:)[^\n])*)(?:\n[^\n]*)?\s+SQLSTATE: (?:2[12]\w{3}|23505|P0001)\b"
    r"|(Illegal sequence boundaries[^\n]*|The key array and value array of MapData[^\n]*)"
)
"""SQLSTATE classes 21 and 22, such as a division by zero, an index out of bounds or a subquery with
two rows; a key that a map has twice; the messages of `raise_error`; and two without a code."""

_RAISED = r"(?:\[USER_RAISED_EXCEPTION\] |RuntimeException: )"
"""Comes before the message of a `raise_error` that a row has reached. A plan or a code printed in
another message has our messages too, as literals that no row has reached."""

_QUOTED = re.compile(r"`[^`]+`(?:\.`[^`]+`)*")
_NO_SOURCE = re.compile(r"AVRO_DATA_SOURCE_NOT_ENABLED|^Failed to find data source: avro\.")
_UNREADABLE = re.compile(
    r"\[FAILED_READ_FILE\S*\] Encountered error while reading file"
    r" (\S+/(?:bucket_\d+\w*|\d+_\d+(?:_copy_\d+)?))\.\s"
)
_UNWRITTEN = re.compile(r"\[TASK_WRITE_FAILED\] [^\n]* (\S+?)\.\s")
_OURS = re.compile(rf"^{re.escape(errors.__name__)}\.(\w+): ([^\n]*)", re.MULTILINE)

_NO_MODULE = re.compile(
    r"No module named '((?:acid_platform|pyarrow|numpy|isal|pyorc)[\w.]*)'"
    r"|(PYTHON_VERSION_MISMATCH|Cannot run program \"[^\"]*python[^\"]*\")"
)
"""The Python of Spark's tasks lacks what our code in tasks needs, or is not there."""

_OUTER = re.compile(r"Cannot generate code for expression: outer\((\w+)")
"""Spark has analysed a column of the query around a subquery, and then can't evaluate it there."""

NO_INSERT, NO_DELETE = "[NO_INSERT]", "[NO_DELETE]"
"""Start the message of a job that found an event of another kind: its file and its operation."""
_WRONG_EVENT = re.compile(_RAISED + r"(\[NO_INSERT\]|\[NO_DELETE\]) ([^\n]+?): (-?\d+)")

_FINE_TIME = re.compile(_RAISED + r"\[FINE_TIME\] ([^\n]+?, column [^\n]+)")
"""The message of our format for a time that it does not cut."""

WIDE_ROWS = "[WIDE_ROWS]"
"""The message of a job that found a row that is too wide for large batches."""

OTHER_PARTITION, TOO_LONG, TEXT_LOST = "[OTHER_PARTITION]", "[TOO_LONG]", "[TEXT_VALUE_LOST]"
UNSTORED_TIME, UNSTORED_DAY, INEXACT = "[UNSTORED_TIME]", "[UNSTORED_DAY]", "[INEXACT]"
TOO_LARGE = "[TOO_LARGE]"
VIOLATED = "[CONSTRAINT_VIOLATED]"
"""Start the message of a job that found a row of another partition than it writes, a text too long
for its CHAR or VARCHAR column or unfit for a text file, a time or a day that ORC can't store, a
number that its column would round or that is beyond float, and a row that violates a constraint.
"""


def _refuse_lost_text(message: str) -> WrongType:
    return WrongType(f"{message}; store the table as json, orc or parquet")


def _refuse_too_large(message: str) -> WrongType:
    return WrongType(f"a value does not fit its column: {message}; give the column the type double")


def _refuse_inexact(message: str) -> WrongType:
    return WrongType(f"{message}; round it first, or give the column more digits")


_REFUSALS: dict[str, tuple[str, Callable[[str], AcidError]]] = {
    TEXT_LOST: (r"([^\n]*)", _refuse_lost_text),
    OTHER_PARTITION: (r"([^\n]*?)(?: SQLSTATE: \w+)?$", refuse_other_partition),
    TOO_LONG: (r"(column \S+ of \S+ takes \S+ a value has \d+ characters)", refuse_too_long),
    UNSTORED_TIME: (r"(column \S+ has [\d-]+ [\d:.]+)", refuse_timestamp),
    VIOLATED: (r"([^\n]*?)(?: SQLSTATE: \w+)?$", constraint_violated),
    TOO_LARGE: (r"(\S+ is too large for float)", _refuse_too_large),
    INEXACT: (r"(column [^\n]*? would be rounded)", _refuse_inexact),
    UNSTORED_DAY: (r"(column \S+ has [\d-]+)", refuse_early_day),
}
"""By the mark of a message: what it says, as a pattern, and the error."""


class RowsTooWide(AcidError):
    """A row does not fit into a large batch; its statement runs again with smaller ones."""


def of_files(error: BaseException) -> AcidError | None:
    """The error if a Spark exception means that a data file is gone, unreadable or no ACID file, or
    that the store of the files is to blame."""
    text = _message(error)
    if store := without_connector(text):
        return SparkMisconfigured(
            f"this Spark session can't read from {store.name}: it lacks Hadoop's connector; set"
            f" ACID_SPARK_PACKAGES={store.schemes[0]} before the session starts"
        )
    if isinstance(error, AnalysisException):  # before any row was read
        return _gone(text)
    if ours := _OURS.search(text):  # raised in a task
        kind: type[AcidError] = getattr(errors, ours[1], AcidError)
        return kind(ours[2])
    if gone := _gone(text):
        return gone
    if fault := hadoop_fault(text):
        return fault
    if wrong := _wrong_event(text):
        return wrong
    if fine := _FINE_TIME.search(text):
        return fine_times(_path(fine[1]), external=False)
    if unreadable := _UNREADABLE.search(text):
        inner = _innermost(error)
        if isinstance(inner, AcidError):
            return inner
        return _wrong_event(_cause(inner)) or CorruptFile(  # our own format finds wrong events
            f"{_path(unquote(unreadable[1]))} can't be read: {_cause(inner)};"
            " restore it or drop its transaction"
        )
    return None


def _gone(text: str) -> SnapshotExpired | None:
    if _MISSING_FILE.search(text) and (path := _ACID_FILE.search(text)):
        return SnapshotExpired(
            f"{path[0]} is gone: the read lease of this DataFrame has ended and the"
            " Cleaner removed files that newer snapshots don't need; call read() again"
        )
    return None


def _message(error: BaseException) -> str:
    """Spark's message. After the first line of an analysis error comes the query with
    its plan, which has the paths of files and the messages of tests on their rows: neither tells
    that anything is wrong with a file."""
    text = str(error)
    return first_line(text) if isinstance(error, AnalysisException) else text


def translated(error: BaseException) -> AcidError | None:
    """The platform's error for a Spark exception, or None if there is none."""
    if of_file := of_files(error):
        return of_file
    text = _message(error)
    if lacking := _NO_MODULE.search(text):
        return SparkMisconfigured(
            f"the Python of Spark's tasks can't run our code ({lacking[1] or lacking[2]}): let"
            " PYSPARK_PYTHON name an interpreter that has the same packages and the same version as"
            " this one on every executor, before the session starts"
        )
    if _NO_SOURCE.search(text):
        return UnsupportedLayout(
            "avro files need a package that Spark does not include: put"
            " org.apache.spark:spark-avro_2.13 of your Spark version into spark.jars.packages"
        )
    if re.search(_RAISED + re.escape(WIDE_ROWS), text):
        return RowsTooWide("a row is too wide for a large batch")
    for mark, (pattern, refuse) in _REFUSALS.items():
        if raised := re.search(f"{_RAISED}{re.escape(mark)} {pattern}", text, re.MULTILINE):
            return refuse(raised[1])
    if value := _VALUE_ERROR.search(text):
        return WrongType(
            f"a value does not fit its column: {_without_advice(value[0])}; cast it to"
            " a type that holds it, or let try_cast, try_add or their like give NULL"
        )
    if data := _DATA_EXCEPTION.search(text):
        reason = _without_advice(data[1] or data[2])
        return InvalidExpression(
            f"an expression has no value for a row: {reason}; leave such rows out"
            " by WHERE or CASE, or let try_divide, get, try_cast or their like give NULL"
        )
    if outer := _OUTER.search(text):
        return UnsupportedStatement(
            f"Spark can't evaluate column {outer[1]} of the query around in the ON of a subquery's"
            " join; write the condition in the subquery's WHERE"
        )
    if unwritten := _UNWRITTEN.search(text):
        return PublicationFailed(
            f"{_path(unwritten[1])} can't be written: {_cause(error)}; nothing"
            " was published: free space, or grant the permission, and run it again"
        )
    if isinstance(error, ParseException):
        return InvalidExpression(f"not a SQL expression: {text}")
    if isinstance(error, AnalysisException):
        return _unresolved(text, str(error))
    return None


def unknown_there(what: str, line: str) -> UnsupportedStatement:
    """The error for a column or an aggregate that Spark does not know in its clause: after GROUP
    BY, DISTINCT and HAVING that is often what SELECT has, and nothing else."""
    known = ", ".join(_quoted(line)[1:])
    return UnsupportedStatement(
        f"{what} is not known in that clause{f', where {known} are' if known else ''};"
        " compute the value in SELECT, give it a name by AS, and use that name"
    )


def _quoted(line: str) -> list[str]:
    return [name.replace("`", "") for name in _QUOTED.findall(line)]


def _unresolved(line: str, whole: str) -> AcidError:
    named, *others = _quoted(line) or [""]
    if "[UNSUPPORTED_EXPR_FOR_OPERATOR" in line and _is_of_order_by(whole):
        return unknown_there("an expression of ORDER BY", "")
    if "[UNRESOLVED_COLUMN" in line and named in others:
        return unknown_there(named, "")
    if "[UNRESOLVED_COLUMN" in line and named:
        close = f"; did you mean {', '.join(sorted(others))}?" if others else ""
        return UnknownColumn(f"there is no column {named!r} here{close}")
    if "[UNRESOLVED_ROUTINE" in line and named:
        return InvalidExpression(
            f"there is no function {named!r}; SHOW FUNCTIONS lists those of Spark"
        )
    return (UnknownColumn if "UNRESOLVED_COLUMN" in line else InvalidExpression)(line)


def _is_of_order_by(message: str) -> bool:
    """Whether an operator that can't have an expression sorts. Before Spark 4.3 only the plan tells
    that, in which columns have numbers."""
    plain = re.sub(r"#\d+L?", "", message)
    invalid = re.search(r'Invalid expressions: \["([^"]+)"', plain)
    sorts = f"Sort \\[.*{re.escape(invalid[1])}" if invalid else "Sort"
    return bool(re.search(rf" operator Sort |^\W*{sorts}", plain, re.MULTILINE))


def _without_advice(line: str) -> str:
    """Spark's message without its codes, and without the advice to turn off ANSI checks."""
    advice = r" (?:Use `?'?try_|Use the SQL function|If necessary|SQLSTATE)"
    return re.split(advice, line)[0].rstrip(" .")


def _innermost(error: BaseException) -> BaseException:
    """What PySpark names as the cause of the cause, and so on."""
    while (deeper := getattr(error, "_cause", None)) is not None:
        error = deeper
    return error


def _cause(error: BaseException) -> str:
    """The message of the innermost exception; a Connect client only gets the outermost."""
    inner: Any = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
    while inner is not None and inner.getCause() is not None:
        inner = inner.getCause()
    return first_line(str(error) if inner is None else str(inner.toString()))


def _path(uri: str) -> str:
    return uri.removeprefix("file:").replace("///", "/", 1)


def _wrong_event(text: str) -> AcidError | None:
    """The error of a file, if one of its events is no insert, or no delete."""
    raised = _WRONG_EVENT.search(text)
    if raised is None:
        return None
    mark, path, operation = raised[1], _path(raised[2]), int(raised[3])
    if operation >= 0:
        expected = INSERT_EVENT if mark == NO_INSERT else DELETE_EVENT
        return wrong_operation(operation, expected, path)
    if mark == NO_INSERT:
        return CorruptFile(
            f"{path} lacks ACID columns, or has an event without a row key; restore"
            " it or drop its transaction (acid fsck tells which file it is)"
        )
    return CorruptFile(
        f"{path} lacks ACID columns, or has an event without a key that is known; restore the"
        " file (acid fsck tells which it is)"
    )


def first_line(text: str) -> str:
    """The first line of a message that is not blank."""
    return next((line for line in text.splitlines() if line.strip()), "no text")


@contextmanager
def raise_as_ours() -> Iterator[None]:
    """Translates Spark's exceptions inside the block into the platform's errors if one fits.

    Raises SparkLost also if the JVM ends while a result comes from it, of which PySpark would take
    the beginning for the whole.
    """
    jvm = current()
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        ours = spark_lost_behind(error) or translated(error)
        if ours is None:
            raise
        raise ours from error
    except (EOFError, OSError, ArrowException):
        if jvm is not None:
            jvm.require_alive(SOON)
        raise
    if jvm is not None:
        jvm.require_alive()


def is_connect(spark: SparkSession) -> bool:
    """Whether the session is a client of a Spark Connect server."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def analysed(frame: DataFrame) -> DataFrame:
    """Returns the frame after its analysis errors were raised, as a classic session does by itself.

    Spark Connect analyses a frame only when it runs.
    """
    if is_connect(frame.sparkSession):
        _ = frame.schema
    return frame


def install_expiry(spark: SparkSession) -> None:
    """Makes every later Spark action raise SnapshotExpired if a read lease has ended (P12).

    Also CorruptFile or UnsupportedLayout if a data file can't be read. A DataFrame outlives the
    call that made it, and others may be derived from it, so only PySpark's own conversion of JVM
    and server exceptions sees all actions. Other exceptions pass through unchanged. Calling this
    again has no effect.
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
        return of_files(converted) or converted

    convert._acid_platform = True  # type: ignore[attr-defined]
    module.convert_exception = convert
