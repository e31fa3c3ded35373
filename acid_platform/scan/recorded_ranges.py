"""What the recorded ranges of files tell: which files of a snapshot can hold a row that a predicate
accepts (P26, F19), the regions of rows that conditions look for (P51), and how many live values a
column has, the least and the greatest.

A file is pruned only by comparisons of a column with a literal of the same kind, and by AND, OR,
IN, BETWEEN and IS NULL. Any other expression keeps the file. A file proves the live values if its
record says that no row of it needs a test and none is deleted. The bounds of the others only have
to lie within the bounds of these; or they tell which few stripes are worth reading, since no other
can have a greater value. Needs no Spark.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import reduce
from operator import itemgetter
from typing import Any

import pyarrow as pa
from sqlglot import exp

from acid_platform.base.first_use import arrow_functions as pc
from acid_platform.errors import InvalidExpression
from acid_platform.layout.file_entries import MOST_TEXT, ColumnRange, RangeKind
from acid_platform.layout.types import INTEGRAL, Column
from acid_platform.predicates.analysis import conjuncts, parsed, paths_of
from acid_platform.scan.deletes import DeleteKeys
from acid_platform.scan.row_regions import COMPARABLE, FIRST_DAY, NUMBERS, trusted_bound
from acid_platform.scan.scans import ArrowScan, EntityScan
from acid_platform.scan.source_files import EntitySources, RowIdentity, SourceFile
from acid_platform.transactions.row_sets import EVERY, ColumnSpans, Region, Value
from acid_platform.values.arrow_types import arrow_type, scalar_of

MIRRORED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.LT: exp.GT,
    exp.GT: exp.LT,
    exp.LTE: exp.GTE,
    exp.GTE: exp.LTE,
    exp.EQ: exp.EQ,
}
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


def pruned(sources: EntitySources, where: str | None, columns: Sequence[Column]) -> EntitySources:
    """The sources without insert files in which no row can satisfy `where`.

    `columns` are the table's. Raises InvalidExpression.
    """
    if where is None or not any(source.ranges for source in sources.inserts):
        return sources
    node = parsed(where)
    return replace(
        sources,
        inserts=tuple(
            source for source in sources.inserts if may_hold(node, source.ranges, columns)
        ),
    )


def may_hold(
    condition: exp.Expr, ranges: Mapping[str, ColumnRange], columns: Sequence[Column]
) -> bool:
    """Whether a row whose values have these ranges can satisfy the condition, over the columns of
    its table."""
    kinds = {column.name: column.type.kind for column in columns}
    return _may_hold(condition, _Ranges(ranges, kinds))


def proves(ranges: Mapping[str, ColumnRange], condition: str, columns: Sequence[Column]) -> bool:
    """Whether the ranges of a file tell that the condition is false for none of its rows.

    `columns` are the table's. Raises InvalidExpression.
    """
    kinds = {column.name: column.type.kind for column in columns}
    return not _may_hold(_negated(parsed(condition).copy()), _Ranges(ranges, kinds))


_OPPOSITES: dict[type[exp.Expr], type[exp.Binary]] = {
    exp.LT: exp.GTE,
    exp.GT: exp.LTE,
    exp.LTE: exp.GT,
    exp.GTE: exp.LT,
    exp.NEQ: exp.EQ,
}


def _negated(node: exp.Expr) -> exp.Expr:
    """An expression that is true where this one is false, without NOT where that is possible."""
    match node:
        case exp.Paren():
            return _negated(node.this)
        case exp.And():
            return exp.Or(this=_negated(node.left), expression=_negated(node.right))
        case exp.Or():
            return exp.And(this=_negated(node.left), expression=_negated(node.right))
        case exp.Not():
            denied: exp.Expr = node.this
            return denied
        case exp.EQ():
            return _other_than(node.left, node.right)
        case exp.LT() | exp.GT() | exp.LTE() | exp.GTE() | exp.NEQ():
            return _OPPOSITES[type(node)](this=node.left, expression=node.right)
        case exp.Between():
            below = exp.LT(this=node.this.copy(), expression=node.args["low"])
            above = exp.GT(this=node.this.copy(), expression=node.args["high"])
            return exp.Or(this=below, expression=above)
        case exp.In() if node.expressions and not node.args.get("query"):
            unequal = [_other_than(node.this, member) for member in node.expressions]
            return reduce(lambda left, other: exp.And(this=left, expression=other), unequal)
    return exp.Not(this=node)


def _other_than(value: exp.Expr, other: exp.Expr) -> exp.Expr:
    below = exp.LT(this=value.copy(), expression=other.copy())
    above = exp.GT(this=value.copy(), expression=other.copy())
    return exp.Or(this=below, expression=above)


class _Ranges:
    """The column ranges of one file, and the declared kinds of the columns."""

    def __init__(self, recorded: Mapping[str, ColumnRange], kinds: Mapping[str, str]) -> None:
        # A record without any value may come from a footer without statistics: earlier versions
        # took those for columns of nothing but NULL.
        counted = any(column.values for column in recorded.values())
        self._ranges, self._kinds = recorded if counted else {}, kinds

    def any(self, node: exp.Expr) -> ColumnRange | None:
        """The range of a column. Whatever the declared type, its NULL count can be used."""
        # `s.a` is a field of a struct, even if there is a column `a`.
        if not isinstance(node, exp.Column) or node.table or (node.name.lower() not in self._kinds):
            return None
        return self._ranges.get(node.name.lower())

    def comparable(self, node: exp.Expr) -> ColumnRange | None:
        """The range of a column whose declared type compares like the range's type."""
        column_range = self.any(node)
        if column_range is None or not column_range.values:
            return column_range
        kind = self._kinds[node.name.lower()]
        return column_range if kind in COMPARABLE.get(column_range.kind, ()) else None


