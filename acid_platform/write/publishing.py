"""Publishing what a statement wrote: `_tmp_` directory → checked, finished, renamed.

Readers can see nothing before every check has passed, and nothing counts before the metastore
commits the write id. A failure leaves at most a `_tmp_` directory, whose name tells which
transaction owns it.

An object store has no rename. There a statement builds its directories where they will be read: no
other statement has their names, and no reader asks for a file that no commit has named (P41).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from acid_platform.errors import (
    InvalidDefinition,
    PublicationFailed,
    StoreRefused,
    StoreUnavailable,
)
from acid_platform.layout import names
from acid_platform.layout.bucketing import Bucketing
from acid_platform.layout.formats import FileFormat
from acid_platform.layout.names import BaseName, DeltaName
from acid_platform.layout.recorded_files import NOTHING, RecordedFiles
from acid_platform.layout.rowids import MAX_STATEMENT
from acid_platform.layout.types import Column
from acid_platform.storage.durability import publish, used_twice
from acid_platform.storage.files import Files, asking
from acid_platform.write.changed_rows import ChangedRows
from acid_platform.write.empty_file import write_empty_file


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

    def delta(self, deletes: bool) -> str:
        return str(DeltaName(self.write_id, self.write_id, self.statement, 0, deletes))

    def base(self) -> str:
        return str(BaseName(self.write_id))


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

    @property
    def bytes(self) -> int:
        return self.contents.bytes

    @property
    def files(self) -> int:
        return len(self.contents.files)


def write_truncation(target: WriteTarget, partitions: Sequence[str]) -> list[WrittenDirectory]:
    """Publishes an empty base for each partition ('' for an unpartitioned table). Needs no Spark.

    Raises PublicationFailed, TxnAborted.
    """
    with staging(target) as staged:
        built = [write_empty_base(target, staged, partition) for partition in partitions]
        target.still_open()
        staged.publish(built)
        return built


class Staging:
    """Where a statement builds its directories, and how they come to where they are read."""

    def __init__(self, target: WriteTarget, name: str = "") -> None:
        """`name`: of the hidden directory, if tasks have written there already."""
        token = name or names.temporary_name(target.txn_id, uuid.uuid4().hex[:8])
        self._target = target
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
        files = self._target.files
        place = f"{partition}/{directory}".lstrip("/")
        if not files.object_store:
            path = f"{self._path}/ready/{place}"
            files.system.create_dir(path, recursive=True)
            return path
        path = f"{self._target.location}/{place}"
        if files.children(path):
            raise used_twice(path)
        self._built.append(path)
        return path

    def drop(self, path: str) -> None:
        """Removes what `ready` has made."""
        self._target.files.delete_directory(path)

    def publish(self, built: Sequence[WrittenDirectory]) -> None:
        """Makes all directories of the statement readable, or none: its transaction may go on.

        Raises PublicationFailed.
        """
        target = self._target
        if target.files.object_store:
            return
        places = [f"{output.partition}/{output.directory}".lstrip("/") for output in built]
        publish(
            target.files,
            target.location,
            [(f"{self._path}/ready/{place}", f"{target.location}/{place}") for place in places],
            all_or_none=True,
        )

    def discard(self, failed: bool) -> None:
        """Removes what nobody reads; what can't be removed is left to the Cleaner.

        Directories of a failed statement in their final places must not stay in a transaction that
        commits, since other engines would read them: then the transaction is aborted.
        """
        if self._used:
            self._removed(self._path)
        left = [path for path in self._built if failed and not self._removed(path)]
        if left:
            self._target.give_up(f"{left[0]} of a failed statement can't be removed")

    def _removed(self, path: str) -> bool:
        try:
            self._target.files.delete_directory(path)
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


def write_empty_base(target: WriteTarget, staged: Staging, partition: str) -> WrittenDirectory:
    """A base without rows, which hides all earlier directories."""
    ready = staged.ready(partition, target.base())
    contents = write_empty_file(
        target.files, ready, target.columns, target.compression, target.plain
    )
    mark_version(target, ready)
    return WrittenDirectory(partition, target.base(), False, contents)


def mark_version(target: WriteTarget, directory: str) -> None:
    """Writes the version file, which also keeps an insert-only table's empty directory."""
    target.files.write(f"{directory}/{names.VERSION_FILE}", names.VERSION)
