"""Compactions whose tasks Spark distributes, and whose profiles its scan computes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from pyspark.sql import SparkSession

from acid_platform.compaction.fractions import refuse_finer
from acid_platform.compaction.opening import (
    PLAIN_FILE_BYTES,
    CompactionWork,
)
from acid_platform.compaction.plan import CompactionPlan
from acid_platform.compaction.rewrite import Rewrite, Rewritten, written_values
from acid_platform.compaction.staging import Records, records_of
from acid_platform.compaction.validation import Profile, combine
from acid_platform.engine.results import EngineName
from acid_platform.engine.spark import jobs
from acid_platform.engine.spark.char_varchar import to_be_stored
from acid_platform.engine.spark.compaction_profiles import profile
from acid_platform.engine.spark.compaction_tasks import attempts, rewritten_by_attempt
from acid_platform.engine.spark.failures import raise_as_ours
from acid_platform.engine.spark.plain_files import write_plain
from acid_platform.engine.spark.plain_writing import completed, parts
from acid_platform.engine.spark.scan import ScanBuilder
from acid_platform.engine.spark.task_writing import in_tasks
from acid_platform.errors import StoreRefused, StoreUnavailable
from acid_platform.layout.file_entries import FileEntry
from acid_platform.layout.formats import ORC
from acid_platform.layout.names import temporary_name
from acid_platform.layout.recorded_files import RecordedFiles
from acid_platform.layout.types import TIMESTAMPS
from acid_platform.scan.scans import Scan
from acid_platform.storage.files import Files
from acid_platform.write.task_files import plain_name


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

    def merge(self, tasks: Sequence[Rewrite]) -> Records:
        self._tasks = tasks
        files = self._work.files
        directories = {attempts(task) for task in tasks}
        for directory in directories:
            files.make_directory(directory)
        with _removed_after(files, directories):
            done = _of_each(self._spark, tasks, rewritten_by_attempt)
            self._read = combine(one.values for one in done)
            placed: list[FileEntry | None] = []
            for task, one in zip(tasks, done, strict=True):
                if one.file is not None:
                    written = f"{attempts(task)}/{one.file.path}"
                    files.place(written, task.output, one.file.size)
                name = task.output.rpartition("/")[2]
                placed.append(replace(one.file, path=name) if one.file else None)
        return records_of(tasks, placed)

    def copy(self, inputs: Scan, staging: str) -> Records:
        """Raises CompactionRefused for timestamps with nanoseconds, which Spark would cut."""
        work, stored = self._work, self._work.plain
        assert stored is not None
        _refuse_finer(self._spark, self._plan, work, inputs)
        (output,) = self._plan.outputs
        rows = ScanBuilder(self._spark, inputs, None).rows()
        files = -(-self._plan.input_bytes // PLAIN_FILE_BYTES)
        column_names = [column.name for column in work.columns]
        # A scan reads a CHAR without its blanks, and files hold them.
        stored_rows = to_be_stored(rows.select(*column_names), work.columns, self._plan.location)
        written = f"{staging}/{temporary_name(self._plan.txn_id, 'out')}"
        records = {}
        with _removed_after(work.files, [written]), raise_as_ours():
            write_plain(
                stored_rows.coalesce(max(1, files)),
                stored,
                column_names,
                [],
                {"compression": work.compression},
                work.files.uri(written),
            )
            paths = parts(work.files, written)
            entries = completed(
                self._spark, work.files.uri(self._plan.location), paths, stored, work.columns
            )
            for number, (path, entry) in enumerate(zip(paths, entries, strict=True)):
                placed = f"{staging}/{output}/{plain_name(number)}"
                work.files.place(path, placed, entry.size)
                records[placed] = replace(entry, path=plain_name(number))
        return records

    def profiles(self, inputs: Scan, outputs: Scan) -> tuple[Profile, Profile]:
        """The values of a table with full ACID are those that the merge tasks read, and those that
        other tasks read back from the output files."""
        spark = self._spark
        expected = profile(spark, inputs, self._read)
        stored = None if self._read is None else _written(spark, self._tasks)
        return expected, profile(spark, outputs, stored)


@contextmanager
def _removed_after(files: Files, directories: Iterable[str]) -> Iterator[None]:
    """Removes directories of unfinished files from an object store, where they are the table's.

    Elsewhere they are in the staging directory, which is removed with all that is in it.
    """
    try:
        yield
    finally:
        for directory in directories if files.object_store else ():
            with suppress(OSError, StoreRefused, StoreUnavailable):
                files.delete_directory(directory)


def _written(spark: SparkSession, tasks: Sequence[Rewrite]) -> Profile:
    """The sums of the values as they are in the output files."""
    inserts = [task for task in tasks if not task.delete_events]

    def read_back(task: Rewrite) -> Rewritten:
        return Rewritten(values=written_values(task))

    return combine(one.values for one in _of_each(spark, inserts, read_back))


def _of_each(
    spark: SparkSession, tasks: Sequence[Rewrite], work: Callable[[Rewrite], Rewritten]
) -> list[Rewritten]:
    """What `work` returns for each task, each in its own Spark task."""

    def told(index: int) -> str:
        done = work(tasks[index])
        file = str(RecordedFiles((done.file,))) if done.file else None
        sums = done.values
        return json.dumps([done.rows, file, dict(sums.column_checksums), dict(sums.null_counts)])

    found = []
    for rows, file, checksums, nulls in map(json.loads, _in_tasks(spark, len(tasks), told)):
        values = Profile(column_checksums=checksums, null_counts=nulls)
        found.append(Rewritten(rows, RecordedFiles.parse(file).files[0] if file else None, values))
    return found


def _in_tasks(spark: SparkSession, count: int, work: Callable[[int], str]) -> list[str]:
    with raise_as_ours():
        return in_tasks(spark, count, work)


def _refuse_finer(
    spark: SparkSession, plan: CompactionPlan, work: CompactionWork, inputs: Scan
) -> None:
    """Raises CompactionRefused for nanoseconds: Spark copies these rows, and would cut them."""
    if not any(kind.kind in TIMESTAMPS for column in work.columns for kind in column.type.walk()):
        return
    paths = [source.path for entity in inputs.entities for source in entity.sources.inserts]
    where, stored = work.files.uri(plan.location), work.plain or ORC

    def look(index: int) -> str:
        refuse_finer(Files.of(where)[0], paths[index], stored)
        return ""

    _in_tasks(spark, len(paths), look)
