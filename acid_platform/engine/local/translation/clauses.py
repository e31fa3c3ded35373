"""The clauses of a query: which are translated, and the small parts that they share."""

from __future__ import annotations

from sqlglot import exp

from acid_platform.engine.local.translation.casts import Typed
from acid_platform.engine.local.translation.duckdb_types import ordered, spark_name
from acid_platform.engine.local.translation.functions import AGGREGATES, calls_of
from acid_platform.engine.local.translation.scope import ScopeColumn
from acid_platform.errors import NeedsSpark

_OPERATION = {"this", "expression", "distinct", "order", "limit", "offset", "with_"}
_PARTS: dict[type[exp.Expr], set[str]] = {
    exp.Select: {"expressions", "from_", "joins", "where", "group", "having", "distinct", "order",
                 "sort", "cluster", "distribute", "limit", "offset", "with_"},
    exp.Union: _OPERATION,
    exp.Intersect: _OPERATION,
    exp.Except: _OPERATION,
    exp.Subquery: {"this", "alias"},
    exp.Table: {"this", "alias"},
    exp.Values: {"expressions", "alias"},
    exp.Group: {"expressions"},
    exp.Distinct: set(),
    exp.With: {"expressions"},
    exp.CTE: {"this", "alias"},
}  # fmt: skip
"""The clauses that are translated; any other needs Spark."""


def require_parts(node: exp.Expr) -> None:
    """Raises NeedsSpark if the query has a clause that is not translated."""
    allowed = _PARTS.get(type(node))
    for part, value in node.args.items():
        if value and (allowed is None or part not in allowed):
            raise NeedsSpark(f"{part.strip('_').upper()} of {type(node).__name__.upper()}")


def columns_of_alias(node: exp.Expr) -> tuple[str, ...]:
    alias = node.args.get("alias")
    return tuple(column.name for column in alias.columns) if alias is not None else ()


def aggregated(node: exp.Expr | ScopeColumn | None) -> bool:
    """Whether an expression has an aggregate that is not inside of a window or a subquery."""
    if not isinstance(node, exp.Expr) or isinstance(node, exp.Window | exp.Query):
        return False
    if isinstance(node, exp.AggFunc) or any(
        function in AGGREGATES for function, _ in calls_of(node)
    ):
        return True
    return any(map(aggregated, node.iter_expressions()))


def order_of(node: exp.Expr) -> list[exp.Ordered]:
    """The order of ORDER BY, or of SORT BY and CLUSTER BY, which demand less than a total one."""
    clauses = [node.args[name] for name in ("order", "sort", "cluster") if node.args.get(name)]
    if not clauses:
        return []
    (order, *others), total = clauses, node.args.get("order") is not None
    if others or (node.args.get("distribute") and not node.args.get("sort")):
        raise NeedsSpark(f"{order.sql('spark').strip()} beside another order")
    terms = [
        term if isinstance(term, exp.Ordered) else exp.Ordered(this=term.copy(), nulls_first=True)
        for term in order.expressions
    ]
    if any(
        term.args.get("with_fill") or (isinstance(term.this, exp.Literal) and not total)
        for term in terms
    ):
        raise NeedsSpark(order.sql("spark").strip())
    return terms


def ordinal(node: exp.Expr, count: int) -> int | None:
    """The position that a literal number means in GROUP BY and ORDER BY."""
    if not isinstance(node, exp.Literal):
        return None
    if node.is_string or not node.this.isdigit() or not 1 <= int(node.this) <= count:
        raise NeedsSpark(f"the position {node.sql('spark')}")
    return int(node.this)


def sortable(value: Typed) -> str:
    if not ordered(value.type):
        raise NeedsSpark(f"grouping or sorting by {spark_name(value.type)}")
    return value.sql


def direction(term: exp.Ordered) -> str:
    way = "DESC" if term.args.get("desc") else "ASC"
    return f" {way} NULLS {'FIRST' if term.args.get('nulls_first') else 'LAST'}"


def limit_of(node: exp.Expr) -> str:
    """LIMIT and OFFSET, which must be literals."""
    sql = ""
    for part in ("limit", "offset"):
        clause = node.args.get(part)
        if clause is None:
            continue
        number = clause.expression
        if not (isinstance(number, exp.Literal) and number.this.isdigit()):
            raise NeedsSpark(clause.sql("spark"))
        sql += f" {part.upper()} {number.this}"
    return sql
