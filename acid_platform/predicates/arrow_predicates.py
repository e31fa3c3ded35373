"""Translates a SQL predicate into Arrow computations, for `to_arrow`.

Only expressions that Arrow evaluates exactly as Spark does (ANSI, three-valued logic) are
translated: comparisons of columns and literals, AND, OR, NOT, IN, BETWEEN, IS NULL, `<=>`, LIKE.
All others are refused with an error that names them: a second dialect that differs slightly would
be worse than none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from acid_platform.errors import InvalidExpression, UnknownColumn, UnsupportedStatement
from acid_platform.layout.types import FLOATING, INTEGRAL, Column, HiveType, unknown_column
from acid_platform.predicates import analysis
from acid_platform.predicates.analysis import columns_of, parsed, shallow
from acid_platform.predicates.arrow_compare import (
    Datum,
    Evaluate,
    Term,
    Values,
    applied,
    both,
    digits_of,
    in_common_type,
    ordered,
)
from acid_platform.predicates.grammar import COMPARISONS
from acid_platform.values.arrow_types import arrow_type, filled, from_numpy, scalar_of
from acid_platform.values.partition_texts import partition_value

_FALSE = scalar_of(False, pa.bool_())
_MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True, slots=True)
class ArrowPredicate:
    """A `scan.arrow_scan.Predicate`."""

    columns: frozenset[str]
    evaluate: Evaluate
    tree: exp.Expr

    def mask(self, values: Values) -> Datum:
        return self.evaluate(values)


def arrow_predicate(where: str | exp.Expr, columns: Iterable[Column], table: str) -> ArrowPredicate:
    """Translates the condition `where`, a text or its tree, over these columns.

    Raises InvalidExpression if it does not parse or a literal does not fit its column,
    UnknownColumn, and UnsupportedStatement, naming the part, if only Spark can evaluate it.
    """
    builder = _Builder(tuple(columns), table)
    tree = parsed(where) if isinstance(where, str) else where
    evaluate = builder.condition(tree)
    return ArrowPredicate(frozenset(builder.used), evaluate, tree)


@lru_cache(256)
def predicate_or_none(where: str | exp.Expr, columns: tuple[Column, ...]) -> ArrowPredicate | None:
    """As `arrow_predicate`; None for a condition that another engine has to evaluate or refuse."""
    with suppress(UnsupportedStatement, InvalidExpression, UnknownColumn):
        return arrow_predicate(where, columns, "the table")
    return None


class _Builder:
    def __init__(self, columns: Sequence[Column], table: str) -> None:
        self.columns = columns
        self.types = {column.name: column.type for column in columns}
        self.table = table
        self.used: set[str] = set()

    # --- conditions ----------------------------------------------------------------------------

    def condition(self, node: exp.Expr) -> Evaluate:
        self._refuse_unknown_parts(node)
        match node:
            case exp.Paren():
                return self.condition(node.this)
            case exp.And():
                return both(pc.and_kleene, self.condition(node.left), self.condition(node.right))
            case exp.Or():
                return both(pc.or_kleene, self.condition(node.left), self.condition(node.right))
            case exp.Not():
                inner = self.condition(node.this)
                return lambda values: pc.invert(inner(values))
            case exp.Boolean():
                constant = scalar_of(bool(node.this), pa.bool_())
                return lambda _values: constant
            case exp.Null():
                return lambda _values: scalar_of(None, pa.bool_())
            case exp.Is():
                return self._is(node)
            case exp.Between() if not node.args.get("symmetric"):
                low = self._compare(">=", node.this, node.args["low"])
                high = self._compare("<=", node.this, node.args["high"])
                return both(pc.and_kleene, low, high)
            case exp.In() if node.expressions and not node.args.get("query"):
                return self._in(node)
            case exp.NullSafeEQ():
                return self._null_safe(node)
            case exp.Like() if isinstance(node.expression, exp.Literal):
                return self._like(node)
            case exp.Column() | exp.Dot():
                term = self._term(node)
                if term.kind != "boolean" or term.evaluate is None:
                    raise InvalidExpression(
                        f"{node.sql('spark')} has the type {term.type} and is not a condition;"
                        " compare it with a value"
                    )
                return term.evaluate
            case exp.Binary() if type(node) in COMPARISONS:
                return self._compare(COMPARISONS[type(node)], node.left, node.right)
        raise self._unsupported(node)

    def _is(self, node: exp.Is) -> Evaluate:
        if isinstance(node.expression, exp.Boolean):
            expected = bool(node.expression.this)
            inner = self.condition(node.this)
            constant = scalar_of(expected, pa.bool_())
            return lambda values: pc.fill_null(pc.equal(inner(values), constant), _FALSE)
        if not isinstance(node.expression, exp.Null):
            raise self._unsupported(node)
        term = self._term(node.this)
        if term.evaluate is None:
            constant = scalar_of(term.value is None, pa.bool_())
            return lambda _values: constant
        evaluate = term.evaluate
        return lambda values: pc.is_null(evaluate(values))

    def _in(self, node: exp.In) -> Evaluate:
        members = [self._term(expression) for expression in node.expressions]
        self._require_one_type(node, [self._term(node.this), *members])
        tests = [self._compare("=", node.this, member) for member in node.expressions]
        while len(tests) > 1:  # a balanced tree: a chain would be too deep for a long list
            pairs = [tests[i : i + 2] for i in range(0, len(tests), 2)]
            tests = [both(pc.or_kleene, *pair) if len(pair) == 2 else pair[0] for pair in pairs]
        return tests[0]

    def _require_one_type(self, node: exp.In, terms: list[Term]) -> None:
        """Refuses terms whose common type may round: Spark casts all of them to it for IN."""
        needle, *members = [term for term in terms if term.kind != "null"] or terms
        kinds = {_LIKE_BIGINT.get(member.kind, member.kind) for member in members}
        numbers = [digits_of(term) for term in (needle, *members)]
        if len(kinds) > 1 and (kinds != {"bigint", "decimal"} or needle.kind in FLOATING):
            raise self._unsupported(node)
        if len(kinds) > 1 and not analysis.compared_exactly(digits for digits in numbers if digits):
            raise self._unsupported(node)

    def _null_safe(self, node: exp.NullSafeEQ) -> Evaluate:
        equal = self._compare("=", node.left, node.right)
        sides = [
            self._is(exp.Is(this=side.copy(), expression=exp.Null()))
            for side in (node.left, node.right)
        ]
        nulls = both(pc.and_kleene, *sides)
        return lambda values: pc.or_kleene(pc.fill_null(equal(values), _FALSE), nulls(values))

    def _like(self, node: exp.Like) -> Evaluate:
        term = self._term(node.this)
        pattern = str(node.expression.this)
        texts = ("string", "varchar", "char")
        if term.kind not in texts or term.evaluate is None or "\\" in pattern:
            raise self._unsupported(node)
        evaluate = term.evaluate
        try:
            pc.match_like(pa.array([""]), pattern)
        except pa.ArrowInvalid as error:
            raise UnsupportedStatement(
                f"to_arrow can't evaluate a LIKE with a pattern of {len(pattern):,} letters; write"
                " a shorter one, or use read()"
            ) from error

        def like(values: Values) -> Datum:
            matches = applied(lambda array: pc.match_like(array, pattern), evaluate(values))
            return pc.invert(matches) if node.args.get("negate") else matches

        return like

    # --- comparisons ---------------------------------------------------------------------------

    def _compare(self, order: str, left: exp.Expr, right: exp.Expr) -> Evaluate:
        a, b = self._term(left), self._term(right)
        if a.evaluate is None and b.evaluate is not None:
            return self._compare(_MIRRORED[order], right, left)
        if a.kind == "null" or b.kind == "null":
            return lambda _values: scalar_of(None, pa.bool_())
        shown = f"{left.sql('spark')} {order} {right.sql('spark')}"
        get_a, get_b, floating = in_common_type(a, b, shown)
        return lambda values: ordered(order, get_a(values), get_b(values), floating)

    def _term(self, node: exp.Expr) -> Term:
        self._refuse_unknown_parts(node)
        match node:
            case exp.Paren():
                return self._term(node.this)
            case exp.Null():
                return Term("null", None)
            case exp.Boolean():
                return Term("boolean", None, bool(node.this))
            case exp.Literal():
                return _literal(node)
            case exp.Neg():
                inner = self._term(node.this)
                if (
                    inner.evaluate is None
                    and inner.kind != "boolean"
                    and isinstance(inner.value, int | float | Decimal)
                ):
                    return Term(inner.kind, None, analysis.negated(inner.value))
            case exp.Cast() if (
                type(node) is exp.Cast
                and isinstance(node.this, exp.Literal)
                and node.this.is_string
            ):
                for kind, parser in (("date", analysis.date), ("timestamp", analysis.timestamp)):
                    if node.to.this.name in _CASTS[kind]:
                        return Term(kind, None, parser(node.this.this, node.sql("spark")))
            case exp.Column() | exp.Dot():
                return self._column(node)
        raise self._unsupported(node)

    def _column(self, node: exp.Column | exp.Dot) -> Term:
        parts = [part.name.lower() for part in node.parts]
        if parts[0] not in self.types:
            raise unknown_column(".".join(parts), self.table, self.columns)
        name, *fields = parts
        self.used.add(name)
        kind = self.types[name]
        path: list[int] = []
        for field in fields:
            names = [child for child, _ in kind.children]
            if kind.kind != "struct" or field not in names:
                raise UnknownColumn(
                    f"{self.table}.{'.'.join(parts)}: {kind} has no field {field!r}; its fields"
                    f" are {', '.join(names) or 'none'}"
                )
            path.append(names.index(field))
            kind = kind.children[path[-1]][1]
        if not path:
            return _evaluated(kind, lambda values: values[name])
        return _evaluated(
            kind, lambda values: applied(lambda array: pc.struct_field(array, path), values[name])
        )

    def _refuse_unknown_parts(self, node: exp.Expr) -> None:
        """Refuses flags such as SAFE, which the parser sets on a node and no translation reads."""
        parts = _PARTS | ({"negate"} if isinstance(node, exp.Like) else set())
        if any(part and name not in parts for name, part in node.args.items()):
            raise self._unsupported(node)

    def _unsupported(self, node: exp.Expr) -> UnsupportedStatement:
        return UnsupportedStatement(
            f"to_arrow can't evaluate {node.sql('spark')!r}: it knows comparisons of columns and"
            " literals, AND, OR, NOT, IN, BETWEEN, LIKE, IS NULL and <=>; use read() for others"
        )


_PARTS = {
    "this", "expression", "expressions", "low", "high", "to", "is_string", "table", "db", "catalog",
    "quoted",
}  # fmt: skip
_LIKE_BIGINT = dict.fromkeys(INTEGRAL, "bigint")
_CASTS = {"date": ("DATE",), "timestamp": ("TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPNTZ")}


def _evaluated(kind: HiveType, stored: Evaluate) -> Term:
    """A column or field; as in Hive, a CHAR has no trailing blanks in expressions."""
    if kind.kind != "char":
        return Term(kind.kind, kind, evaluate=stored)
    return Term(
        "char",
        kind,
        evaluate=lambda values: applied(lambda array: pc.utf8_rtrim(array, " "), stored(values)),
    )


def _literal(node: exp.Literal) -> Term:
    text = str(node.this)
    if node.is_string:
        return Term("string", None, text)
    value = analysis.number(text)
    if isinstance(value, float):
        return Term("double", None, value)
    if isinstance(value, Decimal):
        return Term("decimal", None, value)
    return Term("bigint" if value < 1 << 63 else "decimal", None, value)


# --- partitions -----------------------------------------------------------------------------------

_JUDGED = (*INTEGRAL, "decimal", "date", "string")
"""Kinds whose values both engines read alike from the name of a directory."""


def may_match(
    where: str | None, columns: Sequence[Column], partitions: Sequence[Sequence[str | None]]
) -> list[bool]:
    """For each partition, given by its values, whether rows of it can satisfy `where`.

    Raises InvalidExpression.
    """
    if where is None or not partitions:
        return [True] * len(partitions)
    named = columns_of(where)
    judged = tuple(
        column
        for column in columns
        if column.type.kind in _JUDGED and (named is None or column.name in named)
    )
    values = {
        column.name: _values((values[index] for values in partitions), column.type)
        for index, column in enumerate(columns)
        if column in judged
    }
    with shallow("the condition"):
        return [bool(answer) for answer in _may(parsed(where), judged, values, len(partitions))]


def _values(texts: Iterable[str | None], kind: HiveType) -> pa.Array:
    """The value of a partition column in each partition; many partitions share one."""
    places: dict[str | None, int] = {}
    index = [places.setdefault(text, len(places)) for text in texts]
    scalars = [scalar_of(partition_value(text, kind), arrow_type(kind)) for text in places]
    distinct = pa.concat_arrays([pa.repeat(scalar, 1) for scalar in scalars])
    return distinct.take(from_numpy(np.array(index)))


def _may(
    node: exp.Expr, columns: tuple[Column, ...], values: Mapping[str, pa.Array], count: int
) -> np.ndarray:
    """A mask (count,): False if the condition is false or NULL for all rows of the partition."""
    match node:
        case exp.Paren():
            return _may(node.this, columns, values, count)
        case exp.And() | exp.Or():
            joined = np.logical_and if isinstance(node, exp.And) else np.logical_or
            mask = np.full(count, isinstance(node, exp.And))
            for term in node.flatten(unnest=False):  # a long chain is as deep as a tree may be
                joined(mask, _may(term, columns, values, count), out=mask)
            return mask
    predicate = predicate_or_none(node, columns)
    if predicate is None:
        return np.ones(count, bool)
    answer = predicate.mask(values)
    if isinstance(answer, pa.Scalar):
        return np.full(count, bool(answer.as_py()))
    return filled(answer, False)
