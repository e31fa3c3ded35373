"""Executing a compaction plan: Spark tasks merge, a second look compares, then it is published.

Stages are separate calls, so that a caller may put its own checks between them (Great Expectations
in the Dagster job): `execute` → compare → `publish`, or `discard`.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import SparkSession

from acid_platform.compaction.plan import CompactionPlan
from acid_platform.compaction.states import CompactionKind, Layout
from acid_platform.compaction.validation import Profile
from acid_platform.engine.failures import raise_as_ours
from acid_platform.engine.profile import delete_checksum, profile_rows
from acid_platform.engine.scan import EntityScan, ScanBuilder, TableScan
from acid_platform.engine.write import Written
from acid_platform.errors import CompactionRefused
from acid_platform.layout import names
from acid_platform.layout.names import BaseName, BucketFile, DeltaName
from acid_platform.layout.types import Column
from acid_platform.snapshot.directory import AcidDirectory, VisibleBase, VisibleDelta
from acid_platform.snapshot.listing import FileEntry
from acid_platform.storage.deletes import NO_DELETES, DeleteKeys, load_keys
from acid_platform.storage.files import Files
from acid_platform.storage.orc import open_orc, orc_schema
from acid_platform.storage.rewrite import Input, Rewrite, rewrite_bucket
from acid_platform.storage.sources import resolve
from acid_platform.transactions import CompactorWriteIdList

_UNKEPT = ("char(", "varchar(", "timestamp with local time zone", "uniontype")


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

    Raises CompactionRefused for types that Arrow can't carry through ORC unchanged, CorruptFile.
    """
    _refuse_lossy_types(work, plan)
    staging = f"{plan.location}/{names.temporary_name(plan.txn_id, uuid.uuid4().hex[:8])}"
    try:
        tasks = list(_tasks(plan, work, staging))
        for name in plan.outputs:
            work.files.make_directory(f"{staging}/{name}")
        _run(spark, tasks)
        outputs = tuple(_finish(plan, work, staging))
        return StagedCompaction(plan, staging, outputs, _expected(spark, plan, work),
                                _actual(spark, plan, work, staging, outputs))
    except BaseException:
        discard(work.files, staging)
        raise


def publish(work: CompactionWork, staged: StagedCompaction) -> tuple[Written, ...]:
    """Rename the output into place; it counts once the compaction's transaction commits (S18).

    With layout hive3 the rename itself makes the output count, so nothing may follow that fails.
    """
    for output in staged.outputs:
        work.files.publish(f"{staged.staging}/{output.directory}",
                           f"{staged.plan.location}/{output.directory}")
    discard(work.files, staged.staging)
    return staged.outputs


def discard(files: Files, staging: str) -> None:
    with suppress(OSError):  # else the Cleaner removes it, as its owner's transaction has ended
        files.delete_directory(staging)


def _tasks(
    plan: CompactionPlan, work: CompactionWork, staging: str
) -> Iterator[Rewrite]:
    major = plan.kind is CompactionKind.MAJOR

    def where(entry: FileEntry) -> str:
        return f"{plan.location}/{entry.path}"

    def rewrite(
        inputs: tuple[Input, ...], gone: tuple[str, ...], output: str, delete_events: bool
    ) -> Rewrite:
        return Rewrite(
            work.files.uri(plan.location), inputs, gone, f"{staging}/{output}", work.columns,
            work.write_ids.high_watermark, work.write_ids.aborted, work.compression, delete_events,
            work.most_inputs)

    for number, inputs in plan.inputs_by_bucket().items():
        data = tuple(Input(where(one.file), one.source.above if one.source else -1)
                     for one in inputs.data)
        name = plan.output_base or plan.output_delta
        if data and name:
            gone = tuple(where(one.file) for one in inputs.every_delete) if major else ()
            yield rewrite(data, gone, f"{name}/{BucketFile(number)}", delete_events=False)
        if inputs.deletes and plan.output_delete_delta:
            events = tuple(Input(where(one.file)) for one in inputs.deletes)
            yield rewrite(events, (), f"{plan.output_delete_delta}/{BucketFile(number)}",
                          delete_events=True)


