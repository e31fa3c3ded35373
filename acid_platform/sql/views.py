"""Expanding views in queries: each view is replaced by its query."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import sqlglot
from sqlglot import exp

from acid_platform.errors import InvalidDefinition
from acid_platform.sql.scopes import full_name, stored_tables
from acid_platform.sql.sources import drop_database

ViewQuery = Callable[[str], str | None]
"""Returns the query of a view by its full name; None for any other name."""


def with_databases(query: exp.Query, database: str) -> exp.Query:
    """A copy in which every stored table is qualified by its database."""
    tree = query.copy()
    for table in stored_tables(tree):
        if not table.db:
            table.set("db", exp.to_identifier(database))
            if not table.alias:
                table.set("alias", exp.TableAlias(this=table.this.copy()))
    return tree


def stored_query(query: exp.Query, columns: Sequence[str]) -> str:
    """The text of a view's query for the metastore; `columns` rename its result."""
    if not columns:
        return query.sql(dialect="hive")
    inner = exp.Subquery(
        this=query,
        alias=exp.TableAlias(
            this=exp.to_identifier("v"), columns=[exp.to_identifier(column) for column in columns]
        ),
    )
    return exp.select("*").from_(inner).sql(dialect="hive")


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
        inner = sqlglot.parse_one(text, dialect="hive")
        assert isinstance(inner, exp.Query)
        drop_database(table)
        alias = table.args.get("alias") or exp.TableAlias(this=table.this.copy())
        subquery = exp.Subquery(
            this=expand(inner, database, view_query, (*above, name)), alias=alias
        )
        for part in ("joins", "pivots", "sample"):
            subquery.set(part, table.args.get(part))
        table.replace(subquery)
    return tree
