"""Spark as an engine: every statement as one Spark job where that is possible, and compactions
whose tasks Spark distributes, and whose profiles its scan computes.

Jobs have a tag of their transaction, so that aborting it stops them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession

from acid_platform.compaction.execution import PLAIN_FILE_BYTES, Compaction, Records
from acid_platform.compaction.profiles import MODULUS, Profile, combine
from acid_platform.compaction.rewrite import Rewrite, Rewritten, written_values
from acid_platform.engine.interface import ArrowResult, EngineName, Fixed, Result, Sources, Where
from acid_platform.engine.merge_clauses import MergeClause, MergeCounts, SourceKeys
from acid_platform.engine.spark.failures import is_connect, raise_as_ours
from acid_platform.engine.spark.few_calls import selected
from acid_platform.engine.spark.input_rows import as_frame, conform
from acid_platform.engine.spark.query import SparkResult, result_of
from acid_platform.engine.spark.row_keys import KEYS
from acid_platform.engine.spark.scan import scan_rows
from acid_platform.engine.spark.spark_dml import (
    SparkMerge,
    insert_rows,
    rows_to_delete,
    rows_to_update,
)
from acid_platform.engine.spark.spark_types import with_limited_texts
from acid_platform.engine.spark.task_body import attempts, rewritten_by_attempt
from acid_platform.engine.spark.task_writing import completed, in_tasks, parts, write_plain
from acid_platform.engine.spark.write import StatementRows, write_statement
from acid_platform.errors import SparkLost, StoreRefused, StoreUnavailable
from acid_platform.formats.file_access import refuse_finer
from acid_platform.layout.file_entries import RecordedFiles
from acid_platform.layout.formats import FileFormat
from acid_platform.layout.names import temporary_name
from acid_platform.layout.sql_text import quoted
from acid_platform.layout.types import TIMESTAMPS, Column
from acid_platform.scan.scans import Scan
from acid_platform.storage.files import Files
from acid_platform.values.local_rows import local_table
from acid_platform.values.row_streams import RowStream, removed_afterwards
from acid_platform.values.rows import Rows, is_spark_frame
from acid_platform.write.publishing import WriteTarget, WrittenDirectory
from acid_platform.write.task_files import files_needed, plain_name


def _tag(txn_id: int) -> str:
    return f"acid-txn-{txn_id}"


@contextmanager
def tagged(spark: SparkSession, txn_id: int) -> Iterator[None]:
    """Tags the jobs that this thread starts inside the block as the transaction's."""
    spark.addTag(_tag(txn_id))
    try:
        yield
    finally:
        with suppress(SparkLost):
            spark.removeTag(_tag(txn_id))


def describe(spark: SparkSession, text: str, pool: str) -> None:
    """Sets the description that Spark's UI shows for this thread's jobs, and their scheduler pool.

    `pool` empty: the default. Spark Connect has neither.
    """
    if not is_connect(spark):
        spark.sparkContext.setJobDescription(text)
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", pool or None)  # type: ignore[arg-type]


def cancel(spark: SparkSession | None, txn_id: int) -> None:
    """Stops the running jobs of a transaction, if there are any."""
    if spark is not None:
        with suppress(SparkLost):  # nothing runs there any more
            spark.interruptTag(_tag(txn_id))


