"""Which warehouse tables a query reads, and the query with placeholders in their place. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import exp

ROW_ID = "row__id"


@dataclass(frozen=True, slots=True)
class Source:
    """One table in FROM or JOIN.

    `where` holds the conditions that only rows of it can meet, for partition pruning; `row_id` says
    that the query reads its virtual column row__id.
    """

    placeholder: str
    table: str
    where: str | None = None
    row_id: bool = False


@dataclass(frozen=True, slots=True)
class Bound:
    """A query in Spark's SQL whose tables are the placeholders of `sources`."""

    text: str
    sources: tuple[Source, ...]


def bind(query: exp.Query, prefix: str) -> Bound:
    """Replace each warehouse table by `<prefix>_<n>`, keeping the name that columns refer to.

    A name of a CTE that is visible at its place is no warehouse table.
    """
    tree = query.copy()
    tables = [one for one in tree.find_all(exp.Table)
              if isinstance(one.this, exp.Identifier) and not _is_cte(one)]
    for table in tables:
        _drop_database(table)
    with_ids = _tables_with_row_id(tree, tables)
    for select in tree.find_all(exp.Select):
        _leave_out_row_id(select, [one for one in _direct(select) if id(one) in with_ids])
    sources = []
    for number, table in enumerate(tables):
        name = ".".join(part.name for part in table.parts) if table.db else f"default.{table.name}"
        source = Source(f"{prefix}_{number}", name.lower(), _pruning(table), id(table) in with_ids)
        if not table.alias:
            table.set("alias", exp.TableAlias(this=table.this.copy()))
        table.set("this", exp.to_identifier(source.placeholder))
        table.set("db", None)
        table.set("catalog", None)
        sources.append(source)
    return Bound(tree.sql(dialect="spark"), tuple(sources))


def _is_cte(table: exp.Table) -> bool:
    """Hive: a CTE sees those before it, the body of the query sees all."""
    if table.db:
        return False
    name = table.name.lower()
    came_from: object = table
    node = table.parent
    while node is not None:
        if isinstance(node, exp.With):
            before = node.expressions[: next(
                i for i, one in enumerate(node.expressions) if one is came_from)]
            if any(one.alias.lower() == name for one in before):
                return True
        elif isinstance(node, exp.Query) and not isinstance(came_from, exp.With) \
                and any(one.alias.lower() == name for one in node.ctes):
            return True
        came_from, node = node, node.parent
    return False


def _direct(select: exp.Select) -> Iterator[exp.Table]:
    """The tables that stand in FROM and JOIN of this very SELECT."""
    from_ = select.args.get("from_")
    for one in (from_, *(select.args.get("joins") or ())):
        if one is not None and isinstance(one.this, exp.Table):
            yield one.this


def _drop_database(table: exp.Table) -> None:
    """`db.t.id` names a column of `db.t`; its placeholder is known as `t` only."""
    if not table.db or table.alias:
        return
    select = table.find_ancestor(exp.Select)
    for column in select.find_all(exp.Column) if select else ():
        names = [part.name.lower() for part in column.parts]
        if len(names) > 2 and names[:2] == [table.db.lower(), table.name.lower()]:
            last, *qualifiers = reversed([part.name for part in column.parts[1:]])
            column.replace(exp.column(last, *qualifiers, quoted=True))


def _tables_with_row_id(tree: exp.Query, tables: list[exp.Table]) -> set[int]:
    """Tables whose row__id is read: the qualified one, or all of the nearest SELECT."""
    known = {id(one) for one in tables}
    found: set[int] = set()
    for column in tree.find_all(exp.Column):
        names = [part.name.lower() for part in column.parts]
        if ROW_ID not in names:
            continue
        position = names.index(ROW_ID)
        select = column.find_ancestor(exp.Select)
        while select is not None:
            near = [one for one in _direct(select) if id(one) in known]
            if position:
                near = [one for one in near if one.alias_or_name.lower() == names[position - 1]]
            if near:
                found.update(id(one) for one in near)
                break
            select = select.find_ancestor(exp.Select)
    return found


def _leave_out_row_id(select: exp.Select, with_ids: list[exp.Table]) -> None:
    """A virtual column is not part of `*` or `t.*`."""
    for one in with_ids:
        alias = one.alias_or_name
        for item in select.expressions:
            if isinstance(item, exp.Star):
                hidden = [*(item.args.get("except_") or ()), exp.column(ROW_ID, alias)]
                item.set("except_", hidden)
            elif isinstance(item, exp.Column) and isinstance(item.this, exp.Star) \
                    and item.table.lower() == alias.lower():
                item.this.set("except_", [exp.column(ROW_ID)])


def _pruning(table: exp.Table) -> str | None:
    """Conditions of a WHERE over this table alone, as Spark SQL with bare column names."""
    select = table.find_ancestor(exp.Select)
    if select is None or list(_direct(select)) != [table] or not select.args.get("where"):
        return None
    if select.args.get("joins") or select.args.get("laterals") or table.args.get("joins"):
        return None
    condition = select.args["where"].this
    parts = list(condition.flatten()) if isinstance(condition, exp.And) else [condition]
    usable = [one.copy() for one in parts if not one.find(exp.Query, exp.Lambda)]
    for part in usable:
        for column in list(part.find_all(exp.Column)):
            if column.table.lower() == table.alias_or_name.lower() and not column.db:
                column.set("table", None)
    return exp.and_(*usable).sql(dialect="spark") if usable else None
