"""Temporary views: queries that a session knows by names of no database.

A statement that names one gets its query in that place before it runs, so that nothing else knows
of them. As in Spark, such a name hides a table of the current database.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import TypeVar, cast

from sqlglot import exp

from acid_platform.errors import UnsupportedStatement
from acid_platform.layout.sql_text import quoted
from acid_platform.sql.scopes import stored_tables
from acid_platform.sql.statements import Command, CreateView
from acid_platform.sql.text import Edit, Expression, Query, edited, expression, place, query

_Part = TypeVar("_Part")
Queries = Mapping[str, str]
"""The texts of the queries of temporary views, by name."""
_BEFORE = "SELECT 1 WHERE "


def expanded(part: _Part, views: Queries) -> _Part:
    """A statement, or a part of one, with the queries of temporary views in their places.

    Raises UnsupportedStatement for a view that would outlive one that it reads.
    """
    made: object = part
    match part:
        case Query():
            text = _expanded(part.text, part.tree, views)
            made = part if text == part.text else query(text)
        case Expression() if part.tree.find(exp.Query):
            asked = query(_BEFORE + part.text)
            text = _expanded(asked.text, asked.tree, views).removeprefix(_BEFORE)
            made = part if text == part.text else expression(text)
        case CreateView(temporary=False):
            if named := _named(part.query.tree, views):
                raise UnsupportedStatement(
                    f"view {part.name} can't read {named[0].name}, a temporary view, which only"
                    " this session sees"
                )
        case tuple():
            made = tuple(expanded(each, views) for each in part)
        case Command():
            given = {name: expanded(each, views) for name, each in part.arguments.items()}
            made = replace(part, arguments=given)
        case _ if is_dataclass(part) and not isinstance(part, type):
            parts = {each.name: getattr(part, each.name) for each in fields(part) if each.init}
            changed = {name: expanded(each, views) for name, each in parts.items()}
            made = replace(part, **{n: v for n, v in changed.items() if v is not parts[n]})
    return cast("_Part", made)


def _expanded(text: str, tree: exp.Expr, views: Queries) -> str:
    edits = []
    for table in _named(tree, views):
        where, own = place(table), f"({views[table.name.lower()]}\n)"
        edits.append(Edit(where.start, where.stop, own))
        if where.alias is not None:
            edits.append(Edit(where.alias, where.alias, f" AS {quoted(table.name)}"))
    return edited(text, edits)


def _named(tree: exp.Expr, views: Queries) -> list[exp.Table]:
    return [
        table
        for table in stored_tables(tree)
        if len(table.parts) == 1 and table.name.lower() in views
    ]
