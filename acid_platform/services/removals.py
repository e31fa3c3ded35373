"""Carries out what a cleaning has decided: removes what the platform wrote, and nothing else (P22,
P49)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from acid_platform.compaction.cleaning_plan import CleaningPlan
from acid_platform.errors import NoSuchTable
from acid_platform.layout.file_entries import EntityListing, RecordedFiles
from acid_platform.layout.names import is_hidden, parse_directory, span, temporary_owner
from acid_platform.metastore import operations as ops
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.places import below
from acid_platform.metastore.records import RecordedDirectory
from acid_platform.metastore.tasks import DropCleaning, Unpublication
from acid_platform.scan.selection import select
from acid_platform.storage.durability import sync_removals
from acid_platform.storage.files import Files
from acid_platform.storage.removal import Ours, remove, remove_at_once, remove_if_empty
from acid_platform.transactions import ValidWriteIdList


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