def _run(spark: SparkSession, tasks: Sequence[Rewrite]) -> None:
    """One Spark task per output file; rows never cross into the JVM."""
    if not tasks:
        return

    def merge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                rows, size = rewrite_bucket(tasks[index])
                yield pa.RecordBatch.from_pydict({"rows": [rows], "bytes": [size]})

    with raise_as_ours():
        frame = spark.range(0, len(tasks), 1, len(tasks))
        frame.mapInArrow(merge, "rows long, bytes long").collect()


def _finish(plan: CompactionPlan, work: CompactionWork, staging: str) -> Iterator[Written]:
    """Markers and sizes; a delta without a row is dropped, a base stays (storage.md section 10)."""
    for name in plan.outputs:
        where = f"{staging}/{name}"
        data = [info for info in work.files.children(where) if not names.is_hidden(info.base_name)]
        if not data and isinstance(name, DeltaName):
            work.files.delete_directory(where)
            continue
        work.files.write(f"{where}/{names.VERSION_FILE}", names.VERSION)
        if plan.layout is Layout.HIVE3:
            work.files.write(
                f"{where}/{names.METADATA_FILE}",
                json.dumps({"thisFileVersion": "0", "dataFormat": "compacted"}).encode())
        rows = sum(int(open_orc(work.files, info.path).nrows) for info in data)
        yield Written(work.partition, str(name), isinstance(name, DeltaName) and name.deletes,
                      rows, sum(info.size for info in data), len(data))


def _profile(
    spark: SparkSession, work: CompactionWork, directory: AcidDirectory,
    deletes: DeleteKeys, events: DeleteKeys,
) -> Profile:
    entity = EntityScan(directory, resolve(work.files, directory), deletes, "", ())
    scan = TableScan(work.files, directory.location, work.columns, (), (entity,), work.write_ids)
    rows = profile_rows(ScanBuilder(spark, scan, None).rows(), work.columns)
    return replace(rows, delete_events=len(events), delete_event_checksum=delete_checksum(events))


def _expected(spark: SparkSession, plan: CompactionPlan, work: CompactionWork) -> Profile:
    """What the inputs say must come out, read through the ordinary scan."""
    directory = work.directory
    if work.write_ids.aborted:  # the compactor's list never answers SOME (S16): test each row
        directory = replace(
            directory, base=replace(directory.base, test_rows=True) if directory.base else None,
            deltas=tuple(replace(delta, test_rows=True) for delta in directory.deltas))
    deletes = load_keys(work.files, resolve(work.files, directory).deletes, work.write_ids)
    if plan.kind is CompactionKind.MAJOR:
        return _profile(spark, work, directory, deletes, NO_DELETES)
    return _profile(spark, work, replace(directory, base=None), NO_DELETES, deletes)


def _actual(
    spark: SparkSession, plan: CompactionPlan, work: CompactionWork, staging: str,
    outputs: Sequence[Written],
) -> Profile:
    base: VisibleBase | None = None
    deltas: list[VisibleDelta] = []
    for output in outputs:
        found = tuple(
            FileEntry(f"{output.directory}/{info.base_name}", info.size)
            for info in work.files.children(f"{staging}/{output.directory}")
            if not names.is_hidden(info.base_name))
        name = names.parse_directory(output.directory)
        if isinstance(name, BaseName):
            base = VisibleBase(name, output.directory, found)
        elif isinstance(name, DeltaName):
            deltas.append(VisibleDelta(name, output.directory, found))
    directory = AcidDirectory(staging, base, tuple(deltas), (), (), ())
    events = load_keys(work.files, resolve(work.files, directory).deletes, work.write_ids)
    return _profile(spark, work, directory, NO_DELETES, events)


def _refuse_lossy_types(work: CompactionWork, plan: CompactionPlan) -> None:
    declared = ",".join(str(column.type) for column in work.columns)
    inputs = [one for bucket in plan.inputs_by_bucket().values() for one in bucket.data]
    texts = [declared, *(orc_schema(work.files, f"{plan.location}/{one.file.path}")
                         for one in inputs[:1])]
    for text in texts:
        for kind in _UNKEPT:
            if kind in text:
                raise CompactionRefused(
                    f"{plan.location} has a column of type {kind.rstrip('(')}, which this"
                    " compactor can't rewrite unchanged; compact it with Hive"
                )

