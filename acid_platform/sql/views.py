"""Views: the query that CREATE VIEW stores, and putting it in the place of the view's name.

The text that the user wrote is kept; each table in it is replaced by the columns that the view
needs of it: ``(SELECT `a`, `b` FROM `d`.`t`) AS `t` ``. So `*`, natural joins and names without a
table mean later what they meant at first, whatever columns the table gets, here and in every engine
that reads the text through the gateway.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from acid_platform.errors import InvalidDefinition, UnknownColumn, UnsupportedStatement
from acid_platform.layout.schema import VIRTUAL_COLUMNS
from acid_platform.layout.sql_text import quoted, sql_string
from acid_platform.layout.types import CHAR_TYPES, INTEGRAL, HiveType, parse_type
from acid_platform.metastore.records import ViewRecord
from acid_platform.sql.column_references import resolve
from acid_platform.sql.pruning import needed_columns
from acid_platform.sql.query_tables import ViewQuery, one_more
from acid_platform.sql.scopes import full_name, stored_tables
from acid_platform.sql.text import Edit, Query, edited, place, query, span
from acid_platform.tables.declaration import wider

Columns = Sequence[tuple[str, str]]
"""Names and types."""
Reads = tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
"""Full names of tables and views, each with the columns that a view reads of it."""


def self_contained(written: Query, database: str, columns_of: Callable[[str], Columns]) -> Query:
    """A query that means the same in every session and after its tables got other columns.

    `database` is the session's, `columns_of` gives the columns of a table or view by its full name.
    Raises UnsupportedStatement for `*` beside virtual columns.
    """
    tree = written.tree
    tables = stored_tables(tree)
    names = resolve(tree, tables, lambda full: [name for name, _ in columns_of(full)], database)
    edits = [*names.edits]
    for table in tables:
        full, where, alias = full_name(table, database), place(table), names.aliases[id(table)]
        select = table.find_ancestor(exp.Select)
        stored = ".".join(quoted(part) for part in full.split("."))
        as_it_is = select is not None and _only_columns(select, table)
        if not as_it_is:
            stored = f"(SELECT {_listed(tree, table, columns_of(full))} FROM {stored})"
        edits.append(Edit(where.start, where.stop, stored))
        if where.alias is not None and not (as_it_is and alias == table.name):
            edits.append(Edit(where.alias, where.alias, f" AS {quoted(alias)}"))
    return query(edited(written.text, edits))


def columns_read(written: Query, columns_of: Callable[[str], Columns]) -> Reads:
    """What a self-contained query reads of each table and view."""
    tree = written.tree
    reads: dict[str, dict[str, str]] = {}
    for table in stored_tables(tree):
        full = full_name(table, "")
        columns = dict(columns_of(full))
        needed = needed_columns(tree, table, columns) or ()
        reads.setdefault(full, {}).update((name, columns[name]) for name in needed)
    return tuple((full, tuple(columns.items())) for full, columns in reads.items())


def named(written: Query, columns: Sequence[str]) -> str:
    """The text of the query with other names for its columns."""
    return f"SELECT * FROM (\n{written.text}\n) AS `v` ({', '.join(map(quoted, columns))})"


def query_now(view: ViewRecord, columns_of: Callable[[str], Columns]) -> Query:
    """The query of a view with the types of its creation, over the present tables.

    A value of a widened column that does not fit the type of then is an error when it is read.
    Raises NoSuchTable, UnknownColumn, InvalidDefinition for a table that no longer has a column
    that the view reads, or has it with a type from which there is no way back.
    """
    casts: dict[str, dict[str, str]] = {}
    for full, columns in view.reads:
        now = dict(columns_of(full)) if columns else {}
        for name, then in columns:
            if name not in now:
                raise UnknownColumn(
                    f"view {view.name} reads column {name!r} of {full}, which has no such column"
                    " any more; make the view again with CREATE OR REPLACE VIEW"
                )
            if now[name] != then:
                cast = _narrowed(quoted(name), parse_type(now[name]), parse_type(then), view.name)
                if cast is None:
                    raise InvalidDefinition(
                        f"view {view.name} reads column {name!r} of {full} as {then}, but it is"
                        f" {now[name]} now; make the view again with CREATE OR REPLACE VIEW"
                    )
                casts.setdefault(full, {})[name] = f"{cast} AS {quoted(name)}"
    written = query(view.query)
    edits = [
        Edit(*span(column.this), casts[full][column.name.lower()])
        for table in stored_tables(written.tree)
        if (full := full_name(table, "")) in casts and (select := table.find_ancestor(exp.Select))
        for column in select.expressions
        if column.name.lower() in casts[full]
    ]
    return query(edited(view.query, edits)) if edits else written


def tables_read(
    written: Query,
    database: str,
    view_query: ViewQuery,
    above: tuple[str, ...] = (),
    known: dict[str, set[str]] | None = None,
) -> set[str]:
    """The full names of the tables that a query reads, also through views, each of which is looked
    at once.

    `above` are the views that it is part of. Raises InvalidDefinition for a view that reads itself.
    """
    of_views = {} if known is None else known
    names = set[str]()
    for table in stored_tables(written.tree):
        name = full_name(table, database)
        if name in of_views and name not in above:
            names |= of_views[name]
            continue
        view = view_query(name)
        if view is None:
            names.add(name)
        else:
            inside = one_more(above, name)
            of_views[name] = tables_read(view, database, view_query, inside, of_views)
            names |= of_views[name]
    return names


def _only_columns(select: exp.Select, table: exp.Table) -> bool:
    """Whether a SELECT lists columns of this table and does nothing else."""
    clauses = {name for name, value in select.args.items() if value}
    return (
        clauses <= {"expressions", "from_"}
        and select.args["from_"].this is table
        and {name for name, value in table.args.items() if value} <= {"this", "db"}
        and all(
            isinstance(item, exp.Column) and len(item.parts) == 1 and not item.is_star
            for item in select.expressions
        )
    )


def _listed(tree: exp.Query, table: exp.Table, columns: Columns) -> str:
    """The columns that a query needs of a table, as a list in SQL."""
    names = [name for name, _ in columns]
    needed = needed_columns(tree, table, names)
    select = table.find_ancestor(exp.Select)
    virtual = {
        column.name.lower()
        for column in (select.find_all(exp.Column) if select else ())
        if column.name.lower() in VIRTUAL_COLUMNS
        and column.table.lower() in ("", table.alias_or_name.lower())
    }
    if virtual and needed is None:
        raise UnsupportedStatement(
            f"a view with * and {min(virtual)} is not supported; name the columns of {table.name}"
        )
    listed = [*(names if needed is None else needed), *sorted(virtual, reverse=True)]
    return ", ".join(map(quoted, listed)) or "1"


def _narrowed(value: str, now: HiveType, then: HiveType, view: str) -> str | None:
    """A value in the narrower type of then, or an error if it does not fit; None if none is known.

    Reading rounds nothing and cuts nothing off. SQL has no way back to char and varchar.
    """
    if not wider(then, now) or then.kind in CHAR_TYPES:
        return None
    if {then.kind, now.kind} <= {*INTEGRAL, "decimal"} and then.sizes[1:] == now.sizes[1:]:
        return f"CAST({value} AS {then})"
    text = f"concat({sql_string(f'view {view}: ')}, CAST({value} AS string)"
    failure = f"CAST(CAST({text}, {sql_string(f' is no {then}')}) AS int) AS {then})"
    cast = f"CAST({value} AS {then})"
    fits = f"CAST({cast} AS {now}) = {value}"
    return f"CASE WHEN {value} IS NULL THEN NULL WHEN {fits} THEN {cast} ELSE {failure} END"
