"""The scopes of names in a query: its tables, its CTEs, the members of a FROM clause."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from sqlglot import exp

ColumnsOf = Callable[[str], Sequence[str]]
"""The columns of a table or view by its full name, those of partitions included."""


def stored_tables(tree: exp.Expr) -> list[exp.Table]:
    """The tables that are not CTEs where they stand, so the metastore must know them."""
    return [
        table
        for table in tree.find_all(exp.Table)
        if isinstance(table.this, exp.Identifier)
        and cte_of(table) is None
        and table.find_ancestor(exp.Hint) is None
    ]


def full_name(table: exp.Table, database: str) -> str:
    """`db.table` in lower case, after whatever else was written before it: such a name is of no
    table here."""
    *before, name = (part.name for part in table.parts)
    return ".".join((*(before or (database,)), name)).lower()


def cte_of(table: exp.Table) -> exp.CTE | None:
    """The CTE that a table name refers to, if any.

    As in Hive, a CTE sees the CTEs before it, and the body of the query sees all of them.
    """
    if table.db:
        return None
    name = table.name.lower()
    came_from: object = table
    node = table.parent
    while node is not None:
        visible: list[exp.CTE] = []
        if isinstance(node, exp.With):
            visible = node.expressions[
                : next(i for i, cte in enumerate(node.expressions) if cte is came_from)
            ]
        elif isinstance(node, exp.Query) and not isinstance(came_from, exp.With):
            visible = node.ctes
        for cte in visible:
            if cte.alias.lower() == name:
                return cte
        came_from, node = node, node.parent
    return None


def members(select: exp.Select) -> Iterator[exp.Expr]:
    """The members of FROM and JOIN of this SELECT, in order."""
    for clause in (select.args.get("from_"), *(select.args.get("joins") or ())):
        if clause is not None:
            yield clause.this


def direct_tables(select: exp.Select) -> list[exp.Table]:
    return [member for member in members(select) if isinstance(member, exp.Table)]


def visible_selects(node: exp.Expr) -> Iterator[exp.Select]:
    """The SELECTs whose members a name may mean where it stands, from the inside out.

    A subquery in FROM and a CTE don't see the members beside them; LATERAL and conditions of joins
    do.
    """
    beside = False
    below, around = node, node.parent
    while around is not None:
        match around:
            case exp.Select():
                if not beside:
                    yield around
                beside = False
            case exp.Lateral():
                beside = False
            case exp.CTE():
                beside = True
            case exp.From() | exp.Join() if around.this is below:
                beside = not isinstance(below, exp.Lateral)
        below, around = around, around.parent
