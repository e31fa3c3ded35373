"""Which stored columns the columns of a query are computed of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.lineage import Node, lineage
from sqlglot.schema import MappingSchema

from acid_platform.errors import UnsupportedStatement
from acid_platform.sql.scopes import ColumnsOf, full_name, stored_tables
from acid_platform.sql.text import DIALECT, Query
from acid_platform.sql.time_travel import stored_name

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
