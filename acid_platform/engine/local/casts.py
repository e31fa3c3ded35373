"""CAST as Spark computes it under ANSI rules, in DuckDB's SQL."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from decimal import Decimal

from sqlglot import exp

from acid_platform.engine.local.duckdb_types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    FLOATING,
    INT,
    SMALLINT,
    STRING,
    TIMESTAMP,
    TINYINT,
    VOID,
    as_decimal,
    decimal,
    duckdb_type,
    of_value,
    spark_name,
    text,
)
from acid_platform.engine.local.failures import needs_spark, wrong_type
from acid_platform.errors import InvalidExpression, NeedsSpark
from acid_platform.layout.types import INTEGRAL, HiveType
from acid_platform.predicates import literals


@dataclass(frozen=True, slots=True)
class Typed:
    """DuckDB's SQL of a value, and its type in Spark."""

    sql: str
    type: HiveType
    fails: bool = False
    """Whether some rows may have no value, which is an error."""
    literal: int | Decimal | str | None = None
    """The value of a literal number or text."""
    declared: HiveType | None = None
    """The type of a column whose `type` does not tell it (`HiveType.is_told`), or of a field that
    is a CHAR or has one inside. The value of a CHAR has no trailing blanks here; those inside of a
    nested value have."""
    is_field: bool = False
    """Whether it is a field of a column, which a result shows as a string."""


def named_type(to: exp.DataType) -> HiveType:
    """The type that a CAST names. Raises NeedsSpark for one that is not translated."""
    types = {
        exp.DType.BOOLEAN: BOOLEAN,
        exp.DType.TINYINT: TINYINT,
        exp.DType.SMALLINT: SMALLINT,
        exp.DType.INT: INT,
        exp.DType.BIGINT: BIGINT,
        exp.DType.FLOAT: FLOAT,
        exp.DType.DOUBLE: DOUBLE,
        exp.DType.TEXT: STRING,
        exp.DType.DATE: DATE,
        exp.DType.TIMESTAMPTZ: TIMESTAMP,  # sqlglot's name for Spark's TIMESTAMP
        exp.DType.TIMESTAMPLTZ: TIMESTAMP,
    }
    if to.this == exp.DType.DECIMAL:
        sizes = [int(size.name) for size in to.expressions]
        precision, scale = (*sizes, *(10, 0)[len(sizes) :])
        if 1 <= precision <= 38 and 0 <= scale <= precision:
            return decimal(precision, scale)
    elif to.this in types and not to.expressions:
        return types[to.this]
    raise NeedsSpark(f"the type {to.sql('spark')}")


_EXACT_DOUBLE, _EXACT_FLOAT = 15, 7
"""Digits of a decimal up to which DuckDB's division by a power of ten gives the nearest number."""
_BITS = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}


