"""What can be learnt from a predicate without Spark: its columns, and which partitions can match.

Predicates are parsed with sqlglot. Pruning is conservative: an expression that this module does not
understand keeps the partition, so pruning never changes a result.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from acid_platform.base.nesting import shallow
from acid_platform.errors import InvalidExpression
from acid_platform.layout.partition_names import partition_segment
from acid_platform.layout.sql_text import (
    canonical,
    quoted,
    refuse_half_characters,
    sql_string,
)
from acid_platform.layout.types import INTEGRAL, Column
from acid_platform.predicates import literals
from acid_platform.predicates.grammar import SparkSql
from acid_platform.storage.arrow_types import partition_value

_UNKNOWN = object()
_BARE = (*INTEGRAL, "float", "double", "decimal", "boolean")
"""Kinds whose literals are written without quotes."""


@dataclass(frozen=True, slots=True)
class _Number:
    """An exact number and the digits of its type."""

    value: Decimal
    digits: literals.Digits

    @property
    def beyond_bigint(self) -> bool:
        return literals.beyond_bigint(self.value)

    def negated(self) -> _Number:
        return _Number(self.value.copy_negate(), self.digits)


def parse(text: str) -> exp.Expr:
    """Parses a SQL condition, in Spark's dialect. Raises InvalidExpression."""
    refuse_half_characters(text)
    try:
        with shallow("the condition"):
            tree = sqlglot.parse_one(canonical(text), dialect=SparkSql, into=exp.Condition)
            if len(text) > _LONG:
                _require_shallow(tree)
            return tree
    except SqlglotError as error:
        raise InvalidExpression(
            f"{text!r} is not a SQL condition{_where(error)}; write it as you would after WHERE"
        ) from error


def _require_shallow(tree: exp.Expr) -> None:
    """Raises RecursionError for a tree down which nobody could walk by functions that call
    themselves: everything that goes on from here does. AND and OR take less of the stack."""
    waiting = [(tree, 0)]
    while waiting:
        node, depth = waiting.pop()
        depth += 1 if isinstance(node, exp.Connector) else 2
        if depth > _DEEPEST:
            raise RecursionError
        waiting += [(child, depth) for child in node.iter_expressions()]


_DEEPEST = 1000
_LONG = 1000
"""Characters; a shorter text can't be nested too deeply for what follows its parser."""

parsed = lru_cache(maxsize=64)(parse)
"""As `parse`, once for all partitions that ask. Nobody may change the tree."""


def _where(error: SqlglotError) -> str:
    """Where the parser gave up; sqlglot's own error text names Python classes."""
    for problem in getattr(error, "errors", ()):
        return f": it can't be parsed from {problem['highlight']!r} on"
    return ": a quote or a comment is not closed"


def columns_of(text: str) -> frozenset[str] | None:
    """Lower-case names of the columns that an expression may read; None if it may read all."""
    tree = parsed(text)
    if tree.find(exp.Star, exp.Select, exp.Lambda):
        return None
    return frozenset(
        part.name.lower() for column in tree.find_all(exp.Column) for part in column.parts
    )


def partition_condition(name: str, columns: Sequence[Column]) -> str:
    """`month=3/day=__HIVE_DEFAULT_PARTITION__` → `` `month` = 3 AND `day` IS NULL ``.

    The name may omit trailing columns.
    """
    terms = []
    for segment, column in zip(name.split("/"), columns, strict=False):
        _, value = partition_segment(segment) or ("", None)
        if value is None:
            terms.append(f"{quoted(column.name)} IS NULL")
            continue
        literal = sql_string(value)
        prefix = {"date": "DATE ", "timestamp": "TIMESTAMP "}.get(column.type.kind, "")
        terms.append(
            f"{quoted(column.name)} = "
            + (value if column.type.kind in _BARE else f"{prefix}{literal}")
        )
    return " AND ".join(terms)


def typed(value: str | None, column: Column) -> object:
    """A partition value as SQL compares it; NULL if the text is not a value of the
    column's type."""

    if column.type.kind not in (*INTEGRAL, "decimal", "date", "string"):
        return _UNKNOWN
    typed_value = partition_value(value, column.type)
    digits = literals.digits_of_type(column.type)
    return (
        typed_value
        if typed_value is None or digits is None
        else _Number(Decimal(typed_value), digits)
    )


