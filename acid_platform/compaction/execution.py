"""A compaction as a value, and its execution: merge into a staging directory, compare, publish.

The value says file by file what to read, what to leave out and what to write. The inputs are opened
once: what is merged is also what the output is compared to. The steps are separate calls, so that a
caller may show what was compared between them, as the Dagster job does: `execute` → compare →
`publish`, or `discard`. An engine only distributes the tasks and reads both sides for
their profiles; everything else is the same for Spark and for the local engine.

An object store has no rename. There the output is written where it will be read: its names have the
transaction in them, so no other attempt has the same, and no reader asks for a file that no commit
has named (P41)."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Protocol

from acid_platform.compaction.plan import CompactionPlan, watermark
from acid_platform.compaction.profiles import Profile, row_id_checksum
from acid_platform.compaction.rewrite import Rewrite, Rewritten, rewrite_bucket
from acid_platform.compaction.states import CompactionKind, Layout
from acid_platform.errors import CompactionFailed, CompactionRefused, StoreRefused, StoreUnavailable
from acid_platform.formats.file_access import reading, recorded_file, type_text
from acid_platform.layout import names
from acid_platform.layout.file_entries import NO_RANGES, FileEntry, RecordedFiles
from acid_platform.layout.formats import FileFormat
from acid_platform.layout.names import BaseName, BucketFile, DeltaName, temporary_name
from acid_platform.layout.types import LOCAL_ZONE, Column
from acid_platform.scan.acid_directory import AcidDirectory, VisibleBase, VisibleDelta
from acid_platform.scan.deletes import NO_DELETES, DeleteKeys
from acid_platform.scan.open import Listings, TableLayout, open_entity, select_entities
from acid_platform.scan.scans import EntityScan, Scan
from acid_platform.scan.source_files import EntitySources, RowIdentity, SourceFile, open_source
from acid_platform.storage import durability
from acid_platform.storage.files import Files, asking
from acid_platform.transactions import CompactorWriteIdList, ValidTxnList, ValidWriteIdList
from acid_platform.write.publishing import WrittenDirectory, write_empty_file

PLAIN_FILE_BYTES = 256 << 20
"""Approximate number of input bytes for each output file of an insert-only table."""
_TYPES_THAT_CHANGE = ("char(", LOCAL_ZONE, "uniontype")
"""Stored types that a compaction would not keep if the table declares another type."""


@dataclass(frozen=True, slots=True)
class Compaction:
    """What an engine executes of a compaction. It asks neither a snapshot nor the metastore."""

    plan: CompactionPlan
    inputs: Scan
    """The files to read, the tests of their rows, and the keys of rows to leave out."""
    events: DeleteKeys
    """The delete events that a correct compaction keeps."""
    staging: str
    """Where the output directories are: a `_tmp_` directory, or in an object store the table's."""
    rewrites: tuple[Rewrite, ...]
    """The output files of a table with full ACID, and what each is made of. The rows of an
    insert-only table go into files of the one output directory."""
    partition: str = ""
    job: str = ""
    """What Spark's UI shows for the compaction's jobs."""
    names: tuple[tuple[str, str], ...] = ()
    """For each column of the output, its name in the inputs and its own; empty: all stay."""

    @property
    def files(self) -> Files:
        return self.inputs.files

    @property
    def columns(self) -> tuple[Column, ...]:
        """Those of the inputs."""
        return self.inputs.columns

    @property
    def written(self) -> tuple[Column, ...]:
        """Those of the output."""
        return _written(self.columns, self.names)

    @property
    def sources(self) -> tuple[str, ...]:
        """The name in the inputs of each column of the output."""
        return tuple(old for old, _ in self.names) or tuple(each.name for each in self.columns)

    @property
    def format(self) -> FileFormat:
        """What the output is written in; each input has a format of its own."""
        return self.inputs.format


def _written(columns: tuple[Column, ...], names: tuple[tuple[str, str], ...]) -> tuple[Column, ...]:
    by_name = {column.name: column for column in columns}
    return tuple(replace(by_name[old], name=new) for old, new in names) if names else columns


def select_compactable(
    table: TableLayout,
    listings: Listings,
    write_ids: CompactorWriteIdList,
    txns: ValidTxnList,
) -> tuple[AcidDirectory, CompactorWriteIdList]:
    """What a compaction may merge of the one partition, and the write id list that it uses.

    Raises as `select_entities`.
    """
    while True:
        (directory,) = select_entities(table, listings, write_ids, txns).values()
        high = watermark(directory, write_ids)
        if high == write_ids.high_watermark:
            return directory, write_ids
        write_ids = write_ids.capped(high).for_compactor()


def open_compaction(
    plan: CompactionPlan,
    table: TableLayout,
    partition: str = "",
    job: str = "",
    names: tuple[tuple[str, str], ...] = (),
) -> Compaction:
    """Opens footers, side files and delete files of the inputs. Writes nothing.

    `names`: see Compaction.

    Raises CorruptFile, also if a file is gone, and CompactionRefused for types that would not stay
    as they are stored, and for the layout hive3 in an object store.
    """
    directory = plan.inputs
    if plan.write_ids.aborted:  # the compactor's list never answers SOME: test each row
        directory = replace(
            directory,
            base=replace(directory.base, test_rows=True) if directory.base else None,
            deltas=tuple(replace(delta, test_rows=True) for delta in directory.deltas),
        )
    staging = _staging(plan, table.files)
    major = plan.kind is CompactionKind.MAJOR
    entity, events = open_merged(table.files, directory, plan.write_ids, apply_deletes=major)
    inputs = Scan(
        table.files, plan.location, table.columns, (), (entity,), plan.write_ids, table.format
    )
    rewrites = _rewrites(plan, inputs, staging, names) if table.format.keyed else ()
    return Compaction(plan, inputs, events, staging, rewrites, partition, job, names)


