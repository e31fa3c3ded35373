"""Executing a compaction plan: Spark tasks merge, a second look compares, then it is published.

Stages are separate calls, so that a caller may put its own checks between them (Great Expectations
in the Dagster job): `execute` → compare → `publish`, or `discard`.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from acid_platform.compaction.plan import CompactionPlan, InputFile
from acid_platform.compaction.states import CompactionKind, Layout
from acid_platform.compaction.validation import Profile, combine
from acid_platform.engine.failures import raise_as_ours
from acid_platform.engine.formats import write_plain
from acid_platform.engine.profile import delete_checksum, profile_rows
from acid_platform.engine.scan import EntityScan, ScanBuilder, TableScan
from acid_platform.engine.write import Written
from acid_platform.errors import CompactionFailed, CompactionRefused
from acid_platform.layout import names
from acid_platform.layout.formats import ORC, FileFormat
from acid_platform.layout.names import BaseName, BucketFile, DeltaName
from acid_platform.layout.types import LOCAL_ZONE, TIMESTAMPS, Column
from acid_platform.snapshot.directory import AcidDirectory, VisibleBase, VisibleDelta
from acid_platform.snapshot.recorded import Contents
from acid_platform.snapshot.sources import Source, SourceKind
from acid_platform.storage import durability
from acid_platform.storage.deletes import NO_DELETES, DeleteKeys, load_keys
from acid_platform.storage.emptied import write_empty_file
from acid_platform.storage.entity import open_entity
from acid_platform.storage.files import Files
from acid_platform.storage.fractions import refuse_finer
from acid_platform.storage.keys import has_key_index
from acid_platform.storage.merge import Input
from acid_platform.storage.orc import finish_plain_file
from acid_platform.storage.orc_rows import orc_schema
from acid_platform.storage.recorded import recorded_file
from acid_platform.storage.rewrite import Rewrite, rewrite_bucket, written_values
from acid_platform.transactions import CompactorWriteIdList

PLAIN_FILE_BYTES = 256 << 20
"""Of insert-only files: about so many input bytes go into one output."""

_UNKEPT = ("char(", LOCAL_ZONE, "uniontype")
"""Types of files that another declared type would not keep."""


@dataclass(frozen=True, slots=True)
class CompactionWork:
    """What the executor needs beside the plan."""

    files: Files
    directory: AcidDirectory
    """Selected with the compactor's lists; the plan was made from it."""
    columns: tuple[Column, ...]
    write_ids: CompactorWriteIdList
    partition: str
    compression: str
    most_inputs: int = 500
    """`hive.compactor.max.num.delta`: files that one task merges at a time (C34)."""
    plain: FileFormat | None = None
    """Of an insert-only table; None for full ACID."""


@dataclass(frozen=True, slots=True)
class StagedCompaction:
    """Finished output in a `_tmp_` directory that no reader sees, with both profiles."""

    plan: CompactionPlan
    staging: str
    outputs: tuple[Written, ...]
    expected: Profile
    actual: Profile


def execute(spark: SparkSession, plan: CompactionPlan, work: CompactionWork) -> StagedCompaction:
    """Merge into a `_tmp_` directory and profile inputs and output. Nothing is published.

    Raises CorruptFile, CompactionFailed where files can't be written (C32), and CompactionRefused
    for types that would not stay as they are stored and for avro.
    """
    if work.plain and work.plain.name == "avro":
        raise CompactionRefused(
            f"{plan.location}: avro files can't be compacted here yet; read and"
            " overwrite the partition instead"
        )
    staging = f"{plan.location}/{names.temporary_name(plan.txn_id, uuid.uuid4().hex[:8])}"
    tasks = [task.into(staging) for task in rewrites(plan, work)] if work.plain is None else []
    try:
        with _writing(plan.location):
            make_outputs(plan, work, staging)
            if work.plain is None:
                read = _run(spark, tasks)
            else:
                _copy_plain(spark, plan, work, staging)
                read = None
            outputs = tuple(finish(plan, work, staging))
        expected = _expected(spark, plan, work, read)
        written = None if read is None else _written(spark, tasks)
        actual = _actual(spark, plan, work, staging, outputs, written)
        return StagedCompaction(plan, staging, outputs, expected, actual)
    except BaseException:
        discard(work.files, staging)
        raise


