"""Spark's write path: a frame of events becomes the finished directories of a statement (P19)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from acid_platform.engine.publishing import (
    WriteTarget,
    Written,
    mark_version,
    publish_staged,
    ready_path,
    staging_directory,
    write_empty_base,
)
from acid_platform.engine.spark.failures import raise_as_ours
from acid_platform.engine.spark.orc_timestamps import storable
from acid_platform.engine.spark.plain_files import write_plain
from acid_platform.errors import InvalidDefinition, PublicationFailed
from acid_platform.layout import schema
from acid_platform.layout.formats import ORC
from acid_platform.layout.names import BucketFile
from acid_platform.layout.partitions import DEFAULT_PARTITION
from acid_platform.layout.rowids import MAX_BUCKET, ROW_ID_MASK
from acid_platform.snapshot.listing import FileEntry
from acid_platform.snapshot.recorded import Contents
from acid_platform.storage.nesting import CODECS, finish_delete_file, finish_flat_file
from acid_platform.storage.orc import finish_file, finish_plain_file
from acid_platform.storage.plain import count_rows
from acid_platform.storage.recorded import recorded_file

KIND = "__kind"
INSERTS, DELETES = "i", "d"

_PART = "part-"
_LOCAL_WRITES = {
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",
}
"""Options for Spark's writers on a local disk. Hadoop's default class writes a checksum file beside
each file, which nobody reads since the files are finished and renamed here. It also starts a
`chmod` process for each file, checksum and directory: three processes for each partition."""
_VALUE = "__value"
"""The prefix of columns with the table's values in a flat file, which is nested afterwards."""


@dataclass(frozen=True, slots=True)
class SparkTarget(WriteTarget):
    """A write target, and the counter of the events that Spark writes to files."""

    written: Observation = field(default_factory=Observation)

    @classmethod
    def of(cls, target: WriteTarget) -> SparkTarget:
        """Needs a session: an observation depends on its kind."""
        return cls(*(getattr(target, named.name) for named in fields(target)))


def insert_ids(write_id: int, statement: int) -> list[Column]:
    """The five id columns of insert events.

    The frame must have its final order and partitioning (P15).
    """
    prop = (
        F.lit(1 << 29)
        .bitwiseOR(F.shiftleft(F.spark_partition_id(), 16))
        .bitwiseOR(F.lit(statement))
    )
    return [
        F.lit(schema.INSERT_EVENT).alias(schema.OPERATION),
        F.lit(write_id).cast("bigint").alias(schema.ORIGINAL_TRANSACTION),
        prop.cast("int").alias(schema.BUCKET),
        F.monotonically_increasing_id().bitwiseAND(F.lit(ROW_ID_MASK)).alias(schema.ROW_ID),
        F.lit(write_id).cast("bigint").alias(schema.CURRENT_TRANSACTION),
    ]


def arranged(frame: DataFrame, target: SparkTarget, order: Sequence[str]) -> DataFrame:
    """Sorts rows as their files need them, and counts them. Number the rows only after this.

    Partition columns become the text of their directories, which is never NULL, and `order` follows
    the kind and the partition. That is the order that Spark's writer needs. Otherwise it would sort
    again, and if that sort spills, rows of a file change places after they were numbered (P15).
    """
    names = target.partition_names
    frame = (
        frame.withColumns(
            {
                name: F.expr(
                    f"coalesce(nullif(CAST(`{name}` AS string), ''), '{DEFAULT_PARTITION}')"
                )
                for name in names
            }
        )
        if names
        else frame
    )
    # Before the sort, because an observation does not keep the order.
    frame = frame.observe(target.written, F.count(F.lit(1)).alias("events"))
    by = [*([KIND] if KIND in frame.columns else []), *(f"`{name}`" for name in names), *order]
    return frame.sortWithinPartitions(*by) if by else frame


def numbered(frame: DataFrame, target: SparkTarget, columns: Sequence[str]) -> DataFrame:
    """Insert events for a frame with the table's columns."""
    frame = arranged(frame, target, [])
    values = [F.col(f"`{name}`") for name in columns]
    keep = [F.col(f"`{name}`") for name in target.partition_names]
    if target.plain is not None:
        return frame.select(
            *keep, *(_storable(values, target) if target.plain.name == "orc" else values)
        )
    return frame.select(
        *keep, *insert_ids(target.write_id, target.statement), *stored_row(values, target)
    )


def stored_row(values: Sequence[Column], target: SparkTarget) -> list[Column]:
    """The table's columns as Spark writes them: flat, or as a struct if the codec needs it.

    A timestamp that ORC can't store fails the job.
    """
    values = _storable(values, target)
    if target.compression in CODECS:
        return [one.alias(f"{_VALUE}{i}") for i, one in enumerate(values)]
    return [F.struct(*values).alias(schema.ROW)]


def _storable(values: Sequence[Column], target: SparkTarget) -> list[Column]:
    return [
        storable(value, column).alias(column.name)
        for value, column in zip(values, target.columns, strict=True)
    ]


