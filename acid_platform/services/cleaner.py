"""The Cleaner: removes directories that no snapshot can need any more (C37 to C55, P19, P22).

The metastore decides which cleanings may run. A pure plan decides what each of them removes; it is
either explained or executed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

from acid_platform.compaction.cleaning_plan import (
    PINNED,
    CleaningKind,
    CleaningPlan,
    no_cleanup,
    plan_cleaning,
)
from acid_platform.errors import CompactionLost
from acid_platform.layout.file_entries import EntityListing
from acid_platform.layout.formats import is_insert_only
from acid_platform.layout.names import (
    BaseName,
    DeltaName,
    is_hidden,
    parse_directory,
    temporary_owner,
)
from acid_platform.metastore.operations.compaction import (
    GetCleanings,
    GetUnpublished,
    MarkCleaned,
    RefuseCleaning,
    ReportCleaningFailed,
    ReportCleaningLeft,
    StartCleaning,
)
from acid_platform.metastore.operations.tables import GetPartitions, GetRecorded
from acid_platform.metastore.operations.transactions import GetTxnStates
from acid_platform.metastore.pasts import Pin
from acid_platform.metastore.records import (
    BlockedCleaning,
    CleaningCause,
    CleaningTask,
    DropCleaning,
    EntityCleaning,
    EntityDirectory,
    Holder,
    RecordedDirectory,
    TableRecord,
    Unpublication,
)
from acid_platform.scan.acid_directory import AcidDirectory
from acid_platform.scan.selection import highest_floor, select
from acid_platform.services import removals, unpublishing
from acid_platform.services.lease import leading
from acid_platform.storage.files import Files
from acid_platform.transactions import (
    RangeResponse,
    TxnState,
    ValidTxnList,
    ValidWriteIdList,
)

if TYPE_CHECKING:
    from acid_platform.metastore.client.metastore import Metastore


@dataclass(frozen=True, slots=True)
class CleaningResult:
    """What was done in a table or partition; `error` is set if it has to be tried again."""

    table: str
    partition: str | None
    removed: tuple[str, ...]
    """`path (rule: reason)` for each directory or file that was removed."""
    error: str = ""
    left: tuple[str, ...] = ()
    """The paths that stay, since this platform did not write them (P49)."""


class Fate(Enum):
    """What the next cycle would do with a path."""

    REMOVED = "removed"
    KEPT = "kept"
    WAITS = "waits"


@dataclass(frozen=True, slots=True)
class ExplainedPath:
    """What the next cycle would do with a path that looks removable, and why.

    `path` is relative to the entity; it is empty if only the metastore knows what is to be cleaned.
    """

    table: str
    partition: str | None
    path: str
    fate: Fate
    rule: str
    reason: str
    holders: tuple[Holder, ...] = ()
    """The transactions that the Cleaner waits for."""


def explain(metastore: Metastore) -> list[ExplainedPath]:
    """What the next cycle would remove, and why everything else has to stay. Changes nothing."""
    ready: dict[str, list[CleaningTask]] = defaultdict(list)
    blocked: dict[str, dict[str | None, BlockedCleaning]] = defaultdict(dict)
    paths: list[ExplainedPath] = []
    paths += [
        ExplainedPath(task.table, task.partition, name, Fate.REMOVED, "P46", unpublishing.WHY)
        for task in metastore.call(GetUnpublished())
        for name in task.directories
    ]
    cleanings = metastore.call(GetCleanings())
    for task in cleanings.ready:
        ready[task.table].append(task)
        paths += _fates(metastore, task)
    explained = {(path.table, path.path) for path in paths}
    for cleaning in cleanings.blocked:
        blocked[cleaning.table][cleaning.partition] = cleaning
    for record in metastore.tables():
        waiting = blocked[record.name]
        cleaned_next = {task.partition for task in ready[record.name]}
        for entity in metastore.entities(record.name):
            wait = waiting.pop(entity.partition, None)
            obsolete = [directory.name for directory in entity.directories if directory.obsolete]
            if entity.partition not in cleaned_next:
                paths += [_waits(record.name, entity.partition, name, wait) for name in obsolete]
            if wait and not obsolete:
                paths.append(_waits(record.name, entity.partition, "", wait))
        for partition, wait in waiting.items():  # dropped partitions
            paths.append(_waits(record.name, partition, "", wait))
        if not no_cleanup(record.properties):
            paths += [
                ExplainedPath(
                    record.name, None, removal.path, Fate.REMOVED, removal.rule, removal.reason
                )
                for removal in _staging_plan(metastore, record).removals
                if (record.name, removal.path) not in explained
            ]
    return paths


def _fates(metastore: Metastore, task: CleaningTask) -> Iterator[ExplainedPath]:
    if isinstance(task, DropCleaning):
        yield ExplainedPath(
            task.table,
            task.partition,
            task.location,
            Fate.REMOVED,
            "P22",
            "dropped; what this platform did not write stays",
        )
        return
    if task.id and no_cleanup(task.properties):
        yield ExplainedPath(task.table, task.partition, "", Fate.KEPT, "C44", "NO_CLEANUP is set")
        return
    root = Files.of(task.location)[1]
    for plan in _plans(metastore, task)[0]:
        below = plan.location.removeprefix(root).strip("/")
        for fate, paths in ((Fate.REMOVED, plan.removals), (Fate.KEPT, plan.kept)):
            for path in paths:
                yield ExplainedPath(
                    task.table,
                    task.partition,
                    f"{below}/{path.path}".strip("/"),
                    fate,
                    path.rule,
                    path.reason,
                )


def _waits(
    table: str, partition: str | None, path: str, wait: BlockedCleaning | None
) -> ExplainedPath:
    if wait is None:
        return ExplainedPath(
            table,
            partition,
            path,
            Fate.WAITS,
            "C16",
            "no compaction has covered it yet; the Initiator requests one",
        )
    rule = "C41" if wait.holders else PINNED if PINNED in wait.reason else "C38"
    return ExplainedPath(table, partition, path, Fate.WAITS, rule, wait.reason, wait.holders)


def run(metastore: Metastore) -> list[CleaningResult]:
    """Runs one cycle over everything that may be cleaned now.

    Raises LeaseHeld while another Cleaner runs a cycle (P9).
    """
    finished: list[CleaningResult] = []
    with leading(metastore, "Cleaner") as renew:
        for aborted in metastore.call(GetUnpublished()):
            renew()
            finished.append(_unpublish(metastore, aborted))
        for task in metastore.call(GetCleanings()).ready:
            renew()
            done = _clean(metastore, task)
            if done is not None:
                finished.append(done)
        for record in metastore.tables():
            renew()
            finished += _clean_staging(metastore, record)
    return finished


def _unpublish(metastore: Metastore, task: Unpublication) -> CleaningResult:
    try:
        removed = unpublishing.remove(metastore, task)
    except Exception as error:  # it fails only this entity; the next cycle tries again
        return _failed(task.table, task.partition, error)
    lines = tuple(f"{path} (P46: {unpublishing.WHY})" for path in removed)
    return CleaningResult(task.table, task.partition, lines)


def _failed(table: str, partition: str | None, error: Exception) -> CleaningResult:
    return CleaningResult(table, partition, (), f"{type(error).__name__}: {error}")


def _clean_staging(metastore: Metastore, record: TableRecord) -> list[CleaningResult]:
    """Removes what killed statements have staged at the table's root (P19).

    A cleaning for it may never be queued, since nothing was compacted or aborted. Foreign tables
    are left alone (P31).
    """
    if record.foreign or no_cleanup(record.properties):
        return []
    try:
        files, _ = Files.of(record.location)
        removed = removals.execute(files, _staging_plan(metastore, record), tuple)
    except Exception as error:  # it fails only this table
        return [_failed(record.name, None, error)]
    if not removed.lines:
        return []
    return [CleaningResult(record.name, None, removed.lines, left=removed.left)]


def _staging_plan(
    metastore: Metastore, record: TableRecord, stays: Collection[str] = ()
) -> CleaningPlan:
    files, root = Files.of(record.location)
    return plan_cleaning(
        AcidDirectory(root, None, (), (), (), ()),
        CleaningKind.ABORTED,
        ValidWriteIdList.of(record.name, 0),
        0,
        _temporaries(metastore, files, root, stays),
    )


def _clean(metastore: Metastore, task: CleaningTask) -> CleaningResult | None:
    if isinstance(task, EntityCleaning) and task.id and no_cleanup(task.properties):
        metastore.call(RefuseCleaning(task.id, "NO_CLEANUP is set"))
        return CleaningResult(task.table, task.partition, ())
    try:
        started = metastore.call(StartCleaning.of(task))
    except CompactionLost:  # another Cleaner has it, or a transaction began in the meantime
        return None
    try:
        if isinstance(started, DropCleaning):
            return _clean_drop(metastore, started)
        return _clean_entity(metastore, started)
    except Exception as error:
        metastore.call(ReportCleaningFailed.of(task, f"{type(error).__name__}: {error}"[:2000]))
        return _failed(task.table, task.partition, error)


def _clean_drop(metastore: Metastore, task: DropCleaning) -> CleaningResult:
    dropped = removals.remove_dropped(metastore, task)
    mark = MarkCleaned.of(task, task.highest_write_id, None, left=removals.told(dropped.left))
    metastore.call(mark)
    return CleaningResult(task.table, task.partition, dropped.lines, left=dropped.left)


def _clean_entity(metastore: Metastore, task: EntityCleaning) -> CleaningResult:
    plans, known = _plans(metastore, task)
    files, _ = Files.of(task.location)
    done = [removals.execute(files, plan, partial(known, plan.location)) for plan in plans]
    lines = tuple(line for removed in done for line in removed.lines)
    left = tuple(path for removed in done for path in removed.left)
    stays = {
        f"{plan.location}/{path}"
        for plan, removed in zip(plans, done, strict=True)
        for path in removed.stays
    }
    if any(not plan.done for plan in _plans(metastore, task, stays)[0]):  # C47
        metastore.call(ReportCleaningLeft.of(task))
        still = "something obsolete is still there"
        return CleaningResult(task.table, task.partition, lines, still, left)
    plans = [
        removals.without_forgetting(plan, removed, task)
        for plan, removed in zip(plans, done, strict=True)
    ]
    mark = MarkCleaned.of(
        task,
        task.highest_write_id,
        _forgotten(plans),
        tuple(sorted(removal.path for plan in plans for removal in plan.removals)),
        tuple(sorted(pin.moment for pin in task.pins))
        if any(plan.pinned for plan in plans)
        else (),
        removals.told(left),
    )
    metastore.call(mark)
    return CleaningResult(task.table, task.partition, lines, left=left)


Known = Callable[[str], Sequence[RecordedDirectory]]
"""What commits recorded at a location."""


def _plans(
    metastore: Metastore, task: EntityCleaning, stays: Collection[str] | None = None
) -> tuple[list[CleaningPlan], Known]:
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
    if task.partition is None and record.partitioned:
        partitions = [partition.name for partition in metastore.call(GetPartitions(task.table))]
        unregistered = files.partition_directories(root, len(record.partition_columns))
        names = sorted({*partitions, *unregistered})
        kind = CleaningKind.DYNAMIC_ABORT
    else:
        names = [task.partition or ""]
        compacted = task.cause is CleaningCause.COMPACTION
        kind = CleaningKind.AFTER_COMPACTION if compacted else CleaningKind.ABORTED
    floors = (
        {
            partition.name: partition.floors
            for partition in metastore.call(GetPartitions(task.table))
        }
        if record.partitioned
        else {}
    )
    plans = []
    if kind is CleaningKind.DYNAMIC_ABORT:  # statements stage their files at the table's root
        plans.append(_staging_plan(metastore, record, stays or ()))
    recorded = metastore.call(GetRecorded(record.name, tuple(name or None for name in names)))
    places: dict[str, Sequence[RecordedDirectory]] = {}
    for name, known in zip(names, recorded, strict=True):
        listing = judged(
            removals.ours_only(files.entity(f"{root}/{name}".rstrip("/")), known),
            [directory.directory for directory in known],
            task.write_ids,
            task.valid_txns,
            with_gone=stays is None,
        )
        places[listing.location] = known
        listing = _except(listing, stays or ())
        floor = highest_floor(task.write_ids, record.floor, *floors.get(name, ()))
        seen = select(
            listing,
            task.write_ids,
            task.valid_txns,
            floor=floor,
            cleaning=True,
            insert_only=is_insert_only(record.properties),
        )
        temporary = _temporaries(metastore, files, listing.location, stays or ())
        every_floor = (record.floor, *floors.get(name, ()))
        pinned = {path for pin in task.pins for path in _read_by(pin, listing, every_floor, record)}
        plan = plan_cleaning(seen, kind, task.write_ids, task.highest_write_id, temporary, pinned)
        plans.append(plan)
    return plans, lambda location: places.get(location, ())


def _except(listing: EntityListing, stays: Collection[str]) -> EntityListing:
    """The listing without directories in which files of others are left."""

    def counts(name: str) -> bool:
        return f"{listing.location}/{name.partition('/')[0]}" not in stays

    return replace(
        listing,
        files=tuple(file for file in listing.files if counts(file.path)),
        directories=tuple(filter(counts, listing.directories)),
    )


def _read_by(
    pin: Pin, listing: EntityListing, floors: Sequence[int], record: TableRecord
) -> tuple[str, ...]:
    """The directories and original files that a past snapshot reads (P36).

    A partition that was dropped later lacks floors of its former life: then too much is kept.
    """
    seen = select(
        listing,
        pin.write_ids,
        pin.txns,
        floor=highest_floor(pin.write_ids, *floors),
        cleaning=True,
        insert_only=is_insert_only(record.properties),
    )
    return seen.paths


def judged(
    listing: EntityListing,
    known: Sequence[EntityDirectory],
    write_ids: ValidWriteIdList,
    txns: ValidTxnList,
    with_gone: bool,
) -> EntityListing:
    """The listing without directories that must not make others obsolete (P26).

    A base or a merged delta that no commit reported hides nothing from a reader, so it must not
    hide anything here. It stays in place, unless its writer was aborted. `with_gone` adds obsolete
    directories that are recorded but already gone, so that the metastore learns that.
    """
    recorded = {entry.name for entry in known}

    def counts(directory: str) -> bool:
        name = parse_directory(directory)
        if name is None or directory in recorded:
            return True
        low, high = (
            (name.write_id, name.write_id) if isinstance(name, BaseName) else (name.low, name.high)
        )
        if (
            txns.is_aborted(name.visibility)
            if name.visibility
            else (write_ids.range_aborted(low, high) is RangeResponse.ALL)
        ):
            return True
        return isinstance(name, DeltaName) and low == high and not name.visibility

    left = {entry for entry in listing.directories if not is_hidden(entry) and not counts(entry)}
    missing = {entry.name for entry in known if with_gone and entry.name and entry.obsolete} - {
        *listing.directories
    }
    return replace(
        listing,
        files=tuple(file for file in listing.files if file.path.partition("/")[0] not in left),
        directories=tuple(sorted({*listing.directories, *missing} - left)),
    )


def _temporaries(
    metastore: Metastore, files: Files, location: str, stays: Collection[str] = ()
) -> dict[str, TxnState | None]:
    """`_tmp_` directories with the states of their owners, which are asked after the listing."""
    owner_of = {
        name: temporary_owner(name)
        for name in files.temporaries(location)
        if f"{location}/{name}" not in stays
    }
    owners = sorted({owner for owner in owner_of.values() if owner is not None})
    states = metastore.call(GetTxnStates(tuple(owners))) if owners else {}
    return {name: _state(states.get(owner or 0, "u")) for name, owner in owner_of.items()}


def _state(letter: str) -> TxnState | None:
    return None if letter == "u" else TxnState(letter)


def _forgotten(plans: list[CleaningPlan]) -> tuple[int, ...] | None:
    """Aborted write ids that have no file left in any directory; None: all of them (C49, C53)."""
    if not any(plan.undeletable_aborted_write_ids for plan in plans):
        return None
    gone = [set(plan.removed_aborted_write_ids) for plan in plans]
    stuck = {number for plan in plans for number in plan.undeletable_aborted_write_ids}
    return tuple(sorted(set.union(*gone) - stuck)) if gone else ()