@contextmanager
def _writing(location: str) -> Iterator[None]:
    """Also inside a Spark task, whose error would come with the traceback of its process."""
    try:
        yield
    except OSError as error:
        raise CompactionFailed(
            f"{location} can't be written: {error}; its inputs were kept: make room, or allow it,"
            " and compact it again"
        ) from error


def publish(work: CompactionWork, staged: StagedCompaction) -> tuple[Written, ...]:
    """Rename the output into place; it counts once the compaction's transaction commits (S18).

    With layout hive3 other engines count the output from the rename on. A Worker that died between
    the two has left its output under the name that ours needs: no commit recorded it, so it goes.
    """
    location = staged.plan.location
    recorded = work.directory.names
    for one in staged.outputs:
        if staged.plan.layout is Layout.HIVE3 and one.directory not in recorded:
            work.files.delete_directory(f"{location}/{one.directory}")
    durability.publish(
        work.files,
        location,
        [
            (f"{staged.staging}/{one.directory}", f"{location}/{one.directory}")
            for one in staged.outputs
        ],
    )
    discard(work.files, staged.staging)
    return staged.outputs


def discard(files: Files, staging: str) -> None:
    with suppress(OSError):  # else the Cleaner removes it, as its owner's transaction has ended
        files.delete_directory(staging)


def rewrites(plan: CompactionPlan, work: CompactionWork) -> list[Rewrite]:
    """One per output file; their outputs are relative to the staging directory.

    Raises CompactionRefused, CorruptFile.
    """
    sources, _ = open_entity(work.files, work.directory, work.write_ids, plan.location)
    found = {one.path: one for one in (*sources.inserts, *sources.deletes)}
    _refuse_lossy_types(work, found.values())
    major = plan.kind is CompactionKind.MAJOR
    if not major:
        _refuse_raw(found.values())

    def read(files: Iterable[InputFile]) -> tuple[Input, ...]:
        """Without those of which nothing was committed yet (F9)."""
        paths = (f"{plan.location}/{one.file.path}" for one in files)
        return tuple(Input.of(found[path]) for path in paths if path in found)

    def rewrite(
        inputs: tuple[Input, ...], gone: tuple[Input, ...], output: str, delete_events: bool
    ) -> Rewrite:
        return Rewrite(
            work.files.uri(plan.location),
            inputs,
            gone,
            output,
            work.columns,
            work.write_ids.high_watermark,
            work.write_ids.aborted,
            work.compression,
            delete_events,
            not major,
            work.most_inputs,
        )

    tasks = []
    for number, inputs in plan.inputs_by_bucket().items():
        data, events = read(inputs.data), read(inputs.deletes)
        name = plan.output_base or plan.output_delta
        if data and name:
            gone = read(inputs.every_delete)
            tasks.append(rewrite(data, gone, f"{name}/{BucketFile(number)}", delete_events=False))
        if events and plan.output_delete_delta:
            output = f"{plan.output_delete_delta}/{BucketFile(number)}"
            tasks.append(rewrite(events, (), output, delete_events=True))
    return tasks


def make_outputs(plan: CompactionPlan, work: CompactionWork, staging: str) -> None:
    for name in plan.outputs:
        work.files.make_directory(f"{staging}/{name}")


def _run(spark: SparkSession, tasks: Sequence[Rewrite]) -> Profile:
    """Merges; answers the values as they were read."""
    return _of_each(spark, tasks, lambda task: rewrite_bucket(task).values)


def _written(spark: SparkSession, tasks: Sequence[Rewrite]) -> Profile:
    """The values as the output files have them."""
    return _of_each(spark, [one for one in tasks if not one.delete_events], written_values)


def _of_each(
    spark: SparkSession, tasks: Sequence[Rewrite], work: Callable[[Rewrite], Profile]
) -> Profile:
    """One Spark task per output file; rows never cross into the JVM."""
    if not tasks:
        return Profile()

    def sums(index: int) -> str:
        with _writing(tasks[index].location):
            found = work(tasks[index])
        return json.dumps([dict(found.column_checksums), dict(found.null_counts)])

    return combine(
        Profile(column_checksums=checksums, null_counts=nulls)
        for checksums, nulls in map(json.loads, _as_tasks(spark, len(tasks), sums))
    )


