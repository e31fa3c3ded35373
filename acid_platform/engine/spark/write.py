"""Spark's write path: a frame of rows becomes the finished directories of a statement (P19).

The tasks write the files in their final form (`write.task_files`). The driver gets a record of
each file, compares the counts and moves the files to their names: no row, key or footer passes
through it. Only formats that Spark alone can write take another way (`task_writing`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyarrow import fs
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from acid_platform.engine.spark import version_of
from acid_platform.engine.spark.failures import UNSTORED_DAY, UNSTORED_TIME, VIOLATED, raise_as_ours
from acid_platform.engine.spark.few_calls import expression, selected, sorted_within
from acid_platform.engine.spark.row_keys import BUCKET, KEYS, WRITE_ID
from acid_platform.engine.spark.spark_types import changed_parts
from acid_platform.engine.spark.task_writing import in_large_batches, write_by_spark, write_in_tasks
from acid_platform.errors import PublicationFailed
from acid_platform.formats.file_access import not_written, require_written
from acid_platform.layout.acid_keys import number_in_sql
from acid_platform.layout.bucketing import Bucketing, bucket_ids
from acid_platform.layout.file_entries import FileEntry, RecordedFiles
from acid_platform.layout.names import DEFAULT_PARTITION
from acid_platform.layout.sql_text import quoted, sql_string
from acid_platform.layout.types import FLOATING, TIMESTAMPS, Column, HiveType
from acid_platform.storage.files import in_threads
from acid_platform.values.fitting import LONGEST_SHOWN
from acid_platform.write.publishing import Staging, WriteTarget, WrittenDirectory, staging
from acid_platform.write.task_files import INSERTS, Received, RowKind, StagedFile

BITS = "__bits"
"""The column of rows of the kind EACH that says which events they become."""

BUCKET_OF_ROW = "__bucket"


def with_bucket(frame: DataFrame, buckets: Bucketing, columns: Sequence[Column]) -> DataFrame:
    """The frame with BUCKET_OF_ROW, by Hive's hash; `columns` are the table's."""
    kinds = [next(c.type for c in columns if c.name == name) for name in buckets.columns]
    count, version = buckets.count, buckets.version

    def numbers(*values: pa.Array) -> pa.Array:
        return pa.array(bucket_ids(values, kinds, count, version), pa.int32())

    if version_of(frame.sparkSession).places_by_number:
        from pyspark.sql.pandas.functions import arrow_udf

        hash_of = arrow_udf(numbers, "int")  # type: ignore[call-overload]
        named = (F.col(quoted(name)) for name in buckets.columns)
        return frame.withColumn(BUCKET_OF_ROW, hash_of(*named))
    schema = T.StructType([*frame.schema.fields, T.StructField(BUCKET_OF_ROW, T.IntegerType())])
    names = [name.lower() for name in schema.names]
    places = [names.index(name.lower()) for name in buckets.columns]

    def added(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            hashed = numbers(*(batch.column(column) for column in places))
            yield batch.append_column(BUCKET_OF_ROW, hashed)

    return frame.mapInArrow(added, schema)


def placed_by_number(frame: DataFrame, count: int, number: str) -> DataFrame:
    """The frame in `count` partitions, with a row in the one whose number the SQL tells."""
    spark = frame.sparkSession
    if version_of(spark).places_by_number:
        return frame.repartitionById(count, expression(spark, number))
    values = ", ".join(map(str, _values_by_partition(spark, count)))
    return frame.repartition(count, expression(spark, f"element_at(array({values}), {number} + 1)"))


def _values_by_partition(spark: SparkSession, count: int) -> list[int]:
    """For each of `count` partitions an integer that Spark's own partitioning places there."""
    found: dict[int, int] = {}
    first, more = 0, 16 * count
    while len(found) < count:
        numbers = f"sequence({first}, {first + more - 1})"
        row = spark.sql(f"SELECT transform({numbers}, n -> pmod(hash(n), {count})) p").head()
        assert row is not None
        for value, index in enumerate(row["p"], first):
            found.setdefault(index, value)
        first += more
    return [found[index] for index in range(count)]


def place_by_hash(frame: DataFrame, buckets: Bucketing, columns: Sequence[Column]) -> DataFrame:
    """The frame with the rows of bucket n in partition n."""
    placed = with_bucket(frame, buckets, columns)
    return placed_by_number(placed, buckets.count, BUCKET_OF_ROW).drop(BUCKET_OF_ROW)


@dataclass(frozen=True, slots=True)
class StatementRows:
    """The rows of a statement: partition n of the frame becomes the files of bucket n."""

    frame: DataFrame
    kind: RowKind
    names: Sequence[str]
    """The names of the columns that are written, as in TaskTarget."""
    sort: Sequence[str] = ()
    """The columns by which the rows of a partition have yet to be sorted."""
    more: bool = False
    """Whether some columns of the frame are only sorted by."""
    few: bool = False
    """Whether there are so few rows that it does not matter how they are sent to Python."""

    def to_write(self, counted: Observation) -> DataFrame:
        """The frame with its rows in order and its columns as `names`; `counted` counts them."""
        # Before the sort, because an observation does not keep the order.
        rows = expression(self.frame.sparkSession, "count(1) AS rows")
        frame = sorted_within(self.frame.observe(counted, rows), self.sort)
        return selected(frame, list(map(quoted, self.names))) if self.more else frame


