"""Arithmetic with Spark's types of results, and its errors under ANSI rules."""

from __future__ import annotations

from decimal import Decimal

from sqlglot import exp

from acid_platform.engine.local.casts import Typed, cast
from acid_platform.engine.local.decimals import quotient, quotient_type, unscaled
from acid_platform.engine.local.duckdb_types import (
    BIGINT,
    DOUBLE,
    FLOATING,
    INT,
    MOST_DIGITS,
    NUMERIC,
    VOID,
    as_decimal,
    decimal,
    duckdb_type,
    spark_name,
    wider,
)
from acid_platform.engine.local.failures import no_value
from acid_platform.errors import NeedsSpark
from acid_platform.layout.types import INTEGRAL, HiveType

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


def type_of_whole(value: int) -> HiveType:
    """The type of a literal whole number."""
    if -(1 << 31) <= value < 1 << 31:
        return INT
    return BIGINT if -(1 << 63) <= value < 1 << 63 else decimal(len(str(abs(value))), 0)


def type_of_decimal(value: Decimal) -> HiveType:
    """The type of a literal with a point, which has as many digits as are written."""
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int)
    scale = max(0, -exponent)
    whole = len(str(abs(int(value)))) if abs(value) >= 1 else 0
    return decimal(max(1, whole + scale), scale)


def too_long_to_negate(kind: HiveType) -> bool:
    """Whether Spark would round: its unary minus keeps 34 digits."""
    return kind.kind == "decimal" and kind.sizes[0] > 34


def negated(value: Typed) -> Typed:
    if value.type.kind not in NUMERIC or too_long_to_negate(value.type):
        raise NeedsSpark(f"- of {spark_name(value.type)}")
    fails = value.fails or value.type.kind in INTEGRAL
    return Typed(f"CAST(-{value.sql} AS {duckdb_type(value.type)})", value.type, fails)


def rounded(value: Typed, digits: object) -> Typed:
    """`round` of a decimal, half away from zero."""
    if value.type.kind != "decimal" or not isinstance(digits, int) or digits < 0:
        raise NeedsSpark(f"round of {spark_name(value.type)}")
    precision, scale = value.type.sizes
    kept = min(scale, digits)
    kind = decimal(min(MOST_DIGITS, precision - scale + 1 + kept), kept)
    if precision - scale + 1 + kept > MOST_DIGITS:
        raise NeedsSpark(f"round of {spark_name(value.type)}")
    return Typed(f"CAST({value.sql} AS {duckdb_type(kind)})", kind, value.fails)


def binary(node: type[exp.Expr], left: Typed, right: Typed) -> Typed:
    """`left + right` and so on. Raises NeedsSpark for types that are not known to be equal."""
    operator = OPERATORS[node]
    known = (*NUMERIC, VOID.kind)
    if (
        left.type.kind not in known
        or right.type.kind not in known
        or left.type == right.type == VOID
    ):
        raise _unknown(operator, left, right)
    left, right = _like(left, right), _like(right, left)
    fails = left.fails or right.fails
    if operator in "&|^":
        kind = wider(left.type, right.type)
        if kind is None or kind.kind not in INTEGRAL:
            raise _unknown(operator, left, right)
        a, b = cast(left, kind).sql, cast(right, kind).sql
        done = f"xor({a}, {b})" if operator == "^" else f"({a} {operator} {b})"
        return Typed(f"CAST({done} AS {duckdb_type(kind)})", kind, fails)
    if "decimal" in (left.type.kind, right.type.kind) and not {
        left.type.kind,
        right.type.kind,
    } & set(FLOATING):
        return _of_decimals(operator, left, right)
    kind = wider(left.type, right.type)
    assert kind is not None
    match operator:
        case "+" | "-" | "*":
            done = f"({cast(left, kind).sql} {operator} {cast(right, kind).sql})"
            return Typed(done, kind, fails or kind.kind in INTEGRAL)
        case "/":
            return _guarded("/", cast(left, DOUBLE), cast(right, DOUBLE), DOUBLE, "DIVIDE_BY_ZERO")
        case "DIV" if kind.kind in INTEGRAL:
            whole = cast(left, BIGINT), cast(right, BIGINT)
            return _guarded("//", *whole, BIGINT, "DIVIDE_BY_ZERO")
        case "%":
            return _guarded("%", cast(left, kind), cast(right, kind), kind, "REMAINDER_BY_ZERO")
    raise _unknown(operator, left, right)


def _like(value: Typed, other: Typed) -> Typed:
    """NULL in the other's type; a literal whole number beside a decimal with its own digits."""
    if value.type == VOID:
        return cast(value, other.type)
    if isinstance(value.literal, int) and other.type.kind == "decimal":
        return cast(value, decimal(len(str(abs(value.literal))), 0))
    return value


def _guarded(operator: str, left: Typed, right: Typed, kind: HiveType, code: str) -> Typed:
    what = "Remainder" if operator == "%" else "Division"
    failure = no_value(f"[{code}] {what} by zero")
    zero = f"{right.sql} = 0 AND {left.sql} IS NOT NULL"
    done = f"CAST({left.sql} {operator} {right.sql} AS {duckdb_type(kind)})"
    null = f"WHEN {left.sql} IS NULL THEN NULL"
    return Typed(f"(CASE WHEN {zero} THEN {failure} {null} ELSE {done} END)", kind, True)


def _of_decimals(operator: str, left: Typed, right: Typed) -> Typed:
    """Spark's type of the result, if no digits have to be given up for it."""
    a, b = as_decimal(left.type), as_decimal(right.type)
    assert a is not None and b is not None
    (p1, s1), (p2, s2) = a.sizes, b.sizes
    left, right = cast(left, a), cast(right, b)
    fails = left.fails or right.fails
    if operator in "+-":
        scale = max(s1, s2)
        precision = max(p1 - s1, p2 - s2) + scale + 1
        if precision <= MOST_DIGITS:
            kind = decimal(precision, scale)
            x, y = cast(left, kind).sql, cast(right, kind).sql
            return Typed(f"CAST({x} {operator} {y} AS {duckdb_type(kind)})", kind, fails)
    if operator == "*" and p1 + p2 + 1 <= MOST_DIGITS:
        kind = decimal(p1 + p2 + 1, s1 + s2)
        # DuckDB computes in 64 bits, and fails, unless a factor has more than 18 digits.
        factor = cast(left, decimal(p1 + p2 + 1, s1))
        return Typed(f"CAST({factor.sql} * {right.sql} AS {duckdb_type(kind)})", kind, fails)
    if operator == "/" and (ratio := quotient_type(a, b)) is not None:
        return _divided(left, right, ratio)
    raise _unknown(operator, left, right)


def _divided(left: Typed, right: Typed, kind: HiveType) -> Typed:
    shift = 10 ** (kind.sizes[1] - left.type.sizes[1] + right.type.sizes[1])
    digits = f"({unscaled(left.sql, left.type)} * {shift}::HUGEINT)"
    done = quotient(digits, unscaled(right.sql, right.type), kind)
    failure = no_value("[DIVIDE_BY_ZERO] Division by zero")
    null = f"WHEN {left.sql} IS NULL OR {right.sql} IS NULL THEN NULL"
    return Typed(f"(CASE {null} WHEN {right.sql} = 0 THEN {failure} ELSE {done} END)", kind, True)


def _unknown(operator: str, left: Typed, right: Typed) -> NeedsSpark:
    return NeedsSpark(f"{spark_name(left.type)} {operator} {spark_name(right.type)}")
