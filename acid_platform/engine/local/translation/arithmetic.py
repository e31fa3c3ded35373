"""Arithmetic with Spark's types of results, and its errors under ANSI rules."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from sqlglot import exp

from acid_platform.engine.local.translation.casts import Typed, cast, typed_as
from acid_platform.engine.local.translation.duckdb_sql import (
    BIGINT,
    DOUBLE,
    INT,
    NUMERIC,
    ROUNDED,
    VOID,
    as_decimal,
    decimal,
    duckdb_type,
    needs_spark,
    no_value,
    spark_name,
    text,
    wider,
)
from acid_platform.errors import NeedsSpark
from acid_platform.layout.types import FLOATING, INTEGRAL, HiveType
from acid_platform.predicates.analysis import MOST_DIGITS

OPERATORS: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.IntDiv: "DIV",
    exp.Mod: "%",
    exp.BitwiseAnd: "&",
    exp.BitwiseOr: "|",
    exp.BitwiseXor: "^",
}


_OF_JAVA = 34
"""Digits to which Spark rounds a decimal that changes its sign."""
_OF_64_BITS = 18
"""DuckDB computes a product of decimals in as many bits, and fails, unless a factor has more."""


def number(value: int | Decimal | float, written: str) -> Typed:
    """A literal number: its type is the narrowest of int, bigint, decimal; double with exponent."""
    if isinstance(value, float):
        return Typed(f"CAST({written} AS DOUBLE)", DOUBLE)
    if isinstance(value, Decimal):  # it has as many digits as are written
        exponent = value.as_tuple().exponent
        assert isinstance(exponent, int)
        scale = max(0, -exponent)
        whole = len(str(abs(int(value)))) if abs(value) >= 1 else 0
        kind = decimal(max(1, whole + scale), scale)
    elif -(1 << 31) <= value < 1 << 31:
        kind = INT
    else:
        kind = BIGINT if -(1 << 63) <= value < 1 << 63 else decimal(len(str(abs(value))), 0)
    return Typed(f"CAST({text(written)} AS {duckdb_type(kind)})", kind, literal=value)


def negated(value: Typed, sign: str = "-") -> Typed:
    kind = value.type.kind
    if kind not in NUMERIC:
        raise NeedsSpark(f"{sign} of {spark_name(value.type)}")
    result = typed_as(f"{sign}{value.sql}", value.type)
    if kind != "decimal" or value.type.sizes[0] <= _OF_JAVA:
        return result
    most = text(f"{Decimal(10) ** (_OF_JAVA - value.type.sizes[1]):f}")
    unsure = needs_spark(f"{sign} of a decimal that Spark would round")
    rounds = f"abs({value.sql}) >= CAST({most} AS {duckdb_type(value.type)})"
    return replace(result, sql=f"(CASE WHEN {rounds} THEN {unsure} ELSE {result.sql} END)")


def absolute(value: Typed) -> Typed:
    return negated(replace(value, sql=f"({value.sql})"), "abs")


def binary(node: type[exp.Expr], left: Typed, right: Typed) -> Typed:
    """`left + right` and so on. Raises NeedsSpark for types that are not known to be equal."""
    operator = OPERATORS[node]
    kinds = {left.type.kind, right.type.kind}
    if not kinds <= {*NUMERIC, VOID.kind} or kinds == {VOID.kind}:
        raise _unknown(operator, left, right)
    left, right = _like(left, right), _like(right, left)
    if operator in "&|^":
        kind = wider(left.type, right.type)
        if kind is None or kind.kind not in INTEGRAL:
            raise _unknown(operator, left, right)
        a, b = cast(left, kind).sql, cast(right, kind).sql
        bits = f"xor({a}, {b})" if operator == "^" else f"({a} {operator} {b})"
        return typed_as(f"{bits}", kind)
    kinds = {left.type.kind, right.type.kind}
    if "decimal" in kinds and not kinds & set(FLOATING):
        return _of_decimals(operator, left, right)
    kind = wider(left.type, right.type)
    assert kind is not None
    match operator:
        case "+" | "-" | "*":
            sql = f"({cast(left, kind).sql} {operator} {cast(right, kind).sql})"
            if kind.kind in INTEGRAL:  # else DuckDB makes `a = 5 - b` of `a + b = 5`, and sum(a) +
                sql = f"(+{sql})"  # count(a) * b of sum(a + b): neither overflows
            return Typed(sql, kind)
        case "/":
            return _guarded("/", left, right, DOUBLE, DOUBLE)
        case "DIV" if kind.kind in INTEGRAL:
            return _guarded("//", left, right, BIGINT, BIGINT)
        case "%":
            return _guarded("%", left, right, kind, kind)
    raise _unknown(operator, left, right)


def _like(value: Typed, other: Typed) -> Typed:
    """NULL in the other's type; a literal whole number beside a decimal with its own digits."""
    if value.type == VOID:
        return cast(value, other.type)
    if isinstance(value.literal, int) and other.type.kind == "decimal":
        return cast(value, decimal(len(str(abs(value.literal))), 0))
    return value


