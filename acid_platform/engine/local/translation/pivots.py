"""PIVOT and UNPIVOT, said by GROUP BY and by LATERAL VIEW.

Where all results are numbers and booleans, Spark first groups by the other columns and the values
of the pivot's column, so that a value that does not occur in a group is NULL, also where a count of
no rows would be 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from sqlglot import exp

from acid_platform.engine.local.translation.column_names import ScopeColumn
from acid_platform.engine.local.translation.duckdb_sql import NUMERIC
from acid_platform.engine.local.translation.printed_names import column_name
from acid_platform.errors import NeedsSpark
from acid_platform.layout.types import HiveType
from acid_platform.predicates.analysis import parsed


def without_pivot(
    node: exp.Expr, columns: Sequence[ScopeColumn], grouped_first: bool = True
) -> exp.Select:
    """The SELECT that a member of FROM with a pivot stands for; `columns` are those of the member.

    `grouped_first`: as for results that are numbers and booleans. Raises NeedsSpark.
    """
    pivot, *others = node.args["pivots"]
    if others or len(pivot.args.get("fields") or ()) != 1 or pivot.args.get("group"):
        raise NeedsSpark("several pivots")
    names = [column.name.lower() for column in columns]
    if len({*names}) < len(names):
        raise NeedsSpark("a pivot of columns of which two have one name")
    source = node.copy()
    source.set("pivots", None)
    [field] = pivot.args["fields"]
    if not isinstance(field, exp.In) or not field.expressions:
        raise NeedsSpark(pivot.sql("spark"))
    if pivot.args.get("unpivot"):
        return _unpivoted(pivot, field, source, columns)
    return _pivoted(pivot, field, source, columns, grouped_first)


def grouped_before(node: exp.Expr, kinds: Iterable[HiveType]) -> bool:
    """Whether Spark groups first for a PIVOT whose columns are last among those of these types."""
    pivot = node.args["pivots"][0]
    made = 0 if pivot.args.get("unpivot") else len(pivot.args["fields"][0].expressions)
    new = [*kinds][-made * len(pivot.expressions) :] if made else []
    return all(kind.kind in (*NUMERIC, "boolean") for kind in new)


def _pivoted(
    pivot: exp.Pivot,
    field: exp.In,
    source: exp.Expr,
    columns: Sequence[ScopeColumn],
    grouped_first: bool,
) -> exp.Select:
    key = field.this
    calls = [(call.unalias(), call.alias) for call in pivot.expressions]
    if not isinstance(key, exp.Column) or len(key.parts) > 1 or not calls:
        raise NeedsSpark(pivot.sql("spark"))
    if not all(isinstance(call, exp.AggFunc) and not call.find(exp.Star) for call, _ in calls):
        raise NeedsSpark("PIVOT of anything but aggregates of columns")
    if not grouped_first and not all(isinstance(call, _OF_SOME) for call, _ in calls):
        raise NeedsSpark("PIVOT of such an aggregate of anything but numbers")
    used = {part.name.lower() for call, _ in calls for part in call.find_all(exp.Column)}
    used.add(key.name.lower())
    keys = [_column(each.name) for each in columns if each.name.lower() not in used]
    items: list[exp.Expr] = [*keys]
    for value, name in _values(field):
        test = exp.Where(this=exp.EQ(this=key.copy(), expression=value.copy()))
        there = exp.Filter(this=_ROWS_THERE.copy(), expression=test)
        for call, alias in calls:
            shown = f"{name}_{alias or column_name(call)}" if len(calls) > 1 else name
            own: exp.Expr = exp.Filter(this=call.copy(), expression=test.copy())
            if grouped_first:
                some = exp.GT(this=there.copy(), expression=exp.Literal.number(0))
                own = exp.Case(ifs=[exp.If(this=some, true=own)])
            items.append(exp.alias_(own, shown, quoted=True))
    group = exp.Group(expressions=[key.copy() for key in keys]) if keys else None
    return exp.Select(expressions=items, from_=exp.From(this=source), group=group)


def _values(field: exp.In) -> Iterator[tuple[exp.Expr, str]]:
    """The values of the pivot's column, which are literals, and what names their columns."""
    for each in field.expressions:
        value = each.this if isinstance(each, exp.PivotAlias) else each
        plain = value.this if isinstance(value, exp.Neg) else value
        if not isinstance(plain, exp.Literal) or (not plain.is_string and not plain.is_int):
            raise NeedsSpark(f"PIVOT for {value.sql('spark')}")
        name = f"-{plain.name}" if plain is not value else plain.name
        yield value, each.alias if isinstance(each, exp.PivotAlias) else name


def _unpivoted(
    pivot: exp.Pivot, field: exp.In, source: exp.Expr, columns: Sequence[ScopeColumn]
) -> exp.Select:
    declared = {column.name: column for column in columns}
    if len(pivot.expressions) != 1 or not isinstance(field.this, exp.Identifier):
        raise NeedsSpark("UNPIVOT into several columns")
    parts, moved = list[exp.Expr](), set[str]()
    for each in field.expressions:
        column = each.this if isinstance(each, exp.PivotAlias) else each
        plain = isinstance(column, exp.Column) and len(column.parts) == 1
        if not plain or column.name not in declared:  # Spark shows names as they are written
            raise NeedsSpark(f"UNPIVOT of {column.sql('spark')}")
        name = each.alias if isinstance(each, exp.PivotAlias) else column.name
        parts += (exp.Literal.string(name), _column(column.name))
        moved.add(column.name)
    kinds = {declared[name].type for name in moved}
    if len(kinds) > 1 or any(kind.is_told for kind in kinds):
        raise NeedsSpark("UNPIVOT of columns of several types")
    value = pivot.expressions[0].name
    left = {name.lower() for name in declared if name not in moved}
    if {value.lower(), field.this.name.lower()} & left:
        raise NeedsSpark("UNPIVOT into a column of the name of another")
    names = [exp.to_identifier(each, quoted=True) for each in (field.this.name, value)]
    stack = exp.Anonymous(
        this="stack", expressions=[exp.Literal.number(len(field.expressions)), *parts]
    )
    view = exp.Lateral(this=stack, view=True, alias=exp.TableAlias(this=_ROWS, columns=names))
    own = source.alias_or_name
    if not own:
        own = _SOURCE.name
        source.set("alias", exp.TableAlias(this=_SOURCE.copy()))
    items = [_column(name, own) for name in declared if name not in moved]
    items += [_column(name.name, _ROWS.name) for name in names]
    where = None
    if not pivot.args.get("include_nulls"):
        known = exp.Is(this=items[-1].copy(), expression=exp.null())
        where = exp.Where(this=exp.Not(this=known))
    return exp.Select(expressions=items, from_=exp.From(this=source), laterals=[view], where=where)


_OF_SOME = (exp.Max, exp.Min, exp.Sum, exp.Avg, exp.ArrayAgg)
"""Aggregates of which FILTER leaves what Spark gets of NULL for the other rows."""
_ROWS_THERE = parsed("count(*)")
_ROWS = exp.to_identifier("rows of unpivot", quoted=True)
_SOURCE = exp.to_identifier("source of unpivot", quoted=True)


def _column(name: str, table: str = "") -> exp.Column:
    of = exp.to_identifier(table, quoted=True) if table else None
    return exp.column(exp.to_identifier(name, quoted=True), table=of)