def _as_tasks(spark: SparkSession, count: int, work: Callable[[int], str]) -> list[str]:
    """What `work` answers to each number below `count`, a Spark task for each."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            answers = [work(index) for index in batch.column(0).to_pylist()]
            yield pa.RecordBatch.from_pydict({"answer": pa.array(answers, pa.string())})

    with raise_as_ours():
        frame = spark.range(0, count, 1, count).mapInArrow(run, "answer string")
        return [row["answer"] for row in frame.collect()]


def finish(plan: CompactionPlan, work: CompactionWork, staging: str) -> Iterator[Written]:
    """Markers and sizes; a delta without rows is dropped (F21), a base stays, with a file (P32)."""
    for name in plan.outputs:
        where = f"{staging}/{name}"
        data = [info for info in work.files.children(where) if not names.is_hidden(info.base_name)]
        if not data and isinstance(name, DeltaName):
            work.files.delete_directory(where)
            continue
        if not data:
            write_empty_file(work.files, where, work.columns, work.compression, work.plain)
            data = [one for one in work.files.children(where) if not names.is_hidden(one.base_name)]
        work.files.write(f"{where}/{names.VERSION_FILE}", names.VERSION)
        if plan.layout is Layout.HIVE3:
            work.files.write(
                f"{where}/{names.METADATA_FILE}",
                json.dumps({"thisFileVersion": "0", "dataFormat": "compacted"}).encode(),
            )
        deletes = isinstance(name, DeltaName) and name.deletes
        yield Written(
            work.partition,
            str(name),
            deletes,
            Contents(
                tuple(
                    recorded_file(work.files, info.path, info.base_name, work.plain or ORC, deletes)
                    for info in data
                )
            ),
        )


def _copy_plain(
    spark: SparkSession, plan: CompactionPlan, work: CompactionWork, staging: str
) -> None:
    """Rows of an insert-only table into few files; nothing is deleted, aborted ids are no input."""
    assert work.plain is not None
    _refuse_finer(spark, plan, work)
    (name,) = plan.outputs
    rows, _ = _scanned(spark, work, _inputs(plan, work), apply_deletes=False)
    files = -(-plan.input_bytes // PLAIN_FILE_BYTES)
    names_of = [one.name for one in work.columns]
    with raise_as_ours():
        write_plain(
            rows.select(*names_of).coalesce(max(1, files)),
            work.plain,
            names_of,
            [],
            {"compression": work.compression},
            work.files.uri(f"{staging}/out"),
        )
    written = [
        one for one in work.files.children(f"{staging}/out") if one.base_name.startswith("part-")
    ]
    for number, info in enumerate(sorted(written, key=lambda one: str(one.base_name))):
        if work.plain.name == "orc":
            finish_plain_file(work.files, info.path, work.columns)
        work.files.system.move(info.path, f"{staging}/{name}/{number:06d}_0")


def _refuse_finer(spark: SparkSession, plan: CompactionPlan, work: CompactionWork) -> None:
    """Spark copies insert-only rows, and cuts nanoseconds. Raises CompactionRefused."""
    if not any(one.kind in TIMESTAMPS for column in work.columns for one in column.type.walk()):
        return
    sources, _ = open_entity(work.files, _inputs(plan, work), work.write_ids, plan.location)
    paths = [one.path for one in sources.inserts]
    where, stored = work.files.uri(plan.location), work.plain or ORC

    def look(index: int) -> str:
        refuse_finer(Files.of(where)[0], paths[index], stored)
        return ""

    if paths:
        _as_tasks(spark, len(paths), look)


def _inputs(plan: CompactionPlan, work: CompactionWork) -> AcidDirectory:
    """The directory as the compaction reads it: a minor one leaves the base alone."""
    directory = work.directory
    if work.write_ids.aborted:  # the compactor's list never answers SOME (S16): test each row
        directory = replace(
            directory,
            base=replace(directory.base, test_rows=True) if directory.base else None,
            deltas=tuple(replace(delta, test_rows=True) for delta in directory.deltas),
        )
    if plan.kind is CompactionKind.MAJOR:
        return directory
    return replace(directory, base=None, originals=())


def _scanned(
    spark: SparkSession,
    work: CompactionWork,
    directory: AcidDirectory,
    apply_deletes: bool,
    wanted: Sequence[str] | None = None,
) -> tuple[DataFrame, DeleteKeys]:
    """Insert events, and the delete events that were not applied to them.

    Those of rows that were inserted under the same write id are applied in any case, as a minor
    compaction does.
    """
    sources, keys = open_entity(work.files, directory, work.write_ids, directory.location)
    applied = (
        keys if apply_deletes else load_keys(work.files, sources.deletes, work.write_ids, own=True)
    )
    entity = EntityScan(directory, sources, applied, "", ())
    scan = TableScan(
        work.files,
        directory.location,
        work.columns,
        (),
        (entity,),
        work.write_ids,
        work.plain or ORC,
    )
    return ScanBuilder(spark, scan, wanted).rows(), NO_DELETES if apply_deletes else keys


def _profile(
    spark: SparkSession,
    work: CompactionWork,
    directory: AcidDirectory,
    apply_deletes: bool,
    values: Profile | None,
) -> Profile:
    """Rows and row ids as the ordinary scan finds them; delete events that were not applied.

    `values` None: of the columns too. Else they are known from where Arrow decoded them, which
    takes half the time, and the scan reads no more than keys.
    """
    rows, events = _scanned(spark, work, directory, apply_deletes, None if values is None else ())
    found = profile_rows(rows, work.columns if values is None else ())
    if values is not None:
        found = replace(
            found, column_checksums=values.column_checksums, null_counts=values.null_counts
        )
    return replace(found, delete_events=len(events), delete_event_checksum=delete_checksum(events))


def _expected(
    spark: SparkSession, plan: CompactionPlan, work: CompactionWork, values: Profile | None
) -> Profile:
    """What the inputs say must come out."""
    return _profile(spark, work, _inputs(plan, work), plan.kind is CompactionKind.MAJOR, values)


def _actual(
    spark: SparkSession,
    plan: CompactionPlan,
    work: CompactionWork,
    staging: str,
    outputs: Sequence[Written],
    values: Profile | None,
) -> Profile:
    base: VisibleBase | None = None
    deltas: list[VisibleDelta] = []
    for output in outputs:
        found = tuple(one.below(output.directory) for one in output.contents.files)
        name = names.parse_directory(output.directory)
        if isinstance(name, BaseName):
            base = VisibleBase(name, output.directory, found, compacted=True)
        elif isinstance(name, DeltaName):
            deltas.append(VisibleDelta(name, output.directory, found, compacted=True))
    directory = AcidDirectory(
        staging, base, tuple(deltas), (), (), (), insert_only=work.plain is not None
    )
    profile = _profile(spark, work, directory, False, values)
    if work.plain is not None:
        return profile
    written = [one.path for each in (base, *deltas) if each for one in each.files]
    return replace(
        profile,
        disordered=sum(not has_key_index(work.files, f"{staging}/{path}") for path in written),
    )


def _refuse_lossy_types(work: CompactionWork, found: Iterable[Source]) -> None:
    declared = ",".join(str(column.type) for column in work.columns)
    some = next((one for one in found if not one.directory.startswith("delete_")), None)
    stored = orc_schema(work.files, some.path, some.length) if some else ""
    for kind in _UNKEPT:
        if kind in stored.replace("varchar(", "") and kind not in declared.replace("varchar(", ""):
            raise CompactionRefused(
                f"{work.directory.location} has a column that is stored as {kind.rstrip('(')} and"
                " declared as another type, which compaction would not keep; compact it with Hive"
            )


def _refuse_raw(found: Iterable[Source]) -> None:
    for one in found:  # originals and the base are no inputs of a minor compaction
        if one.kind is SourceKind.RAW and one.directory.startswith("delta_"):
            raise CompactionRefused(
                f"{one.path} has no ACID columns (LOAD DATA); request a major compaction (C27)"
            )