def _may_hold(node: exp.Expr, ranges: _Ranges) -> bool:
    """Whether the expression may be true for some row of the file."""
    match node:
        case exp.Paren():
            return _may_hold(node.this, ranges)
        case exp.And():
            return _may_hold(node.left, ranges) and _may_hold(node.right, ranges)
        case exp.Or():
            return _may_hold(node.left, ranges) or _may_hold(node.right, ranges)
        case exp.In() if node.expressions and not node.args.get("query"):
            return any(_compared(exp.EQ, node.this, member, ranges) for member in node.expressions)
        case exp.Between():
            return _compared(exp.GTE, node.this, node.args["low"], ranges) and _compared(
                exp.LTE, node.this, node.args["high"], ranges
            )
        case exp.Is() if isinstance(node.expression, exp.Null):
            column_range = ranges.any(node.this)
            return column_range is None or column_range.nulls > 0
        case exp.Not() if isinstance(node.this, exp.Is) and isinstance(
            node.this.expression, exp.Null
        ):
            column_range = ranges.any(node.this.this)
            return column_range is None or column_range.values
        case exp.EQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
            if isinstance(node.left, exp.Column):
                return _compared(type(node), node.left, node.right, ranges)
            return _compared(MIRRORED[type(node)], node.right, node.left, ranges)
    return True


def _compared(kind: type[exp.Expr], column: exp.Expr, literal: exp.Expr, ranges: _Ranges) -> bool:
    column_range = ranges.comparable(column)
    if column_range is None:
        return True
    if not column_range.values:  # no comparison with NULL is true
        return False
    value = literal_bound(literal, column_range.kind)
    if value is None:
        return True
    low, high = (
        trusted_bound(bound, column_range.kind) for bound in (column_range.low, column_range.high)
    )
    above_low = low is None or _at_most(low, value)
    below_high = high is None or _at_most(value, high)
    if kind is exp.EQ:
        return above_low and below_high
    if kind is exp.LTE:
        return above_low
    if kind is exp.GTE:
        return below_high
    if kind is exp.LT:
        return above_low and low != value
    return below_high and high != value


def _at_most(low: Value, high: Value) -> bool:
    return low <= high  # type: ignore[operator]


def literal_bound(node: exp.Expr, kind: RangeKind) -> Value | None:
    """The literal as a bound of this kind; None if it is not a literal of this kind."""
    sign = ""
    while isinstance(node, exp.Neg | exp.Paren):
        if isinstance(node, exp.Neg):
            sign = "" if sign else "-"
        node = node.this
    if kind in (RangeKind.INTEGER, RangeKind.DECIMAL):
        if (
            not isinstance(node, exp.Literal)
            or node.is_string
            or not re.fullmatch(r"\d+(\.\d+)?", node.this)
        ):
            return None
        return Decimal(f"{sign}{node.this}")
    if sign:
        return None
    if kind is RangeKind.DATE:
        if isinstance(node, exp.Cast) and node.to.is_type(exp.DataType.Type.DATE):
            node = node.this
        text = node.this if isinstance(node, exp.Literal) and node.is_string else ""
        if not _DAY.fullmatch(text):
            return None
        try:
            return datetime.date.fromisoformat(text).toordinal() - FIRST_DAY
        except ValueError:
            return None
    return node.this if isinstance(node, exp.Literal) and node.is_string else None


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


def columns_read(
    conditions: Iterable[str], columns: Sequence[Column], source: str = ""
) -> tuple[str, ...]:
    """The columns of a table whose values decide the conditions; none if all may, or nothing does.

    `source`: what qualifies the columns of other rows.
    """
    names = set[str]()
    for text in conditions:
        try:
            paths = paths_of(text)
        except (InvalidExpression, RecursionError):
            return ()
        if paths is None:
            return ()
        others = {path for path in paths if len(path) > 1 and path[0] == source.lower()}
        names |= {name for path in paths - others for name in path}
    return tuple(sorted(names & {column.name for column in columns}))


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
    return next((known for known, kinds in COMPARABLE.items() if kind in kinds), None)


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


