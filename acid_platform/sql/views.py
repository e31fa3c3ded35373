"""Views: the query that CREATE VIEW stores, and putting it in the place of the view's name.

The text that the user wrote is kept; each table in it is replaced by the columns that the view
needs of it: ``(SELECT `a`, `b` FROM `d`.`t`) AS `t` ``. So `*`, natural joins and names without a
table mean later what they meant at first, whatever columns the table gets, here and in every engine
that reads the text through the gateway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import sqlglot
from sqlglot import exp

from acid_platform.errors import InvalidDefinition, UnknownColumn, UnsupportedStatement
from acid_platform.layout.schema import VIRTUAL_COLUMNS
from acid_platform.layout.sql_text import sql_string
from acid_platform.layout.types import CHAR_TYPES, INTEGRAL, HiveType, parse_type
from acid_platform.metastore.records import ViewRecord
from acid_platform.sql.pruning import needed_columns
from acid_platform.sql.scopes import full_name, stored_tables
from acid_platform.sql.sources import drop_database
from acid_platform.tables.declaration import wider

ViewQuery = Callable[[str], str | None]
"""Returns the query of a view by its full name; None for any other name."""
Columns = Sequence[tuple[str, str]]
"""Names and types."""
Reads = tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
"""Full names of tables and views, each with the columns that a view reads of it."""
_Edit = tuple[int, int, str]
"""From and to which character of a text, and what stands there afterwards."""


def self_contained(text: str, database: str, columns_of: Callable[[str], Columns]) -> str:
    """A query that means the same in every session and after its tables got other columns.

    `database` is the session's, `columns_of` gives the columns of a table or view by its full name.
    Raises UnsupportedStatement for `*` beside virtual columns.
    """
    tree = parsed(text)
    tables = stored_tables(tree)
    selects = {id(table): table.find_ancestor(exp.Select) for table in tables}
    names = {
        (table.name.lower(), full_name(table, database)) for table in tables if not table.alias
    }
    short_names = [short for short, _ in names]
    aliases = {
        id(table): table.name if short_names.count(table.name.lower()) == 1 else "__".join(parts)
        for table in tables
        if not table.alias and (parts := full_name(table, database).split("."))
    }

    def edits() -> Iterator[_Edit]:
        for table in tables:
            full, select = full_name(table, database), selects[id(table)]
            stored = ".".join(_quoted(part) for part in full.split("."))
            if select is None or not _only_columns(select, table):
                if not table.alias and table.args.get("sample"):
                    raise UnsupportedStatement(f"a view over a sample of {full}: give it an alias")
                stored = f"(SELECT {_listed(tree, table, columns_of(full))} FROM {stored})"
                stored += f" AS {_quoted(aliases[id(table)])}" if not table.alias else ""
            yield _start(table.parts[0]), _end(table.parts[-1]), stored
        for column in tree.find_all(exp.Column):
            parts = [part.name.lower() for part in column.parts]
            qualified = ".".join(parts[:2]) if len(parts) > 2 else ""
            select = column.find_ancestor(exp.Select)
            while select is not None:
                near = [table for table in tables if selects[id(table)] is select]
                for table in near:
                    if id(table) not in aliases:
                        continue
                    by_database = qualified == full_name(table, database)
                    by_name = len(parts) > 1 and parts[0] == table.name.lower()
                    if by_database or (by_name and aliases[id(table)] != table.name):
                        last = column.parts[1 if by_database else 0]
                        yield _start(column.parts[0]), _end(last), _quoted(aliases[id(table)])
                        select = None
                        break
                select = select and select.find_ancestor(exp.Select)

    return _edited(text, edits())


def columns_read(query: str, columns_of: Callable[[str], Columns]) -> Reads:
    """What a self-contained query reads of each table and view."""
    tree = parsed(query)
    reads: dict[str, dict[str, str]] = {}
    for table in stored_tables(tree):
        full = full_name(table, "")
        columns = dict(columns_of(full))
        needed = needed_columns(tree, table, columns) or ()
        reads.setdefault(full, {}).update((name, columns[name]) for name in needed)
    return tuple((full, tuple(columns.items())) for full, columns in reads.items())


def named(query: str, columns: Sequence[str]) -> str:
    """The query with other names for its columns."""
    return f"SELECT * FROM (\n{query}\n) AS `v` ({', '.join(map(_quoted, columns))})"


def query_now(view: ViewRecord, columns_of: Callable[[str], Columns]) -> str:
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
                cast = _narrowed(_quoted(name), parse_type(now[name]), parse_type(then), view.name)
                if cast is None:
                    raise InvalidDefinition(
                        f"view {view.name} reads column {name!r} of {full} as {then}, but it is"
                        f" {now[name]} now; make the view again with CREATE OR REPLACE VIEW"
                    )
                casts.setdefault(full, {})[name] = f"{cast} AS {_quoted(name)}"
    if not casts:
        return view.query
    edits = [
        (_start(column.parts[0]), _end(column.parts[-1]), casts[full][column.name.lower()])
        for table in stored_tables(parsed(view.query))
        if (full := full_name(table, "")) in casts and (select := table.find_ancestor(exp.Select))
        for column in select.expressions
        if column.name.lower() in casts[full]
    ]
    return _edited(view.query, edits)


def expand(
    query: exp.Query, database: str, view_query: ViewQuery, above: tuple[str, ...] = ()
) -> exp.Query:
    """A copy in which all views, also nested ones, are replaced by subqueries of the same name.

    `above` are the views being expanded. Raises InvalidDefinition for a view that reads itself.
    """

    tree = query.copy()
    for table in stored_tables(tree):
        name = full_name(table, database)
        text = view_query(name)
        if text is None:
            continue
        if name in above:
            raise InvalidDefinition(f"view {name} reads itself: {' → '.join((*above, name))}")
        drop_database(table)
        alias = table.args.get("alias") or exp.TableAlias(this=table.this.copy())
        subquery = exp.Subquery(
            this=expand(parsed(text), database, view_query, (*above, name)), alias=alias
        )
        for part in ("joins", "pivots", "sample"):
            subquery.set(part, table.args.get(part))
        table.replace(subquery)
    return tree


def parsed(text: str) -> exp.Query:
    """The tree of a query in Hive's SQL."""
    tree = sqlglot.parse_one(text, dialect="hive")
    assert isinstance(tree, exp.Query)
    return tree


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
    return ", ".join(map(_quoted, listed)) or "1"


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


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _start(part: exp.Expr) -> int:
    return int(part.meta["start"])


def _end(part: exp.Expr) -> int:
    return int(part.meta["end"]) + 1


def _edited(text: str, edits: Iterator[_Edit] | Sequence[_Edit]) -> str:
    pieces, at = [], 0
    for start, end, other in sorted(edits):
        pieces += [text[at:start], other]
        at = end
    return "".join((*pieces, text[at:]))