def cast(value: Typed, target: HiveType) -> Typed:
    """The value in another type. Raises NeedsSpark for a cast that is not known to be equal."""
    source, wanted = value.type, of_value(target)
    if source == wanted:
        return value
    if (constant := _constant(value, wanted)) is not None:
        return constant
    done = replace(value, type=wanted, literal=None, declared=None)
    if source == VOID and not wanted.nested:
        return replace(done, sql=f"CAST(NULL AS {duckdb_type(wanted)})")
    match source.kind, wanted.kind:
        case ("boolean", ("tinyint" | "smallint" | "int" | "bigint" | "string")):
            return replace(done, sql=_plain(value, wanted))
        case (("tinyint" | "smallint" | "int" | "bigint"), "boolean"):
            return replace(done, sql=f"({value.sql} <> 0)")
        case (("tinyint" | "smallint" | "int" | "bigint"), ("float" | "double" | "string")):
            return replace(done, sql=_plain(value, wanted))
        case (
            ("tinyint" | "smallint" | "int" | "bigint" | "decimal"),
            ("tinyint" | "smallint" | "int" | "bigint" | "decimal"),
        ):
            whole = value
            if source.kind == "decimal" and wanted.kind != "decimal" and source.sizes[1]:
                cut = f"CASE WHEN {value.sql} < 0 THEN ceil({value.sql})"
                whole = replace(value, sql=f"{cut} ELSE floor({value.sql}) END")
            return replace(
                done, sql=_plain(whole, wanted), fails=value.fails or not _holds(wanted, source)
            )
        case ("decimal", "string"):
            return replace(done, sql=_plain(value, wanted))
        case ("decimal", ("float" | "double")):
            exact = _EXACT_DOUBLE if wanted == DOUBLE else _EXACT_FLOAT
            if source.sizes[0] > exact:  # DuckDB divides twice rounded numbers
                value = cast(value, STRING)
            return replace(done, sql=_plain(value, wanted))
        case ("float", "double"):
            return replace(done, sql=_plain(value, wanted))
        case ("double", "float"):
            return replace(done, sql=_narrowed(value.sql))
        case (("float" | "double"), ("tinyint" | "smallint" | "int" | "bigint")):
            return replace(done, sql=_truncated(cast(value, DOUBLE).sql, wanted), fails=True)
        case ("date", "timestamp") | ("timestamp", "date"):
            return replace(done, sql=_plain(value, wanted))
        case ("date" | "timestamp", "string"):
            return replace(done, sql=_dated(value, wanted))
        case ("string", kind) if kind in _TEXTS or kind in INTEGRAL:
            return replace(done, sql=_parsed(value, wanted), fails=True)
    raise NeedsSpark(f"CAST of {spark_name(source)} to {spark_name(wanted)}")


def _constant(value: Typed, wanted: HiveType) -> Typed | None:
    """A literal in another type, if that is plain; None leaves it to the cast of any value.

    Raises NeedsSpark for a text that only Spark may be able to read.
    """
    shown = duckdb_type(wanted)
    if isinstance(value.literal, str) and wanted in (DATE, TIMESTAMP):
        read = literals.date if wanted == DATE else literals.timestamp
        try:
            moment = read(value.literal, value.literal).isoformat()
        except InvalidExpression:
            raise NeedsSpark(f"CAST of {text(value.literal)} to {wanted}") from None
        return Typed(f"CAST({text(moment)} AS {shown})", wanted)
    if isinstance(value.literal, str) and wanted.kind in FLOATING:
        special = _SPECIAL.get(value.literal.strip(_BLANKS).lower())
        if special is not None:
            return Typed(f"CAST({text(special)} AS {shown})", wanted)
    if (
        isinstance(value.literal, str)
        and wanted.kind in (*FLOATING, "decimal")
        and not re.fullmatch(_TEXTS[wanted.kind], value.literal)
    ):
        raise NeedsSpark(f"CAST of {text(value.literal)} to {wanted}")
    if isinstance(value.literal, int | Decimal) and wanted.kind in (*INTEGRAL, "decimal"):
        whole = wanted.kind in INTEGRAL
        if whole and -(1 << _BITS[wanted.kind]) <= value.literal < 1 << _BITS[wanted.kind]:
            if value.literal == int(value.literal):
                return Typed(f"CAST({int(value.literal)} AS {shown})", wanted)
        elif not whole:
            digits = literals.digits_of_value(Decimal(value.literal))
            precision, scale = wanted.sizes
            if digits.whole <= precision - scale and digits.scale <= scale:
                written = text(
                    f"{value.literal:f}"
                    if isinstance(value.literal, Decimal)
                    else str(value.literal)
                )
                return Typed(f"CAST({written} AS {shown})", wanted)
    return None


def _plain(value: Typed, wanted: HiveType) -> str:
    return f"CAST({value.sql} AS {duckdb_type(wanted)})"


def _holds(wanted: HiveType, source: HiveType) -> bool:
    if wanted.kind in INTEGRAL and source.kind in INTEGRAL:
        return INTEGRAL.index(source.kind) <= INTEGRAL.index(wanted.kind)
    if wanted.kind in INTEGRAL:
        return False
    a, b = as_decimal(source), as_decimal(wanted)
    assert a is not None and b is not None
    whole = a.sizes[0] - a.sizes[1] + (a.sizes[1] > b.sizes[1])  # rounding may carry
    return whole <= b.sizes[0] - b.sizes[1]