class SparkEngine:
    """Runs statements in the session that `session` returns, and starts if needed."""

    name: EngineName = "spark"

    def __init__(self, session: Callable[[], SparkSession]) -> None:
        self._session = session
        self._used: SparkSession | None = None
        """The session that statements have used: cancelling must not start one."""

    @property
    def spark(self) -> SparkSession:
        self._used = self._session()
        return self._used

    @contextmanager
    def statement(self, txn: int) -> Iterator[None]:
        with removed_afterwards(), tagged(self.spark, txn):
            yield

    def cancel(self, txn: int) -> None:
        cancel(self._used, txn)

    def query(
        self,
        text: str,
        sources: Sources,
        reason: str,
        named: bool = True,  # noqa: ARG002
    ) -> SparkResult:
        return SparkResult(result_of(self.spark, text, sources), reason)

    def insert(self, rows: Rows, target: WriteTarget, fixed: Fixed) -> list[WrittenDirectory]:
        return write_statement(self._stored(rows, target, fixed), target)[0]

    def overwrite(
        self, rows: Rows, target: WriteTarget, fixed: Fixed, empty: Sequence[str]
    ) -> list[WrittenDirectory]:
        stored = self._stored(rows, target, fixed)
        return write_statement(stored, target, overwrite=True, empty_partitions=empty)[0]

    def _stored(self, rows: Rows, target: WriteTarget, fixed: Fixed) -> StatementRows:
        defaults = target.checks.defaults
        frame = conform(self.spark, rows, target.all_columns, target.table, fixed, defaults)
        many = isinstance(rows, Result | RowStream) or is_spark_frame(rows)
        few = not many and files_needed(len(rows)) == 1  # type: ignore[arg-type]
        return insert_rows(frame, target, few)

    def update(
        self, scan: Scan, target: WriteTarget, assignments: Mapping[str, str], where: Where
    ) -> list[WrittenDirectory]:
        rows = rows_to_update(self.spark, scan, target, assignments, where)
        return write_statement(rows, target)[0]

    def delete(self, scan: Scan, target: WriteTarget, where: Where) -> list[WrittenDirectory]:
        return write_statement(rows_to_delete(self.spark, scan, target, where), target)[0]

    def merge(
        self,
        scan: Scan,
        target: WriteTarget,
        source: Rows,
        on: str,
        clauses: Sequence[MergeClause],
        aliases: tuple[str, str],
        keys: SourceKeys | None = None,
    ) -> tuple[list[WrittenDirectory], MergeCounts]:
        known = source.table if isinstance(source, ArrowResult) else None
        if not isinstance(source, Result) and not is_spark_frame(source):
            source = known = local_table(source, target.all_columns, target.table, more=True)
        if keys is not None and known is not None:
            keys.take(known)
        frame = as_frame(self.spark, source, target.all_columns, target.table, more=True)
        return SparkMerge(self.spark, scan, target, on, clauses, *aliases).write(frame, keys)