BUCKET_NUMBER = number_in_sql(BUCKET)
"""SQL of the bucket number, decoded from a bucket property of either codec version."""


def arranged(
    frame: DataFrame,
    target: WriteTarget,
    kind: RowKind,
    values: Sequence[str] = (),
    writers: int | None = None,
    order: Sequence[str] = (),
) -> StatementRows:
    """The rows of a statement from a frame.

    The frame has the partition columns; KEYS unless `kind` is INSERT; BITS if it is EACH. `values`
    are SQL of the table's columns over this frame. With `writers`, which is above all bucket
    numbers, rows go to the partition of their bucket, otherwise they are there already. Rows are
    sorted as their files need them: by the text of the partition, which is never NULL, then by key
    (P15), then by `order`, columns of the frame that are not written. Rows without a write id come
    first. A timestamp that ORC can't store fails the job.
    """
    names = [quoted(name) for name in target.partition_names]
    keys = [] if kind is RowKind.INSERT else list(KEYS)
    bits = [BITS] if kind is RowKind.EACH else []
    unchecked = list(values)
    written = [column.name for column in target.columns] if values else []
    if values and target.format.lacks_times:
        values = [
            _storable(value, column) for value, column in zip(values, target.columns, strict=True)
        ]
    if values:
        values = _checked(values, unchecked, target, kind)
    if names or list(values) != list(map(quoted, written)):
        texts = [
            f"coalesce(nullif({_text(column, kind)}, ''), '{DEFAULT_PARTITION}') AS {name}"
            for name, column in zip(names, target.partition_columns, strict=True)
        ]
        stored = (f"{value} AS {quoted(name)}" for value, name in zip(values, written, strict=True))
        frame = selected(frame, [*texts, *keys, *bits, *stored, *order])
    if writers is not None:
        frame = placed_by_number(frame, writers, BUCKET_NUMBER)
    columns = [*target.partition_names, *keys, *bits, *written]
    return StatementRows(frame, kind, columns, [*names, *keys, *order], bool(order))


def _text(column: Column, kind: RowKind) -> str:
    """SQL of the text of a partition value. As keys, 0.0 and -0.0 are one (P63); a row there
    already stays in its partition.
    """
    name = quoted(column.name)
    text = f"CAST({name} AS string)"
    if column.type.kind not in FLOATING or kind not in (RowKind.INSERT, RowKind.EACH):
        return text
    inserted = "" if kind is RowKind.INSERT else f" AND {WRITE_ID} IS NULL"
    return f"CASE WHEN {name} = 0{inserted} THEN '0.0' ELSE {text} END"


def _checked(
    values: Sequence[str], unchecked: Sequence[str], target: WriteTarget, kind: RowKind
) -> Sequence[str]:
    """SQL of the values; a row that violates a constraint fails the job (VIOLATED).

    The frame has the table's columns by their names; `unchecked` are these names. Rows that are
    only deleted are not checked.
    """
    names = [column.name for column in target.columns]
    if not target.checks.constraints:
        return values
    assert list(unchecked) == list(map(quoted, names)), "constraints are about the stored values"
    failing: dict[str, list[str]] = {}
    for constraint in target.checks.constraints:
        shown = [
            f"{sql_string(f'{name}=')}, left(coalesce(CAST({quoted(name)} AS string), 'NULL'),"
            f" {LONGEST_SHOWN})"
            for name in constraint.columns
        ]
        start = sql_string(f"{VIOLATED} {target.checks.violation(constraint)} with ")
        message = f"concat({start}, {', {}, '.format(sql_string(', ')).join(shown)})"
        violated = f"NOT coalesce(({constraint.condition}\n), true)"
        if kind is RowKind.EACH:
            violated = f"({BITS} & {INSERTS}) <> 0 AND {violated}"
        case = f"WHEN {violated} THEN raise_error({message})"
        failing.setdefault(constraint.columns[0], []).append(case)
    return [
        f"CASE {' '.join(failing[name])} ELSE {value} END" if name in failing else value
        for name, value in zip(names, values, strict=True)
    ]


_FIRST, _END = "TIMESTAMP '1969-12-31 23:59:59.001'", "TIMESTAMP '1970-01-01 00:00:00'"
_EARLIEST = {
    "date": "DATE '-5877000-01-01'",
    **dict.fromkeys(TIMESTAMPS, "TIMESTAMP '-290000-01-01 00:00:00'"),
}
"""From there on each type also holds the Julian number of a day, which is lower in such years."""


