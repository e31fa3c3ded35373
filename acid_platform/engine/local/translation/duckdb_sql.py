"""Types of Spark's SQL in DuckDB's, and errors of a computation there.

A type is a `HiveType`; VOID stands for Spark's type of NULL. A timestamp is in UTC.
An expression that has no value calls DuckDB's `error` with a text that starts with the kind of the
error; DuckDB's own errors are those of a number that is out of range.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import duckdb
import pyarrow as pa
from sqlglot import exp

from acid_platform.errors import (
    AcidError,
    InvalidExpression,
    NeedsSpark,
    OutOfMemory,
    WrongType,
)
from acid_platform.layout.types import FLOATING, INTEGRAL, HiveType, of_value
from acid_platform.predicates.analysis import MOST_DIGITS, digits_of_type

VOID = HiveType("void")
BOOLEAN = HiveType("boolean")
TINYINT = HiveType("tinyint")
SMALLINT = HiveType("smallint")
INT = HiveType("int")
BIGINT = HiveType("bigint")
FLOAT = HiveType("float")
DOUBLE = HiveType("double")
STRING = HiveType("string")
BINARY = HiveType("binary")
DATE = HiveType("date")
TIMESTAMP = HiveType("timestamp")
NTZ = HiveType("timestamp_ntz")
VARIANT = HiveType("variant")
"""Which no table has here: values on the way to others. A variant is the text of its JSON."""

NUMERIC = (*INTEGRAL, *FLOATING, "decimal")
_DUCKDB = {
    "void": '"NULL"',
    "timestamp_ntz": "TIMESTAMP",
    "variant": "VARCHAR",
    "int": "INTEGER",
    "string": "VARCHAR",
    "binary": "BLOB",
}
"""The types that have another name in DuckDB."""


def decimal(precision: int, scale: int) -> HiveType:
    return HiveType("decimal", (precision, scale))


@dataclass(frozen=True, slots=True)
class Constant:
    """An expression without columns that may have no value."""

    sql: str
    node: exp.Expr


@dataclass(slots=True)
class Translation:
    """What is known of a statement while it is translated."""

    left: int
    """How many characters of SQL it may still make."""
    varying: int = 0
    """How many columns, aggregates and subqueries it has so far: what holds one is no constant."""
    stored: int = 0
    """How many columns of rows it has so far from which numbers are computed, whatever the other
    operands: Spark's optimizer makes no constant of such a number."""
    told_fields: bool = False
    """Whether it has made a struct of a CHAR, VARCHAR or the like. Spark says the type of such a
    field wherever it takes one out of a struct, and nobody else knows it."""
    constants: list[Constant] = field(default_factory=list)
    """The largest ones outside of branches. Spark computes them before it reads any row, so that
    the statement fails without a row, too, if one has no value."""


_TRANSLATION: ContextVar[Translation | None] = ContextVar("statement", default=None)
_ROOM_FOR_ANY, _ROOM_FOR_EACH = 500_000, 50
"""Characters of SQL, those of all its parts together: for a statement, and for each of its own."""


@contextmanager
def in_proportion(written: str) -> Iterator[Translation]:
    """A block that makes SQL in proportion to what is written, or raises NeedsSpark (P78).

    An operand stands several times in the SQL of a division, a cast or a CASE: each level of such
    calls multiplies, so that 100 characters would make more than memory holds.
    """
    statement = _TRANSLATION.get()
    if statement is not None:
        yield statement
        return
    statement = Translation(_ROOM_FOR_ANY + _ROOM_FOR_EACH * len(written))
    before = _TRANSLATION.set(statement)
    try:
        yield statement
    finally:
        _TRANSLATION.reset(before)


def translating() -> Translation:
    """The statement that is being translated."""
    return _TRANSLATION.get() or Translation(_ROOM_FOR_ANY)


def take_room(characters: int) -> None:
    """Called with the length of each part of the SQL, and of each name of a column.

    Raises NeedsSpark if the statement has no room for it.
    """
    statement = translating()
    statement.left -= characters
    if statement.left < 0:
        raise NeedsSpark("an expression that is nested so deeply that its SQL becomes too long")


def array_of(kind: HiveType) -> HiveType:
    if VOID in kind.walk():
        raise NeedsSpark("an array of NULLs without a type")
    return HiveType("array", (), (("element", kind),))


