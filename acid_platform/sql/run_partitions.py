"""Running statements that add, rename and drop partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from acid_platform.errors import (
    NoSuchPartition,
    TableExists,
    UnsupportedStatement,
)
from acid_platform.metastore.operations.tables import RegisterPartitions
from acid_platform.sql.catalog import Catalog
from acid_platform.sql.commands import ALTER, TEXT, Commands
from acid_platform.sql.partition_specs import PartitionSpec, matching, whole_name
from acid_platform.sql.run_external import (
    LISTED_SPECS,
    add_external_partitions,
    forget_external_partitions,
    located_specs,
    partition_names,
)
from acid_platform.tables.external_tables import as_table

if TYPE_CHECKING:
    from acid_platform.sql.sql_session import SqlSession


PARTITIONS = Commands(alone=True)


@PARTITIONS(
    "ALTER TABLE ADD PARTITION",
    rf"{ALTER} add (?P<if_not_exists>if not exists )?{LISTED_SPECS}"
    rf"(?: ?location (?P<location>{TEXT})(?P<more>.*))?",
)
def add_partitions(
    session: SqlSession,
    catalog: Catalog,
    table: str,
    specs: Sequence[PartitionSpec],
    if_not_exists: bool = False,
    location: str = "",
    more: str = "",
) -> None:
    """Raises UnsupportedStatement for a LOCATION, unless the table is external."""
    external = catalog.external(catalog.full(table))
    if external is not None:
        places = located_specs(specs, location, more)
        add_external_partitions(session, external, places, if_not_exists)
        return
    record, metastore = catalog.target(table), session.warehouse.metastore
    if location:
        raise UnsupportedStatement(
            f"ADD PARTITION … LOCATION: the partitions of {record.name} are below its directory;"
            " make the other directory a table by `acid adopt`, and INSERT its rows"
        )
    names = [whole_name(spec, record) for spec in specs]
    if not if_not_exists:
        existing = sorted(set(names) & set(metastore.partitions(record.name)))
        if existing:
            raise TableExists(
                f"{record.name} already has partition {existing[0]}; use ADD IF NOT EXISTS"
            )
    metastore.call(RegisterPartitions(record.name, tuple(names)))


@PARTITIONS(
    "ALTER TABLE RENAME PARTITION",
    rf"{ALTER} (?P<spec>partition ?\(.+\)) rename to (?P<new_spec>partition ?\(.+\))",
)
def rename_partition(
    session: SqlSession,
    catalog: Catalog,
    table: str,
    spec: PartitionSpec,
    new_spec: PartitionSpec,
) -> None:
    record = catalog.target(table)
    whole_name(spec, record)
    old, *others = matching(session.warehouse.metastore.partitions(record.name), record, spec)
    if others:
        raise NoSuchPartition(
            f"{record.name} has {old} and {', '.join(others)}, which mean the same; INSERT the rows"
            " of one into the other, and drop it"
        )
    session.warehouse.table(record.name).rename_partition(old, whole_name(new_spec, record))


@PARTITIONS(
    "ALTER TABLE DROP PARTITION",
    rf"{ALTER} drop (?P<if_exists>if exists )?(?P<compared_specs>partition ?\(.+\))(?: purge)?",
)
def drop_partitions(
    session: SqlSession,
    catalog: Catalog,
    table: str,
    compared_specs: Sequence[PartitionSpec],
    if_exists: bool = False,
) -> None:
    """A spec stands for all partitions that match it; it may omit columns, and compare.

    Raises InvalidExpression for a column without a value, NoSuchPartition.
    """
    metastore, external = session.warehouse.metastore, catalog.external(catalog.full(table))
    record = catalog.target(table) if external is None else as_table(external)
    existing = partition_names(metastore, record, external)
    names: dict[str, None] = {}
    for spec in compared_specs:
        try:
            names |= dict.fromkeys(matching(existing, record, spec))
        except NoSuchPartition:
            if not if_exists:
                raise
    if external is not None:
        forget_external_partitions(session, external, names)
        return
    for name in names:
        metastore.drop_partition(record.name, name)
