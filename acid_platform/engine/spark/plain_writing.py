"""Files of insert-only tables in formats that only Spark writes, such as json.

Spark writes the files; then other tasks count their rows and complete them.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from acid_platform.engine.spark.plain_files import write_plain
from acid_platform.engine.spark.task_writing import in_tasks
from acid_platform.layout.file_entries import FileEntry
from acid_platform.layout.formats import FileFormat
from acid_platform.layout.recorded_files import RecordedFiles
from acid_platform.layout.types import Column
from acid_platform.orc import finish_plain_file
from acid_platform.storage.files import Files
from acid_platform.write.file_records import recorded_file
from acid_platform.write.publishing import WriteTarget
from acid_platform.write.task_files import Received, StagedFile, plain_name

_PART = "part-"
LOCAL_WRITES = {
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",
}
"""Options for Spark's writers on a local disk. Hadoop's default class writes a checksum file beside
each file, which nobody reads since the files are completed and renamed here. It also starts a
`chmod` process for each file, checksum and directory: three processes for each partition."""


def write_by_spark(
    frame: DataFrame, target: WriteTarget, directory: str
) -> tuple[list[StagedFile], Received]:
    """The files that Spark writes into `directory`, and what they hold.

    The frame has the partition columns, then the table's columns. Raises Spark's exceptions,
    InvalidDefinition for too many files.
    """
    assert target.plain is not None
    names, files = target.partition_names, target.files
    options = {"compression": target.compression, **(LOCAL_WRITES if files.local else {})}
    values = [column.name for column in target.columns]
    write_plain(frame, target.plain, values, names, options, files.uri(directory))
    found = [
        (path, partition)
        for partition in files.partition_directories(directory, len(names))
        for path in parts(files, f"{directory}/{partition}".rstrip("/"))
    ]
    paths = [path for path, _ in found]
    where = files.uri(target.location)
    entries = completed(frame.sparkSession, where, paths, target.plain, target.columns)
    staged = [
        StagedFile(path, partition, False, entry)
        for (path, partition), entry in zip(found, entries, strict=True)
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
        if stored.name == "orc":
            finish_plain_file(files, path, columns)
        return str(
            RecordedFiles((recorded_file(files, path, names[index], stored, rows=counts[index]),))
        )

    return [
        file
        for record in in_tasks(spark, len(paths), complete)
        for file in RecordedFiles.parse(record).files
    ]
