"""Executing a compaction: merge into a staging directory, profile both sides, publish.

The steps are separate calls, so that a caller may add checks of its own between them (Great
Expectations in the Dagster job): `execute` → compare → `publish`, or `discard`. An engine only
distributes the tasks and reads both sides for their profiles; everything else is the same for
Spark and for the local engine.

An object store has no rename. There the output is written where it will be read: its names have the
transaction in them, so no other attempt has the same, and no reader asks for a file that no commit
has named (P41).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Protocol

from acid_platform.compaction.opening import Compaction, open_merged
from acid_platform.compaction.rewrite import Rewrite, Rewritten, rewrite_bucket
from acid_platform.compaction.states import Layout
from acid_platform.compaction.validation import Profile
from acid_platform.compaction.value_sums import row_id_checksum
from acid_platform.errors import CompactionFailed, StoreRefused, StoreUnavailable
from acid_platform.formats.data_file import FilePath
from acid_platform.formats.file_access import open_file, reading, recorded_file
from acid_platform.layout import names
from acid_platform.layout.file_entries import FileEntry, RecordedFiles
from acid_platform.layout.formats import ACID_FORMAT
from acid_platform.layout.names import BaseName, DeltaName
from acid_platform.scan.acid_directory import AcidDirectory, VisibleBase, VisibleDelta
from acid_platform.scan.deletes import DeleteKeys
from acid_platform.scan.scans import Scan
from acid_platform.storage import durability
from acid_platform.storage.files import Files, asking
from acid_platform.write.publishing import WrittenDirectory, write_empty_file

Records = Mapping[str, FileEntry]
"""The records of the output files, made by the tasks that wrote them, by path."""


@dataclass(frozen=True, slots=True)
class StagedCompaction:
    """Finished output that no reader sees, with the profiles of inputs and output."""

    compaction: Compaction
    outputs: tuple[WrittenDirectory, ...]
    expected: Profile
    actual: Profile


class CompactionEngine(Protocol):
    """An engine that executes a `Compaction`. Profiles have equal values in both engines."""

    @property
    def name(self) -> str: ...

    def running(self) -> AbstractContextManager[object]:
        """A block that executes the compaction, and that `cancel` stops."""
        ...

    def cancel(self) -> None:
        """Stops what is running, if anything."""
        ...

    def write(self) -> Records:
        """Writes the output files: each of the rewrites by `rewritten`, or, of an insert-only
        table, the rows of the inputs into files of the output directory. Of files without a record
        the caller makes one."""
        ...

    def profiles(self, outputs: Scan) -> tuple[Profile, Profile]:
        """Rows, row ids and column values of the inputs and of the staged output, as a reader finds
        them. Comes after `write`."""
        ...


def execute(engine: CompactionEngine, compaction: Compaction) -> StagedCompaction:
    """Merges, and profiles inputs and output. Publishes nothing.

    Raises CorruptFile, CompactionFailed if files can't be written (C32), and what the engine
    raises.
    """
    try:
        with writing(compaction.plan.location):
            make_outputs(compaction)
            written = tuple(_finished(compaction, engine.write()))
        outputs, events = _open_outputs(compaction, written)
        expected, actual = engine.profiles(outputs)
        return StagedCompaction(
            compaction,
            written,
            _with_events(expected, compaction.events),
            replace(_with_events(actual, events), disordered=_disordered(outputs, compaction)),
        )
    except BaseException:
        discard(compaction)
        raise


def make_outputs(compaction: Compaction) -> None:
    """Makes the output directories below the staging directory."""
    for name in compaction.plan.outputs:
        compaction.files.make_directory(f"{compaction.staging}/{name}")


def _finished(compaction: Compaction, records: Records) -> Iterator[WrittenDirectory]:
    """Adds marker files and collects the records; files without one are opened here.

    A delta without rows is dropped (F21). A base stays, with an empty file if it has no rows.
    Raises CompactionFailed unless the files are there, as large as their records say.
    """
    files = compaction.files
    for name in compaction.plan.outputs:
        where = f"{compaction.staging}/{name}"
        infos = {
            info.path: info for info in files.children(where) if not names.is_hidden(info.base_name)
        }
        for path, file in records.items():
            if path.startswith(f"{where}/") and (
                path not in infos or infos[path].size != file.size
            ):
                raise CompactionFailed(
                    f"{path} is not here as its task wrote it; the inputs were kept: see that all"
                    " executors write to the same storage as this process, and compact it again"
                )
        deletes = isinstance(name, DeltaName) and name.deletes
        stored = compaction.plain or ACID_FORMAT
        contents = RecordedFiles(
            tuple(
                records.get(path) or recorded_file(files, path, info.base_name, stored, deletes)
                for path, info in infos.items()
            )
        )
        if not infos and isinstance(name, DeltaName):
            files.delete_directory(where)
            continue
        if not infos:
            codec = compaction.plan.settings.compression
            contents = write_empty_file(files, where, compaction.written, codec, compaction.plain)
        files.write(f"{where}/{names.VERSION_FILE}", names.VERSION)
        if compaction.plan.settings.layout is Layout.HIVE3:
            files.write(
                f"{where}/{names.METADATA_FILE}",
                json.dumps({"thisFileVersion": "0", "dataFormat": "compacted"}).encode(),
            )
        yield WrittenDirectory(compaction.partition, str(name), deletes, contents)


def _open_outputs(
    compaction: Compaction, outputs: Sequence[WrittenDirectory]
) -> tuple[Scan, DeleteKeys]:
    """Opens the staged output as a reader would; the delete events in it. Raises CorruptFile."""
    base: VisibleBase | None = None
    deltas: list[VisibleDelta] = []
    for output in outputs:
        files = tuple(file.below(output.directory) for file in output.contents.files)
        name = names.parse_directory(output.directory)
        if isinstance(name, BaseName):
            base = VisibleBase(name, output.directory, files, compacted=True)
        elif isinstance(name, DeltaName):
            deltas.append(VisibleDelta(name, output.directory, files, compacted=True))
    directory = AcidDirectory(
        compaction.staging,
        base,
        tuple(deltas),
        (),
        (),
        (),
        insert_only=compaction.plan.inputs.insert_only,
    )
    entity, events = open_merged(
        compaction.files, directory, compaction.plan.write_ids, apply_deletes=False
    )
    columns = compaction.written
    return (
        replace(
            compaction.inputs, location=compaction.staging, columns=columns, entities=(entity,)
        ),
        events,
    )


def rewritten(task: Rewrite, pool: Executor | None = None) -> Rewritten:
    """Writes the output file of one task, see `rewrite_bucket`.

    Spark calls it inside its tasks, where an OSError would arrive with the traceback of their
    process. Raises CompactionFailed, and what `rewrite_bucket` raises.
    """
    with writing(task.location):
        return rewrite_bucket(task, pool)


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


def _with_events(profile: Profile, events: DeleteKeys) -> Profile:
    """The profile with the delete events that are kept."""
    return replace(
        profile,
        delete_events=len(events),
        delete_event_checksum=row_id_checksum(events.write_ids, events.buckets, events.row_ids),
    )


def _disordered(outputs: Scan, compaction: Compaction) -> int:
    """The number of output files whose keys may be out of order."""
    if compaction.plain is not None:
        return 0
    sources = outputs.entities[0].sources
    files = (*sources.inserts, *sources.deletes)
    return sum(not _has_key_index(compaction.files, file.path) for file in files)


def _has_key_index(files: Files, path: str) -> bool:
    with reading(path):
        return open_file(files, FilePath(path)).has_key_index


def publish(staged: StagedCompaction) -> tuple[WrittenDirectory, ...]:
    """Brings the output into place; it counts once the compaction's transaction commits.

    With layout hive3 other engines count the output from the rename on. A Worker that died between
    rename and commit left its output under the name that this one needs: no commit recorded it, so
    it is removed.
    """
    compaction, location = staged.compaction, staged.compaction.plan.location
    if compaction.files.object_store:
        return staged.outputs
    recorded = compaction.plan.inputs.names
    for output in staged.outputs:
        if compaction.plan.settings.layout is Layout.HIVE3 and output.directory not in recorded:
            compaction.files.delete_directory(f"{location}/{output.directory}")
    durability.publish(
        compaction.files,
        location,
        [
            (f"{compaction.staging}/{output.directory}", f"{location}/{output.directory}")
            for output in staged.outputs
        ],
    )
    discard(compaction)
    return staged.outputs


def discard(compaction: Compaction) -> None:
    """Removes output that was not published, or leaves it to the Cleaner if that fails."""
    outputs = [f"{compaction.staging}/{name}" for name in compaction.plan.outputs]
    for path in outputs if compaction.files.object_store else [compaction.staging]:
        with suppress(OSError, StoreRefused, StoreUnavailable):
            compaction.files.delete_directory(path)