def write_statement(
    events: DataFrame,
    target: SparkTarget,
    overwrite: bool = False,
    empty_partitions: Sequence[str] = (),
    only: str = INSERTS,
) -> list[Written]:
    """Writes the events of a statement in one Spark job and publishes them.

    `events` come from `arranged`. They have the partition columns, the five id columns and the
    `stored_row` (not needed for delete events), or the table's columns if it is insert-only. They
    have __kind ('i' or 'd') unless all are of the kind `only`. `overwrite` writes inserts into base
    directories; `empty_partitions` get a base even without rows (P32). Raises PublicationFailed,
    CorruptFile, UnsupportedLayout (delete events in a codec that can't be written), WrongType (a
    value that overflows), TxnAborted.
    """
    with staging_directory(target) as staging:
        counted = _run(events, target, f"{staging}/out", only)
        built = list(
            _build(
                target,
                staging,
                overwrite,
                empty_partitions,
                events.sparkSession,
                flat=f"{_VALUE}0" in events.columns,
            )
        )
        total = sum(output.rows for output in built)
        if total != counted:
            raise PublicationFailed(
                f"{target.location}: Spark counted {counted} events, its files hold {total};"
                " nothing was published, run the statement again"
            )
        target.still_open()
        publish_staged(target, staging, built)
        return built


def _run(events: DataFrame, target: SparkTarget, path: str, only: str) -> int:
    partition = [*target.partition_names]
    if KIND in events.columns:
        partition.insert(0, KIND)
        uri = target.files.uri(path)
    else:
        uri = target.files.uri(f"{path}/{KIND}={only}")
    options = _LOCAL_WRITES if target.files.local else {}
    with raise_as_ours():
        if target.plain is None:
            writer = events.write.mode("error").options(**options)
            writer.option("compression", target.compression).partitionBy(*partition).orc(uri)
        else:
            columns = [name for name in events.columns if name not in partition]
            write_plain(
                events,
                target.plain,
                columns,
                partition,
                {"compression": target.compression, **options},
                uri,
            )
        return int(target.written.get["events"])


def _build(
    target: SparkTarget,
    staging: str,
    overwrite: bool,
    empty_partitions: Sequence[str],
    spark: SparkSession,
    flat: bool,
) -> Iterator[Written]:
    """Turns Spark's files into finished ACID directories below `<staging>/ready`."""
    depth = len(target.partition_names)
    seen: set[str] = set()
    for kind in (DELETES, INSERTS):
        root = f"{staging}/out/{KIND}={kind}"
        if not target.files.exists(root):
            continue
        for partition in target.files.partition_directories(root, depth):
            directory = (
                target.base()
                if overwrite and kind == INSERTS
                else target.delta(deletes=kind == DELETES)
            )
            where = f"{root}/{partition}".rstrip("/")
            ready = ready_path(staging, partition, directory)
            written = _arrange(
                target, where, ready, Written(partition, directory, kind == DELETES), spark, flat
            )
            if written.rows:
                seen.add(partition)
                yield written
            else:
                target.files.delete_directory(ready)
    if overwrite:
        for partition in empty_partitions:
            if partition not in seen:
                yield write_empty_base(target, staging, partition)


def _arrange(
    target: SparkTarget, source: str, ready: str, empty: Written, spark: SparkSession, flat: bool
) -> Written:
    files = target.files
    files.make_directory(ready)
    moves: dict[str, str] = {}
    for info in files.children(source):
        if not info.base_name.startswith(_PART):
            continue
        number = int(info.base_name.removeprefix(_PART).partition("-")[0])
        if number > MAX_BUCKET:
            raise InvalidDefinition(
                f"{empty.directory} would need more than {MAX_BUCKET + 1} files: coalesce the frame"
                f" to at most {MAX_BUCKET + 1} partitions"
            )
        name = str(BucketFile(number)) if target.plain is None else f"{number:06d}_0"
        if name in moves:
            raise PublicationFailed(
                f"two files for {ready}/{name}: a task ran twice; nothing was"
                " published, run the statement again"
            )
        moves[name] = info.path

    def finish(path: str) -> int:
        if target.plain is None:
            return finish_file(files, path, target.columns)
        if target.plain.name == "avro":
            return spark.read.format("avro").load(files.uri(path)).count()
        if target.plain.name == "orc":
            return finish_plain_file(files, path, target.columns)
        return count_rows(files, path, target.plain)

    def place(name: str) -> int:
        """Moves the finished file to its name and returns its rows; a file without rows stays."""
        path, placed = moves[name], f"{ready}/{name}"
        if empty.deletes:
            return finish_delete_file(files, path, placed, target.columns, target.compression)
        if flat:
            return finish_flat_file(files, path, placed, target.columns)
        if rows := finish(path):
            files.system.move(path, placed)
        return rows

    def record(name: str) -> FileEntry | None:
        rows = place(name)
        return (
            recorded_file(files, f"{ready}/{name}", name, target.plain or ORC, empty.deletes, rows)
            if rows
            else None
        )

    with ThreadPoolExecutor(8) as pool:
        placed = tuple(entry for entry in pool.map(record, moves) if entry)
    if target.plain is None:
        mark_version(target, ready)
    return replace(empty, contents=Contents(placed))
