"""Finds unknown columns from the table's declaration, before a lock is taken or Spark starts.

Names that this module can't judge are left to Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from acid_platform.base.arguments import nearest_name
from acid_platform.errors import InvalidExpression, UnknownColumn
from acid_platform.layout.acid_keys import VIRTUAL_COLUMNS
from acid_platform.layout.sql_text import sql_string
from acid_platform.layout.types import Column, require_columns

if TYPE_CHECKING:
    from sqlglot import exp

_WORDS = {
    "current_date", "current_time", "current_timestamp", "current_timezone", "current_user",
    "current_catalog", "current_database", "current_schema", "localtimestamp", "localtime",
    "session_user", "user", "now", *VIRTUAL_COLUMNS, "_metadata",
}  # fmt: skip
_UNITS = {
    "year", "yearofweek", "quarter", "month", "week", "day", "dayofyear", "dayofweek", "hour",
    "minute", "second", "millisecond", "microsecond",
}  # fmt: skip


def require_names(text: str, columns: Sequence[Column], table: str) -> None:
    """Checks the names in a SQL expression over the rows of one table. Raises UnknownColumn."""
    from acid_platform.predicates.analysis import parsed

    names: list[str] = []
    with suppress(InvalidExpression):  # Spark may be able to parse it
        names = plain_names(parsed(text))
    try:
        require_columns(names, columns, table)
    except UnknownColumn as error:
        if "did you mean" in str(error):
            raise
        own = {column.name for column in columns}
        unknown = next(name for name in names if name.lower() not in own)
        raise UnknownColumn(f"{error}; a text stands in quotes: {sql_string(unknown)}") from None


def reads_table(text: str) -> bool:
    """Whether an expression has a subquery over a table."""
    from sqlglot import exp

    from acid_platform.predicates.analysis import parsed

    with suppress(InvalidExpression):  # Spark may be able to parse it
        return parsed(text).find(exp.Table) is not None
    return False


def plain_names(tree: exp.Expr) -> list[str]:
    """The unqualified names that must be columns; empty if the expression is too complex."""
    from sqlglot import exp

    if tree.find(exp.Select, exp.Lambda, exp.Star):
        return []
    return [
        column.name
        for column in tree.find_all(exp.Column)
        if len(column.parts) == 1 and not is_word(column)
    ]


def is_word(column: exp.Column) -> bool:
    """Whether the name is a word of SQL, such as CURRENT_DATE or the unit in a function call."""
    from sqlglot import exp

    name = column.name.lower()
    return name in _WORDS or (name in _UNITS and isinstance(column.parent, exp.Func))


def unresolved_column(name: str, columns: list[str]) -> UnknownColumn:
    """The error for a name as Spark spells it, such as "`t`.`nmae`"."""
    plain = name.replace("`", "")
    *qualified, last = plain.lower().split(".")
    near = last if qualified and last in columns else nearest_name(last, columns)
    hint = f"did you mean {near}?" if near else f"columns are {', '.join(sorted(set(columns)))}"
    return UnknownColumn(f"there is no column {plain}; {hint}")
