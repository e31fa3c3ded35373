"""Running statements that change the columns or partitions of a table.

A change of columns names what it makes of them, so that EXPLAIN can tell what that costs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from acid_platform.errors import NoSuchPartition, TableExists, UnsupportedStatement
from acid_platform.metastore.operations.tables import RegisterPartitions
from acid_platform.metastore.show_columns import Shown
from acid_platform.sql.column_lists import ColumnList
from acid_platform.sql.commands import ALTER, NAMES, ONE, TEXT, CommandRun, Commands
from acid_platform.sql.partition_specs import PartitionSpec, matching, whole_name
from acid_platform.sql.run_external import (
    LISTED_SPECS,
    add_external_partitions,
    forget_external_partitions,
    located_specs,
    partition_names,
)
from acid_platform.tables.column_changes import (
    Changing,
    added,
    altered,
    changed,
    dropped,
    replaced,
    typed,
)

COLUMNS = Commands(alone=True)
_PARTITIONS_TOO = r"(?: (?:cascade|restrict))?"
"""Whether Hive changes its partitions' own columns; here partitions have those of the table."""
_PLACE = rf"(?P<after>first|after {ONE})"


def _changing(
    name: str, pattern: str
) -> Callable[[Callable[..., Changing]], Callable[..., Changing]]:
    """Enters a function that returns the change that the arguments of the statement mean."""

    def enter(changing: Callable[..., Changing]) -> Callable[..., Changing]:
        def change(run: CommandRun, table: str, **arguments: Any) -> None:
            run.handle(table).change_columns(changing(**arguments))

        def explain(run: CommandRun, table: str, **arguments: Any) -> Shown:
            lines = run.handle(table).explain_columns(changing(**arguments))
            return Shown.lines("Explain", lines)

        COLUMNS(name, pattern, explain)(change)
        return changing

    return enter


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


def _explain_added(run: CommandRun, table: str, **texts: str) -> Shown:
    new, record = _added(**texts), run.handle(table).record
    added(new.text, new.comments)(record)
    return Shown.lines("Explain", ["only the declaration changes: no lock, and no file is written"])


@COLUMNS(
    "ALTER TABLE ADD COLUMNS",
    rf"{ALTER} add (?:columns ?\((?P<columns>.+)\){_PARTITIONS_TOO}"
    r"|column ?(?:\((?P<listed>.+)\)|(?P<column>[^( ].*)))",
    _explain_added,
)
def add_columns(run: CommandRun, table: str, **texts: str) -> None:
    new = _added(**texts)
    run.handle(table).add_columns(new.text, new.comments)


def _explain_change(
    run: CommandRun, table: str, old: str, column: str, after: str | None = None
) -> Shown:
    changing = changed(old, ColumnList.of(column).text, after)
    return Shown.lines("Explain", run.handle(table).explain_columns(changing))


@COLUMNS(
    "ALTER TABLE CHANGE",
    rf"{ALTER} change (?:column )?(?P<old>{ONE}) (?P<column>{ONE} .+?)"
    rf"(?: {_PLACE})?{_PARTITIONS_TOO}",
    _explain_change,
)
def change_column(
    run: CommandRun, table: str, old: str, column: str, after: str | None = None
) -> None:
    new = ColumnList.of(column)
    comment = next(iter(new.comments.values()), None)
    constraints = [run.in_database(one) for one in new.constraints]
    run.handle(table).change_column(old, new.text, after, comment, constraints)


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
    old: str, type: str = "", comment: str | None = None, after: str | None = None
) -> Changing:
    return typed(old, type) if type else altered(old, None, after, comment)


PARTITIONS = Commands(alone=True)


@PARTITIONS(
    "ALTER TABLE ADD PARTITION",
    rf"{ALTER} add (?P<if_not_exists>if not exists )?{LISTED_SPECS}"
    rf"(?: ?location (?P<location>{TEXT})(?P<more>.*))?",
)
def add_partitions(
    run: CommandRun,
    table: str,
    specs: Sequence[PartitionSpec],
    if_not_exists: bool = False,
    location: str = "",
    more: str = "",
) -> None:
    """Raises UnsupportedStatement for a LOCATION, unless the table is external."""
    record, external = run.declared(table)
    if external is not None:
        places = located_specs(specs, location, more)
        add_external_partitions(run.metastore, external, places, if_not_exists)
        return
    if location:
        raise UnsupportedStatement(
            f"ADD PARTITION … LOCATION: the partitions of {record.name} are below its directory;"
            " make the other directory a table by `acid adopt`, and INSERT its rows"
        )
    names = [whole_name(spec, record) for spec in specs]
    if not if_not_exists:
        existing = sorted(set(names) & set(run.metastore.partitions(record.name)))
        if existing:
            raise TableExists(
                f"{record.name} already has partition {existing[0]}; use ADD IF NOT EXISTS"
            )
    run.metastore.call(RegisterPartitions(record.name, tuple(names)))


@PARTITIONS(
    "ALTER TABLE RENAME PARTITION",
    rf"{ALTER} (?P<spec>partition ?\(.+\)) rename to (?P<new_spec>partition ?\(.+\))",
)
def rename_partition(
    run: CommandRun,
    table: str,
    spec: PartitionSpec,
    new_spec: PartitionSpec,
) -> None:
    record = run.catalog.target(table)
    whole_name(spec, record)
    old, *others = matching(run.metastore.partitions(record.name), record, spec)
    if others:
        raise NoSuchPartition(
            f"{record.name} has {old} and {', '.join(others)}, which mean the same; INSERT the rows"
            " of one into the other, and drop it"
        )
    run.warehouse.table(record.name).rename_partition(old, whole_name(new_spec, record))


@PARTITIONS(
    "ALTER TABLE DROP PARTITION",
    rf"{ALTER} drop (?P<if_exists>if exists )?(?P<compared_specs>partition ?\(.+\))(?: purge)?",
)
def drop_partitions(
    run: CommandRun,
    table: str,
    compared_specs: Sequence[PartitionSpec],
    if_exists: bool = False,
) -> None:
    """A spec stands for all partitions that match it; it may omit columns, and compare.

    Raises InvalidExpression for a column without a value, NoSuchPartition.
    """
    record, external = run.declared(table)
    existing = partition_names(run.metastore, record, external)
    names: dict[str, None] = {}
    for spec in compared_specs:
        try:
            names |= dict.fromkeys(matching(existing, record, spec))
        except NoSuchPartition:
            if not if_exists:
                raise
    if external is not None:
        forget_external_partitions(run.metastore, external, names)
        return
    for name in names:
        run.metastore.drop(record.name, name)
