"""Running the statements of external tables: declaring them, and which partitions they have."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from acid_platform.errors import InvalidExpression, TableExists, UnsupportedStatement
from acid_platform.layout.external_formats import external_format
from acid_platform.metastore.operations.tables import DeclareView
from acid_platform.sql.answers import Done
from acid_platform.sql.commands import TABLE, TEXT, CommandRun, Commands
from acid_platform.sql.partition_specs import PartitionSpec, partition_specs, whole_name
from acid_platform.sql.text import tokens_of
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
    from acid_platform.sql.statements import CreateExternal

EXTERNAL = Commands(alone=True)
_SPEC = rf"partition ?\((?:[^')]|{TEXT})+\)"
LISTED_SPECS = rf"(?P<specs>{_SPEC}(?:[ ,]*{_SPEC})*)"
"""Several PARTITION (…), as a group."""
_LOCATED = re.compile(rf"[ ,]*{LISTED_SPECS}(?: ?location (?P<location>{TEXT}))?", re.IGNORECASE)


def create_external(run: CommandRun, declared: CreateExternal) -> None:
    metastore, full = run.metastore, run.catalog.full(declared.name)
    run.catalog.require_database(full.partition(".")[0])
    view = external_table(
        metastore,
        full,
        declared.columns,
        declared.keys,
        declared.location,
        external_format(
            full,
            declared.format.stored,
            declared.format.serde,
            declared.format.options,
            declared.properties,
        ),
        declared.properties,
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


def forget_external_partitions(
    metastore: Metastore, external: ViewRecord, names: Collection[str]
) -> None:
    """The partitions are no longer read; their files stay."""
    left = {
        name: where for name, where in files_of(external).partitions.items() if name not in names
    }
    _declare(metastore, external, left)


@EXTERNAL(
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