_DECLARED: dict[RangeKind, tuple[str, ...]] = {
    RangeKind.INTEGER: INTEGRAL,
    RangeKind.DECIMAL: ("decimal",),
    RangeKind.DATE: ("date",),
    RangeKind.TEXT: ("string",),
}
"""The declared types whose values are those of the file, by the kind of its bounds."""
_FIRST_DAY = datetime.date(1970, 1, 1)
_BOUNDED = frozenset(kind for kinds in _DECLARED.values() for kind in kinds)


@dataclass(frozen=True, slots=True)
class RecordedFile:
    """A file of a scan; `whole`: whether all of its rows are known to be live."""

    entity: EntityScan
    """The file alone, with what deletes its rows."""
    source: SourceFile
    whole: bool

    @classmethod
    def of(cls, entity: EntityScan) -> RecordedFile:
        (source,) = entity.sources.inserts
        return cls(entity, source, _is_whole(source, entity.deletes))

    def range_of(self, column: Column) -> ColumnRange | None:
        """The bounds of a column, if the record has statistics of the file at all."""
        ranges = self.source.ranges
        # Files without statistics were once recorded as if they had nothing but NULL.
        if self.source.length is not None or not any(each.values for each in ranges.values()):
            return None
        return ranges.get(column.name)


def _is_whole(source: SourceFile, deletes: DeleteKeys) -> bool:
    if source.test_rows or source.above >= 0 or source.length is not None or source.rows is None:
        return False
    if source.identity is RowIdentity.STORED and source.keys is None:
        return False
    if not deletes.may_touch(source.low, source.high, source.number):
        return True
    keys = source.keys
    return (
        keys is not None
        and keys.without_gaps(source.rows)
        and not deletes.within(keys.write_ids[0], keys.buckets[0], *keys.row_ids)
    )


def recorded_count(files: Sequence[RecordedFile], column: Column | None) -> int | None:
    """The number of rows in which the column is not NULL, or of all; None if it is not proven."""
    total = 0
    for file in files:
        rows = file.source.rows
        if rows is None or not file.whole:
            return None
        if column is not None and rows:
            bounds = file.range_of(column)
            if bounds is None:
                return None
            rows -= bounds.nulls
        total += rows
    return total


def recorded_extreme(
    files: Sequence[RecordedFile], column: Column, greatest: bool, scan: ArrowScan | None = None
) -> pa.Scalar | None:
    """The least or the greatest value of the column, NULL without any; None if it is not proven.

    With their `scan`, files that are not whole are read as long as they may have a value beyond
    those that are known. Raises CorruptFile, UnsupportedLayout, NeedsSpark then.
    """
    if column.type.kind not in _BOUNDED:
        return None
    bounded: list[tuple[Any, RecordedFile]] = []
    for file in files:
        if file.source.rows == 0:
            continue
        bounds = file.range_of(column)
        if bounds is None:
            return None
        if bounds.values:
            bound = _exact(bounds, column, greatest)
            if bound is None:
                return None
            bounded.append((bound, file))
    bounded.sort(key=lambda each: not each[1].whole)
    bounded.sort(key=itemgetter(0), reverse=greatest)
    choose = max if greatest else min
    values: list[Any] = []
    for bound, file in bounded:
        if values and choose(bound, *values) in values:
            break
        if file.whole:
            values.append(bound)
        elif scan is None:
            return None
        else:
            values += _live_extreme(scan, file, column, bound, greatest)
    return _stored(choose(values, default=None), column)


def _live_extreme(
    scan: ArrowScan, file: RecordedFile, column: Column, bound: Any, greatest: bool
) -> list[Any]:
    """The least or the greatest live value in a file whose values reach no further than `bound`;
    empty without any."""
    of_file = replace(scan.scan, entities=(file.entity,))
    values: list[Any] = []
    # Values often ascend with the rows: the greatest one is looked for from the end.
    for batch in ArrowScan(of_file, (column.name,)).one_by_one(backwards=greatest):
        scalar = pc.min_max(batch.column(0))["max" if greatest else "min"]
        # Python has no days before the year 1.
        edge = scalar.value if isinstance(scalar, pa.Date32Scalar) else scalar.as_py()
        values += [] if edge is None else [edge]
        if edge == bound:
            break
    return values


def _exact(bounds: ColumnRange, column: Column, greatest: bool) -> int | Decimal | str | None:
    """The bound, if it is a value of the column as it is declared."""
    bound = trusted_bound(bounds.high if greatest else bounds.low, bounds.kind)
    if bound is None or column.type.kind not in _DECLARED.get(bounds.kind, ()):
        return None
    if isinstance(bound, str) and len(bound) >= MOST_TEXT:  # it may be cut
        return None
    return bound if _stored(bound, column) is not None else None


def _stored(value: int | Decimal | str | None, column: Column) -> pa.Scalar | None:
    """The value in the column's type; None if that does not hold it."""
    given: object = value
    try:
        if isinstance(value, int) and column.type.kind == "date":
            given = _FIRST_DAY + datetime.timedelta(value)
        scalar = scalar_of(given, arrow_type(column.type))
    except (pa.ArrowInvalid, OverflowError):
        return None
    return scalar
