"""Running statements that change the columns or partitions of a table, also of an external one.

A change of columns names what it makes of them, so that EXPLAIN can tell what that costs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from acid_platform.errors import (
    InvalidExpression,
    NoSuchPartition,
    TableExists,
    UnsupportedStatement,
)
from acid_platform.layout.formats import external_format
from acid_platform.metastore.operations.listings import Shown
from acid_platform.metastore.operations.tables import DeclareView, RegisterPartitions
from acid_platform.sql.answers import Done
from acid_platform.sql.column_lists import (
    ColumnList,
    PartitionSpec,
    matching,
    partition_specs,
    whole_name,
)
from acid_platform.sql.statements import (
    ALTER,
    COMMENTED,
    NAMES,
    ONE,
    TABLE,
    TEXT,
    CommandRun,
    Commands,
)
from acid_platform.sql.text import tokens_of
from acid_platform.tables.declaration import (
    Changing,
    added,
    altered,
    changed,
    dropped,
    replaced,
    typed,
)
from acid_platform.tables.external_tables import (
    as_table,
    external_table,
    files_of,
    partition_location,
    partitions_there,
    refuse_values,
)

if TYPE_CHECKING:
    from acid_platform.metastore.client.metastore import Metastore
    from acid_platform.metastore.records import TableRecord, ViewRecord
    from acid_platform.sql.statements import CreateTable

COLUMNS = Commands(alone=True)
_SPEC = rf"partition ?\((?:[^')]|{TEXT})+\)"
LISTED_SPECS = rf"(?P<specs>{_SPEC}(?:[ ,]*{_SPEC})*)"
"""Several PARTITION (…), as a group."""
_LOCATED = re.compile(rf"[ ,]*{LISTED_SPECS}(?: ?location (?P<location>{TEXT}))?", re.IGNORECASE)


def create_external(run: CommandRun, declared: CreateTable) -> None:
    metastore, full = run.metastore, run.catalog.full(declared.name)
    run.catalog.require_database(full.partition(".")[0])
    files, properties = declared.external, declared.properties
    assert files is not None and declared.location is not None
    view = external_table(
        metastore,
        full,
        declared.columns,
        declared.keys,
        declared.location,
        external_format(full, files.stored, files.serde, files.options, properties),
        properties,
        declared.comments,
    )
    metastore.call(DeclareView(view, declared.if_not_exists, or_replace=False))


def partition_names(
    metastore: Metastore, record: TableRecord, external: ViewRecord | None
) -> list[str]:
    """The partitions of a table; of an external one those that were declared."""
    if external is None or external.external is None:
        return metastore.partitions(record.name)
    return list(external.external.partitions)


def located_specs(
    specs: Sequence[PartitionSpec], location: str, more: str
) -> list[tuple[PartitionSpec, str]]:
    """The partitions of ADD PARTITION, each with its location or an empty text.

    `location` is that of the last of the `specs`, a text in quotes, and `more` what follows it.
    Raises InvalidExpression.
    """
    places = [(spec, "") for spec in specs]
    if location:
        places[-1] = (specs[-1], tokens_of(location)[0].text)
    while more:
        match = _LOCATED.match(more)
        if match is None:
            raise InvalidExpression(f"ADD PARTITION: {more.strip()!r} is no PARTITION (…)")
        places += [(spec, "") for spec in partition_specs(match["specs"])]
        if match["location"]:
            places[-1] = (places[-1][0], tokens_of(match["location"])[0].text)
        more = more[match.end() :].strip()
    return places


def add_external_partitions(
    metastore: Metastore,
    external: ViewRecord,
    places: Sequence[tuple[PartitionSpec, str]],
    if_not_exists: bool,
) -> None:
    """Raises TableExists, NoSuchPartition, InvalidDefinition."""
    record, present = as_table(external), files_of(external).partitions
    added: dict[str, str] = {}
    for spec, address in places:
        name = whole_name(spec, record)
        if name in present:
            if not if_not_exists:
                raise TableExists(
                    f"{external.name} already has partition {name}; use ADD IF NOT EXISTS"
                )
            continue
        refuse_values(external, name)
        added[name] = partition_location(metastore, external, address)
    _declare(metastore, external, {**present, **added})


@COLUMNS(
    "MSCK REPAIR TABLE",
    rf"msck (?:repair )?table {TABLE}(?: (?P<change>add|drop|sync) partitions)?",
)
def repair(run: CommandRun, table: str, change: str = "add") -> Done:
    """Adds the partitions whose directories are there; `drop` forgets those whose are gone.

    Raises UnsupportedStatement for a table of the warehouse, whose commits recorded its partitions.
    """
    external = run.catalog.external(run.catalog.full(table))
    if external is None:
        name = run.catalog.target(table).name
        raise UnsupportedStatement(
            f"MSCK of {name} has nothing to repair: commits recorded its partitions; `acid fsck`"
            " checks its files"
        )
    there = set(partitions_there(external))
    present = dict(files_of(external).partitions)
    missing = sorted(there - {*present}) if change.lower() in ("add", "sync") else []
    gone = [
        name
        for name, where in sorted(present.items())
        if change.lower() in ("drop", "sync") and not where and name not in there
    ]
    left = {name: where for name, where in present.items() if name not in gone}
    _declare(run.metastore, external, {**left, **dict.fromkeys(missing, "")})
    short = external.name
    lines = [f"Repair: Added partition to metastore {short}:{name}" for name in missing]
    lines += [f"Repair: Dropped partition from metastore {short}:{name}" for name in gone]
    return Done("MSCK REPAIR TABLE", "\n".join(lines) or "OK")


def _declare(metastore: Metastore, external: ViewRecord, partitions: Mapping[str, str]) -> None:
    """Declares the table anew with these partitions. Raises DeclarationChanged."""
    inward = metastore.places.inward
    files = files_of(external)
    if partitions == files.partitions:
        return
    stored = replace(
        files,
        location=inward(files.location),
        partitions={name: inward(where) for name, where in partitions.items()},
    )
    changed = replace(external, external=stored)
    metastore.call(DeclareView(changed, False, or_replace=True, read=external.version))


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
    rf"{ALTER} change (?!(?:column )?{ONE} comment {TEXT}$)(?:column )?(?P<old>{ONE})"
    rf" (?P<column>{ONE} .+?)"
    rf"(?: {_PLACE})?{_PARTITIONS_TOO}",
    _explain_change,
)
def change_column(
    run: CommandRun, table: str, old: str, column: str, after: str | None = None
) -> None:
    new = ColumnList.of(column)
    comment = next(iter(new.comments.values()), None)
    constraints = [run.in_database(constraint) for constraint in new.constraints]
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
    rf"{ALTER} (?:alter|change(?=.* comment {TEXT}$)) (?:column )?(?P<old>{ONE})"
    rf" (?:(?:set data )?type (?P<type>.+)|comment (?P<comment>{TEXT})|{_PLACE})",
)
def alter_column(
    old: str, type: str = "", comment: str | None = None, after: str | None = None
) -> Changing:
    return typed(old, type) if type else altered(old, None, after, comment)


@_changing("COMMENT ON COLUMN", rf"comment on column {TABLE}\.(?P<old>{ONE}) is {COMMENTED}")
def comment_column(old: str, comment: str = "") -> Changing:
    return altered(old, comment=comment)


@COLUMNS(
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


@COLUMNS(
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


@COLUMNS(
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
    if external is not None:  # the partitions are no longer read; their files stay
        there = files_of(external).partitions.items()
        left = {name: where for name, where in there if name not in names}
        _declare(run.metastore, external, left)
        return
    for name in names:
        run.metastore.drop(record.name, name)
