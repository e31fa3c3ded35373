"""Recognising `SELECT count(*) FROM t`, the only query that is answered from footers."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp


@dataclass(frozen=True, slots=True)
class CountedTable:
    """The table to count, and the name of the result's column."""

    table: str
    name: str


def counted_table(tree: exp.Query) -> CountedTable | None:
    """The table to count; None for any other query, e.g. with a condition or a join."""
    if not isinstance(tree, exp.Select) or len(tree.expressions) != 1:
        return None
    used = {name for name, value in tree.args.items() if value}
    if used - {"expressions", "from_", "kind"}:
        return None
    (column,) = tree.expressions
    count = column.unalias()
    if not (
        isinstance(count, exp.Count)
        and isinstance(count.this, exp.Star)
        and not count.this.args.get("except_")
    ):
        return None
    source = tree.args.get("from_")
    table = source.this if source is not None else None
    if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
        return None
    if {name for name, value in table.args.items() if value} - {"this", "db", "alias"}:
        return None
    name = f"{table.db}.{table.name}" if table.db else table.name
    return CountedTable(name.lower(), column.alias if column.alias else "count(1)")
