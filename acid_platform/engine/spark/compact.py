"""Executing a compaction plan: merge into a staging directory, profile both sides, publish.

The steps are separate calls, so that a caller may add checks of its own between them (Great
Expectations in the Dagster job): `execute` → compare → `publish`, or `discard`.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import SparkSession

from acid_platform.compaction.plan import CompactionPlan
from acid_platform.compaction.states import Layout
from acid_platform.compaction.validation import Profile, combine
from acid_platform.engine.compaction_inputs import (
    CompactionWork,
    OpenedEntity,
    open_inputs,
    rewrites,
)
from acid_platform.engine.publishing import Written
from acid_platform.engine.spark.compaction_profiles import entity_scan, output_profile, profile
from acid_platform.engine.spark.failures import raise_as_ours
from acid_platform.engine.spark.plain_files import write_plain
from acid_platform.errors import CompactionFailed, CompactionRefused
from acid_platform.layout import names
from acid_platform.layout.formats import ORC
from acid_platform.layout.names import DeltaName
from acid_platform.layout.types import TIMESTAMPS
from acid_platform.snapshot.recorded import Contents
from acid_platform.storage import durability
from acid_platform.storage.emptied import write_empty_file
from acid_platform.storage.files import Files
from acid_platform.storage.fractions import refuse_finer
from acid_platform.storage.orc import finish_plain_file
from acid_platform.storage.recorded import recorded_file
from acid_platform.storage.rewrite import Rewrite, rewrite_bucket, written_values

PLAIN_FILE_BYTES = 256 << 20
"""Approximate number of input bytes for each output file of an insert-only table."""


@dataclass(frozen=True, slots=True)
class StagedCompaction:
    """Finished output in a `_tmp_` directory that no reader sees, with the profiles of inputs and
    output."""

    plan: CompactionPlan
    staging: str
    outputs: tuple[Written, ...]
    expected: Profile
    actual: Profile


def execute(spark: SparkSession, plan: CompactionPlan, work: CompactionWork) -> StagedCompaction:
    """Merges into a `_tmp_` directory, and profiles inputs and output. Publishes nothing.

    Raises CorruptFile, CompactionFailed if files can't be written (C32), and CompactionRefused for
    types that would not stay as they are stored and for avro.
    """
    if work.plain and work.plain.name == "avro":
        raise CompactionRefused(
            f"{plan.location}: avro files can't be compacted here yet; read and"
            " overwrite the partition instead"
        )
    staging = f"{plan.location}/{names.temporary_name(plan.txn_id, uuid.uuid4().hex[:8])}"
    inputs = open_inputs(plan, work)
    try:
        if work.plain is None:
            return _merged(spark, plan, work, inputs, staging)
        return _copied(spark, plan, work, inputs, staging)
    except BaseException:
        discard(work.files, staging)
        raise


def _merged(
    spark: SparkSession,
    plan: CompactionPlan,
    work: CompactionWork,
    inputs: OpenedEntity,
    staging: str,
) -> StagedCompaction:
    """Of a table with full ACID."""
    tasks = rewrites(plan, work, inputs.sources, staging)
    with _writing(plan.location):
        make_outputs(plan, work, staging)
        values_read = _run(spark, tasks)
        outputs = tuple(finish(plan, work, staging))
    expected = profile(spark, work, inputs, values_read)
    actual = output_profile(spark, work, staging, outputs, _written(spark, tasks))
    return StagedCompaction(plan, staging, outputs, expected, actual)


def _copied(
    spark: SparkSession,
    plan: CompactionPlan,
    work: CompactionWork,
    inputs: OpenedEntity,
    staging: str,
) -> StagedCompaction:
    """Of an insert-only table."""
    with _writing(plan.location):
        make_outputs(plan, work, staging)
        _copy_plain(spark, plan, work, inputs, staging)
        outputs = tuple(finish(plan, work, staging))
    expected = profile(spark, work, inputs, None)
    actual = output_profile(spark, work, staging, outputs, None)
    return StagedCompaction(plan, staging, outputs, expected, actual)


@contextmanager
def _writing(location: str) -> Iterator[None]:
    """Turns OSError into CompactionFailed.

    Spark tasks use it too: otherwise the error would arrive with the traceback of their process.
    """
    try:
        yield
    except OSError as error:
        raise CompactionFailed(
            f"{location} can't be written: {error}; its inputs were kept: free space, or grant the"
            " permission, and compact it again"
        ) from error


def publish(work: CompactionWork, staged: StagedCompaction) -> tuple[Written, ...]:
    """Renames the output into place; it counts once the compaction's transaction commits (S18).

    With layout hive3 other engines count the output from the rename on. A Worker that died between
    rename and commit left its output under the name that this one needs: no commit recorded it, so
    it is removed.
    """
    location = staged.plan.location
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
    discard(work.files, staged.staging)
    return staged.outputs


def discard(files: Files, staging: str) -> None:
    """Removes a staging directory, or leaves it to the Cleaner if that fails."""
    with suppress(OSError):
        files.delete_directory(staging)


def make_outputs(plan: CompactionPlan, work: CompactionWork, staging: str) -> None:
    """Makes the output directories below the staging directory."""
    for name in plan.outputs:
        work.files.make_directory(f"{staging}/{name}")


def _run(spark: SparkSession, tasks: Sequence[Rewrite]) -> Profile:
    """Merges; returns the sums of the values as they were read."""
    return _of_each(spark, tasks, lambda task: rewrite_bucket(task).values)


def _written(spark: SparkSession, tasks: Sequence[Rewrite]) -> Profile:
    """The sums of the values as they are in the output files."""
    return _of_each(spark, [task for task in tasks if not task.delete_events], written_values)


def _of_each(
    spark: SparkSession, tasks: Sequence[Rewrite], work: Callable[[Rewrite], Profile]
) -> Profile:
    """Runs one Spark task for each output file; rows never enter the JVM."""
    if not tasks:
        return Profile()

    def sums(index: int) -> str:
        with _writing(tasks[index].location):
            values = work(tasks[index])
        return json.dumps([dict(values.column_checksums), dict(values.null_counts)])

    return combine(
        Profile(column_checksums=checksums, null_counts=nulls)
        for checksums, nulls in map(json.loads, _as_tasks(spark, len(tasks), sums))
    )


def _as_tasks(spark: SparkSession, count: int, work: Callable[[int], str]) -> list[str]:
    """The results of `work` for each number below `count`, each computed in its own Spark task."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            results = [work(index) for index in batch.column(0).to_pylist()]
            yield pa.RecordBatch.from_pydict({"result": pa.array(results, pa.string())})

    with raise_as_ours():
        frame = spark.range(0, count, 1, count).mapInArrow(run, "result string")
        return [row["result"] for row in frame.collect()]


