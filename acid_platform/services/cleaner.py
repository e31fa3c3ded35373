"""The Cleaner: removes directories that no snapshot can need any more (C37 to C55, P19, P22).

The metastore decides which cleanings may run. A pure plan decides what each of them removes; it is
either explained or executed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from acid_platform.compaction.cleaning_plan import PINNED, CleaningPlan, no_cleanup
from acid_platform.errors import CompactionLost
from acid_platform.metastore import operations as ops
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.operations.compaction import (
    BlockedCleaning,
    CleaningTask,
    DropCleaning,
    EntityCleaning,
    Unpublication,
)
from acid_platform.metastore.records import Holder, TableRecord
from acid_platform.services import leading, removals
from acid_platform.services.removals import entity_plans, staging_plan
from acid_platform.storage.files import Files


@dataclass(frozen=True, slots=True)
class CleaningResult:
    """What was done in a table or partition; `error` is set if it has to be tried again."""

    table: str
    partition: str | None
    removed: tuple[str, ...]
    """`path (reason)` for each directory or file that was removed."""
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
    ready: dict[int, list[CleaningTask]] = defaultdict(list)
    blocked: dict[int, dict[str | None, BlockedCleaning]] = defaultdict(dict)
    paths: list[ExplainedPath] = []
    paths += [
        ExplainedPath(
            task.table, task.partition, name, Fate.REMOVED, "P46", removals.WHY_UNPUBLISHED
        )
        for task in metastore.call(ops.GetUnpublished())
        for name in task.directories
    ]
    cleanings = metastore.call(ops.GetCleanings(every=True))
    for task in cleanings.ready:
        ready[task.table_id].append(task)
        paths += _fates(metastore, task)
    explained = {(path.table, path.path) for path in paths}
    for cleaning in cleanings.blocked:
        blocked[cleaning.table_id][cleaning.partition] = cleaning
    for record in metastore.tables():
        waiting = blocked[record.table_id]
        cleaned_next = {task.partition for task in ready[record.table_id]}
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
                for removal in staging_plan(metastore, record).removals
                if (record.name, removal.path) not in explained
            ]
    return paths


def _fates(metastore: Metastore, task: CleaningTask) -> Iterator[ExplainedPath]:
    if isinstance(task, DropCleaning):
        why = "dropped; what this platform did not write stays"
        yield ExplainedPath(task.table, task.partition, task.location, Fate.REMOVED, "P22", why)
        return
    if task.id and no_cleanup(task.properties):
        yield ExplainedPath(task.table, task.partition, "", Fate.KEPT, "C44", "NO_CLEANUP is set")
        return
    root = Files.of(task.location)[1]
    for planned in entity_plans(metastore, task):
        plan = planned.plan
        below = plan.location.removeprefix(root).strip("/")
        for fate, paths in ((Fate.REMOVED, plan.removals), (Fate.KEPT, plan.staying)):
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
        why = "no compaction has covered it yet; the Initiator requests one"
        return ExplainedPath(table, partition, path, Fate.WAITS, "C16", why)
    rule = PINNED if wait.by_history else "C41" if wait.holders else "C38"
    return ExplainedPath(table, partition, path, Fate.WAITS, rule, wait.reason, wait.holders)


def run(metastore: Metastore) -> list[CleaningResult]:
    """Runs one cycle over everything that may be cleaned now.

    Raises LeaseHeld while another Cleaner runs a cycle (P9).
    """
    results: list[CleaningResult] = []
    with leading(metastore, "Cleaner") as renew:
        for aborted in metastore.call(ops.GetUnpublished()):
            renew()
            results.append(_unpublish(metastore, aborted))
        for task in metastore.call(ops.GetCleanings(every=True)).ready:
            renew()
            result = _clean(metastore, task)
            if result is not None:
                results.append(result)
        for record in metastore.tables():
            renew()
            results += _clean_staging(metastore, record)
    return results


def _unpublish(metastore: Metastore, task: Unpublication) -> CleaningResult:
    try:
        removed = removals.unpublish(metastore, task)
    except Exception as error:  # it fails only this entity; the next cycle tries again
        return _failed(task.table, task.partition, error)
    lines = tuple(f"{path} ({removals.WHY_UNPUBLISHED})" for path in removed)
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
        removed = removals.execute(files, staging_plan(metastore, record))
    except Exception as error:  # it fails only this table
        return [_failed(record.name, None, error)]
    if not removed.lines:
        return []
    return [CleaningResult(record.name, None, removed.lines, left=removed.left)]


def _clean(metastore: Metastore, task: CleaningTask) -> CleaningResult | None:
    if isinstance(task, EntityCleaning) and task.id and no_cleanup(task.properties):
        metastore.call(ops.RefuseCleaning(task.id, "NO_CLEANUP is set"))
        return CleaningResult(task.table, task.partition, ())
    try:
        started = metastore.call(ops.StartCleaning.of(task))
    except CompactionLost:  # another Cleaner has it, or a transaction began in the meantime
        return None
    try:
        if isinstance(started, DropCleaning):
            return _clean_drop(metastore, started)
        return _clean_entity(metastore, started)
    except Exception as error:
        metastore.call(ops.ReportCleaningFailed.of(task, f"{type(error).__name__}: {error}"[:2000]))
        return _failed(task.table, task.partition, error)


def _clean_drop(metastore: Metastore, task: DropCleaning) -> CleaningResult:
    dropped = removals.remove_dropped(metastore, task)
    mark = ops.MarkCleaned.of(
        task, task.highest_write_id, None, left=removals.left_text(dropped.left)
    )
    metastore.call(mark)
    return CleaningResult(task.table, task.partition, dropped.lines, left=dropped.left)


def _clean_entity(metastore: Metastore, task: EntityCleaning) -> CleaningResult:
    files, _ = Files.of(task.location)
    removed = [
        removals.execute(files, planned.plan, planned.recorded)
        for planned in entity_plans(metastore, task)
    ]
    lines = tuple(line for part in removed for line in part.lines)
    left = tuple(path for part in removed for path in part.left)
    stays = {f"{part.plan.location}/{path}" for part in removed for path in part.stays}
    if not all(planned.plan.complete for planned in entity_plans(metastore, task, stays)):  # C47
        metastore.call(ops.ReportCleaningLeft.of(task))
        still = "something obsolete is still there"
        return CleaningResult(task.table, task.partition, lines, still, left)
    pinned = any(part.plan.pinned for part in removed)
    mark = ops.MarkCleaned.of(
        task,
        task.highest_write_id,
        _forgotten([removals.without_forgetting(part, task.write_ids) for part in removed]),
        tuple(sorted(removal.path for part in removed for removal in part.plan.removals)),
        tuple(sorted(pin.moment for pin in task.pins)) if pinned else (),
        removals.left_text(left),
    )
    metastore.call(mark)
    return CleaningResult(task.table, task.partition, lines, left=left)


def _forgotten(plans: list[CleaningPlan]) -> tuple[int, ...] | None:
    """Aborted write ids that have no file left in any directory; None: all of them (C49, C53)."""
    stuck = {number for plan in plans for number in plan.undeletable_aborted_write_ids}
    if not stuck:
        return None
    gone = {number for plan in plans for number in plan.removed_aborted_write_ids}
    return tuple(sorted(gone - stuck))
