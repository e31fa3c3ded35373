"""Running statements that change the columns of a table. Each names what it makes of the columns,
so that EXPLAIN can tell what that costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from acid_platform.errors import UnsupportedStatement
from acid_platform.layout.constraints import Constraint
from acid_platform.metastore.shown import Shown
from acid_platform.sql.catalog import Catalog
from acid_platform.sql.column_lists import ColumnList
from acid_platform.sql.commands import ALTER, NAMES, ONE, TEXT, Commands
from acid_platform.tables.column_changes import (
    Changing,
    added,
    altered,
    changed,
    dropped,
    replaced,
    typed,
)

if TYPE_CHECKING:
    from acid_platform.handles.table import Table
    from acid_platform.sql.sql_session import SqlSession


COLUMNS = Commands(alone=True)
_PARTITIONS_TOO = r"(?: (?:cascade|restrict))?"
"""Whether Hive changes its partitions' own columns; here partitions have those of the table."""
_PLACE = rf"(?:(?P<first>first)|after (?P<after>{ONE}))"


def _handle(session: SqlSession, catalog: Catalog, table: str) -> Table:
    """Raises NoSuchTable, UnsupportedStatement for a view."""
    return session.warehouse.table(catalog.target(table).name)


def _changing(
    name: str, pattern: str
) -> Callable[[Callable[..., Changing]], Callable[..., Changing]]:
    """Enters a function that returns the change that the arguments of the statement mean."""

    def enter(changing: Callable[..., Changing]) -> Callable[..., Changing]:
        def run(session: SqlSession, catalog: Catalog, table: str, **arguments: Any) -> None:
            _handle(session, catalog, table).change_columns(changing(**arguments))

        def explain(session: SqlSession, catalog: Catalog, table: str, **arguments: Any) -> Shown:
            handle = _handle(session, catalog, table)
            return Shown.lines("Explain", handle.explain_columns(changing(**arguments)))

        COLUMNS(name, pattern, explain)(run)
        return changing

    return enter


def in_database(constraint: Constraint, catalog: Catalog) -> Constraint:
    """The constraint with the full name of the table that it refers to."""
    return replace(constraint, parent=constraint.parent and catalog.full(constraint.parent))


def _added(columns: str = "", listed: str = "", column: str = "") -> ColumnList:
    return _without_constraints(ColumnList.of(columns or listed or column))


def _without_constraints(new: ColumnList) -> ColumnList:
    """Raises UnsupportedStatement for a column with a constraint."""
    if new.constraints:
        raise UnsupportedStatement(
            f"ADD COLUMNS with {new.constraints[0]} is not supported; add the column, then ALTER"
            " TABLE … CHANGE COLUMN … with the constraint"
        )
    return new


def _explain_added(session: SqlSession, catalog: Catalog, table: str, **texts: str) -> Shown:
    new, record = _added(**texts), _handle(session, catalog, table).record
    added(new.text, new.comments)(record)
    return Shown.lines("Explain", ["only the declaration changes: no lock, and no file is written"])


@COLUMNS(
    "ALTER TABLE ADD COLUMNS",
    rf"{ALTER} add (?:columns ?\((?P<columns>.+)\){_PARTITIONS_TOO}"
    r"|column ?(?:\((?P<listed>.+)\)|(?P<column>[^( ].*)))",
    _explain_added,
)
def add_columns(session: SqlSession, catalog: Catalog, table: str, **texts: str) -> None:
    new = _added(**texts)
    _handle(session, catalog, table).add_columns(new.text, new.comments)


def _explain_change(
    session: SqlSession,
    catalog: Catalog,
    table: str,
    old: str,
    column: str,
    first: bool = False,
    after: str | None = None,
) -> Shown:
    new, handle = ColumnList.of(column), _handle(session, catalog, table)
    changing = changed(old, new.text, "" if first else after)
    return Shown.lines("Explain", handle.explain_columns(changing))


@COLUMNS(
    "ALTER TABLE CHANGE",
    rf"{ALTER} change (?:column )?(?P<old>{ONE}) (?P<column>{ONE} .+?)"
    rf"(?: {_PLACE})?{_PARTITIONS_TOO}",
    _explain_change,
)
def change_column(
    session: SqlSession,
    catalog: Catalog,
    table: str,
    old: str,
    column: str,
    first: bool = False,
    after: str | None = None,
) -> None:
    new = ColumnList.of(column)
    comment = next(iter(new.comments.values()), None)
    constraints = [in_database(one, catalog) for one in new.constraints]
    place = "" if first else after
    _handle(session, catalog, table).change_column(old, new.text, place, comment, constraints)


@_changing("ALTER TABLE RENAME COLUMN", rf"{ALTER} rename column (?P<old>{ONE}) to (?P<new>{ONE})")
def rename_column(old: str, new: str) -> Changing:
    return altered(old, new)


@_changing(
    "ALTER TABLE DROP COLUMN",
    rf"{ALTER} drop (?:column (?P<old>{ONE})|columns? ?\((?P<names>{NAMES})\))",
)
def drop_columns(old: str = "", names: tuple[str, ...] = ()) -> Changing:
    return dropped(names or (old,))


@_changing(
    "ALTER TABLE REPLACE COLUMNS",
    rf"{ALTER} replace columns ?\((?P<columns>.+)\){_PARTITIONS_TOO}",
)
def replace_columns(columns: str) -> Changing:
    listed = _without_constraints(ColumnList.of(columns))
    return replaced(listed.text, listed.comments)


@_changing(
    "ALTER TABLE ALTER COLUMN",
    rf"{ALTER} alter (?:column )?(?P<old>{ONE})"
    rf" (?:(?:set data )?type (?P<type>.+)|comment (?P<comment>{TEXT})|{_PLACE})",
)
def alter_column(
    old: str,
    type: str = "",
    comment: str | None = None,
    first: bool = False,
    after: str | None = None,
) -> Changing:
    return typed(old, type) if type else altered(old, "", "" if first else after, comment)