def finish(plan: CompactionPlan, work: CompactionWork, staging: str) -> Iterator[Written]:
    """Adds marker files and records sizes.

    A delta without rows is dropped (F21). A base stays, with an empty file if it has no rows (P32).
    """
    for name in plan.outputs:
        where = f"{staging}/{name}"
        data = [info for info in work.files.children(where) if not names.is_hidden(info.base_name)]
        if not data and isinstance(name, DeltaName):
            work.files.delete_directory(where)
            continue
        if not data:
            write_empty_file(work.files, where, work.columns, work.compression, work.plain)
            data = [
                info for info in work.files.children(where) if not names.is_hidden(info.base_name)
            ]
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
    spark: SparkSession,
    plan: CompactionPlan,
    work: CompactionWork,
    inputs: OpenedEntity,
    staging: str,
) -> None:
    """Copies the rows of an insert-only table into a few files.

    It has no deletes, and directories of aborted write ids are no inputs.
    """
    assert work.plain is not None
    _refuse_finer(spark, plan, work, inputs)
    (output,) = plan.outputs
    rows = entity_scan(spark, work, inputs).rows()
    files = -(-plan.input_bytes // PLAIN_FILE_BYTES)
    column_names = [column.name for column in work.columns]
    with raise_as_ours():
        write_plain(
            rows.select(*column_names).coalesce(max(1, files)),
            work.plain,
            column_names,
            [],
            {"compression": work.compression},
            work.files.uri(f"{staging}/out"),
        )
    written = [
        info for info in work.files.children(f"{staging}/out") if info.base_name.startswith("part-")
    ]
    for number, info in enumerate(sorted(written, key=lambda info: str(info.base_name))):
        if work.plain.name == "orc":
            finish_plain_file(work.files, info.path, work.columns)
        work.files.system.move(info.path, f"{staging}/{output}/{number:06d}_0")


def _refuse_finer(
    spark: SparkSession, plan: CompactionPlan, work: CompactionWork, inputs: OpenedEntity
) -> None:
    """Raises CompactionRefused for nanoseconds: Spark copies these rows, and would cut them."""
    if not any(kind.kind in TIMESTAMPS for column in work.columns for kind in column.type.walk()):
        return
    paths = [source.path for source in inputs.sources.inserts]
    where, stored = work.files.uri(plan.location), work.plain or ORC

    def look(index: int) -> str:
        refuse_finer(Files.of(where)[0], paths[index], stored)
        return ""

    if paths:
        _as_tasks(spark, len(paths), look)
