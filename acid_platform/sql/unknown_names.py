"""Finding names in a query that are no column, or none within Spark's reach, before Spark starts.

A name is judged only if all that it could refer to are columns of stored tables, and of CTEs and
subqueries that name theirs. Functions, and queries with a star, are left to Spark (P33).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from sqlglot import exp

from acid_platform.errors import UnknownColumn, UnsupportedStatement
from acid_platform.predicates.known_columns import is_word, unresolved_column
from acid_platform.sql.scopes import ColumnsOf, cte_of, full_name, members, visible_selects

_PLAIN = re.compile(r"[A-Za-z_]\w*")
_AFTER_SELECTION = (
    exp.Order,
    exp.Having,
    exp.Group,
    exp.Sort,
    exp.Cluster,
    exp.Distribute,
    exp.Qualify,
)


class _Source(NamedTuple):
    """What a query selects from: its name in lower case, and its columns."""

    alias: str
    database: str
    """May stand before the name; empty if nothing may."""
    columns: tuple[str, ...]

    def has(self, parts: list[str]) -> bool:
        """Whether the parts are those of a column of this source, or of a field of one."""
        columns = {column.lower() for column in self.columns}
        if parts[0] in columns:
            return True
        return (parts[0] == self.alias and not columns.isdisjoint(parts[1:2])) or (
            parts[:2] == [self.database, self.alias] and not columns.isdisjoint(parts[2:3])
        )


def refuse_unknown_names(query: exp.Query, columns_of: ColumnsOf, database: str) -> None:
    """Raises UnknownColumn for the first name that no table has as a column, and
    UnsupportedStatement for one that is a column two queries further out."""
    if query.find(exp.Lateral, exp.Unnest, exp.Pivot, exp.MatchRecognize):
        return
    for column in query.find_all(exp.Column):
        if error := _unknown(column, columns_of, database):
            raise error


def _beyond_reach(column: exp.Column) -> UnsupportedStatement:
    text = ".".join(part.name for part in column.parts)
    return UnsupportedStatement(
        f"{text} is a column of a query further out than the one directly around its subquery,"
        " which Spark does not resolve; join the tables in one of the queries between"
    )


def _unknown(
    column: exp.Column, columns_of: ColumnsOf, database: str
) -> UnknownColumn | UnsupportedStatement | None:
    parts = [part.name.lower() for part in column.parts]
    if (
        isinstance(column.this, exp.Star)
        or column.find_ancestor(exp.Lambda, exp.Hint)
        or is_word(column)
        or not all(map(_PLAIN.fullmatch, parts))
    ):
        return None
    by_alias: dict[str, tuple[str, ...]] = {}
    names: set[str] = set()
    level = 0  # of the query that has the column; 0 if it is where the name stands
    for distance, select in enumerate(visible_selects(column)):
        sources = _sources(select, columns_of, database)
        if sources is None:
            return None
        for source in sources:
            by_alias[source.alias] = (*by_alias.get(source.alias, ()), *source.columns)
        reachable = any(source.has(parts) for source in sources)
        if level == distance and not reachable:
            level += 1
        if not _all_named(select) and column.find_ancestor(*_AFTER_SELECTION):
            return None
        names.update(_aliases(select))
    if 1 < level <= distance and parts[0] not in names:
        return _beyond_reach(column)
    if len(parts) > 2:
        return None
    every = {name.lower() for columns in by_alias.values() for name in columns}
    if not by_alias or parts[0] in every | names:
        return None
    if len(parts) == 2:
        if parts[0] not in by_alias or parts[1] in map(str.lower, by_alias[parts[0]]):
            return None
        every = set(by_alias[parts[0]])
    return unresolved_column(".".join(part.name for part in column.parts), sorted(every))


def _sources(select: exp.Select, columns_of: ColumnsOf, database: str) -> list[_Source] | None:
    """What it selects from; None if the columns of one can't be told."""
    sources = []
    for member in members(select):
        query: exp.Expr | None = None
        if isinstance(member, exp.Subquery):
            query = member.this
        elif not isinstance(member, exp.Table) or not isinstance(member.this, exp.Identifier):
            return None
        elif (cte := cte_of(member)) is not None:
            if _renames_columns(cte):
                return None
            query = cte.this
        if _renames_columns(member):
            return None
        alias = member.alias_or_name.lower()
        if isinstance(member, exp.Table) and query is None:
            full = full_name(member, database)
            own = "" if member.args.get("alias") else full.partition(".")[0]
            sources.append(_Source(alias, own, tuple(columns_of(full))))
        elif isinstance(query, exp.Select) and all(map(_is_named, query.expressions)):
            sources.append(_Source(alias, "", tuple(query.named_selects)))
        else:
            return None
    return sources


def _renames_columns(source: exp.Expr) -> bool:
    """Whether the alias renames columns, as in `t AS x(a, b)`."""
    alias = source.args.get("alias")
    return isinstance(alias, exp.TableAlias) and bool(alias.columns)


def _all_named(select: exp.Select) -> bool:
    return all(
        _is_named(item) or item.is_star or isinstance(item, exp.Aliases)
        for item in select.expressions
    )


def _is_named(item: exp.Expr) -> bool:
    """Whether it is one column whose name stands there."""
    return isinstance(item, exp.Column | exp.Alias) and not item.is_star


def _aliases(select: exp.Select) -> Iterator[str]:
    for item in select.expressions:
        if isinstance(item, exp.Aliases):
            yield from (name.name.lower() for name in item.aliases)
        elif item.alias:
            yield item.alias.lower()
