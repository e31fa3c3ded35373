"""Errors of a computation in DuckDB, which become the errors that Spark's would become.

An expression that has no value calls DuckDB's `error` with a text that starts with the kind of the
error. DuckDB's own errors are those of a number that is out of range.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb
import pyarrow as pa

from acid_platform.engine.local.translation.duckdb_types import text
from acid_platform.errors import AcidError, InvalidExpression, NeedsSpark, WrongType

_OURS = re.compile(r"\[(WRONG_TYPE|TOO_LONG|NO_VALUE|NEEDS_SPARK)\] ([^\n]*)")
_OUT_OF_RANGE = re.compile(r"(?:Conversion|Out of Range) Error: ([^\n]*)")
_INTERNAL = re.compile(r"((?:INTERNAL|FATAL) Error: [^\n]*)")
"""What DuckDB's errors of these kinds begin with."""


def wrong_type(reason: str) -> str:
    """SQL that fails with WrongType; `reason` as Spark words it, with its code in brackets."""
    return f"error({text(f'[WRONG_TYPE] {reason}')})"


def no_value(reason: str) -> str:
    """SQL that fails with InvalidExpression."""
    return f"error({text(f'[NO_VALUE] {reason}')})"


def needs_spark(reason: str) -> str:
    """SQL that fails with NeedsSpark, for a value that only Spark computes as Spark does."""
    return f"error({text(f'[NEEDS_SPARK] {reason}')})"


def too_long(prefix: str, number: str) -> str:
    """SQL that fails with WrongType: `number` is the SQL of the length of a text."""
    return f"error({text(f'[TOO_LONG] {prefix}')} || {number} || ' characters')"


def is_internal(error: BaseException) -> bool:
    """Whether DuckDB failed inside, or says that it did before: such a database is of no use."""
    return _INTERNAL.match(str(error)) is not None


def translated(error: BaseException) -> AcidError | None:
    """The platform's error for one of DuckDB's, or None if the computation itself went wrong."""
    if ours := _OURS.search(str(error)):
        kind, reason = ours.groups()
        match kind:
            case "WRONG_TYPE":
                return _out_of_range(reason)
            case "TOO_LONG":
                advice = "; cut it with left(value, length), or use a string column"
                return WrongType(f"{reason}{advice}")
            case "NO_VALUE":
                return InvalidExpression(
                    f"an expression has no value for a row: {reason}; leave such rows out by WHERE"
                    " or CASE, or let try_divide, get, try_cast or their like give NULL"
                )
        return NeedsSpark(f"{reason}, which needs Spark; use engine='spark'")
    if beyond := _OUT_OF_RANGE.match(str(error)):
        return _out_of_range(beyond[1])
    if broken := _INTERNAL.match(str(error)):
        return NeedsSpark(f"DuckDB failed inside: {broken[1]}; Spark may be able to do it")
    return None


def _out_of_range(reason: str) -> WrongType:
    return WrongType(
        f"a value does not fit its column: {reason}; cast it to a type that holds it, or let"
        " try_cast, try_add or their like give NULL"
    )


def batches_of(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """The batches, which DuckDB computes meanwhile.

    Raises duckdb.Error, which Arrow would raise as an OSError.
    """
    try:
        yield from reader
    except OSError as error:
        raise duckdb.Error(str(error)) from error


@contextmanager
def raise_as_ours() -> Iterator[None]:
    """Translates DuckDB's errors inside the block into the platform's errors if one fits."""
    try:
        yield
    except duckdb.Error as error:
        ours = translated(error)
        if ours is None:
            raise
        raise ours from error
