"""The warehouse tables that a query reads, and the query with placeholders in their place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlglot import exp

from acid_platform.layout.schema import VIRTUAL_COLUMNS
from acid_platform.sql.pruning import conditions, needed_columns
from acid_platform.sql.scopes import direct_tables, full_name, stored_tables


@dataclass(frozen=True, slots=True)
class Source:
    """A table in FROM or JOIN.

    `where` has the conditions to push to its scan, `columns` the columns that the query names
    (None: all), `virtual` the virtual columns that it reads.
    """

    placeholder: str
    table: str
    where: str | None = None
    columns: tuple[str, ...] | None = None
    virtual: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Bound:
    """A query in Spark SQL whose tables are the placeholders of `sources`."""

    text: str
    sources: tuple[Source, ...]


def bind(
    query: exp.Query,
    prefix: str,
    columns_of: Callable[[str], Sequence[str]],
    database: str = "default",
) -> Bound:
    """Replace each warehouse table by `<prefix>_<n>`, keeping the name that columns refer to.

    `columns_of` gives the columns of a table by its full name, partition columns included.
    """
    tree = query.copy()
    tables = stored_tables(tree)
    columns = {id(table): tuple(columns_of(full_name(table, database))) for table in tables}
    for table in tables:
        drop_database(table)
    pushed = conditions(tree, columns)
    needed = {id(table): needed_columns(tree, table, columns[id(table)]) for table in tables}
    virtual = _virtual(tree, tables)
    for select in tree.find_all(exp.Select):
        _leave_out(select, virtual)
    sources = []
    for number, table in enumerate(tables):
        wanted = needed[id(table)]
        parts = pushed.get(id(table), [])
        source = Source(
            f"{prefix}_{number}",
            full_name(table, database),
            exp.and_(*parts).sql(dialect="spark") if parts else None,
            None if wanted is None else tuple(wanted or columns[id(table)][:1]),
            tuple(sorted(virtual.get(id(table), ()), reverse=True)),
        )
        if not table.alias:
            table.set("alias", exp.TableAlias(this=table.this.copy()))
        table.set("this", exp.to_identifier(source.placeholder))
        table.set("db", None)
        table.set("catalog", None)
        sources.append(source)
    return Bound(tree.sql(dialect="spark"), tuple(sources))


def drop_database(table: exp.Table) -> None:
    """Drop the database from names such as `db.t.id`: the placeholder's alias is only `t`."""
    if not table.db or table.alias:
        return
    select = table.find_ancestor(exp.Select)
    for column in select.find_all(exp.Column) if select else ():
        names = [part.name.lower() for part in column.parts]
        if len(names) > 2 and names[:2] == [table.db.lower(), table.name.lower()]:
            last, *qualifiers = reversed([part.name for part in column.parts[1:]])
            column.replace(exp.column(last, *qualifiers, quoted=True))


def _virtual(tree: exp.Query, tables: list[exp.Table]) -> dict[int, set[str]]:
    """Virtual columns by the `id` of their table; unqualified: all tables of the nearest SELECT."""
    known = {id(table) for table in tables}
    virtual: dict[int, set[str]] = {}
    for column in tree.find_all(exp.Column):
        names = [part.name.lower() for part in column.parts]
        name = next((known for known in VIRTUAL_COLUMNS if known in names), None)
        if name is None:
            continue
        position = names.index(name)
        select = column.find_ancestor(exp.Select)
        while select is not None:
            near = [table for table in direct_tables(select) if id(table) in known]
            if position:
                near = [
                    table for table in near if table.alias_or_name.lower() == names[position - 1]
                ]
            if near:
                for table in near:
                    virtual.setdefault(id(table), set()).add(name)
                break
            select = select.find_ancestor(exp.Select)
    return virtual


def _leave_out(select: exp.Select, virtual: dict[int, set[str]]) -> None:
    """Exclude virtual columns from `*` and `t.*`."""
    for table in direct_tables(select):
        alias = table.alias_or_name
        for name in sorted(virtual.get(id(table), ())):
            for item in select.expressions:
                if isinstance(item, exp.Star):
                    hidden = [*(item.args.get("except_") or ()), exp.column(name, alias)]
                    item.set("except_", hidden)
                elif (
                    isinstance(item, exp.Column)
                    and isinstance(item.this, exp.Star)
                    and item.table.lower() == alias.lower()
                ):
                    hidden = [*(item.this.args.get("except_") or ()), exp.column(name)]
                    item.this.set("except_", hidden)
