"""The write path: frame → `_tmp_` directory by Spark → checked, amended, renamed (P19).

Nothing that a reader could see exists before every check has passed, and nothing counts before the
metastore commits the write id. Whatever fails leaves at most a `_tmp_` directory, whose name says
which transaction owns it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T

from acid_platform.engine.failures import raise_as_ours
from acid_platform.errors import InvalidDefinition, PublicationFailed
from acid_platform.layout import names, schema
from acid_platform.layout.names import BaseName, BucketFile, DeltaName
from acid_platform.layout.rowids import MAX_BUCKET, MAX_STATEMENT, ROW_ID_MASK
from acid_platform.storage.files import Files
from acid_platform.storage.orc import finish_file

KIND = "__kind"
INSERTS, DELETES = "i", "d"

_PART = "part-"


@dataclass(frozen=True, slots=True)
class WriteTarget:
    """Where one statement of one transaction writes."""

    files: Files
    location: str
    partition_columns: tuple[str, ...]
    txn_id: int
    write_id: int
    statement: int
    compression: str
    still_open: Callable[[], object]
    """A heartbeat: raises when the transaction is no longer open. Called before publishing (P4)."""

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
    """One directory that a statement published."""

    partition: str
    directory: str
    deletes: bool
    rows: int
    bytes: int
    files: int


def insert_columns(write_id: int, statement: int, row: Column) -> list[Column]:
    """The six columns of insert events; the frame must be in its final order and tasks (P15)."""
    prop = F.lit(1 << 29).bitwiseOR(F.shiftleft(F.spark_partition_id(), 16)).bitwiseOR(
        F.lit(statement))
    return [
        F.lit(schema.INSERT_EVENT).alias(schema.OPERATION),
        F.lit(write_id).cast("bigint").alias(schema.ORIGINAL_TRANSACTION),
        prop.cast("int").alias(schema.BUCKET),
        F.monotonically_increasing_id().bitwiseAND(F.lit(ROW_ID_MASK)).alias(schema.ROW_ID),
        F.lit(write_id).cast("bigint").alias(schema.CURRENT_TRANSACTION),
        row.alias(schema.ROW),
    ]


def numbered(
    frame: DataFrame, target: WriteTarget, columns: Sequence[str]
) -> DataFrame:
    """Insert events of a frame that has the table's columns, sorted as `partitionBy` needs it."""
    if target.partition_columns:
        frame = frame.sortWithinPartitions(*target.partition_columns)
    row = F.struct(*(F.col(f"`{name}`") for name in columns))
    keep = [F.col(f"`{name}`") for name in target.partition_columns]
    return frame.select(F.lit(INSERTS).alias(KIND), *keep,
                        *insert_columns(target.write_id, target.statement, row))


def write_statement(
    events: DataFrame, target: WriteTarget, overwrite: bool = False,
    empty_partitions: Sequence[str] = (),
) -> list[Written]:
    """Write the events of one statement in one Spark job and publish them.

    `events`: __kind ('i' or 'd'), the partition columns, the six ACID columns. `overwrite` makes
    base directories of the inserts; `empty_partitions` get an empty base even without a row.
    Raises PublicationFailed, CorruptFile, WrongType (a value that overflows), TxnAborted.
    """
    token = names.temporary_name(target.txn_id, uuid.uuid4().hex[:8])
    staging = f"{target.location}/{token}"
    try:
        counted = _run(events, target, f"{staging}/out")
        built = list(_build(target, staging, overwrite, empty_partitions))
        total = sum(one.rows for one in built)
        if total != counted:
            raise PublicationFailed(
                f"{target.location}: Spark counted {counted} events, its files hold {total};"
                " nothing was published, run the statement again"
            )
        target.still_open()
        _publish(target, staging, built)
        return built
    finally:
        with suppress(OSError):  # the Cleaner removes what is left, through its owner's state
            target.files.delete_directory(staging)


