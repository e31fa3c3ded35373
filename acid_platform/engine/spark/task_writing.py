"""Work of ours in Spark's tasks: rows go in, one small record for each file comes out.

Spark ends a batch of rows for Python at 10,000 rows, or when it has 64 MB. To know the latter it
measures the batch after each row, which takes half the time of an INSERT. A statement of ours
measures each row instead: the length of its texts. If there is a row with more than WIDEST bytes,
the job stops and runs again as Spark would run it, and later statements on that table do so at
once.

Some formats of insert-only tables, such as json, Spark alone reads and writes: then other tasks
count the rows of the files and complete them.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from acid_platform.engine.spark.failures import TEXT_LOST, WIDE_ROWS, RowsTooWide, raise_as_ours
from acid_platform.engine.spark.few_calls import mapped_in_arrow
from acid_platform.engine.spark.spark_types import spark_schema, spark_type
from acid_platform.engine.spark.task_body import answers, write_rows
from acid_platform.formats.file_access import complete_foreign_file, recorded_file
from acid_platform.layout.file_entries import FileEntry, RecordedFiles
from acid_platform.layout.formats import FileFormat
from acid_platform.layout.sql_text import quoted, sql_string
from acid_platform.layout.types import Column
from acid_platform.storage.files import Files
from acid_platform.write.publishing import WriteTarget
from acid_platform.write.task_files import Received, StagedFile, TaskTarget, plain_name

_ANSWER = T.StructType([T.StructField("answer", T.StringType())])


def write_in_tasks(
    frame: DataFrame, names: Sequence[str], target: TaskTarget
) -> tuple[list[StagedFile], Received]:
    """The files that the tasks have written, and the rows that they received.

    `names` are the frame's columns. Only what the last attempt of each task wrote is among the
    files. Raises Spark's exceptions.
    """
    rows = mapped_in_arrow(frame, names, partial(write_rows, target), _ANSWER).collect()
    records = [json.loads(row["answer"]) for row in rows]
    files = [StagedFile.unpacked(*record["file"]) for record in records if "file" in record]
    received = (Received(*record["received"]) for record in records if "received" in record)
    return files, sum(received, Received())


def in_tasks(spark: SparkSession, count: int, work: Callable[[int], str]) -> list[str]:
    """The results of `work` for each number below `count`, each computed in its own Spark task.

    Raises AcidError, Spark's exceptions.
    """
    if not count:
        return []

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield answers(work(index) for index in batch.column(0).to_pylist())

    with raise_as_ours():
        frame = mapped_in_arrow(spark.range(0, count, 1, count), ["id"], run, _ANSWER)
        return [row["answer"] for row in frame.collect()]


WIDEST = 20_000
"""Bytes of text in a row: 10,000 such rows take 200 MB."""

LIMIT = "spark.sql.execution.arrow.maxBytesPerBatch"
_NO_LIMIT = str((1 << 31) - 1)
"""With this value Spark does not measure."""

_TEXTS = ("string", "varchar", "char", "binary")
_Answer = TypeVar("_Answer")

_wide: set[str] = set()
"""Locations of tables to which a row with more than WIDEST bytes of text was written."""
_guard = threading.Lock()
_unlimited: WeakKeyDictionary[SparkSession, tuple[int, str]] = WeakKeyDictionary()
"""For each session, how many statements run without a limit, and the limit before them."""


def in_large_batches(
    frame: DataFrame,
    columns: Sequence[Column],
    location: str,
    run: Callable[[DataFrame], _Answer],
) -> _Answer:
    """The result of `run`, which sends the rows of a frame to Python: `columns`, and row keys.

    It runs a second time, without the test of the rows, if one is too wide for a large batch.
    """
    nested = any(column.type.children for column in columns)
    texts = [column.name for column in columns if column.type.kind in _TEXTS]
    if not nested and not (texts and location in _wide):
        try:
            with _without_limit(frame.sparkSession):
                return run(_tested(frame, texts))
        except RowsTooWide:
            _wide.add(location)
    return run(frame)


def _tested(frame: DataFrame, texts: Sequence[str]) -> DataFrame:
    """The frame, which fails with RowsTooWide at a row with more than WIDEST bytes in `texts`."""
    if not texts:
        return frame
    lengths = [f"coalesce(octet_length({quoted(name)}), 0)" for name in texts]
    error = f"CAST(raise_error({sql_string(WIDE_ROWS)}) AS boolean)"
    return frame.filter(f"{' + '.join(lengths)} <= {WIDEST} OR {error}")


@contextmanager
def _without_limit(spark: SparkSession) -> Iterator[None]:
    """Inside, jobs of this session send batches of any size; other threads' jobs too."""
    with _guard:
        running, before = _unlimited.get(spark) or (0, str(spark.conf.get(LIMIT)))
        ours = running > 0 or before != _NO_LIMIT
        if ours:
            spark.conf.set(LIMIT, _NO_LIMIT)
            _unlimited[spark] = running + 1, before
    if not ours:  # somebody else has set it, and takes it back
        yield
        return
    try:
        yield
    finally:
        with _guard:
            running, before = _unlimited.pop(spark)
            if running > 1:
                _unlimited[spark] = running - 1, before
            else:
                spark.conf.set(LIMIT, before)


_LINE = "value"
_PART = "part-"
_LOCAL_WRITES = {
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",
}
"""Options for Spark's writers on a local disk. Hadoop's default class writes a checksum file beside
each file, which nobody reads since the files are completed and renamed here. It also starts a
`chmod` process for each file, checksum and directory: three processes for each partition."""

