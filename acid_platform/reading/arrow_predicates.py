"""A SQL predicate as Arrow computations, for `to_arrow`.

Only what Arrow can say exactly as Spark does (ANSI, SQL's three-valued logic) is translated:
comparisons of columns and literals, AND, OR, NOT, IN, BETWEEN, IS NULL, `<=>`, LIKE. Anything else
is refused by name, since a second dialect that differs a little would be worse than none.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias, cast

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from acid_platform.errors import InvalidExpression, UnknownColumn, UnsupportedStatement
from acid_platform.layout.types import INTEGRAL, LOCAL_ZONE, Column, HiveType
from acid_platform.reading import literals
from acid_platform.reading.predicates import parse
from acid_platform.storage.arrow_types import arrow_type

Datum: TypeAlias = pa.Array | pa.Scalar
Values: TypeAlias = Mapping[str, Datum]
Evaluate: TypeAlias = Callable[[Values], Datum]

_WIDE = pa.decimal256(76, 38)
"""Holds every decimal(38, s) and every bigint exactly."""
_ORDER = {exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True, slots=True)
class ArrowPredicate:
    """See `storage.arrow_scan.Predicate`."""

    columns: frozenset[str]
    evaluate: Evaluate

    def mask(self, values: Values) -> Datum:
        return self.evaluate(values)


@dataclass(frozen=True, slots=True)
class _Term:
    """One side of a comparison; a literal has a value, a column a way to get its values."""

    kind: str
    type: HiveType | None
    value: object = None
    evaluate: Evaluate | None = None


def arrow_predicate(where: str, columns: Iterable[Column], table: str) -> ArrowPredicate:
    """Raises InvalidExpression (does not parse, or compares what has no order), UnknownColumn, and
    UnsupportedStatement for what only Spark evaluates; its text names the part.
    """
    builder = _Builder({column.name: column.type for column in columns}, table)
    evaluate = builder.condition(parse(where))
    return ArrowPredicate(frozenset(builder.used), evaluate)


class _Builder:
    def __init__(self, types: Mapping[str, HiveType], table: str) -> None:
        self.types = types
        self.table = table
        self.used: set[str] = set()

    # --- truth ---------------------------------------------------------------------------------

    def condition(self, node: exp.Expr) -> Evaluate:
        self._refuse_unknown_parts(node)
        match node:
            case exp.Paren():
                return self.condition(node.this)
            case exp.And():
                return _both(pc.and_kleene, self.condition(node.left), self.condition(node.right))
            case exp.Or():
                return _both(pc.or_kleene, self.condition(node.left), self.condition(node.right))
            case exp.Not():
                inner = self.condition(node.this)
                return lambda values: pc.invert(inner(values))
            case exp.Boolean():
                constant = pa.scalar(bool(node.this))
                return lambda values: constant
            case exp.Null():
                return lambda values: pa.scalar(None, pa.bool_())
            case exp.Is():
                return self._is(node)
            case exp.Between() if not node.args.get("symmetric"):
                self._refuse_char(node, [node.this, node.args["low"], node.args["high"]])
                low = self._compare(">=", node.this, node.args["low"])
                high = self._compare("<=", node.this, node.args["high"])
                return _both(pc.and_kleene, low, high)
            case exp.In() if node.expressions and not node.args.get("query"):
                return self._in(node)
            case exp.NullSafeEQ():
                return self._null_safe(node)
            case exp.Like() if isinstance(node.expression, exp.Literal):
                return self._like(node)
            case exp.Column() | exp.Dot():
                term = self._term(node)
                if term.kind != "boolean" or term.evaluate is None:
                    raise InvalidExpression(f"{node.sql('spark')} is {term.type} and no condition")
                return term.evaluate
            case exp.Binary() if type(node) in _ORDER:
                return self._compare(_ORDER[type(node)], node.left, node.right)
        raise self._unsupported(node)

    def _is(self, node: exp.Is) -> Evaluate:
        if isinstance(node.expression, exp.Boolean):
            wanted = bool(node.expression.this)
            inner = self.condition(node.this)
            return lambda values: pc.fill_null(pc.equal(inner(values), pa.scalar(wanted)), False)
        if not isinstance(node.expression, exp.Null):
            raise self._unsupported(node)
        term = self._term(node.this)
        if term.evaluate is None:
            constant = pa.scalar(term.value is None)
            return lambda values: constant
        evaluate = term.evaluate
        return lambda values: pc.is_null(evaluate(values))

    def _in(self, node: exp.In) -> Evaluate:
        members = [self._term(one) for one in node.expressions]
        if any(one.kind == "null" for one in members):
            self._refuse_char(node, [node.this])
        self._refuse_char(node, node.expressions)
        self._require_one_type(node, [self._term(node.this), *members])
        tests = [self._compare("=", node.this, one) for one in node.expressions]
        while len(tests) > 1:  # a tree, since a long list would be too deep a chain
            pairs = [tests[i : i + 2] for i in range(0, len(tests), 2)]
            tests = [_both(pc.or_kleene, *pair) if len(pair) == 2 else pair[0] for pair in pairs]
        return tests[0]

    def _require_one_type(self, node: exp.In, terms: list[_Term]) -> None:
        """Spark compares all of them in one common type, which may round some."""
        needle, *members = [one for one in terms if one.kind != "null"] or terms
        kinds = {_LIKE_BIGINT.get(one.kind, one.kind) for one in members}
        numbers = [_digits(one) for one in (needle, *members)]
        if len(kinds) > 1 and (kinds != {"bigint", "decimal"} or needle.kind in _FLOATING):
            raise self._unsupported(node)
        if len(kinds) > 1 and not literals.compared_exactly(one for one in numbers if one):
            raise self._unsupported(node)

    def _refuse_char(self, node: exp.Expr, sides: list[exp.Expr]) -> None:
        """Spark pads the literals of comparisons and of IN without NULL, not of these."""
        if any(self._term(side).kind == "char" for side in sides):
            raise UnsupportedStatement(
                f"to_arrow can't evaluate {node.sql('spark')!r}: Spark does not ignore the blanks"
                " of a char there; write it with =, <= and >=, or use read()"
            )

    def _null_safe(self, node: exp.NullSafeEQ) -> Evaluate:
        equal = self._compare("=", node.left, node.right)
        sides = [
            self._is(exp.Is(this=side.copy(), expression=exp.Null()))
            for side in (node.left, node.right)
        ]
        nulls = _both(pc.and_kleene, *sides)
        return lambda values: pc.or_kleene(pc.fill_null(equal(values), False), nulls(values))

    def _like(self, node: exp.Like) -> Evaluate:
        term = self._term(node.this)
        pattern = str(node.expression.this)
        if term.kind not in ("string", "varchar") or term.evaluate is None or "\\" in pattern:
            raise self._unsupported(node)
        evaluate = term.evaluate

        def like(values: Values) -> Datum:
            found = _applied(lambda one: pc.match_like(one, pattern), evaluate(values))
            return pc.invert(found) if node.args.get("negate") else found

        return like

    # --- comparisons ---------------------------------------------------------------------------

    def _compare(self, order: str, left: exp.Expr, right: exp.Expr) -> Evaluate:
        a, b = self._term(left), self._term(right)
        if a.evaluate is None and b.evaluate is not None:
            return self._compare(_MIRRORED[order], right, left)
        if a.kind == "null" or b.kind == "null":
            return lambda values: pa.scalar(None, pa.bool_())
        shown = f"{left.sql('spark')} {order} {right.sql('spark')}"
        get_a, get_b, floating = _common(a, b, shown)
        return lambda values: _ordered(order, get_a(values), get_b(values), floating)

    def _term(self, node: exp.Expr) -> _Term:
        self._refuse_unknown_parts(node)
        match node:
            case exp.Paren():
                return self._term(node.this)
            case exp.Null():
                return _Term("null", None)
            case exp.Boolean():
                return _Term("boolean", None, bool(node.this))
            case exp.Literal():
                return _literal(node)
            case exp.Neg():
                inner = self._term(node.this)
                if (
                    inner.evaluate is None
                    and inner.kind != "boolean"
                    and isinstance(inner.value, int | float | Decimal)
                ):
                    return _Term(inner.kind, None, literals.negated(inner.value))
            case exp.Cast() if (
                type(node) is exp.Cast
                and isinstance(node.this, exp.Literal)
                and node.this.is_string
            ):
                for kind, parser in (("date", literals.date), ("timestamp", literals.timestamp)):
                    if node.to.this.name in _CASTS[kind]:
                        return _Term(kind, None, parser(node.this.this, node.sql("spark")))
            case exp.Column() | exp.Dot():
                return self._column(node)
        raise self._unsupported(node)

    def _column(self, node: exp.Expr) -> _Term:
        parts = [
            part.name.lower()
            for part in (node.parts if isinstance(node, exp.Column | exp.Dot) else [])
        ]
        if not parts or parts[0] not in self.types:
            raise UnknownColumn(
                f"{self.table} has no column {'.'.join(parts)!r}; its columns are"
                f" {', '.join(self.types)}"
            )
        name, *fields = parts
        self.used.add(name)
        kind = self.types[name]
        path: list[int] = []
        for field in fields:
            names = [child for child, _ in kind.children]
            if kind.kind != "struct" or field not in names:
                raise UnknownColumn(
                    f"{self.table}.{'.'.join(parts)}: {kind} has no field {field!r}"
                )
            path.append(names.index(field))
            kind = kind.children[path[-1]][1]
        if path:
            if kind.kind == "char":
                raise UnsupportedStatement(
                    f"to_arrow can't evaluate {node.sql('spark')!r}: Spark compares a char in a"
                    " struct with its blanks; use read()"
                )
            return _Term(
                kind.kind,
                kind,
                evaluate=lambda values: _applied(
                    lambda one: pc.struct_field(one, path), values[name]
                ),
            )
        return _Term(kind.kind, kind, evaluate=lambda values: values[name])

    def _refuse_unknown_parts(self, node: exp.Expr) -> None:
        """The parser may say NOT, SAFE and the like by a flag that the code below does not read."""
        known = _PARTS | ({"negate"} if isinstance(node, exp.Like) else set())
        if any(part and name not in known for name, part in node.args.items()):
            raise self._unsupported(node)

    def _unsupported(self, node: exp.Expr) -> UnsupportedStatement:
        return UnsupportedStatement(
            f"to_arrow can't evaluate {node.sql('spark')!r}: it knows comparisons of columns and"
            " literals, AND, OR, NOT, IN, BETWEEN, LIKE, IS NULL and <=>; use read() for the rest"
        )


_PARTS = frozenset(
    (
        "this",
        "expression",
        "expressions",
        "low",
        "high",
        "to",
        "is_string",
        "table",
        "db",
        "catalog",
        "quoted",
    )
)
_FLOATING = ("float", "double")
_LIKE_BIGINT = dict.fromkeys(INTEGRAL, "bigint")
_CASTS = {"date": ("DATE",), "timestamp": ("TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPNTZ")}


def _both(function: Callable[[Datum, Datum], Datum], left: Evaluate, right: Evaluate) -> Evaluate:
    return lambda values: function(left(values), right(values))


def _applied(function: Callable[[pa.Array], pa.Array], one: Datum) -> Datum:
    """Of functions that Arrow offers for arrays alone."""
    if isinstance(one, pa.Scalar):
        return function(pa.array([one.as_py()], one.type))[0]
    return function(one)


def _literal(node: exp.Literal) -> _Term:
    text = str(node.this)
    if node.is_string:
        return _Term("string", None, text)
    value = literals.number(text)
    if isinstance(value, float):
        return _Term("double", None, value)
    if isinstance(value, Decimal):
        return _Term("decimal", None, value)
    return _Term("bigint" if value < 1 << 63 else "decimal", None, value)


def _common(a: _Term, b: _Term, shown: str) -> tuple[Evaluate, Evaluate, bool]:
    """Both sides in one Arrow type as Spark's ANSI rules widen them; and whether it is floating."""
    kinds = {a.kind, b.kind}
    numeric = {*INTEGRAL, "float", "double", "decimal"}
    if b.evaluate is None and b.kind == "string" and a.kind in _FROM_TEXT:
        b = _Term(_FROM_TEXT[a.kind][0], None, _FROM_TEXT[a.kind][1](str(b.value), shown))
        kinds = {a.kind, b.kind}
    if kinds <= numeric:
        if kinds & {"double"} or ("float" in kinds and len(kinds) > 1):
            return _side(a, pa.float64()), _side(b, pa.float64()), True
        if kinds == {"float"}:
            return _side(a, pa.float32()), _side(b, pa.float32()), True
        if "decimal" in kinds:
            if any(
                one.type
                and one.kind in INTEGRAL
                and isinstance(other.value, int | Decimal)
                and literals.beyond_bigint(other.value)
                for one, other in ((a, b), (b, a))
            ):
                raise UnsupportedStatement(
                    f"to_arrow can't evaluate {shown!r}: Spark answers by the literal alone, also"
                    " for NULL; compare with a number that a bigint holds, or use read()"
                )
            if not literals.compared_exactly(filter(None, map(_digits, (a, b)))):
                raise UnsupportedStatement(
                    f"to_arrow can't evaluate {shown!r}: no decimal has room for the digits of"
                    " both sides, so that Spark rounds one; write a literal that the column can"
                    " hold, or use read()"
                )
            exact = _exact(a, b)
            kind = exact or _WIDE
            return _side(a, kind), _side(b, kind), False
        return _side(a, pa.int64()), _side(b, pa.int64()), False
    if kinds <= {"string", "varchar", "char"}:
        width = 0
        if "char" in kinds:  # as Spark: the shorter side is padded
            if any(one.kind != "char" and one.type is not None for one in (a, b)):
                raise UnsupportedStatement(
                    f"to_arrow can't evaluate {shown!r}: char is compared"
                    " with char and literals alone; use read()"
                )
            width = max(one.type.sizes[0] if one.type else len(str(one.value)) for one in (a, b))
        return _padded(_side(a, pa.string()), width), _padded(_side(b, pa.string()), width), False
    kinds = {"timestamp" if one == LOCAL_ZONE else one for one in kinds}
    if kinds == {"boolean"}:
        return _side(a, pa.bool_()), _side(b, pa.bool_()), False
    if kinds == {"date"}:
        return _side(a, pa.date32()), _side(b, pa.date32()), False
    if kinds <= {"date", "timestamp"}:
        return _side(a, pa.timestamp("us")), _side(b, pa.timestamp("us")), False
    if kinds == {"binary"}:
        return _side(a, pa.binary()), _side(b, pa.binary()), False
    raise UnsupportedStatement(
        f"to_arrow can't evaluate {shown!r}, which compares {a.type or a.kind} with"
        f" {b.type or b.kind}; write a literal of the column's type, or use read()"
    )


