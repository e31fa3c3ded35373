"""The write path: frame → `_tmp_` directory written by Spark → checked, finished, renamed (P19).

Readers can see nothing before every check has passed, and nothing counts before the metastore
commits the write id. A failure leaves at most a `_tmp_` directory, whose name tells which
transaction owns it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from acid_platform.engine.failures import raise_as_ours
from acid_platform.engine.orc_timestamps import storable
from acid_platform.engine.plain_files import write_plain
from acid_platform.errors import InvalidDefinition, PublicationFailed
from acid_platform.layout import names, schema
from acid_platform.layout.bucketing import Bucketing
from acid_platform.layout.formats import ORC, FileFormat
from acid_platform.layout.names import BaseName, BucketFile, DeltaName
from acid_platform.layout.partitions import DEFAULT_PARTITION
from acid_platform.layout.rowids import MAX_BUCKET, MAX_STATEMENT, ROW_ID_MASK
from acid_platform.layout.types import Column as TableColumn
from acid_platform.snapshot.listing import FileEntry
from acid_platform.snapshot.recorded import NOTHING, Contents
from acid_platform.storage.durability import publish
from acid_platform.storage.emptied import write_empty_file
from acid_platform.storage.files import Files
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
class WriteTarget:
    """Where a statement of a transaction writes."""

    files: Files
    location: str
    columns: tuple[TableColumn, ...]
    partition_columns: tuple[str, ...]
    txn_id: int
    write_id: int
    statement: int
    compression: str
    still_open: Callable[[], object]
    """A heartbeat, called before publishing: raises if the transaction is not open any more (P4).
    """
    buckets: Bucketing | None = None
    plain: FileFormat | None = None
    """The file format of an insert-only table; None for full ACID."""
    written: Observation = field(default_factory=Observation)
    """Counts the events that are written to files."""

    def __post_init__(self) -> None:
        if self.statement > MAX_STATEMENT:
            raise InvalidDefinition(
                f"transaction {self.txn_id} has {self.statement} statements; commit after at most"
                f" {MAX_STATEMENT + 1}"
            )

    def delta(self, deletes: bool) -> str:
        return str(DeltaName(self.write_id, self.write_id, self.statement, 0, deletes))

    def base(self) -> str:
        return str(BaseName(self.write_id))


@dataclass(frozen=True, slots=True)
class Written:
    """A directory that a statement published."""

    partition: str
    directory: str
    deletes: bool
    contents: Contents = NOTHING
    """Its data files, as the commit records them (P26)."""

    @property
    def rows(self) -> int:
        return self.contents.rows

    @property
    def bytes(self) -> int:
        return self.contents.bytes

    @property
    def files(self) -> int:
        return len(self.contents.files)


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


def arranged(frame: DataFrame, target: WriteTarget, order: Sequence[str]) -> DataFrame:
    """Sorts rows as their files need them, and counts them. Number the rows only after this.

    Partition columns become the text of their directories, which is never NULL, and `order` follows
    the kind and the partition. That is the order that Spark's writer needs. Otherwise it would sort
    again, and if that sort spills, rows of a file change places after they were numbered (P15).
    """
    names = target.partition_columns
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


def numbered(frame: DataFrame, target: WriteTarget, columns: Sequence[str]) -> DataFrame:
    """Insert events for a frame with the table's columns."""
    frame = arranged(frame, target, [])
    values = [F.col(f"`{name}`") for name in columns]
    keep = [F.col(f"`{name}`") for name in target.partition_columns]
    if target.plain is not None:
        return frame.select(
            *keep, *(_storable(values, target) if target.plain.name == "orc" else values)
        )
    return frame.select(
        *keep, *insert_ids(target.write_id, target.statement), *stored_row(values, target)
    )


def stored_row(values: Sequence[Column], target: WriteTarget) -> list[Column]:
    """The table's columns as Spark writes them: flat, or as a struct if the codec needs it.

    A timestamp that ORC can't store fails the job.
    """
    values = _storable(values, target)
    if target.compression in CODECS:
        return [one.alias(f"{_VALUE}{i}") for i, one in enumerate(values)]
    return [F.struct(*values).alias(schema.ROW)]


def _storable(values: Sequence[Column], target: WriteTarget) -> list[Column]:
    return [
        storable(value, column).alias(column.name)
        for value, column in zip(values, target.columns, strict=True)
    ]


def write_statement(
    events: DataFrame,
    target: WriteTarget,
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
    with _staging(target) as staging:
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
        _publish(target, staging, built)
        return built


def write_truncation(target: WriteTarget, partitions: Sequence[str]) -> list[Written]:
    """Publishes an empty base for each partition ('' for an unpartitioned table). Needs no Spark.

    Raises PublicationFailed, TxnAborted.
    """
    with _staging(target) as staging:
        built = [_emptied(target, staging, partition) for partition in partitions]
        target.still_open()
        _publish(target, staging, built)
        return built


@contextmanager
def _staging(target: WriteTarget) -> Iterator[str]:
    token = names.temporary_name(target.txn_id, uuid.uuid4().hex[:8])
    staging = f"{target.location}/{token}"
    try:
        yield staging
    except OSError as error:
        raise PublicationFailed(
            f"{target.location} can't be written: {error}; nothing was published: free space, or"
            " grant the permission, and run the statement again"
        ) from error
    finally:
        with suppress(OSError):  # otherwise the Cleaner removes it once its transaction has ended
            target.files.delete_directory(staging)


def _ready(staging: str, partition: str, directory: str) -> str:
    return f"{staging}/ready/{partition}/{directory}".replace("//", "/")


def _publish(target: WriteTarget, staging: str, built: Sequence[Written]) -> None:
    """Renames all directories of the statement, or none, since its transaction may still commit."""
    places = [f"{output.partition}/{output.directory}".lstrip("/") for output in built]
    publish(
        target.files,
        target.location,
        [(f"{staging}/ready/{place}", f"{target.location}/{place}") for place in places],
        all_or_none=True,
    )


def _run(events: DataFrame, target: WriteTarget, path: str, only: str) -> int:
    partition = [*target.partition_columns]
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
    target: WriteTarget,
    staging: str,
    overwrite: bool,
    empty_partitions: Sequence[str],
    spark: SparkSession,
    flat: bool,
) -> Iterator[Written]:
    """Turns Spark's files into finished ACID directories below `<staging>/ready`."""
    depth = len(target.partition_columns)
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
            ready = _ready(staging, partition, directory)
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
                yield _emptied(target, staging, partition)


def _emptied(target: WriteTarget, staging: str, partition: str) -> Written:
    """A base without rows, which hides all earlier directories (P32)."""
    ready = _ready(staging, partition, target.base())
    target.files.make_directory(ready)
    contents = write_empty_file(
        target.files, ready, target.columns, target.compression, target.plain
    )
    _mark(target, ready)
    return Written(partition, target.base(), False, contents)


def _mark(target: WriteTarget, directory: str) -> None:
    """Writes the version file, which also keeps an insert-only table's empty directory."""
    target.files.write(f"{directory}/{names.VERSION_FILE}", names.VERSION)


def _arrange(
    target: WriteTarget, source: str, ready: str, empty: Written, spark: SparkSession, flat: bool
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
        _mark(target, ready)
    return replace(empty, contents=Contents(placed))