def keeps_zeros(kind: HiveType) -> bool:
    """Whether -0.0 stays -0.0 where DuckDB picks the value of one row: a nested one it keeps as a
    key for sorting."""
    return not kind.nested or not any(part.kind in FLOATING for part in kind.walk())


def ordered(kind: HiveType) -> bool:
    """Whether both engines order the values of the type alike."""
    return not kind.nested and kind not in (VOID, VARIANT)


def spark_name(hive: HiveType) -> str:
    """The type as Spark's messages print it."""
    return str(of_value(hive))


def duckdb_type(hive: HiveType) -> str:
    """The type in DuckDB's SQL."""
    match hive.kind:
        case "decimal":
            return f"DECIMAL({hive.sizes[0]},{hive.sizes[1]})"
        case "array":
            return f"{duckdb_type(hive.children[0][1])}[]"
        case "map":
            return f"MAP({', '.join(duckdb_type(child) for _, child in hive.children)})"
        case "struct":
            fields = (f"{identifier(name)} {duckdb_type(child)}" for name, child in hive.children)
            return f"STRUCT({', '.join(fields)})"
    kind = of_value(hive).kind
    return _DUCKDB.get(kind, kind.upper())


def identifier(name: str) -> str:
    """A name in DuckDB's SQL."""
    return '"' + name.replace('"', '""') + '"'


def text(value: str) -> str:
    """A string literal in DuckDB's SQL."""
    return "'" + value.replace("'", "''") + "'"


def as_decimal(hive: HiveType) -> HiveType | None:
    """The decimal type that holds all values of a decimal or whole type; None for others."""
    digits = digits_of_type(hive)
    return None if digits is None else decimal(digits.whole + digits.scale, digits.scale)


def wider(left: HiveType, right: HiveType) -> HiveType | None:
    """The type to which Spark casts both sides (ANSI); None if there is none.

    Strings are left out: with another type, Spark casts the string.
    """
    if left == right or right == VOID:
        return left
    if left == VOID:
        return right
    kinds = {left.kind, right.kind}
    if kinds <= set(INTEGRAL):
        return max(left, right, key=lambda kind: INTEGRAL.index(kind.kind))
    if kinds <= set(NUMERIC):
        return DOUBLE if kinds & set(FLOATING) else _wider_decimal(left, right)
    if kinds == {"date", "timestamp"}:
        return TIMESTAMP
    names = [name for name, _ in left.children]
    if not left.nested or left.kind != right.kind or names != [n for n, _ in right.children]:
        return None
    children = []
    for (name, a), (_, b) in zip(left.children, right.children, strict=True):
        if (common := wider(a, b)) is None:
            return None
        children.append((name, common))
    return HiveType(left.kind, (), tuple(children))


def widest(kinds: Iterable[HiveType]) -> HiveType | None:
    """The common type of all of them, as for CASE and COALESCE."""
    common: HiveType | None = VOID
    for kind in kinds:
        common = None if common is None else wider(common, kind)
    return common


def _wider_decimal(left: HiveType, right: HiveType) -> HiveType:
    """All digits before the point; of those behind it what then has room, so that values round."""
    a, b = as_decimal(left), as_decimal(right)
    assert a is not None and b is not None
    scale = max(a.sizes[1], b.sizes[1])
    whole = max(a.sizes[0] - a.sizes[1], b.sizes[0] - b.sizes[1])
    return decimal(min(MOST_DIGITS, whole + scale), min(scale, MOST_DIGITS - whole))