def _narrowed(double: str) -> str:
    """A double as a float; what is too large becomes infinite, as in Java."""
    limit = "3.4028235677973366e38::DOUBLE"
    return (
        f"CASE WHEN {double} >= {limit} AND NOT isnan({double}) THEN 'inf'::FLOAT"
        f" WHEN {double} <= -{limit} THEN '-inf'::FLOAT ELSE CAST({double} AS FLOAT) END"
    )


def _truncated(double: str, wanted: HiveType) -> str:
    limit = 2.0 ** _BITS[wanted.kind]
    most = f"{limit!r}::DOUBLE"
    outside = f"isnan({double}) OR {double} >= {most} OR ceil({double}) < -{most}"
    top = ""
    if wanted == BIGINT:  # 2^63 is its greatest value, in Java
        top = f"WHEN {double} = {most} THEN 9223372036854775807 "
        outside = f"isnan({double}) OR {double} > {most} OR {double} < -{most}"
    failure = wrong_type(f"[CAST_OVERFLOW] a number does not fit {wanted}")
    return (
        f"CASE WHEN {outside} THEN {failure} {top}"
        f"ELSE CAST(trunc({double}) AS {duckdb_type(wanted)}) END"
    )


def _dated(value: Typed, wanted: HiveType) -> str:
    """Years beyond four digits look different in Spark."""
    return (
        f"CASE WHEN year({value.sql}) < 1 OR year({value.sql}) > 9999"
        f" THEN {needs_spark('the text of a date beyond the years 1 to 9999')}"
        f" ELSE {_plain(value, wanted)} END"
    )


_NUMBER = r"[+-]?(\d+\.?\d*|\.\d+)"
_TEXTS = {
    "boolean": r"(?i:t|true|y|yes|1|f|false|n|no|0)",
    "decimal": _NUMBER,
    "float": _NUMBER + r"([eE][+-]?\d{1,3})?",
    "double": _NUMBER + r"([eE][+-]?\d{1,3})?",
    "date": r"\d{4}-\d\d-\d\d",
    "timestamp": r"\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d(\.\d{1,6})?)?",
}
"""Texts that both engines read alike. Spark knows more forms of some; only Spark judges those."""
_SPECIAL = {
    "nan": "nan",
    **dict.fromkeys(("inf", "+inf", "infinity", "+infinity"), "inf"),
    **dict.fromkeys(("-inf", "-infinity"), "-inf"),
}
"""Texts that Spark reads as a double without digits, and DuckDB's names for them."""


def _parsed(value: Typed, wanted: HiveType) -> str:
    pattern = _TEXTS.get(wanted.kind, r"[+-]?\d+")
    stripped = rf"trim({value.sql}, {_CONTROLS})"
    failure = (
        wrong_type(f"[CAST_INVALID_INPUT] a text is no {wanted}")
        if wanted.kind in ("boolean", *INTEGRAL)
        else needs_spark(f"a text that may be a {wanted} in another form")
    )
    done = f"CAST({stripped} AS {duckdb_type(wanted)})"
    if wanted.kind == "boolean":
        done = f"(lower({stripped}) IN ('t', 'true', 'y', 'yes', '1'))"
    elif wanted.kind in FLOATING:  # DuckDB refuses what overflows
        done = f"TRY_CAST({stripped} AS {duckdb_type(wanted)})"
        done = f"coalesce({done}, {needs_spark('a number beyond the range of its type')})"
    elif wanted in (DATE, TIMESTAMP):
        done = f"coalesce(TRY_{done}, {wrong_type(f'[CAST_INVALID_INPUT] no {wanted}')})"
    matches = f"regexp_full_match({stripped}, '{pattern}')"
    return f"CASE WHEN {value.sql} IS NULL THEN NULL WHEN {matches} THEN {done} ELSE {failure} END"


_BLANKS = "".join(map(chr, range(33)))
_CONTROLS = " || ".join(f"chr({code})" for code in (*range(1, 33), 127))
"""What Spark strips from a text before it reads a value: blanks and control characters."""
