"""The warehouse tables that a query reads, and the query with placeholders in their place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache

from sqlglot import exp

from acid_platform.errors import InvalidDefinition, UnsupportedStatement
from acid_platform.layout.acid_keys import VIRTUAL_COLUMNS
from acid_platform.layout.sql_text import quoted
from acid_platform.sql.column_references import resolve
from acid_platform.sql.scopes import (
    ColumnsOf,
    NamedColumns,
    conditions,
    direct_tables,
    full_name,
    stored_tables,
)
from acid_platform.sql.text import (
    Edit,
    Query,
    edited,
    place,
    span,
    tokens_of,
    with_database,
    word,
)


@dataclass(frozen=True, slots=True)
class QueryTable:
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
    """A query as it was written, but for its tables, which are the placeholders of `sources`."""

    text: str
    sources: tuple[QueryTable, ...]


MOST_EXPANDED = 500
"""Views in the place of their names, and tables, in one query (P78). A view that names a view twice
doubles them with each level."""
ViewQuery = Callable[[str], Query | None]
"""The query of a view by its full name; None for any other name."""


def bind(
    query: Query,
    prefix: str,
    columns_of: ColumnsOf,
    database: str,
    view_query: ViewQuery,
) -> Bound:
    """Puts `<prefix>_<n>` in the place of each stored table, under the name that columns use, and
    the query of each view in its place.

    `columns_of` gives the columns of a table or view by its full name, partition columns included.
    Raises InvalidDefinition for a view that reads itself, UnsupportedStatement for more than
    MOST_EXPANDED views and tables, and what `column_references.resolve` raises.
    """
    binding = _Binding(prefix, columns_of, cache(view_query))
    text, tree = binding.expanded(query, database, ())
    columns = {id(stored.table): stored.columns for stored in binding.stored}
    pushed, named = conditions(tree, columns), NamedColumns.of(tree)
    sources = []
    for stored in binding.stored:
        parts = pushed.get(id(stored.table), [])
        needed = named.needed(stored.table, stored.columns)
        source = QueryTable(
            stored.placeholder,
            stored.name,
            exp.and_(*parts).sql(dialect="spark") if parts else None,
            None if needed is None else tuple(needed or stored.columns[:1]),
            tuple(sorted(stored.virtual, reverse=True)),
        )
        sources.append(source)
    return Bound(text, tuple(sources))


@dataclass(frozen=True, slots=True)
class _Stored:
    """A stored table in the tree of the whole query."""

    table: exp.Table
    placeholder: str
    name: str
    columns: tuple[str, ...]
    virtual: set[str]


@dataclass(frozen=True, slots=True)
class _Binding:
    prefix: str
    columns_of: ColumnsOf
    view_query: ViewQuery
    stored: list[_Stored] = field(default_factory=list)
    views: list[str] = field(default_factory=list)
    """Those that were expanded, as often as they were."""

    def _require_few(self, name: str) -> None:
        if len(self.stored) + len(self.views) >= MOST_EXPANDED:
            raise UnsupportedStatement(
                f"the query reads more than {MOST_EXPANDED:,} tables and views, through views that"
                f" name views, {name} among them; store what one of them says as a table"
            )

    def expanded(
        self, query: Query, database: str, above: tuple[str, ...]
    ) -> tuple[str, exp.Query]:
        """The text of a query with its placeholders, and a tree in which views are subqueries.

        `above` are the views that it is part of.
        """
        tree = query.tree.copy()
        tables = stored_tables(tree)
        names = resolve(tree, tables, self.columns_of, database)
        virtual = _virtual(tree, tables)
        edits = [*names.edits, *with_database(query.text, tree, database)]
        for select in tree.find_all(exp.Select):
            edits += _hidden(select, query.text, virtual, names.aliases)
        for table in tables:
            where, name = place(table), full_name(table, database)
            self._require_few(name)
            view = self.view_query(name)
            if view is None:
                number = len(self.stored)
                instead = f"{self.prefix}_{number}"
                self.stored.append(
                    _Stored(
                        table,
                        instead,
                        name,
                        tuple(self.columns_of(name)),
                        virtual.get(id(table), set()),
                    )
                )
            else:
                self.views.append(name)
                inner, inside = self.expanded(view, database, one_more(above, name))
                instead = f"({inner}\n)"
                _expand(table, inside)
            edits.append(Edit(where.start, where.stop, instead))
            if where.alias is not None:
                alias = f" AS {quoted(names.aliases[id(table)])}"
                edits.append(Edit(where.alias, where.alias, alias))
        return edited(query.text, edits), tree


def one_more(above: tuple[str, ...], view: str) -> tuple[str, ...]:
    """The views above, and this one. Raises InvalidDefinition for a view that reads itself."""
    if view in above:
        raise InvalidDefinition(f"view {view} reads itself: {' → '.join((*above, view))}")
    return (*above, view)


def _expand(table: exp.Table, inside: exp.Query) -> None:
    """Puts a subquery in the place of a view in the tree."""
    alias = table.args.get("alias") or exp.TableAlias(this=table.this.copy())
    subquery = exp.Subquery(this=inside, alias=alias)
    for part in ("joins", "pivots", "sample"):
        subquery.set(part, table.args.get(part))
    table.replace(subquery)


def _virtual(tree: exp.Query, tables: list[exp.Table]) -> dict[int, set[str]]:
    """Virtual columns by the `id` of their table; unqualified: all tables of the nearest SELECT."""
    stored = {id(table) for table in tables}
    virtual: dict[int, set[str]] = {}
    for column in tree.find_all(exp.Column):
        names = [part.name.lower() for part in column.parts]
        name = next(
            (virtual_name for virtual_name in VIRTUAL_COLUMNS if virtual_name in names), None
        )
        if name is None:
            continue
        position = names.index(name)
        select = column.find_ancestor(exp.Select)
        while select is not None:
            near = [table for table in direct_tables(select) if id(table) in stored]
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


def _hidden(
    select: exp.Select, text: str, virtual: dict[int, set[str]], aliases: dict[int, str]
) -> Iterator[Edit]:
    """The edits that leave virtual columns out of `*` and `t.*`."""
    tables = [table for table in direct_tables(select) if id(table) in virtual]
    if not tables:
        return
    for item in select.expressions:
        star = item.this if isinstance(item, exp.Column) else item
        if not isinstance(star, exp.Star):
            continue
        member = item.table.lower() if isinstance(item, exp.Column) else ""
        names = [
            f"{'' if member else quoted(aliases[id(table)]) + '.'}{name}"
            for table in tables
            if member in ("", table.alias_or_name.lower())
            for name in sorted(virtual[id(table)])
        ]
        if not names:
            continue
        end = span(star)[1]
        tokens = [token for token in tokens_of(text) if token.start >= end]
        if word(tokens, 0) == "EXCEPT" and word(tokens, 1) == "(":
            yield Edit(tokens[1].end + 1, tokens[1].end + 1, f"{', '.join(names)}, ")
        else:
            yield Edit(end, end, f" EXCEPT ({', '.join(names)})")