class SparkCompaction:
    """Runs one Spark task for each output file of a table with full ACID, where Arrow merges: rows
    never enter the JVM. Spark itself copies insert-only tables."""

    name: EngineName = "spark"

    def __init__(self, spark: SparkSession, compaction: Compaction) -> None:
        self._spark, self.compaction = spark, compaction
        self._read: Profile | None = None
        """The values of a table with full ACID, as the merge tasks have read them."""

    @contextmanager
    def running(self) -> Iterator[None]:
        with tagged(self._spark, self.compaction.plan.txn_id):
            describe(self._spark, self.compaction.job, self.compaction.plan.settings.pool)
            yield

    def cancel(self) -> None:
        cancel(self._spark, self.compaction.plan.txn_id)

    def write(self) -> Records:
        """Raises CompactionRefused for timestamps with nanoseconds in files of an insert-only
        table, which Spark would cut."""
        stored = self.compaction.format
        return self._merge() if stored.keyed else self._copy(stored)

    def _merge(self) -> Records:
        tasks, files = self.compaction.rewrites, self.compaction.files
        directories = {attempts(task) for task in tasks}
        for directory in directories:
            files.make_directory(directory)
        records = {}
        with _removed_after(files, directories):
            results = _of_each(self._spark, tasks, rewritten_by_attempt)
            self._read = combine(result.values for result in results)
            for task, result in zip(tasks, results, strict=True):
                if result.file is not None:
                    written = f"{attempts(task)}/{result.file.path}"
                    files.place(written, task.output, result.file.size)
                    name = task.output.rpartition("/")[2]
                    records[task.output] = replace(result.file, path=name)
        return records

    def _copy(self, stored: FileFormat) -> Records:
        compaction, plan, files = self.compaction, self.compaction.plan, self.compaction.files
        _refuse_finer(self._spark, compaction, stored)
        (output,) = plan.outputs
        rows = scan_rows(self._spark, compaction.inputs, None)
        count = -(-plan.input_bytes // PLAIN_FILE_BYTES)
        column_names = [column.name for column in compaction.written]
        # A scan reads a CHAR without its blanks, and files hold them.
        stored_rows = with_limited_texts(
            selected(rows, _renaming(compaction.sources, compaction.written)),
            compaction.written,
            plan.location,
        )
        written = f"{compaction.staging}/{temporary_name(plan.txn_id, 'out')}"
        records = {}
        with _removed_after(files, [written]), raise_as_ours():
            write_plain(
                stored_rows.coalesce(max(1, count)),
                stored,
                column_names,
                [],
                {"compression": plan.settings.compression},
                files.uri(written),
            )
            paths = parts(files, written)
            location = files.uri(plan.location)
            entries = completed(self._spark, location, paths, stored, compaction.written)
            for number, (path, entry) in enumerate(zip(paths, entries, strict=True)):
                placed = f"{compaction.staging}/{output}/{plain_name(number)}"
                files.place(path, placed, entry.size)
                records[placed] = replace(entry, path=plain_name(number))
        return records

    def profiles(self, outputs: Scan) -> tuple[Profile, Profile]:
        """The values of a table with full ACID are those that the merge tasks read, and those that
        other tasks read back from the output files."""
        spark, compaction = self._spark, self.compaction
        columns = compaction.written
        expected = _profile(spark, compaction.inputs, self._read, compaction.sources, columns)
        stored = None if self._read is None else _written(spark, compaction.rewrites)
        names = [column.name for column in columns]
        return expected, _profile(spark, outputs, stored, names, columns)


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

    return combine(frame.values for frame in _of_each(spark, inserts, read_back))


def _of_each(
    spark: SparkSession, tasks: Sequence[Rewrite], work: Callable[[Rewrite], Rewritten]
) -> list[Rewritten]:
    """What `work` returns for each task, each in its own Spark task."""

    def packed(index: int) -> str:
        result = work(tasks[index])
        file = str(RecordedFiles((result.file,))) if result.file else None
        sums = result.values
        return json.dumps([result.rows, file, dict(sums.column_checksums), dict(sums.null_counts)])

    results = []
    for rows, file, checksums, nulls in map(json.loads, in_tasks(spark, len(tasks), packed)):
        values = Profile(column_checksums=checksums, null_counts=nulls)
        entry = RecordedFiles.parse(file).files[0] if file else None
        results.append(Rewritten(rows, entry, values))
    return results


def _refuse_finer(spark: SparkSession, compaction: Compaction, stored: FileFormat) -> None:
    """Raises CompactionRefused for nanoseconds: Spark copies these rows, and would cut them."""
    kinds = {kind.kind for column in compaction.columns for kind in column.type.walk()}
    if not kinds & {*TIMESTAMPS}:
        return
    paths = [source.path for source in compaction.inputs.entities[0].sources.inserts]
    where = compaction.files.uri(compaction.plan.location)

    def look(index: int) -> str:
        refuse_finer(Files.of(where)[0], paths[index], stored.name)
        return ""

    in_tasks(spark, len(paths), look)


def _renaming(sources: Sequence[str], columns: Sequence[Column]) -> list[str]:
    """Expressions for the columns, each of which the frame has under the name of its source."""
    pairs = zip(sources, columns, strict=True)
    return [f"{quoted(source)} AS {quoted(column.name)}" for source, column in pairs]


def _profile(
    spark: SparkSession,
    scan: Scan,
    values: Profile | None,
    sources: Sequence[str],
    columns: Sequence[Column],
) -> Profile:
    """Rows and row ids as the ordinary scan finds them, and the values of its columns `sources` as
    those of `columns`.

    `values` has the sums of the columns if Arrow has computed them while it decoded the files: the
    scan then reads only row keys, which takes half the time. None: the scan computes them.
    """
    if values is None:
        rows = scan_rows(spark, scan, None)
        return _profile_of_rows(selected(rows, [*_renaming(sources, columns), *KEYS]), columns)
    return replace(
        _profile_of_rows(scan_rows(spark, scan, ()), ()),
        column_checksums=values.column_checksums,
        null_counts=values.null_counts,
    )


def _profile_of_rows(rows: DataFrame, columns: Sequence[Column]) -> Profile:
    """The profile of `scan_rows`: rows, row ids, and each column's values and NULLs."""
    aggregates = [
        "count(1)",
        _checksum(", ".join(KEYS)),
        *(_checksum(_hashable(column)) for column in columns),
        *(f"count_if({quoted(column.name)} IS NULL)" for column in columns),
    ]
    totals = selected(
        rows, [f"{aggregate} AS a{i}" for i, aggregate in enumerate(aggregates)]
    ).head()
    assert totals is not None  # an aggregate without groups always has its row
    names = [column.name for column in columns]
    checksums, nulls = totals[2 : 2 + len(names)], totals[2 + len(names) :]
    return Profile(
        rows=int(totals[0]),
        row_id_checksum=int(totals[1]),
        column_checksums=dict(zip(names, map(int, checksums), strict=True)),
        null_counts=dict(zip(names, map(int, nulls), strict=True)),
    )


def _checksum(values: str) -> str:
    return f"coalesce(sum(pmod(xxhash64({values}), {MODULUS}L)), 0L)"


def _hashable(column: Column) -> str:
    """The value to hash: Spark can't hash maps, so nested types are hashed as JSON text."""
    name = quoted(column.name)
    return f"to_json(struct({name}))" if column.type.nested else name