def _digits(term: _Term) -> literals.Digits | None:
    if term.type is not None:
        return literals.digits_of_type(term.type)
    if isinstance(term.value, int | Decimal) and term.kind in ("bigint", "decimal"):
        return literals.digits_of_value(Decimal(term.value))
    return None


def _exact(a: _Term, b: _Term) -> pa.DataType | None:
    """The column's own decimal type, when a literal fits it without loss."""
    if a.type is None or a.kind != "decimal" or not isinstance(b.value, int | Decimal):
        return None
    kind = arrow_type(a.type)
    try:
        return kind if pa.scalar(Decimal(b.value), kind).as_py() == b.value else None
    except pa.ArrowException:
        return None


def _side(term: _Term, kind: pa.DataType) -> Evaluate:
    if term.evaluate is None:
        value: object = term.value
        if pa.types.is_decimal(kind):
            value = Decimal(cast(int, value))
        elif pa.types.is_floating(kind):
            value = float(cast(float, value))
        elif pa.types.is_timestamp(kind) and not isinstance(value, datetime.datetime):
            value = datetime.datetime.combine(cast(datetime.date, value), datetime.time())
        try:
            constant = pa.scalar(value, kind)
        except pa.ArrowException as error:
            raise UnsupportedStatement(
                f"to_arrow can't compare with {value}: {error}; use read()"
            ) from error
        return lambda values: constant
    evaluate = term.evaluate
    if term.type is not None and arrow_type(term.type) == kind:
        return evaluate
    return lambda values: _applied(lambda array: _cast(array, kind), evaluate(values))


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if not pa.types.is_floating(kind):
        return array.cast(kind)
    if pa.types.is_decimal(array.type):
        # By its text: Arrow's own way multiplies, and misses the nearest double.
        return array.cast(pa.string()).cast(kind)
    return array.cast(kind, safe=False)


def _padded(evaluate: Evaluate, width: int) -> Evaluate:
    if not width:
        return evaluate
    return lambda values: _applied(lambda one: pc.utf8_rpad(one, width, " "), evaluate(values))


def _ordered(order: str, a: Datum, b: Datum, floating: bool) -> Datum:
    """In Spark NaN equals NaN and is greater than any other number."""
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
    **{kind: ("bigint", literals.whole_number) for kind in INTEGRAL},
    "decimal": ("double", literals.finite_float),
    "float": ("double", literals.finite_float),
    "double": ("double", literals.finite_float),
    "date": ("date", literals.date),
    "timestamp": ("timestamp", literals.timestamp),
    LOCAL_ZONE: ("timestamp", literals.timestamp),
}
"""What a string literal becomes beside a column of another type: (kind, parser)."""