def _guarded(operator: str, left: Typed, right: Typed, same: HiveType, kind: HiveType) -> Typed:
    """A quotient or remainder of the two as values of one type, `same`."""
    harmless = isinstance(right.literal, int) and right.literal not in (0, -1)
    left, right = cast(left, same), cast(right, same)
    result = f"({left.sql} {operator} {right.sql})"
    if kind.kind == "decimal":
        result = f"CAST({result} AS {duckdb_type(kind)})"
    if harmless:
        return Typed(result, kind)
    what = "Remainder" if operator == "%" else "Division"
    code = "REMAINDER_BY_ZERO" if operator == "%" else "DIVIDE_BY_ZERO"
    failure = no_value(f"[{code}] {what} by zero")
    zero = f"{right.sql} = 0 AND {left.sql} IS NOT NULL"
    null = f"WHEN {left.sql} IS NULL THEN NULL"
    if operator == "%" and kind.kind in INTEGRAL:  # of the least number, DuckDB's overflows
        null += f" WHEN {right.sql} = -1 THEN 0"
    return Typed(f"(CASE WHEN {zero} THEN {failure} {null} ELSE {result} END)", kind)


def _of_decimals(operator: str, left: Typed, right: Typed) -> Typed:
    """The exact result, rounded to Spark's type; what DuckDB can't hold meanwhile is an error."""
    a, b = as_decimal(left.type), as_decimal(right.type)
    assert a is not None and b is not None
    (p1, s1), (p2, s2) = a.sizes, b.sizes
    left, right = cast(left, a), cast(right, b)
    if operator in "+-":
        scale = max(s1, s2)
        precision = max(p1 - s1, p2 - s2) + scale + 1
        kind, exact = _adjusted(precision, scale), decimal(min(MOST_DIGITS, precision), scale)
        x, y = cast(left, exact).sql, cast(right, exact).sql
        return Typed(f"CAST({x} {operator} {y} AS {duckdb_type(kind)}){_mark(precision)}", kind)
    if operator == "*" and s1 + s2 <= MOST_DIGITS:
        kind = _adjusted(p1 + p2 + 1, s1 + s2)
        factor = cast(left, decimal(min(MOST_DIGITS, p1 + p2 + 1), s1))
        product = f"CAST({factor.sql} * {right.sql} AS {duckdb_type(kind)})"
        return Typed(product + _mark(p1 + p2 + 1), kind)
    if operator == "/" and (ratio := quotient_type(a, b)) is not None:
        return _divided(left, right, ratio)
    if operator == "%" and max(p1 - s1, p2 - s2) + max(s1, s2) <= MOST_DIGITS:
        kind = decimal(min(p1 - s1, p2 - s2) + max(s1, s2), max(s1, s2))
        same = decimal(max(p1 - s1, p2 - s2) + max(s1, s2), max(s1, s2))
        return _guarded("%", left, right, same, kind)
    raise _unknown(operator, left, right)