_OURS = re.compile(
    r"\[(WRONG_TYPE|TOO_LONG|NO_VALUE|NEEDS_SPARK)\] ([^\n]*?)(?:' to INT8)?(?:\n|$)"
)
_CALLS = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|\berror\(|[()]")
"""Where calls of `error` begin and end, and what may hold such characters."""
_OUT_OF_RANGE = re.compile(r"(?:Conversion|Out of Range) Error: ([^\n]*)")
_SEVERAL_ROWS = "More than one row returned by a subquery"
_NO_ROOM = re.compile(r"(Out of Memory|IO) Error: ([^\n]*)")
_INTERNAL = re.compile(r"((?:INTERNAL|FATAL) Error: [^\n]*)")
"""What DuckDB's errors of these kinds begin with."""


def wrong_type(reason: str, value: str = "") -> str:
    """SQL that fails with WrongType; `reason` as Spark words it, with its code in brackets, and {}
    for what the SQL `value` computes."""
    return _failure("WRONG_TYPE", reason, value)


def no_value(reason: str, value: str = "") -> str:
    """SQL that fails with InvalidExpression; as `wrong_type`."""
    return _failure("NO_VALUE", reason, value)


def needs_spark(reason: str) -> str:
    """SQL that fails with NeedsSpark, for a value that only Spark computes as Spark does."""
    return _failure("NEEDS_SPARK", reason)


def too_long(prefix: str, number: str) -> str:
    """SQL that fails with WrongType: `number` is the SQL of the length of a text."""
    return _failure("TOO_LONG", f"{prefix}{{}} characters", number)


_SHOWN = 100
"""Characters of a value that an error shows."""


def _failure(kind: str, reason: str, value: str = "") -> str:
    if not value:
        return f"error({text(f'[{kind}] {reason}')})"
    before, _, after = reason.partition("{}")
    shown = f"left(replace(CAST({value} AS VARCHAR), chr(10), ' '), {_SHOWN})"
    return f"error({text(f'[{kind}] {before}')} || coalesce({shown}, 'NULL') || {text(after)})"


def not_volatile(sql: str) -> str:
    """SQL that fails alike, for the keys of a window: DuckDB takes no call of `error` there."""
    return _with_errors(sql, lambda reason: f"CAST({reason} AS TINYINT)")


def may_fail(sql: str) -> bool:
    """Whether SQL of ours may have no value for some rows; what is not sure may."""
    return _FAILING.search(sql) is not None


_FAILING = re.compile(r"error\(|acid_|CAST\((?!')| [-+*] ")


def without_errors(sql: str) -> str:
    """SQL that gives NULL where the value is wrong."""
    wrong = "'[WRONG_TYPE]"
    return _with_errors(
        sql, lambda reason: "NULL" if reason.startswith(wrong) else f"error({reason})"
    )


def _with_errors(sql: str, instead: Callable[[str], str]) -> str:
    """The SQL with something else in place of each call of `error`, by the SQL of its reason."""
    outer: list[list[str]] = []
    pieces, opened, at = list[str](), list[bool](), 0
    for token in _CALLS.finditer(sql):
        pieces.append(sql[at : token.start()])
        at = token.end()
        if token[0] == "error(":
            outer.append(pieces)
            pieces = []
            opened.append(True)
        elif token[0] == ")" and opened.pop():
            reason, pieces = "".join(pieces), outer.pop()
            pieces.append(instead(reason))
        else:
            pieces.append(token[0])
            if token[0] == "(":
                opened.append(False)
    return "".join(pieces) + sql[at:]


def is_internal(error: BaseException) -> bool:
    """Whether DuckDB failed inside, or says that it did before: such a database is of no use."""
    return _INTERNAL.match(str(error)) is not None


ROUNDED = "/* rounded */"
"""Stands in SQL that computes a decimal for which DuckDB may lack the room that Spark has."""


def translated(error: BaseException, sql: str = "") -> AcidError | None:
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
        if ROUNDED in sql:
            return NeedsSpark(f"a decimal for which DuckDB lacks the room ({beyond[1]})")
        return _out_of_range(beyond[1])
    if _SEVERAL_ROWS in str(error):
        return InvalidExpression(
            "[SCALAR_SUBQUERY_TOO_MANY_ROWS] a subquery that is a value has several rows; choose"
            " one by an aggregate, or by ORDER BY … LIMIT 1"
        )
    if lacks := _NO_ROOM.search(str(error)):
        on_disk = lacks[1] == "IO" or "offload" in lacks[2] or "temporary directory" in str(error)
        more = "free space, or let TMPDIR name a larger directory, and run it again"
        fewer = "let the statement read fewer rows or columns, or use engine='spark'"
        where, next_step = ("on disk", more) if on_disk else ("in memory", fewer)
        return OutOfMemory(
            f"DuckDB has no room for what this statement keeps {where}: {lacks[2]}; {next_step}"
        )
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
def raise_as_ours(sql: str = "") -> Iterator[None]:
    """Translates DuckDB's errors of this SQL into the platform's errors if one fits."""
    try:
        yield
    except duckdb.Error as error:
        ours = translated(error, sql)
        if ours is None:
            raise
        raise ours from error