_TIMES = {"timestampFormat": "yyyy-MM-dd HH:mm:ss[.SSSSSS]", "dateFormat": "yyyy-MM-dd"}
_OPTIONS = {
    "json": {"mode": "FAILFAST", **_TIMES},
    "csv": {
        "mode": "FAILFAST",
        "header": "false",
        "escape": '"',
        "multiLine": "true",
        "ignoreLeadingWhiteSpace": "false",
        "ignoreTrailingWhiteSpace": "false",
        **_TIMES,
    },
}
"""In csv NULL is an empty field, and an empty string is a quoted empty field."""


def _options(stored: FileFormat, writing: bool) -> dict[str, str]:
    options = dict(_OPTIONS.get(stored.name, {}))
    if stored.name == "csv":
        options |= {"sep": stored.options["delimiter"], "nullValue": stored.options["null"]}
        if writing:
            options["emptyValue"] = '""'
        elif not stored.options["null"]:
            # Otherwise a quoted empty string would be read as NULL too; an empty field still is.
            options["nullValue"] = "\0"
    return options


def read_plain(
    reader: DataFrameReader, uris: list[str], stored: FileFormat, table: Sequence[Column]
) -> DataFrame:
    """The table's columns from its files; a value that does not fit its column is an error."""
    if stored.name != "text":
        return (
            reader.schema(spark_schema(table))
            .options(**_options(stored, False))
            .load(uris, stored.name)
        )
    # Spark's csv reader reads an empty field as NULL, Hive's text format does not.
    fields = F.split(F.col(_LINE), re.escape(stored.options["delimiter"]), -1)
    return reader.text(uris).select(
        *(
            F.nullif(F.get(fields, F.lit(i)), F.lit(stored.options["null"]))
            .cast(spark_type(column.type))
            .alias(column.name)
            for i, column in enumerate(table)
        )
    )


def write_plain(
    frame: DataFrame,
    stored: FileFormat,
    columns: Sequence[str],
    partition: Sequence[str],
    more_options: Mapping[str, str],
    uri: str,
) -> None:
    """Writes `columns` of the frame into files, by `partition`.

    A string that can't be stored is an error. Of the options for the writer, `compression` is for
    formats with the table's codec only.
    """
    options = {**more_options, **_options(stored, writing=True)}
    if not stored.has_codec:
        options.pop("compression")
    if stored.name == "text":
        frame = frame.select(_line(stored, columns).alias(_LINE), *partition)
    writer = frame.write.mode("error").format(stored.name).options(**options)
    writer.partitionBy(*partition).save(uri)


def _line(stored: FileFormat, columns: Sequence[str]) -> SparkColumn:
    delimiter, null = stored.options["delimiter"], stored.options["null"]
    fields = []
    for name in columns:
        text = F.col(quoted(name)).cast("string")
        lost = text.contains(delimiter) | text.rlike("[\r\n]") | (text == null)
        message = F.concat(
            F.lit(
                f"{TEXT_LOST} column {name} can't be stored in a text file:"
                " it has a delimiter or line end, or stands for NULL: "
            ),
            text,
        )
        checked = F.when(lost, F.raise_error(message)).otherwise(text)
        fields.append(F.coalesce(checked, F.lit(null)))
    return F.concat_ws(delimiter, *fields)


def write_by_spark(
    frame: DataFrame, target: WriteTarget, directory: str
) -> tuple[list[StagedFile], Received]:
    """The files that Spark writes into `directory`, and what they hold.

    The frame has the partition columns, then the table's columns. Raises Spark's exceptions,
    InvalidDefinition for too many files.
    """
    names, files = target.partition_names, target.files
    options = {"compression": target.compression, **(_LOCAL_WRITES if files.local else {})}
    values = [column.name for column in target.columns]
    write_plain(frame, target.format, values, names, options, files.uri(directory))
    partitions = {
        path: partition
        for partition in files.partition_directories(directory, len(names))
        for path in parts(files, f"{directory}/{partition}".rstrip("/"))
    }
    paths, where = list(partitions), files.uri(target.location)
    entries = completed(frame.sparkSession, where, paths, target.format, target.columns)
    staged = [
        StagedFile(path, partitions[path], False, entry)
        for path, entry in zip(paths, entries, strict=True)
        if entry.footer and entry.footer.rows
    ]
    rows = sum(file.entry.footer.rows for file in staged if file.entry.footer)
    return staged, Received(inserted=rows)


def parts(files: Files, directory: str) -> list[str]:
    """The paths of the files that Spark's tasks have written into a directory, by task number."""
    return sorted(
        info.path for info in files.children(directory) if info.base_name.startswith(_PART)
    )


def completed(
    spark: SparkSession,
    location: str,
    paths: Sequence[str],
    stored: FileFormat,
    columns: Sequence[Column],
) -> list[FileEntry]:
    """The records of files that Spark wrote, which get the declared types if they are ORC.

    The name in a record is the one that the file of that task should get. `location` names the file
    system. Raises Spark's exceptions, InvalidDefinition for too many files.
    """
    names = [plain_name(int(path.rpartition(_PART)[2].partition("-")[0])) for path in paths]
    files, _ = Files.of(location)
    counts = [
        spark.read.format("avro").load(files.uri(path)).count() if stored.name == "avro" else None
        for path in paths
    ]

    def complete(index: int) -> str:
        files, _ = Files.of(location)
        path = paths[index]
        complete_foreign_file(files, path, columns, stored)
        rows = counts[index]
        record = recorded_file(files, path, names[index], stored, rows=rows, exact=True)
        return str(RecordedFiles((record,)))

    return [
        file
        for record in in_tasks(spark, len(paths), complete)
        for file in RecordedFiles.parse(record).files
    ]
