"""The plans of a cleaning, from the directories of its entities and what commits recorded there."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from acid_platform.compaction.cleaning_plan import CleaningPlan, plan_cleaning
from acid_platform.errors import CompactionLost
from acid_platform.layout.file_entries import EntityListing
from acid_platform.layout.formats import is_insert_only
from acid_platform.layout.names import DeltaName, is_hidden, parse_directory, span, temporary_owner
from acid_platform.metastore import operations as ops
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.records import EntityDirectory, RecordedDirectory, TableRecord
from acid_platform.metastore.tasks import EntityCleaning
from acid_platform.scan.acid_directory import AcidDirectory
from acid_platform.scan.selection import highest_floor, select
from acid_platform.services.removals import ours_only
from acid_platform.storage.files import Files
from acid_platform.transactions import RangeResponse, TxnState, ValidTxnList, ValidWriteIdList


@dataclass(frozen=True, slots=True)
class PlannedCleaning:
    plan: CleaningPlan
    recorded: Sequence[RecordedDirectory] = ()


def staging_plan(
    metastore: Metastore, record: TableRecord, stays: Collection[str] = ()
) -> CleaningPlan:
    """What to remove of that which killed statements have staged at the table's root (P19).

    `stays`: paths in which files of others are left.
    """
    files, root = Files.of(record.location)
    return plan_cleaning(
        AcidDirectory(root, None, (), (), (), ()),
        ValidWriteIdList.of(record.name, 0),
        0,
        _temporaries(metastore, files, root, stays),
    )


def entity_plans(
    metastore: Metastore, task: EntityCleaning, stays: Collection[str] | None = None
) -> list[PlannedCleaning]:
    """One plan for each directory: an abort in unknown partitions needs all of them (C55).

    `stays`: the removals are done, except of these paths, so neither they nor recorded directories
    that are gone are planned again.
    """
    record = metastore.table(task.table)
    if record.table_id != task.table_id:
        raise CompactionLost(
            f"{task.table} was renamed, and another table has its name; the next"
            " cycle cleans it under its new name"
        )
    files, root = Files.of(record.location)
    partitions = metastore.call(ops.GetPartitions(task.table)) if record.partitioned else []
    floors = {partition.name: partition.floors for partition in partitions}
    names = [task.partition or ""]
    plans: list[PlannedCleaning] = []
    unknown = task.partition is None and record.partitioned
    if unknown:
        unregistered = files.partition_directories(root, len(record.partition_columns))
        names = sorted({*floors, *unregistered})
        # Statements stage their files at the table's root.
        plans.append(PlannedCleaning(staging_plan(metastore, record, stays or ())))
    every = metastore.call(ops.GetRecorded(record.name, tuple(name or None for name in names)))
    for name, recorded in zip(names, every, strict=True):
        listing = _judged(
            ours_only(files.entity(f"{root}/{name}".rstrip("/")), recorded),
            [directory.directory for directory in recorded],
            task.write_ids,
            task.valid_txns,
            with_gone=stays is None,
        )
        listing = _except(listing, stays or ())
        floor = (record.floor, *floors.get(name, ()))
        directory = _selected(listing, task.write_ids, task.valid_txns, floor, record)
        # A partition that was dropped later lacks floors of its former life: too much is kept.
        pinned = {
            path
            for pin in task.pins
            for path in _selected(listing, pin.write_ids, pin.txns, floor, record).paths
        }
        temporary = _temporaries(metastore, files, listing.location, stays or ())
        plan = plan_cleaning(
            directory, task.write_ids, task.highest_write_id, temporary, pinned, unknown
        )
        plans.append(PlannedCleaning(plan, recorded))
    return plans


def _selected(
    listing: EntityListing,
    write_ids: ValidWriteIdList,
    txns: ValidTxnList,
    floors: Sequence[int],
    record: TableRecord,
) -> AcidDirectory:
    return select(
        listing,
        write_ids,
        txns,
        floor=highest_floor(write_ids, *floors),
        cleaning=True,
        insert_only=is_insert_only(record.properties),
    )


def _except(listing: EntityListing, stays: Collection[str]) -> EntityListing:
    """The listing without directories in which files of others are left."""

    def counts(name: str) -> bool:
        return f"{listing.location}/{name.partition('/')[0]}" not in stays

    return replace(
        listing,
        files=tuple(file for file in listing.files if counts(file.path)),
        directories=tuple(filter(counts, listing.directories)),
    )


def _judged(
    listing: EntityListing,
    recorded: Sequence[EntityDirectory],
    write_ids: ValidWriteIdList,
    txns: ValidTxnList,
    with_gone: bool,
) -> EntityListing:
    """The listing without directories that must not make others obsolete (P26).

    A base or a merged delta that no commit reported hides nothing from a reader, so it must not
    hide anything here. It stays in place, unless its writer was aborted. `with_gone` adds obsolete
    directories that are recorded but already gone, so that the metastore learns that.
    """
    recorded_names = {entry.name for entry in recorded}

    def counts(directory: str) -> bool:
        name = parse_directory(directory)
        if name is None or directory in recorded_names:
            return True
        low, high = span(name)
        if (
            txns.is_aborted(name.visibility)
            if name.visibility
            else write_ids.range_aborted(low, high) is RangeResponse.ALL
        ):
            return True
        return isinstance(name, DeltaName) and low == high and not name.visibility

    left = {entry for entry in listing.directories if not is_hidden(entry) and not counts(entry)}
    missing = {
        entry.name for entry in recorded if with_gone and entry.name and entry.obsolete
    }.difference(listing.directories)
    return replace(
        listing,
        files=tuple(file for file in listing.files if file.path.partition("/")[0] not in left),
        directories=tuple(sorted({*listing.directories, *missing} - left)),
    )


def _temporaries(
    metastore: Metastore, files: Files, location: str, stays: Collection[str]
) -> dict[str, TxnState | None]:
    """`_tmp_` directories with the states of their owners, which are asked after the listing."""
    owner_of = {
        name: temporary_owner(name)
        for name in files.temporaries(location)
        if f"{location}/{name}" not in stays
    }
    owners = sorted({owner for owner in owner_of.values() if owner is not None})
    states = metastore.call(ops.GetTxnStates(tuple(owners))) if owners else {}
    letters = {name: states.get(owner or 0, "u") for name, owner in owner_of.items()}
    return {name: None if letter == "u" else TxnState(letter) for name, letter in letters.items()}
