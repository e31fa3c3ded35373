"""Executing a compaction plan: merge into a staging directory, profile both sides, publish.

The steps are separate calls, so that a caller may add checks of its own between them (Great
Expectations in the Dagster job): `execute` → compare → `publish`, or `discard`. An engine only
distributes the tasks and reads both sides for their profiles; everything else is the same for
Spark and for the local engine.

An object store has no rename. There the output is written where it will be read: its names have the
transaction in them, so no other attempt has the same, and no reader asks for a file that no commit
has named (P41).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Protocol

from acid_platform.compaction.key_sums import delete_checksum
from acid_platform.compaction.opening import (
    CompactionSide,
    CompactionWork,
    open_inputs,
    rewrites,
)
from acid_platform.compaction.plan import CompactionPlan
from acid_platform.compaction.rewrite import Rewrite, Rewritten, rewrite_bucket
from acid_platform.compaction.staging import (
    Records,
    finish,
    make_outputs,
    open_outputs,
)
from acid_platform.compaction.states import Layout
from acid_platform.compaction.validation import Profile
from acid_platform.errors import (
    CompactionFailed,
    CompactionRefused,
    StoreRefused,
    StoreUnavailable,
)
from acid_platform.layout import names
from acid_platform.scan.event_keys import has_key_index
from acid_platform.scan.scans import Scan
from acid_platform.storage import durability
from acid_platform.storage.files import Files, asking
from acid_platform.write.publishing import WrittenDirectory


@dataclass(frozen=True, slots=True)
class StagedCompaction:
    """Finished output that no reader sees, with the profiles of inputs and output."""

    plan: CompactionPlan
    staging: str
    """Where the output directories are: a `_tmp_` directory, or in an object store the table's."""
    outputs: tuple[WrittenDirectory, ...]
    expected: Profile
    actual: Profile


class CompactionEngine(Protocol):
    """What one compaction needs of an engine. Profiles have equal values in both engines."""

    @property
    def name(self) -> str: ...

    def running(self) -> AbstractContextManager[object]:
        """A block that executes the compaction, and that `cancel` stops."""
        ...

    def cancel(self) -> None:
        """Stops what is running, if anything."""
        ...

    def merge(self, tasks: Sequence[Rewrite]) -> Records:
        """Writes the output file of each task of a table with full ACID, with `rewritten`."""
        ...

    def copy(self, inputs: Scan, staging: str) -> Records:
        """Copies the rows of an insert-only table into files of the staged output directory.

        It has no deletes, and directories of aborted write ids are no inputs.
        """
        ...

    def profiles(self, inputs: Scan, outputs: Scan) -> tuple[Profile, Profile]:
        """Rows, row ids and column values of the inputs and of the staged output, as a reader finds
        them. Comes after `merge` or `copy`."""
        ...


def execute(
    engine: CompactionEngine, plan: CompactionPlan, work: CompactionWork
) -> StagedCompaction:
    """Merges, and profiles inputs and output. Publishes nothing.

    Raises CorruptFile, CompactionFailed if files can't be written (C32), and CompactionRefused for
    types that would not stay as they are stored, and for the layout hive3 in an object store.
    """
    staging = _staging(plan, work.files)
    inputs = open_inputs(plan, work)
    try:
        tasks = rewrites(plan, work, inputs.sources, staging) if work.plain is None else []
        with writing(plan.location):
            make_outputs(plan, work, staging)
            records = (
                engine.merge(tasks) if work.plain is None else engine.copy(inputs.scan, staging)
            )
            written = tuple(finish(plan, work, staging, records))
        outputs = open_outputs(work, staging, written)
        expected, actual = engine.profiles(inputs.scan, outputs.scan)
        return StagedCompaction(
            plan,
            staging,
            written,
            _with_events(expected, inputs),
            replace(_with_events(actual, outputs), disordered=_disordered(work, outputs)),
        )
    except BaseException:
        discard(work.files, plan, staging)
        raise


def _staging(plan: CompactionPlan, files: Files) -> str:
    if not files.object_store:
        return f"{plan.location}/{names.temporary_name(plan.txn_id, uuid.uuid4().hex[:8])}"
    if plan.layout is Layout.HIVE3:
        raise CompactionRefused(
            f"{plan.location}: with acid.layout=hive3 other engines count a base as soon as it has"
            " a file, and an object store can't rename a finished one into place; set the table"
            " property acid.layout to hive4"
        )
    return plan.location


def rewritten(task: Rewrite) -> Rewritten:
    """Writes the output file of one task.

    Spark calls it inside its tasks, where an OSError would arrive with the traceback of their
    process. Raises CompactionFailed, and what `rewrite_bucket` raises.
    """
    with writing(task.location):
        return rewrite_bucket(task)


@contextmanager
def writing(location: str) -> Iterator[None]:
    """Turns OSError into CompactionFailed, StoreRefused or StoreUnavailable."""
    try:
        with asking(location):
            yield
    except OSError as error:
        raise CompactionFailed(
            f"{location} can't be written: {error}; its inputs were kept: free space, or grant the"
            " permission, and compact it again"
        ) from error


def _with_events(profile: Profile, opened: CompactionSide) -> Profile:
    """The profile with the delete events that are kept."""
    return replace(
        profile,
        delete_events=len(opened.events),
        delete_event_checksum=delete_checksum(opened.events),
    )


def _disordered(work: CompactionWork, outputs: CompactionSide) -> int:
    """The number of output files whose keys may be out of order."""
    if work.plain is not None:
        return 0
    files = (*outputs.sources.inserts, *outputs.sources.deletes)
    return sum(not has_key_index(work.files, file.path) for file in files)


def publish(work: CompactionWork, staged: StagedCompaction) -> tuple[WrittenDirectory, ...]:
    """Brings the output into place; it counts once the compaction's transaction commits.

    With layout hive3 other engines count the output from the rename on. A Worker that died between
    rename and commit left its output under the name that this one needs: no commit recorded it, so
    it is removed.
    """
    location = staged.plan.location
    if work.files.object_store:
        return staged.outputs
    recorded = work.directory.names
    for output in staged.outputs:
        if staged.plan.layout is Layout.HIVE3 and output.directory not in recorded:
            work.files.delete_directory(f"{location}/{output.directory}")
    durability.publish(
        work.files,
        location,
        [
            (f"{staged.staging}/{output.directory}", f"{location}/{output.directory}")
            for output in staged.outputs
        ],
    )
    discard(work.files, staged.plan, staged.staging)
    return staged.outputs


def discard(files: Files, plan: CompactionPlan, staging: str) -> None:
    """Removes output that was not published, or leaves it to the Cleaner if that fails."""
    outputs = [f"{staging}/{name}" for name in plan.outputs]
    for path in outputs if files.object_store else [staging]:
        with suppress(OSError, StoreRefused, StoreUnavailable):
            files.delete_directory(path)
