"""Publishing what a statement wrote: `_tmp_` directory → checked, finished, renamed.

Readers can see nothing before every check has passed, and nothing counts before the metastore
commits the write id. A failure leaves at most a `_tmp_` directory, whose name tells which
transaction owns it.

An object store has no rename. There a statement builds its directories where they will be read: no
other statement has their names, and no reader asks for a file that no commit has named (P41).

An emptied entity gets an empty data file, for engines that find directories by their files (P32):
Trino ignores a base without a data file and would show the rows that the base replaced.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from acid_platform.errors import (
    InvalidDefinition,
    PublicationFailed,
    StoreRefused,
    StoreUnavailable,
)
from acid_platform.formats.file_access import WRITTEN_FORMATS, new_file
from acid_platform.layout import names
from acid_platform.layout.bucketing import Bucketing
from acid_platform.layout.constraints import NO_CHECKS, RowChecks
from acid_platform.layout.file_entries import NOTHING, RecordedFiles
from acid_platform.layout.formats import FileFormat
from acid_platform.layout.names import BaseName, BucketFile, DeltaName
from acid_platform.layout.schema import MAX_STATEMENT
from acid_platform.layout.types import Column
from acid_platform.storage.durability import publish, used_twice
from acid_platform.storage.files import Files, asking
from acid_platform.write.changed_rows import ChangedRows
from acid_platform.write.task_files import RowKind, TaskTarget, plain_name


def write_empty_file(
    files: Files,
    directory: str,
    columns: Sequence[Column],
    compression: str,
    plain: FileFormat | None,
) -> RecordedFiles:
    """Write a data file without rows into `directory`; returns its record.

    `plain` is the format of an insert-only table, None for full ACID. Text, csv, json and avro get
    no file: without rows it would have no bytes, or need a writer of its own.
    """
    name = str(BucketFile(0)) if plain is None else plain_name(0)
    if plain is not None and plain.name not in WRITTEN_FORMATS:
        return NOTHING
    writer = new_file(files, f"{directory}/{name}", columns, plain, compression, always=True)
    writer.close()
    return RecordedFiles((writer.record(name),))


@dataclass(frozen=True, slots=True)
class WriteTarget:
    """Where a statement of a transaction writes."""

    table: str
    files: Files
    location: str
    columns: tuple[Column, ...]
    partition_columns: tuple[Column, ...]
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
    most_bytes: int = 1 << 28
    """The most bytes of rows that the local engine may hold (acid.local.max.bytes)."""
    distributed: bool = True
    """Whether Spark brings the rows of a partition together before it writes them."""
    give_up: Callable[[str], object] = lambda _reason: None
    """Aborts the transaction, for a reason."""
    checks: RowChecks = NO_CHECKS
    """What the rows have to fulfil, and the values of columns that they leave out."""

    def __post_init__(self) -> None:
        if self.statement > MAX_STATEMENT:
            raise InvalidDefinition(
                f"transaction {self.txn_id} has {self.statement} statements; commit after at most"
                f" {MAX_STATEMENT + 1}"
            )

    @property
    def all_columns(self) -> tuple[Column, ...]:
        """The columns, then the partition columns."""
        return (*self.columns, *self.partition_columns)

    @property
    def partition_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.partition_columns)

    def without_defaults(self) -> WriteTarget:
        """The target, where columns that rows leave out become NULL."""
        return replace(self, checks=replace(self.checks, defaults={}))

    def directory(self, deletes: bool = False, overwrite: bool = False) -> str:
        """The name of the statement's delta, of its delete_delta, or of the base that inserted rows
        go to if they replace what is there."""
        if overwrite and not deletes:
            return str(BaseName(self.write_id))
        return str(DeltaName(self.write_id, self.write_id, self.statement, 0, deletes))

    def tasks(self, directory: str, rows: RowKind) -> TaskTarget:
        """What the tasks of the statement need to write such rows into `directory`."""
        return TaskTarget(
            self.files.uri(self.location),
            directory,
            self.columns,
            self.partition_names,
            self.write_id,
            self.statement,
            self.compression,
            rows,
            acid=self.plain is None,
        )


@dataclass(frozen=True, slots=True)
class WrittenDirectory:
    """A directory that a statement published."""

    partition: str
    directory: str
    deletes: bool
    contents: RecordedFiles = NOTHING
    """Its data files, as the commit records them."""
    changed: ChangedRows | None = None
    """The rows of its delete events, if the writer knows them."""

    @property
    def rows(self) -> int:
        return self.contents.rows


def write_truncation(target: WriteTarget, partitions: Sequence[str]) -> list[WrittenDirectory]:
    """Publishes an empty base for each partition ('' for an unpartitioned table). Needs no Spark.

    Raises PublicationFailed, TxnAborted.
    """
    with staging(target) as staged:
        return staged.publish([], partitions)


class Staging:
    """Where a statement builds its directories, and how they come to where they are read."""

    def __init__(self, target: WriteTarget, name: str = "") -> None:
        """`name`: of the hidden directory, if tasks have written there already."""
        token = name or names.temporary_name(target.txn_id, uuid.uuid4().hex[:8])
        self.target = target
        self._path = f"{target.location}/{token}"
        self._used = bool(name) or not target.files.object_store
        """Whether there may be something in the hidden directory."""
        self._built: list[str] = []
        """The final directories that were begun in an object store."""

    def unfinished(self) -> str:
        """A hidden path for files that attempts write, of which only some will count."""
        self._used = True
        return f"{self._path}/out"

    def ready(self, partition: str, directory: str) -> str:
        """Makes the directory for finished files, once for each name; returns its path.

        Raises PublicationFailed if an object store has such a directory.
        """
        files = self.target.files
        place = f"{partition}/{directory}".lstrip("/")
        if not files.object_store:
            path = f"{self._path}/ready/{place}"
            files.system.create_dir(path, recursive=True)
            return path
        path = f"{self.target.location}/{place}"
        if files.children(path):
            raise used_twice(path)
        self._built.append(path)
        return path

    def drop(self, path: str) -> None:
        """Removes what `ready` has made."""
        self.target.files.delete_directory(path)

    def mark_version(self, path: str) -> None:
        """Writes the version file, which also keeps an insert-only table's empty directory."""
        self.target.files.write(f"{path}/{names.VERSION_FILE}", names.VERSION)

    def publish(
        self, built: Sequence[WrittenDirectory], empty: Sequence[str] = ()
    ) -> list[WrittenDirectory]:
        """Makes all directories of the statement readable, or none: its transaction may go on.

        Partitions of `empty` to which no inserted row goes get a base without rows, which hides all
        earlier directories. Returns all that was published. Raises PublicationFailed, TxnAborted.
        """
        target = self.target
        filled = {output.partition for output in built if not output.deletes}
        every = [*built, *(self._empty_base(name) for name in empty if name not in filled)]
        target.still_open()
        if target.files.object_store:
            return every
        places = [f"{output.partition}/{output.directory}".lstrip("/") for output in every]
        publish(
            target.files,
            target.location,
            [(f"{self._path}/ready/{place}", f"{target.location}/{place}") for place in places],
            all_or_none=True,
        )
        return every

    def _empty_base(self, partition: str) -> WrittenDirectory:
        target, name = self.target, self.target.directory(overwrite=True)
        ready = self.ready(partition, name)
        contents = write_empty_file(
            target.files, ready, target.columns, target.compression, target.plain
        )
        self.mark_version(ready)
        return WrittenDirectory(partition, name, False, contents)

    def discard(self, failed: bool) -> None:
        """Removes what nobody reads; what can't be removed is left to the Cleaner.

        Directories of a failed statement in their final places must not stay in a transaction that
        commits, since other engines would read them: then the transaction is aborted.
        """
        if self._used:
            self._removed(self._path)
        left = [path for path in self._built if failed and not self._removed(path)]
        if left:
            self.target.give_up(f"{left[0]} of a failed statement can't be removed")

    def _removed(self, path: str) -> bool:
        try:
            self.target.files.delete_directory(path)
        except (OSError, StoreRefused, StoreUnavailable):
            return False
        return True


@contextmanager
def staging(target: WriteTarget, name: str = "") -> Iterator[Staging]:
    """A place for the directories of the statement; what was not published is deleted afterwards.

    `name`: of the hidden directory, if tasks have written there already.
    An OSError of the block becomes PublicationFailed, StoreRefused or StoreUnavailable.
    """
    staged, failed = Staging(target, name), True
    try:
        with asking(target.location):
            yield staged
        failed = False
    except OSError as error:
        raise PublicationFailed(
            f"{target.location} can't be written: {error}; nothing was published: free space, or"
            " grant the permission, and run the statement again"
        ) from error
    finally:
        staged.discard(failed)
