"""Compactions whose tasks Spark distributes, and whose profiles its scan computes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from pyspark.sql import SparkSession

from acid_platform.compaction.plan import CompactionPlan
from acid_platform.compaction.validation import Profile, combine
from acid_platform.engine.compaction import rewritten
from acid_platform.engine.compaction_inputs import CompactionWork, OpenedEntity
from acid_platform.engine.results import EngineName
from acid_platform.engine.spark import jobs
from acid_platform.engine.spark.compaction_profiles import entity_scan, profile
from acid_platform.engine.spark.failures import raise_as_ours
from acid_platform.engine.spark.plain_files import write_plain
from acid_platform.engine.spark.task_writing import in_tasks
from acid_platform.layout.formats import ORC
from acid_platform.layout.types import TIMESTAMPS
from acid_platform.storage.files import Files
from acid_platform.storage.fractions import refuse_finer
from acid_platform.storage.orc import finish_plain_file
from acid_platform.storage.rewrite import Rewrite, written_values

PLAIN_FILE_BYTES = 256 << 20
"""Approximate number of input bytes for each output file of an insert-only table."""


class SparkCompaction:
    """Runs one Spark task for each output file of a table with full ACID, where Arrow merges: rows
    never enter the JVM. Spark itself copies insert-only tables."""

    name: EngineName = "spark"

    def __init__(self, spark: SparkSession, plan: CompactionPlan, work: CompactionWork) -> None:
        self._spark, self._plan, self._work = spark, plan, work
        self._tasks: Sequence[Rewrite] = ()
        self._read: Profile | None = None
        """The values of a table with full ACID, as the merge tasks have read them."""

    @contextmanager
    def running(self) -> Iterator[None]:
        with jobs.tagged(self._spark, self._plan.txn_id):
            jobs.describe(self._spark, self._work.job, self._work.pool)
            yield

    def cancel(self) -> None:
        jobs.cancel(self._spark, self._plan.txn_id)

    def merge(self, tasks: Sequence[Rewrite]) -> None:
        self._tasks = tasks
        self._read = _of_each(self._spark, tasks, rewritten)

    def copy(self, inputs: OpenedEntity, staging: str) -> None:
        """Raises CompactionRefused for timestamps with nanoseconds, which Spark would cut."""
        work, stored = self._work, self._work.plain
        assert stored is not None
        _refuse_finer(self._spark, self._plan, work, inputs)
        (output,) = self._plan.outputs
        rows = entity_scan(self._spark, work, inputs).rows()
        files = -(-self._plan.input_bytes // PLAIN_FILE_BYTES)
        column_names = [column.name for column in work.columns]
        with raise_as_ours():
            write_plain(
                rows.select(*column_names).coalesce(max(1, files)),
                stored,
                column_names,
                [],
                {"compression": work.compression},
                work.files.uri(f"{staging}/out"),
            )
        written = [
            info
            for info in work.files.children(f"{staging}/out")
            if info.base_name.startswith("part-")
        ]
        for number, info in enumerate(sorted(written, key=lambda info: str(info.base_name))):
            if stored.name == "orc":
                finish_plain_file(work.files, info.path, work.columns)
            work.files.system.move(info.path, f"{staging}/{output}/{number:06d}_0")

    def profiles(self, inputs: OpenedEntity, outputs: OpenedEntity) -> tuple[Profile, Profile]:
        """The values of a table with full ACID are those that the merge tasks read, and those that
        other tasks read back from the output files."""
        spark, work = self._spark, self._work
        expected = profile(spark, work, inputs, self._read)
        stored = None if self._read is None else _written(spark, self._tasks)
        return expected, profile(spark, work, outputs, stored)


def _written(spark: SparkSession, tasks: Sequence[Rewrite]) -> Profile:
    """The sums of the values as they are in the output files."""
    return _of_each(spark, [task for task in tasks if not task.delete_events], written_values)


def _of_each(
    spark: SparkSession, tasks: Sequence[Rewrite], work: Callable[[Rewrite], Profile]
) -> Profile:
    """The sum of what `work` returns for each task, each in its own Spark task."""
    if not tasks:
        return Profile()

    def sums(index: int) -> str:
        values = work(tasks[index])
        return json.dumps([dict(values.column_checksums), dict(values.null_counts)])

    return combine(
        Profile(column_checksums=checksums, null_counts=nulls)
        for checksums, nulls in map(json.loads, _in_tasks(spark, len(tasks), sums))
    )


def _in_tasks(spark: SparkSession, count: int, work: Callable[[int], str]) -> list[str]:
    with raise_as_ours():
        return in_tasks(spark, count, work)


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

    _in_tasks(spark, len(paths), look)
