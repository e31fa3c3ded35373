"""Compares the two sides of a predicate in Arrow, by Spark's ANSI rules."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias, cast

import pyarrow as pa
import pyarrow.compute as pc

from acid_platform.errors import UnsupportedStatement
from acid_platform.layout.types import FLOATING, INTEGRAL, LOCAL_ZONE, HiveType
from acid_platform.predicates import analysis
from acid_platform.predicates.analysis import refused_blanks
from acid_platform.values.arrow_types import arrow_type, scalar_of

Datum: TypeAlias = pa.Array | pa.Scalar
Values: TypeAlias = Mapping[str, Datum]
"""The values of a batch by column name."""
Evaluate: TypeAlias = Callable[[Values], Datum]

_WIDE = pa.decimal256(76, 38)
"""Holds every decimal(38, s) and every bigint exactly."""


@dataclass(frozen=True, slots=True)
class Term:
    """One side of a comparison: a literal has a `value`, a column has `evaluate` and a `type`.

    `kind` is the kind of the type, or "null". A CHAR is evaluated without its trailing blanks.
    """

    kind: str
    type: HiveType | None
    value: object = None
    evaluate: Evaluate | None = None


def both(function: Callable[[Datum, Datum], Datum], left: Evaluate, right: Evaluate) -> Evaluate:
    """`function` applied to what `left` and `right` evaluate to."""
    return lambda values: function(left(values), right(values))


def applied(function: Callable[[pa.Array], pa.Array], values: Datum) -> Datum:
    """Applies a function that Arrow offers only for arrays to an array or a scalar."""
    if isinstance(values, pa.Scalar):
        return function(pa.repeat(values, 1))[0]
    return function(values)


def in_common_type(a: Term, b: Term, shown: str) -> tuple[Evaluate, Evaluate, bool]:
    """Both sides cast to the common type of Spark's ANSI rules, and whether it is floating point.

    `shown` is the comparison as SQL, for errors. Raises InvalidExpression for a literal that is not
    a value of the column's type, UnsupportedStatement if Arrow can't compare exactly as Spark does.
    """
    if b.evaluate is None and b.kind == "string" and a.kind in _FROM_TEXT:
        kind, parse = _FROM_TEXT[a.kind]
        b = Term(kind, None, parse(str(b.value), shown))
    kinds = {"timestamp" if kind == LOCAL_ZONE else kind for kind in (a.kind, b.kind)}
    if kinds <= {*INTEGRAL, *FLOATING, "decimal"}:
        common = _common_number(a, b, shown)
    elif kinds <= {"string", "varchar", "char"}:
        if b.evaluate is None and a.kind == "char" and str(b.value).endswith(" "):
            raise refused_blanks(str(b.value))
        common = pa.string()
    elif kinds <= {"date", "timestamp"}:
        common = pa.date32() if kinds == {"date"} else pa.timestamp("us")
    elif kinds in ({"boolean"}, {"binary"}):
        common = pa.bool_() if a.kind == "boolean" else pa.binary()
    else:
        raise UnsupportedStatement(
            f"to_arrow can't evaluate {shown!r}, which compares {a.type or a.kind} with"
            f" {b.type or b.kind}; write a literal of the column's type, or use read()"
        )
    return _side(a, common), _side(b, common), pa.types.is_floating(common)


def _common_number(a: Term, b: Term, shown: str) -> pa.DataType:
    kinds = {a.kind, b.kind}
    if kinds & {*FLOATING}:
        return pa.float32() if kinds == {"float"} else pa.float64()
    if "decimal" not in kinds:
        return pa.int64()
    if any(
        side.type
        and side.kind in INTEGRAL
        and isinstance(other.value, int | Decimal)
        and analysis.beyond_bigint(other.value)
        for side, other in ((a, b), (b, a))
    ):
        raise UnsupportedStatement(
            f"to_arrow can't evaluate {shown!r}: Spark decides it by the literal alone,"
            " even for NULL; compare with a number that fits a bigint, or use read()"
        )
    if not analysis.compared_exactly(filter(None, map(digits_of, (a, b)))):
        raise UnsupportedStatement(
            f"to_arrow can't evaluate {shown!r}: no decimal has room for the digits of"
            " both sides, so Spark rounds; write a literal that fits the column, or use"
            " read()"
        )
    return _exact(a, b) or _WIDE


def digits_of(term: Term) -> analysis.Digits | None:
    if term.type is not None:
        return analysis.digits_of_type(term.type)
    if isinstance(term.value, int | Decimal) and term.kind in ("bigint", "decimal"):
        return analysis.digits_of_value(Decimal(term.value))
    return None


def _exact(a: Term, b: Term) -> pa.DataType | None:
    """The decimal type of the column if the literal fits it without loss, else None."""
    if a.type is None or a.kind != "decimal" or not isinstance(b.value, int | Decimal):
        return None
    kind = arrow_type(a.type)
    try:
        return kind if pa.scalar(Decimal(b.value), kind).as_py() == b.value else None
    except pa.ArrowException:
        return None


def _side(term: Term, kind: pa.DataType) -> Evaluate:
    if term.evaluate is None:
        value: object = term.value
        if pa.types.is_decimal(kind):
            value = Decimal(cast(int, value))
        elif pa.types.is_floating(kind):
            value = float(cast(float, value))
        elif pa.types.is_timestamp(kind) and not isinstance(value, datetime.datetime):
            value = datetime.datetime.combine(cast(datetime.date, value), datetime.time())
        try:
            constant = scalar_of(value, kind)
        except pa.ArrowException as error:
            raise UnsupportedStatement(
                f"to_arrow can't compare with {value}: {error}; use read()"
            ) from error
        return lambda _values: constant
    evaluate = term.evaluate
    if term.type is not None and arrow_type(term.type) == kind:
        return evaluate
    return lambda values: applied(lambda array: _cast(array, kind), evaluate(values))


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if not pa.types.is_floating(kind):
        return array.cast(kind)
    if pa.types.is_decimal(array.type):
        # Through its text: Arrow's direct cast multiplies and may not give the nearest double.
        return array.cast(pa.string()).cast(kind)
    return array.cast(kind, safe=False)


def ordered(order: str, a: Datum, b: Datum, floating: bool) -> Datum:
    """Compares with the operator `order`; as in Spark, NaN equals NaN and is the largest number."""
    if not floating:
        return _PLAIN[order](a, b)
    nan_a, nan_b = pc.is_nan(a), pc.is_nan(b)
    equal = pc.or_kleene(pc.equal(a, b), pc.and_kleene(nan_a, nan_b))
    less = pc.or_kleene(pc.less(a, b), pc.and_kleene(pc.invert(nan_a), nan_b))
    match order:
        case "=":
            return equal
        case "<>":
            return pc.invert(equal)
        case "<":
            return less
        case "<=":
            return pc.or_kleene(less, equal)
        case ">":
            return pc.invert(pc.or_kleene(less, equal))
        case _:
            return pc.invert(less)


_PLAIN: dict[str, Callable[[Datum, Datum], Datum]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


_FROM_TEXT: dict[str, tuple[str, Callable[[str, str], object]]] = {
    **{kind: ("bigint", analysis.whole_number) for kind in INTEGRAL},
    "decimal": ("double", analysis.finite_float),
    "float": ("double", analysis.finite_float),
    "double": ("double", analysis.finite_float),
    "date": ("date", analysis.date),
    "timestamp": ("timestamp", analysis.timestamp),
    LOCAL_ZONE: ("timestamp", analysis.timestamp),
}
"""How a string literal is parsed when compared with a column of another type: (kind, parser)."""
