"""Comparing two values in the type to which Spark casts both (ANSI)."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from acid_platform.engine.local.casts import Typed, cast
from acid_platform.engine.local.types import (
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
from acid_platform.reading import literals


def compared(operator: str, left: Typed, right: Typed) -> Typed:
    """`left <operator> right`. Raises NeedsSpark if Spark's result is not known to be equal."""
    a, b = common([left, right])
    return Typed(f"({a.sql} {operator} {b.sql})", BOOLEAN, a.fails or b.fails)


def common(values: Sequence[Typed]) -> list[Typed]:
    """The values in the type in which Spark compares them; CHAR is padded."""
    first = values[0]
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
    if any(one.declared is not None and one.declared.kind == "char" for one in values):
        return _padded(values, first)
    return [cast(one, kind) for one in values]


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


def _padded(values: Sequence[Typed], first: Typed) -> list[Typed]:
    """Spark pads the shorter of a CHAR column and a literal, or of two CHAR columns."""
    widths = []
    for one in values:
        if one.declared is not None and one.declared.kind == "char":
            widths.append(one.declared.sizes[0])
        elif isinstance(one.literal, str):
            widths.append(len(one.literal))
        else:
            raise NeedsSpark("a comparison of char with anything but char and a literal")
    if len(values) > 2 and (first.declared is None or first.declared.kind != "char"):
        raise NeedsSpark("IN with a char column inside")
    width = max(widths)
    return [Typed(f"rpad({one.sql}, {width}, ' ')", STRING, one.fails) for one in values]
