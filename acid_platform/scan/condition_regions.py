"""The regions of rows that conditions look for, as far as comparisons with literals tell (P51)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal

from sqlglot import exp

from acid_platform.errors import InvalidExpression
from acid_platform.layout.file_entries import RangeKind
from acid_platform.layout.types import Column
from acid_platform.predicates.analysis import conjuncts, parsed
from acid_platform.scan.file_pruning import MIRRORED, literal_bound
from acid_platform.scan.row_regions import COMPARABLE, NUMBERS
from acid_platform.transactions.regions import EVERY, ColumnSpans, Region, Value


def region_of_condition(where: str | None, columns: Sequence[Column], alias: str = "") -> Region:
    """The region of the rows for which a condition may be true.

    `alias`: what qualifies the columns in it; without one, they stand alone.
    """
    if where is None:
        return EVERY
    try:
        return _Conditions(columns, alias).region(parsed(where))
    except (InvalidExpression, RecursionError):
        return EVERY  # Spark may know what it means


class _Conditions:
    def __init__(self, columns: Sequence[Column], alias: str) -> None:
        self._kinds = {column.name: column.type.kind for column in columns}
        self._alias = alias.lower()

    def region(self, node: exp.Expr) -> Region:
        match node:
            case exp.Paren():
                return self.region(node.this)
            case exp.And():
                return self.region(node.left).both(self.region(node.right))
            case exp.Or():
                return self.region(node.left).either(self.region(node.right))
            case exp.In() if node.expressions and not node.args.get("query"):
                return self._compared(exp.EQ, node.this, node.expressions)
            case exp.Between():
                low = self._compared(exp.GTE, node.this, [node.args["low"]])
                return low.both(self._compared(exp.LTE, node.this, [node.args["high"]]))
            case exp.EQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
                if isinstance(node.left, exp.Column):
                    return self._compared(type(node), node.left, [node.right])
                return self._compared(MIRRORED[type(node)], node.right, [node.left])
        return EVERY

    def _compared(
        self, kind: type[exp.Expr], column: exp.Expr, literals: Sequence[exp.Expr]
    ) -> Region:
        if not isinstance(column, exp.Column) or column.table.lower() != self._alias:
            return EVERY
        name = column.name.lower()
        known = _range_kind(self._kinds.get(name, ""))
        if known is None or len(column.parts) > 1 + bool(self._alias):
            return EVERY
        values = [literal_bound(literal, known) for literal in literals]
        if any(value is None for value in values):
            return EVERY
        return Region({name: ColumnSpans.of(_bounds(kind, value) for value in values)})


def _range_kind(kind: str) -> RangeKind | None:
    """The kind of the literals that compare with a column as its ranges do."""
    if kind in NUMBERS:
        return RangeKind.DECIMAL
    return next((one for one, kinds in COMPARABLE.items() if kind in kinds), None)


def _bounds(kind: type[exp.Expr], value: Value | None) -> tuple[Value | None, Value | None]:
    """The values for which the comparison may be true; Spark may round what isn't whole."""
    low = high = value
    if isinstance(value, Decimal):
        low, high = Decimal(math.floor(value)), Decimal(math.ceil(value))
    if kind is exp.EQ:
        return low, high
    return (None, high) if kind in (exp.LT, exp.LTE) else (low, None)


def equal_columns(on: str, aliases: tuple[str, str]) -> dict[str, str]:
    """The table's columns that ON demands to be equal to columns of the source, in lower case; the
    table's has the first alias."""
    pairs: dict[str, str] = {}
    own, other = (alias.lower() for alias in aliases)
    try:
        terms = conjuncts(parsed(on))
    except InvalidExpression:  # the engine says what is wrong with it
        return pairs
    for term in terms:
        if isinstance(term, exp.EQ):
            sides = dict(map(qualified, (term.left, term.right)))
            if sides.keys() == {own, other}:
                pairs[sides[own]] = sides[other]
    return pairs


def qualified(node: exp.Expr) -> tuple[str, str]:
    """`t` and `c` of a column `t.c`, in lower case; two empty texts for any other expression."""
    if not isinstance(node, exp.Column) or len(node.parts) != 2:
        return "", ""
    table, name = (part.name.lower() for part in node.parts)
    return table, name
