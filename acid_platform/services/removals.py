"""Plans and makes the removals of a cleaning: what the platform wrote, nothing else (P22, P49).

The plans come from the directories of the entities and from what commits recorded there."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from acid_platform.compaction.cleaning_plan import CleaningPlan, plan_cleaning
from acid_platform.errors import CompactionLost, NoSuchTable
from acid_platform.layout.file_entries import EntityListing, RecordedFiles
from acid_platform.layout.formats import is_insert_only
from acid_platform.layout.names import DeltaName, is_hidden, parse_directory, span, temporary_owner
from acid_platform.metastore import operations as ops
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.operations.compaction import (
    DropCleaning,
    EntityCleaning,
    Unpublication,
)
from acid_platform.metastore.places import below
from acid_platform.metastore.records import EntityDirectory, RecordedDirectory, TableRecord
from acid_platform.scan.acid_directory import AcidDirectory
from acid_platform.scan.selection import highest_floor, select
from acid_platform.storage.durability import (
    Ours,
    remove,
    remove_at_once,
    remove_if_empty,
    sync_removals,
)
from acid_platform.storage.files import Files
from acid_platform.transactions import RangeResponse, TxnState, ValidTxnList, ValidWriteIdList


@dataclass(frozen=True, slots=True)
class DropRemoved:
    lines: tuple[str, ...]
    """`path (reason)` for each directory or file that is gone."""
    left: tuple[str, ...]
    """The paths that stay, since this platform did not write them."""


@dataclass(frozen=True, slots=True)
class Removed(DropRemoved):
    plan: CleaningPlan
    stays: tuple[str, ...]
    """The planned paths that are still there, because of what is left in them."""


def _recorded_files(recorded: Sequence[RecordedDirectory]) -> frozenset[str]:
    """The files of an entity that commits recorded, relative to it."""
    return frozenset(
        f"{each.directory.name}/{file.path}".lstrip("/")
        for each in recorded
        for file in RecordedFiles.parse(each.contents).files
    )


def ours_only(listing: EntityListing, recorded: Sequence[RecordedDirectory]) -> EntityListing:
    """The listing of an entity without files that the platform did not write; `recorded`: by
    commits."""
    ours = Ours(lambda _partition: _recorded_files(recorded))
    return replace(
        listing,
        files=tuple(file for file in listing.files if ours.file(file.path.split("/"))),
    )


def execute(
    files: Files, plan: CleaningPlan, recorded: Sequence[RecordedDirectory] = ()
) -> Removed:
    """Removes what the plan names. `recorded`: by commits, in the entity.

    Raises OSError, StoreRefused, StoreUnavailable, PublicationFailed.
    """
    location = plan.location
    ours = Ours(lambda _partition: _recorded_files(recorded))
    lines: list[str] = []
    left: list[str] = []
    stays: list[str] = []
    for removal in plan.removals:
        name = None if temporary_owner(removal.path) else parse_directory(removal.path)
        if name is not None and name.visibility and not files.object_store:
            # Other engines may take the base of an aborted compaction for a good one.
            there = remove_at_once(files, location, removal.path, name.visibility)
        else:
            there = remove(files, location, removal.path, ours)
        if there:
            left += there
            stays.append(removal.path)
        else:
            lines.append(f"{location}/{removal.path} ({removal.reason})")
    sync_removals(files, [f"{location}/{removal.path}" for removal in plan.removals])
    return Removed(tuple(lines), tuple(left), plan, tuple(stays))


def without_forgetting(removed: Removed, write_ids: ValidWriteIdList) -> CleaningPlan:
    """The plan after its removals: write ids of aborted directories in which files are left are not
    forgotten, since other engines would take these files for committed rows (C53, P4)."""
    plan, stuck = removed.plan, set[int]()
    for path in removed.stays:
        name, below = parse_directory(path), f"{plan.location}/{path}/"
        if name is not None and any(
            file.startswith(below) and not any(map(is_hidden, file.removeprefix(below).split("/")))
            for file in removed.left
        ):
            stuck |= {*write_ids.aborted_between(*span(name))}
    return replace(
        plan,
        undeletable_aborted_write_ids=tuple(sorted({*plan.undeletable_aborted_write_ids, *stuck})),
        removed_aborted_write_ids=tuple(sorted({*plan.removed_aborted_write_ids} - stuck)),
    )


def remove_dropped(metastore: Metastore, task: DropCleaning) -> DropRemoved:
    """Removes the files of a dropped table or partition, and directories that are empty then.

    Of a dropped partition, or if another table uses the location by now, only directories from
    before the drop are removed: somebody may be writing there. Raises as `execute`.
    """
    files, path = Files.of(task.location)

    def recorded(partition: str) -> frozenset[str]:
        return _recorded_files(_recorded(metastore, task, task.partition or partition or None))

    others = {below(record.location, task.location) or "" for record in metastore.tables()}
    ours = Ours(recorded, task.highest_write_id, others)
    if not task.reused:
        left = remove(files, path, "", ours)
        sync_removals(files, [path])
        return DropRemoved(() if left else (f"{path} (dropped)",), left)
    directory = select(
        ours_only(files.entity(path), _recorded(metastore, task, task.partition)),
        task.write_ids,
        task.valid_txns,
        floor=task.highest_write_id,
        cleaning=True,
    )
    lines: list[str] = []
    left = ()
    targets = {
        removable.path: removable.reason
        for removable in (*directory.obsolete, *directory.aborted)
        if removable.rule == "P22" or removable in directory.aborted
    }
    for target, reason in targets.items():
        there = remove(files, path, target, ours)
        left += there
        if not there:
            lines.append(f"{path}/{target} ({reason})")
    sync_removals(files, [f"{path}/{target}" for target in targets])
    if task.partition and not _registered(metastore, task):
        remove_if_empty(files, path.removesuffix(f"/{task.partition}"), task.partition)
    return DropRemoved(tuple(lines), left)


def _recorded(
    metastore: Metastore, task: DropCleaning, partition: str | None
) -> Sequence[RecordedDirectory]:
    (recorded,) = metastore.call(ops.GetRecorded(task.table, (partition,), table_id=task.table_id))
    return recorded


def _registered(metastore: Metastore, task: DropCleaning) -> bool:
    """Whether the dropped partition was added again."""
    for record in metastore.tables():
        if record.table_id == task.table_id:
            try:
                return task.partition in metastore.partitions(record.name)
            except NoSuchTable:  # dropped in the meantime
                return False
    return False


WHY_UNPUBLISHED = "its compaction was aborted"


def unpublish(metastore: Metastore, task: Unpublication) -> list[str]:
    """Removes the output of an aborted compaction, so that other engines may read again (P46).

    The Worker may be alive: it can rename nothing more once its hidden directory is gone. Returns
    the paths that were there. Raises as `execute`; then the publication goes on.
    """
    files, location = Files.of(task.location)
    for name in files.temporaries(location):
        if temporary_owner(name) == task.txn_id:
            remove(files, location, name, Ours())
    paths = [f"{location}/{name}" for name in task.directories]
    present = [path for path in paths if files.is_directory(path)]
    for name in task.directories:
        remove_at_once(files, location, name, task.txn_id)
    sync_removals(files, paths)
    metastore.call(ops.EndPublication(task.lock))
    return present


def left_text(left: Sequence[str]) -> str:
    """What stays, for the log and the metastore; empty if nothing does."""
    if not left:
        return ""
    return (
        f"left {len(left)} {'path' if len(left) == 1 else 'paths'} that this platform did not"
        f" write, such as {left[0]}: remove them yourself if nobody needs them"
    )


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