def _adjusted(precision: int, scale: int) -> HiveType:
    """Spark's type for so many digits: if there are too many, it gives up some of the fraction."""
    if precision <= MOST_DIGITS:
        return decimal(precision, scale)
    return decimal(MOST_DIGITS, max(MOST_DIGITS - (precision - scale), min(scale, 6)))


def _mark(digits: int) -> str:
    """What marks a value that may need so many digits on the way."""
    return ROUNDED if digits > MOST_DIGITS else ""


def _divided(left: Typed, right: Typed, kind: HiveType) -> Typed:
    scale = kind.sizes[1]
    shift = 10 ** (scale - left.type.sizes[1] + right.type.sizes[1])
    digits = f"({unscaled(left.sql, left.type)} * {shift}::HUGEINT)"
    divisor = unscaled(right.sql, right.type)
    cases = f"WHEN {left.sql} IS NULL THEN NULL"
    if right.type.sizes[0] > MOST_DIGITS - scale:
        unsure = needs_spark("a quotient that Spark rounds twice")
        large = f"abs({divisor}) >= {10 ** (MOST_DIGITS - scale)}::HUGEINT"
        cases += f" WHEN {large} THEN {unsure}"
    room = max(
        len(str(shift)) + left.type.sizes[0], *(sum(side.type.sizes) for side in (left, right))
    )
    result = quotient(digits, divisor, kind) + _mark(room)
    cases += f" WHEN {right.sql} <> 0 THEN {result}"
    failure = no_value("[DIVIDE_BY_ZERO] Division by zero")
    cases += f" WHEN {right.sql} = 0 THEN {failure}"
    return Typed(f"(CASE {cases} END)", kind)


def _unknown(operator: str, left: Typed, right: Typed) -> NeedsSpark:
    return NeedsSpark(f"{spark_name(left.type)} {operator} {spark_name(right.type)}")


# --- dividing decimals exactly, half away from zero: DuckDB divides them as doubles ---------------


def quotient_type(left: HiveType, right: HiveType) -> HiveType | None:
    """Spark's type of a quotient; None if DuckDB lacks room for it."""
    (p1, s1), (p2, s2) = left.sizes, right.sizes
    scale = max(6, s1 + p2 + 1)
    kind = _adjusted(p1 - s1 + s2 + scale, scale)
    return kind if kind.sizes[1] >= s1 - s2 else None


def mean_type(kind: HiveType) -> HiveType | None:
    """Spark's type of an average, likewise."""
    precision, scale = kind.sizes
    if scale + 4 > MOST_DIGITS:
        return None
    return decimal(min(MOST_DIGITS, precision + 4), scale + 4)


def unscaled(sql: str, kind: HiveType) -> str:
    """The digits of a decimal as a whole number."""
    scale = kind.sizes[1]
    wide = sql
    if kind.sizes[0] + scale + 1 > _OF_64_BITS:
        wide = f"CAST({sql} AS DECIMAL({MOST_DIGITS},{scale}))"
    return f"CAST({wide} * CAST({10**scale} AS DECIMAL({scale + 1},0)) AS HUGEINT)"


def quotient(digits: str, divisor: str, kind: HiveType) -> str:
    """SQL of `digits / divisor`, whole numbers of at most 38 digits, as the digits of a decimal."""
    precision, scale = kind.sizes
    # Half of the divisor more, without its fraction, makes what is cut off a rounding.
    more = f"({digits} + sign({digits}) * (abs({divisor}) // 2))"
    whole = f"CAST({more} // {divisor} AS DECIMAL({MOST_DIGITS},0))"
    unit = f"CAST('0.{'0' * (scale - 1)}1' AS DECIMAL({scale},{scale}))"
    return f"CAST({whole} * {unit} AS DECIMAL({precision},{scale}))"