def _publish(target: WriteTarget, staging: str, built: Sequence[Written]) -> None:
    """All directories of the statement, or none: its transaction may go on and commit."""
    done: list[str] = []
    try:
        for one in built:
            where = f"{one.partition}/{one.directory}".lstrip("/")
            target.files.publish(f"{staging}/ready/{where}", f"{target.location}/{where}")
            done.append(where)
    except BaseException:
        for where in done:
            target.files.delete_directory(f"{target.location}/{where}")
        raise


def _run(events: DataFrame, target: WriteTarget, path: str) -> int:
    observation = Observation()
    watched = events.observe(observation, F.count(F.lit(1)).alias("events"))
    writer = watched.write.mode("errorifexists").option("compression", target.compression)
    with raise_as_ours():
        writer.partitionBy(KIND, *target.partition_columns).orc(target.files.uri(path))
        return int(observation.get["events"])


def _build(
    target: WriteTarget, staging: str, overwrite: bool, empty_partitions: Sequence[str]
) -> Iterator[Written]:
    """Arrange Spark's files as finished ACID directories below `<staging>/ready`."""
    depth = len(target.partition_columns)
    seen: set[str] = set()
    for kind in (DELETES, INSERTS):
        root = f"{staging}/out/{KIND}={kind}"
        if not target.files.exists(root):
            continue
        for partition in target.files.partition_directories(root, depth):
            directory = (target.base() if overwrite and kind == INSERTS
                         else target.delta(deletes=kind == DELETES))
            where = f"{root}/{partition}".rstrip("/")
            ready = f"{staging}/ready/{partition}/{directory}".replace("//", "/")
            written = _arrange(target.files, where, ready, partition, directory, kind == DELETES)
            if written.rows:
                seen.add(partition)
                yield written
            else:
                target.files.delete_directory(ready)
    if overwrite:
        for partition in empty_partitions:
            if partition not in seen:
                ready = f"{staging}/ready/{partition}/{target.base()}".replace("//", "/")
                target.files.make_directory(ready)
                _mark(target.files, ready)
                yield Written(partition, target.base(), False, 0, 0, 0)


def _mark(files: Files, directory: str) -> None:
    files.write(f"{directory}/{names.VERSION_FILE}", names.VERSION)


def _arrange(
    files: Files, source: str, ready: str, partition: str, directory: str, deletes: bool
) -> Written:
    files.make_directory(ready)
    moves: dict[str, str] = {}
    for info in files.children(source):
        if not info.base_name.startswith(_PART):
            continue
        number = int(info.base_name.removeprefix(_PART).partition("-")[0])
        if number > MAX_BUCKET:
            raise InvalidDefinition(
                f"{directory} would need more than {MAX_BUCKET + 1} files: coalesce the frame to"
                f" at most {MAX_BUCKET + 1} partitions"
            )
        name = str(BucketFile(number))
        if name in moves:
            raise PublicationFailed(f"two files for {partition}/{directory}/{name}: a task ran"
                                    " twice; nothing was published, run the statement again")
        moves[name] = info.path
    rows = total = kept = 0
    with ThreadPoolExecutor(8) as pool:
        counts = pool.map(lambda path: finish_file(files, path, deletes), moves.values())
        for (name, path), count in zip(moves.items(), counts, strict=True):
            if count:
                files.system.move(path, f"{ready}/{name}")
                total += files.system.get_file_info(f"{ready}/{name}").size
                rows += count
                kept += 1
    _mark(files, ready)
    return Written(partition, directory, deletes, rows, total, kept)


def event_schema(row: T.StructType) -> T.StructType:
    """The six columns as Spark types."""
    kinds = (T.IntegerType(), T.LongType(), T.IntegerType(), T.LongType(), T.LongType(), row)
    return T.StructType([T.StructField(name, kind)
                         for name, kind in zip(schema.ACID_COLUMNS, kinds, strict=True)])
