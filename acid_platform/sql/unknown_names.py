"""Finding names in a query that are no column, or none within Spark's reach, before Spark starts.

A name is judged only if all that it could refer to are columns of stored tables. Results of
subqueries, CTEs and functions are left to Spark (P33).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sqlglot import exp

from acid_platform.errors import UnknownColumn, UnsupportedStatement
from acid_platform.predicates.known_columns import is_word, unresolved_column
from acid_platform.sql.scopes import ColumnsOf, cte_of, full_name, members

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
    for distance, select in enumerate(_around(column)):
        reachable = False
        tables = _tables(select)
        if tables is None:
            return None
        for table in tables:
            alias = table.alias_or_name.lower()
            full = full_name(table, database)
            more = columns_of(full)
            by_alias[alias] = (*by_alias.get(alias, ()), *more)
            own = "" if table.args.get("alias") else full.partition(".")[0]
            reachable |= _names_column(parts, own, alias, set(map(str.lower, more)))
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


def _names_column(parts: list[str], database: str, alias: str, columns: set[str]) -> bool:
    """Whether the parts are those of a column of this table, or of a field of one.

    `database` is that of a table without another name, which may stand before its name.
    """
    if parts[0] in columns:
        return True
    return (parts[0] == alias and not columns.isdisjoint(parts[1:2])) or (
        parts[:2] == [database, alias] and not columns.isdisjoint(parts[2:3])
    )


def _around(column: exp.Column) -> Iterator[exp.Select]:
    """The SELECT that contains the column, then those around it, whose columns it may name too."""
    select = column.find_ancestor(exp.Select)
    while select is not None:
        yield select
        select = select.find_ancestor(exp.Select)


def _tables(select: exp.Select) -> list[exp.Table] | None:
    """The tables that it selects from; None if there is anything but stored tables."""
    tables = []
    for member in members(select):
        if (
            not isinstance(member, exp.Table)
            or not isinstance(member.this, exp.Identifier)
            or cte_of(member) is not None
            or _renames_columns(member)
        ):
            return None
        tables.append(member)
    return tables


def _renames_columns(table: exp.Table) -> bool:
    """Whether the alias renames columns, as in `t AS x(a, b)`."""
    alias = table.args.get("alias")
    return isinstance(alias, exp.TableAlias) and bool(alias.columns)


def _all_named(select: exp.Select) -> bool:
    return all(
        isinstance(item, exp.Column | exp.Alias | exp.Star | exp.Aliases)
        for item in select.expressions
    )


def _aliases(select: exp.Select) -> Iterator[str]:
    for item in select.expressions:
        if isinstance(item, exp.Aliases):
            yield from (name.name.lower() for name in item.aliases)
        elif item.alias:
            yield item.alias.lower()
