"""The tables and columns that a script names, from its text alone: no warehouse is asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.lineage import Node, lineage
from sqlglot.schema import MappingSchema

from acid_platform.errors import UnsupportedStatement
from acid_platform.sql.parse import parse, split
from acid_platform.sql.scopes import ColumnsOf, full_name, stored_tables
from acid_platform.sql.statements import Change, names_read
from acid_platform.sql.text import DIALECT, Query
from acid_platform.sql.time_travel import stored_name


@dataclass(frozen=True, slots=True)
class ScriptTables:
    """Full names of the tables and views that a script reads, and of the tables that it changes.

    A name without a database is in `default`.
    """

    reads: frozenset[str]
    changes: frozenset[str]
    query: Query | None
    """The script if it is one query; then it changes nothing."""


def tables_of_script(script: str) -> ScriptTables:
    """What one query names, or statements that change rows.

    Raises UnsupportedStatement for any other script, InvalidExpression.
    """
    statements = [parse(statement) for statement in split(script)]
    changing = [statement for statement in statements if isinstance(statement, Change)]
    query = statements[0] if len(statements) == 1 and isinstance(statements[0], Query) else None
    if query is None and (not changing or len(changing) < len(statements)):
        raise UnsupportedStatement(
            f"{'there is no statement: ' if not statements else ''}write one SELECT, or only"
            " statements that change rows: INSERT, UPDATE, DELETE, MERGE, TRUNCATE or LOAD DATA"
        )
    return ScriptTables(
        frozenset(name for each in statements for name in names_read(each, "default")),
        frozenset(_full(part.table) for statement in changing for part in statement.parts),
        query,
    )


def column_names(query: Query) -> list[str] | None:
    """The names of its columns, in lower case; None if its text alone does not tell all of them."""
    plain = (exp.Column, exp.Alias, exp.Aliases)
    names = [name.lower() for name in query.tree.named_selects]
    told = all(isinstance(column, plain) for column in query.tree.selects) and "*" not in names
    return names if told else None


def _full(name: str) -> str:
    return name if "." in name else f"default.{name}"


Sources = frozenset[tuple[str, str]]
"""Full names of tables or views, each with the name of a column."""


def column_lineage(query: Query, columns_of: ColumnsOf) -> Mapping[str, Sources]:
    """By the name of each column of the query, in lower case; a name without a database is in
    `default`.

    A column that only a condition names is no source. Raises UnsupportedStatement for a query that
    sqlglot does not resolve, and what `columns_of` raises.
    """
    tree = query.tree.copy()
    schema: dict[str, dict[str, dict[str, str]]] = {}
    for table in stored_tables(tree):
        database, _, name = full_name(table, "default").partition(".")
        table.set("db", exp.to_identifier(database, quoted=True))
        columns = columns_of(stored_name(f"{database}.{name}"))
        schema.setdefault(database, {})[name] = dict.fromkeys(columns, "string")
    try:
        nodes = lineage(
            None,
            tree,
            MappingSchema({**schema}, dialect=DIALECT, normalize=False),
            dialect=DIALECT,
            copy=False,
            trim_selects=False,
            validate_qualify_columns=True,
        )
    except (SqlglotError, ValueError) as error:
        raise UnsupportedStatement(
            f"the columns of this query are not resolved: {error}"
        ) from error
    return {name.lower(): frozenset(_sources(node)) for name, node in nodes.items()}


def _sources(column: Node) -> Iterator[tuple[str, str]]:
    for node in column.walk():
        if isinstance(node.expression, exp.Table):
            name = exp.to_column(node.name).name.lower()
            yield stored_name(full_name(node.expression, "default")), name