def _storable(value: str, column: Column) -> str:
    """SQL of the value; a row with a time that ORC can't store fails the job (UNSTORED_TIME,
    UNSTORED_DAY).

    These are the last second before 1970, except its first millisecond, and days before all that
    the Julian calendar, in which files count early days, can number. ORC stores seconds and
    nanoseconds separately. Before 1970 its writers round the seconds towards zero; its readers
    correct that by the sign of the seconds, but zero has no sign. So every engine would read
    1969-12-31 23:59:59.5 as 1970-01-01 00:00:00.5.
    """

    def checked(part: str, hive: HiveType) -> str:
        tests = {UNSTORED_DAY: f"{part} < {_EARLIEST[hive.kind]}"}
        if hive.kind in TIMESTAMPS:
            tests[UNSTORED_TIME] = f"{part} >= {_FIRST} AND {part} < {_END}"
        failures = " ".join(
            f"WHEN {test} THEN raise_error(concat("
            f"{sql_string(f'{mark} column {column.name} has ')}, CAST({part} AS string)))"
            for mark, test in tests.items()
        )
        return f"CASE {failures} ELSE {part} END"

    return changed_parts(value, column.type, _EARLIEST, checked)


def write_statement(
    rows: StatementRows,
    target: WriteTarget,
    overwrite: bool = False,
    empty_partitions: Sequence[str] = (),
) -> tuple[list[WrittenDirectory], Received]:
    """Writes the files of a statement in one Spark job and publishes them.

    Also returns how many rows became what. `overwrite` writes inserts into base directories;
    `empty_partitions` get a base even without rows. Raises PublicationFailed, CorruptFile if
    keys do not ascend, UnsupportedLayout for a codec that can't be written, WrongType (a value that
    overflows), SourceRowsAmbiguous for rows of the kind EACH with the same key, TxnAborted.
    """
    with staging(target) as staged:
        files, received, counted = _written(rows, target, staged.unfinished())
        if received.rows != counted:
            raise PublicationFailed(
                f"{target.location}: Spark counted {counted} rows, its tasks received"
                f" {received.rows}; nothing was published, run the statement again"
            )
        return publish_files(staged, files, overwrite, empty_partitions), received


def publish_files(
    staged: Staging, files: Sequence[StagedFile], overwrite: bool, empty_partitions: Sequence[str]
) -> list[WrittenDirectory]:
    """Publishes the finished files of a statement, which attempts of its tasks have written.

    As `write_statement`. Raises PublicationFailed, TxnAborted; then nothing was published.
    """
    _require_files(staged.target, files)
    return staged.publish(_placed(staged, files, overwrite), empty_partitions)


def _written(
    rows: StatementRows, target: WriteTarget, directory: str
) -> tuple[list[StagedFile], Received, int]:
    """The files that were written into `directory`, the rows that they were made of, and how many
    rows Spark counted."""
    stored, codec = target.format, target.compression
    if not stored.keyed and (not stored.has_codec or not_written(stored, codec)):
        counted = Observation()
        with raise_as_ours():
            files, received = write_by_spark(rows.to_write(counted), target, directory)
        return files, received, int(counted.get["rows"])
    require_written(stored, codec, target.location)
    target.files.make_directory(directory)
    into = target.tasks(directory, rows.kind)

    def run(frame: DataFrame) -> tuple[list[StagedFile], Received, int]:
        counted = Observation()
        with raise_as_ours():
            ready = replace(rows, frame=frame).to_write(counted)
            files, received = write_in_tasks(ready, rows.names, into)
        return files, received, int(counted.get["rows"])

    if rows.few:
        return run(rows.frame)
    written = () if rows.kind is RowKind.DELETE else target.columns
    return in_large_batches(rows.frame, written, target.location, run)


def _require_files(target: WriteTarget, files: Sequence[StagedFile]) -> None:
    """Raises PublicationFailed unless each file is there, with the size that its task told."""
    infos = target.files.system.get_file_info([file.path for file in files]) if files else ()
    for file, info in zip(files, infos, strict=True):
        if info.type != fs.FileType.File or info.size != file.entry.size:
            size = f"{info.size} bytes" if info.type == fs.FileType.File else "no file"
            raise PublicationFailed(
                f"{file.path}: a task wrote {file.entry.size} bytes, and here is {size}; nothing"
                " was published: all executors must write to the same storage as the driver"
            )


def _placed(
    staged: Staging, files: Iterable[StagedFile], overwrite: bool
) -> list[WrittenDirectory]:
    """Moves the files to their names in the directories that will be published."""
    target = staged.target
    directories: dict[tuple[bool, str], dict[str, StagedFile]] = {}
    for file in files:
        inside = directories.setdefault((not file.deletes, file.partition), {})
        if file.entry.path in inside:
            raise PublicationFailed(
                f"two files for {file.partition or target.location}, {file.entry.path}: a task ran"
                " twice; nothing was published, run the statement again"
            )
        inside[file.entry.path] = file

    def place(key: tuple[bool, str]) -> WrittenDirectory:
        inserts, partition = key
        directory = target.directory(not inserts, overwrite)
        ready = staged.ready(partition, directory)
        entries: list[FileEntry] = []
        for name, file in sorted(directories[key].items()):
            target.files.place(file.path, f"{ready}/{name}", file.entry.size)
            entries.append(file.entry)
        if target.format.keyed:
            staged.mark_version(ready)
        return WrittenDirectory(partition, directory, not inserts, RecordedFiles(tuple(entries)))

    return in_threads(place, sorted(directories))