def may_match(where: str | None, columns: Sequence[Column], values: Sequence[str | None]) -> bool:
    """Whether rows of a partition with these values can satisfy `where`."""
    if where is None:
        return True
    row = {column.name: typed(value, column) for column, value in zip(columns, values, strict=True)}
    return _truth(parsed(where), row) is not False


def _truth(node: exp.Expr, row: Mapping[str, object]) -> bool | None:
    """Whether the condition holds for a partition's rows: False also for NULL, None if unknown."""
    match node:
        case exp.Paren():
            return _truth(node.this, row)
        case exp.And():
            left, right = _truth(node.left, row), _truth(node.right, row)
            if left is False or right is False:
                return False
            return None if left is None or right is None else True
        case exp.Or():
            left, right = _truth(node.left, row), _truth(node.right, row)
            if left or right:
                return True
            return None if left is None or right is None else False
        case exp.In() if node.expressions and not node.args.get("query"):
            return _one_of(node, row)
        case exp.Between():
            low = _compare(exp.GTE, node.this, node.args["low"], row)
            high = _compare(exp.LTE, node.this, node.args["high"], row)
            if low is False or high is False:
                return False
            return None if low is None or high is None else True
        case exp.Is() if isinstance(node.expression, exp.Null):
            value = _value(node.this, row)
            return None if value is _UNKNOWN else value is None
        case exp.Boolean():
            return bool(node.this)
        case exp.Binary() if type(node) in _COMPARISONS:
            return _compare(type(node), node.left, node.right, row)
    return None


_COMPARISONS: dict[type, Callable[[object, object], bool]] = {
    exp.EQ: lambda a, b: a == b,
    exp.NEQ: lambda a, b: a != b,
    exp.LT: lambda a, b: a < b,  # type: ignore[operator]
    exp.LTE: lambda a, b: a <= b,  # type: ignore[operator]
    exp.GT: lambda a, b: a > b,  # type: ignore[operator]
    exp.GTE: lambda a, b: a >= b,  # type: ignore[operator]
}


def _compare(kind: type, left: exp.Expr, right: exp.Expr, row: Mapping[str, object]) -> bool | None:
    a, b = _value(left, row), _value(right, row)
    if a is _UNKNOWN or b is _UNKNOWN:
        return None
    if a is None or b is None:
        # Spark decides `id < 100000000000000000000` by the literal before it sees a NULL id.
        beyond = any(isinstance(side, _Number) and side.beyond_bigint for side in (a, b))
        return None if beyond else False
    if isinstance(a, datetime.date) and isinstance(b, str):
        b = _date(b)
    if isinstance(b, datetime.date) and isinstance(a, str):
        a = _date(a)
    if isinstance(a, _Number) and isinstance(b, _Number):
        if not literals.compared_exactly([a.digits, b.digits]):
            return None
        a, b = a.value, b.value
    return _COMPARISONS[kind](a, b) if type(a) is type(b) else None


def _one_of(node: exp.In, row: Mapping[str, object]) -> bool | None:
    numbers = [
        value
        for term in (node.this, *node.expressions)
        if isinstance(value := _value(term, row), _Number)
    ]
    if not literals.compared_exactly(number.digits for number in numbers):
        return None  # Spark casts all of them to one common type, and may round
    comparisons = [_compare(exp.EQ, node.this, member, row) for member in node.expressions]
    return True if True in comparisons else None if None in comparisons else False


def _date(text: str) -> object:
    try:
        return literals.date(text, text)
    except InvalidExpression:
        return _UNKNOWN


def _number(text: str) -> object:
    """The number in a literal; unknown for a double, since Spark then compares after a cast."""
    try:
        value = literals.number(text)
    except InvalidExpression:
        return _UNKNOWN
    if isinstance(value, float):
        return _UNKNOWN
    exact = Decimal(value)
    return _Number(exact, literals.digits_of_value(exact))


def _value(node: exp.Expr, row: Mapping[str, object]) -> object:
    match node:
        case exp.Paren():
            return _value(node.this, row)
        case exp.Null():
            return None
        case exp.Literal():
            return node.this if node.is_string else _number(node.this)
        case exp.Neg():
            inner = _value(node.this, row)
            return inner.negated() if isinstance(inner, _Number) else _UNKNOWN
        case exp.Cast() if node.to.this == exp.DType.DATE and isinstance(node.this, exp.Literal):
            return _date(node.this.this)
        case exp.Column() if not node.table:
            return row.get(node.name.lower(), _UNKNOWN)
    return _UNKNOWN
