"""Comparing two values in the type to which Spark casts both (ANSI)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

from acid_platform.engine.local.casts import Typed, cast
from acid_platform.engine.local.duckdb_types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    STRING,
    TIMESTAMP,
    VOID,
    decimal,
    duckdb_type,
    spark_name,
    text,
    widest,
)
from acid_platform.errors import InvalidExpression, NeedsSpark
from acid_platform.layout.types import INTEGRAL, HiveType
from acid_platform.predicates import literals


def compared(operator: str, left: Typed, right: Typed) -> Typed:
    """`left <operator> right`. Raises NeedsSpark if Spark's result is not known to be equal."""
    a, b = common([left, right])
    return Typed(f"({a.sql} {operator} {b.sql})", BOOLEAN, a.fails or b.fails)


def common(values: Sequence[Typed]) -> list[Typed]:
    """The values in the type in which Spark compares them.

    Literals that are compared with a CHAR lose their trailing blanks, as its values have.
    """
    others = [one for one in values if one.type not in (STRING, VOID)]
    if others:
        values = [_parsed(one, others[0]) for one in values]
        values = [_exact(one, others) for one in values]
    kind = widest(one.type for one in values)
    if kind is None or kind.nested:
        kinds = ", ".join(spark_name(one.type) for one in values)
        raise NeedsSpark(f"a comparison of {kinds}")
    if kind == VOID:
        return [cast(one, BOOLEAN) for one in values]
    return [cast(one, kind) for one in _without_blanks(values)]


def _parsed(value: Typed, other: Typed) -> Typed:
    """A literal text that is compared with another type, as Spark casts it."""
    if value.type != STRING:
        return value
    if not isinstance(value.literal, str):
        raise NeedsSpark(f"a comparison of string with {spark_name(other.type)}; cast one of them")
    written, kind = value.literal, other.type
    try:
        if kind.kind in INTEGRAL:
            whole = literals.whole_number(written, written)
            if not literals.beyond_bigint(whole):
                return _constant(str(whole), BIGINT)
        elif kind.kind in ("float", "double", "decimal"):
            return _constant(repr(literals.finite_float(written, written)), DOUBLE)
        elif kind == DATE:
            return _constant(literals.date(written, written).isoformat(), DATE)
        elif kind == TIMESTAMP:
            return _constant(literals.timestamp(written, written).isoformat(" "), TIMESTAMP)
    except InvalidExpression:
        pass
    raise NeedsSpark(f"a comparison of {spark_name(kind)} with {written!r}")


def _constant(written: str, kind: HiveType) -> Typed:
    return Typed(f"CAST({text(written)} AS {duckdb_type(kind)})", kind)


def _exact(value: Typed, others: Sequence[Typed]) -> Typed:
    """A literal number beside a decimal or whole number: its own digits, without zeros at the end.

    Raises NeedsSpark if a bigint can't hold it: Spark then decides by it alone, even for NULL.
    """
    if not isinstance(value.literal, int | Decimal):
        return value
    whole = [one for one in others if one.type.kind in INTEGRAL and one.literal is None]
    if whole and literals.beyond_bigint(value.literal):
        raise NeedsSpark(f"a comparison with {value.literal}, which is beyond bigint")
    if any(one.type.kind == "decimal" for one in others) and isinstance(value.literal, int):
        return cast(value, decimal(len(str(abs(value.literal))), 0))
    return value


def _without_blanks(values: Sequence[Typed]) -> list[Typed]:
    """The first value is compared with each of the others."""

    def is_char(value: Typed) -> bool:
        return value.declared is not None and value.declared.kind == "char"

    def stripped(value: Typed) -> Typed:
        if not isinstance(value.literal, str):
            return value
        shorter = value.literal.rstrip(" ")
        return replace(value, sql=text(shorter), literal=shorter)

    first, *others = values
    if is_char(first):
        return [first, *map(stripped, others)]
    if any(map(is_char, others)):
        if stripped(first) != first and not all(map(is_char, others)):
            raise NeedsSpark("a text that ends in a blank, compared with char and with string")
        first = stripped(first)
    return [first, *others]
