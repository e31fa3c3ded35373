"""Where the names of a query belong: its tables, its CTEs, what stands in one FROM. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp


def stored_tables(tree: exp.Expr) -> list[exp.Table]:
    """The names that are no CTE at their place, so that the metastore has to know them."""
    return [
        one
        for one in tree.find_all(exp.Table)
        if isinstance(one.this, exp.Identifier) and cte_of(one) is None
    ]


def full_name(table: exp.Table, database: str) -> str:
    """`db.table` in lower case."""
    return f"{table.db or database}.{table.name}".lower()


def cte_of(table: exp.Table) -> exp.CTE | None:
    """Hive: a CTE sees those before it, the body of the query sees all."""
    if table.db:
        return None
    name = table.name.lower()
    came_from: object = table
    node = table.parent
    while node is not None:
        visible: list[exp.CTE] = []
        if isinstance(node, exp.With):
            visible = node.expressions[
                : next(i for i, one in enumerate(node.expressions) if one is came_from)
            ]
        elif isinstance(node, exp.Query) and not isinstance(came_from, exp.With):
            visible = node.ctes
        for one in visible:
            if one.alias.lower() == name:
                return one
        came_from, node = node, node.parent
    return None


def members(select: exp.Select) -> Iterator[exp.Expr]:
    """What stands in FROM and JOIN of this very SELECT, in order."""
    for one in (select.args.get("from_"), *(select.args.get("joins") or ())):
        if one is not None:
            yield one.this


def direct_tables(select: exp.Select) -> list[exp.Table]:
    return [one for one in members(select) if isinstance(one, exp.Table)]


def conjuncts(condition: exp.Expr | None) -> list[exp.Expr]:
    """The parts that AND joins."""
    if condition is None:
        return []
    if isinstance(condition, exp.Paren):
        return conjuncts(condition.this)
    return list(condition.flatten()) if isinstance(condition, exp.And) else [condition]