def open_merged(
    files: Files, directory: AcidDirectory, write_ids: ValidWriteIdList, apply_deletes: bool
) -> tuple[EntityScan, DeleteKeys]:
    """What to read of a directory, and the delete events that stay: all without `apply_deletes`.

    Even then, deletes of rows that were inserted under the same write id are applied, because a
    minor compaction does so too. Raises CorruptFile.
    """
    sources, keys = open_entity(files, directory, write_ids, directory.location)
    applied, events = (keys, NO_DELETES) if apply_deletes else (keys.of_own_rows(), keys)
    return EntityScan(sources, applied), events


def _staging(plan: CompactionPlan, files: Files) -> str:
    if not files.object_store:
        return f"{plan.location}/{temporary_name(plan.txn_id, uuid.uuid4().hex[:8])}"
    if plan.settings.layout is Layout.HIVE3:
        raise CompactionRefused(
            f"{plan.location}: with acid.layout=hive3 other engines count a base as soon as it has"
            " a file, and an object store can't rename a finished one into place; set the table"
            " property acid.layout to hive4"
        )
    return plan.location


def _rewrites(
    plan: CompactionPlan, inputs: Scan, staging: str, names: tuple[tuple[str, str], ...]
) -> tuple[Rewrite, ...]:
    """A merge task for each output file, with its path below `staging`."""
    sources = inputs.entities[0].sources
    minor = plan.kind is CompactionKind.MINOR
    _refuse_lossy_types(inputs, sources)
    if minor:
        _refuse_raw(sources)
    by_path = {
        source.path: replace(source, ranges=NO_RANGES)  # an executor needs none
        for source in (*sources.inserts, *sources.deletes)
    }

    def opened(files: Iterable[FileEntry]) -> tuple[SourceFile, ...]:
        """Without files of which nothing was committed yet."""
        paths = (f"{plan.location}/{file.path}" for file in files)
        return tuple(by_path[path] for path in paths if path in by_path)

    def rewrite(
        directory: BaseName | DeltaName,
        number: int,
        merged: tuple[SourceFile, ...],
        deletes: tuple[SourceFile, ...],
    ) -> Rewrite:
        return Rewrite(
            inputs.files.uri(plan.location),
            merged,
            deletes,
            f"{staging}/{directory}/{BucketFile(number)}",
            _written(inputs.columns, names),
            plan.write_ids.high_watermark,
            plan.write_ids.aborted,
            plan.settings.compression,
            inputs.format,
            delete_events=directory == plan.output_delete_delta,
            minor=minor,
            most_inputs=plan.settings.most_inputs,
            before=tuple(column.name for column in inputs.columns) if names else (),
            sources=tuple(old for old, _ in names),
            sorted_by=() if minor else plan.settings.sorted_by,
        )

    tasks = []
    for number, bucket in plan.inputs_by_bucket().items():
        data, events = opened(bucket.data), opened(bucket.deletes)
        directory = plan.output_base or plan.output_delta
        if data and directory:
            tasks.append(rewrite(directory, number, data, opened(bucket.every_delete)))
        if events and plan.output_delete_delta:
            tasks.append(rewrite(plan.output_delete_delta, number, events, ()))
    return tuple(tasks)


def _refuse_lossy_types(inputs: Scan, sources: EntitySources) -> None:
    if not sources.inserts:
        return
    first = sources.inserts[0]
    stored = type_text(inputs.files, first).replace("varchar(", "")
    declared = ",".join(str(column.type) for column in inputs.columns).replace("varchar(", "")
    for kind in _TYPES_THAT_CHANGE:
        if kind in stored and kind not in declared:
            raise CompactionRefused(
                f"{inputs.location} has a column that is stored as {kind.rstrip('(')} and"
                " declared as another type, which compaction would not keep; compact it with Hive"
            )


def _refuse_raw(sources: EntitySources) -> None:
    for source in sources.inserts:
        if source.identity is RowIdentity.RUN:
            raise CompactionRefused(
                f"{source.path} has no ACID columns (LOAD DATA); request a major compaction"
            )


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
        stored = compaction.format
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
            contents = write_empty_file(files, where, compaction.written, codec, stored)
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
        delete_event_checksum=sum(row_id_checksum(*part) for part in events.parts()),
    )


def _disordered(outputs: Scan, compaction: Compaction) -> int:
    """The number of output files whose keys may be out of order, and should not be."""
    if not compaction.format.keyed or any(task.sorted_by for task in compaction.rewrites):
        return 0
    sources = outputs.entities[0].sources
    files = (*sources.inserts, *sources.deletes)
    return sum(not _has_key_index(compaction.files, file) for file in files)


def _has_key_index(files: Files, source: SourceFile) -> bool:
    with reading(source.path):
        return open_source(files, source).has_key_index


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
