"""Arithmetic with Spark's types of results, and its errors under ANSI rules."""

from __future__ import annotations

from decimal import Decimal

from sqlglot import exp

from acid_platform.engine.local.translation.casts import Typed, cast
from acid_platform.engine.local.translation.duckdb_failures import no_value
from acid_platform.engine.local.translation.duckdb_types import (
    BIGINT,
    DOUBLE,
    INT,
    NUMERIC,
    VOID,
    as_decimal,
    decimal,
    duckdb_type,
    spark_name,
    text,
    wider,
)
from acid_platform.errors import NeedsSpark
from acid_platform.layout.types import FLOATING, INTEGRAL, HiveType
from acid_platform.predicates.literals import MOST_DIGITS

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
    shorter = min(scale, digits)
    if precision - scale + 1 + shorter > MOST_DIGITS:
        raise NeedsSpark(f"round of {spark_name(value.type)}")
    kind = decimal(precision - scale + 1 + shorter, shorter)
    return Typed(f"CAST({value.sql} AS {duckdb_type(kind)})", kind, value.fails)


def binary(node: type[exp.Expr], left: Typed, right: Typed) -> Typed:
    """`left + right` and so on. Raises NeedsSpark for types that are not known to be equal."""
    operator = OPERATORS[node]
    kinds = {left.type.kind, right.type.kind}
    if not kinds <= {*NUMERIC, VOID.kind} or kinds == {VOID.kind}:
        raise _unknown(operator, left, right)
    left, right = _like(left, right), _like(right, left)
    fails = left.fails or right.fails
    if operator in "&|^":
        kind = wider(left.type, right.type)
        if kind is None or kind.kind not in INTEGRAL:
            raise _unknown(operator, left, right)
        a, b = cast(left, kind).sql, cast(right, kind).sql
        bits = f"xor({a}, {b})" if operator == "^" else f"({a} {operator} {b})"
        return Typed(f"CAST({bits} AS {duckdb_type(kind)})", kind, fails)
    kinds = {left.type.kind, right.type.kind}
    if "decimal" in kinds and not kinds & set(FLOATING):
        return _of_decimals(operator, left, right)
    kind = wider(left.type, right.type)
    assert kind is not None
    match operator:
        case "+" | "-" | "*":
            sql = f"({cast(left, kind).sql} {operator} {cast(right, kind).sql})"
            return Typed(sql, kind, fails or kind.kind in INTEGRAL)
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
    result = f"CAST({left.sql} {operator} {right.sql} AS {duckdb_type(kind)})"
    null = f"WHEN {left.sql} IS NULL THEN NULL"
    return Typed(f"(CASE WHEN {zero} THEN {failure} {null} ELSE {result} END)", kind, True)


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
    result = quotient(digits, unscaled(right.sql, right.type), kind)
    failure = no_value("[DIVIDE_BY_ZERO] Division by zero")
    null = f"WHEN {left.sql} IS NULL OR {right.sql} IS NULL THEN NULL"
    return Typed(f"(CASE {null} WHEN {right.sql} = 0 THEN {failure} ELSE {result} END)", kind, True)


def _unknown(operator: str, left: Typed, right: Typed) -> NeedsSpark:
    return NeedsSpark(f"{spark_name(left.type)} {operator} {spark_name(right.type)}")


# --- dividing decimals exactly, half away from zero: DuckDB divides them as doubles ---------------


def quotient_type(left: HiveType, right: HiveType) -> HiveType | None:
    """Spark's type of a quotient; None if it has to give up digits, or if DuckDB lacks room."""
    (p1, s1), (p2, s2) = left.sizes, right.sizes
    scale = max(6, s1 + p2 + 1)
    precision = p1 - s1 + s2 + scale
    room = (precision + scale, p1 + s1 + 1, p2 + s2 + 1)
    return decimal(precision, scale) if max(room) <= MOST_DIGITS else None


def mean_type(kind: HiveType) -> HiveType | None:
    """Spark's type of an average, likewise."""
    precision, scale = kind.sizes
    if precision + 14 + scale + 4 > MOST_DIGITS:
        return None
    return decimal(precision + 4, scale + 4)


def unscaled(sql: str, kind: HiveType) -> str:
    """The digits of a decimal as a whole number."""
    scale = kind.sizes[1]
    return f"CAST({sql} * CAST({10**scale} AS DECIMAL({scale + 1},0)) AS HUGEINT)"


def quotient(digits: str, divisor: str, kind: HiveType) -> str:
    """SQL of `digits / divisor`, whole numbers that are not NULL, as the digits of a decimal."""
    precision, scale = kind.sizes
    rest = f"abs({digits} % {divisor})"
    up = f"CASE WHEN 2 * {rest} >= abs({divisor}) THEN sign({digits}) * sign({divisor}) ELSE 0 END"
    whole = f"CAST({digits} // {divisor} + {up} AS DECIMAL({precision},0))"
    unit = f"CAST('0.{'0' * (scale - 1)}1' AS DECIMAL({scale},{scale}))"
    return f"CAST({whole} * {unit} AS {duckdb_type(kind)})"
