"""Publishing what a statement wrote: `_tmp_` directory → checked, finished, renamed; and the rows
that its delete events name, as runs that a commit can send to the metastore.

Readers can see nothing before every check has passed, and nothing counts before the metastore
commits the write id. A failure leaves at most a `_tmp_` directory, whose name tells which
transaction owns it.

An object store has no rename. There a statement builds its directories where they will be read: no
other statement has their names, and no reader asks for a file that no commit has named (P41).

An emptied entity gets an empty data file, for engines that find directories by their files (P32):
Trino ignores a base without a data file and would show the rows that the base replaced."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from acid_platform.errors import (
    InvalidDefinition,
    PublicationFailed,
    StoreRefused,
    StoreUnavailable,
)
from acid_platform.formats.data_file import KEY, FilePath
from acid_platform.formats.file_access import WRITTEN_FORMATS, new_file, open_file, reading
from acid_platform.layout import names
from acid_platform.layout.acid_keys import MAX_STATEMENT, ascend
from acid_platform.layout.bucketing import Bucketing
from acid_platform.layout.file_entries import NOTHING, RecordedFiles
from acid_platform.layout.formats import ACID_FORMAT, FileFormat
from acid_platform.layout.names import BaseName, DeltaName
from acid_platform.layout.types import NO_CHECKS, Column, RowChecks
from acid_platform.storage.durability import publish, used_twice
from acid_platform.storage.files import Files, asking
from acid_platform.transactions.row_sets import RowSet
from acid_platform.values.arrow_types import group_begins
from acid_platform.write.task_files import RowKind, TaskTarget, file_name

_MOST_RUNS = 1 << 20
"""While files are read or written, no more runs than this are kept."""


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """Rows of one entity: runs of consecutive rowIds, sorted by bucket property, write id, rowId.

    Each field but the last is an int64 array (n,). `exact` is False once rows between runs were
    added to shorten it.
    """

    buckets: np.ndarray
    write_ids: np.ndarray
    firsts: np.ndarray
    lasts: np.ndarray
    exact: bool = True

    @classmethod
    def of(cls, write_ids: np.ndarray, buckets: np.ndarray, row_ids: np.ndarray) -> ChangedRows:
        """The rows with these keys, arrays (n,) in any order."""
        keys = [np.asarray(part, np.int64) for part in (buckets, write_ids, row_ids)]
        if not len(keys[2]):
            return NO_ROWS
        # The rows of a file are in order already, so most of them become few runs here.
        starts = np.flatnonzero(_breaks(keys[0], keys[1], keys[2], keys[2]))
        firsts, lasts = keys[2][starts], keys[2][np.append(starts[1:], len(keys[2])) - 1]
        return _joined(keys[0][starts], keys[1][starts], firsts, lasts, True)

    @classmethod
    def union(cls, parts: Iterable[ChangedRows]) -> ChangedRows:
        every = [part for part in parts if len(part)]
        if len(every) < 2:
            return every[0] if every else NO_ROWS
        return _joined(
            np.concatenate([part.buckets for part in every]),
            np.concatenate([part.write_ids for part in every]),
            np.concatenate([part.firsts for part in every]),
            np.concatenate([part.lasts for part in every]),
            all(part.exact for part in every),
        )

    def __len__(self) -> int:
        return len(self.firsts)

    def shortened(self, runs: int) -> ChangedRows | None:
        """At most so many runs: the smallest gaps are filled; None if there are too many groups.

        A group has one bucket property and one write id.
        """
        if len(self) <= runs:
            return self
        news = group_begins(self.buckets, self.write_ids)
        groups = int(news.sum())
        if groups > runs:
            return None
        gaps = np.where(news, np.iinfo(np.int64).max, self.firsts - np.roll(self.lasts, 1))
        widest_gaps = np.sort(np.argpartition(-gaps, runs - 1)[:runs])
        lasts = self.lasts[np.append(widest_gaps[1:], len(self)) - 1]
        return ChangedRows(
            self.buckets[widest_gaps],
            self.write_ids[widest_gaps],
            self.firsts[widest_gaps],
            lasts,
            False,
        )

    def row_set(self, limit: int) -> RowSet | None:
        """The set as text of at most `limit` bytes, shortened if need be; None if that fails."""
        if not limit:
            return None
        rows = self.shortened(max(limit // 2, 1))  # a run takes two bytes at least
        while rows is not None and (size := rows._size()) > limit:
            rows = rows.shortened(int(len(rows) * min(limit / size, 0.9)))
        return None if rows is None else RowSet(rows._text())

    def _size(self) -> int:
        """The length of `_text`, which takes much longer to make."""
        begins = group_begins(self.buckets, self.write_ids)
        starts, group = np.flatnonzero(begins), np.cumsum(begins)
        lengths = self.lasts - self.firsts + 1
        buckets = self.buckets[starts]
        numbers = (
            np.where(begins, self.firsts, self.firsts - np.roll(self.firsts, 1)),
            lengths[np.isin(group, group[lengths != 1])],
            self.write_ids[starts],
            buckets[group_begins(buckets)],
        )
        digits = sum(int((np.searchsorted(_POWERS, each, "right") + 1).sum()) for each in numbers)
        signs = max(sum(map(len, numbers)) - 1, 0)  # one between each two numbers
        return digits + signs + (not self.exact)

    def _text(self) -> str:
        parts: list[str] = []
        starts = np.flatnonzero(group_begins(self.buckets, self.write_ids))
        before = None
        for start, end in pairwise([*starts, len(self)]):
            bucket, firsts = int(self.buckets[start]), self.firsts[start:end]
            steps = np.diff(firsts, prepend=0).tolist()
            lengths = self.lasts[start:end] - firsts + 1
            if bucket != before:
                parts.append(f"{' ' if parts else ''}{bucket}@")
            else:
                parts.append(";")
            parts.append(f"{self.write_ids[start]}:{','.join(map(str, steps))}")
            if (lengths != 1).any():
                parts.append("/" + ",".join(map(str, lengths.tolist())))
            before = bucket
        return ("" if self.exact else "~") + "".join(parts)


_POWERS = 10 ** np.arange(1, 19)
"""The least numbers of two digits, three, and so on."""
_NONE = np.empty(0, np.int64)
NO_ROWS = ChangedRows(_NONE, _NONE, _NONE, _NONE)


def deleted_rows(files: Files, directory: str, contents: RecordedFiles) -> ChangedRows:
    """The rows that the delete events of a published directory name; reads its files.

    Raises CorruptFile.
    """
    sources = (
        FilePath(f"{directory}/{entry.path}", entry.keyed_format) for entry in contents.files
    )
    return together(part for source in sources for part in _read(files, source))


def together(parts: Iterable[ChangedRows]) -> ChangedRows:
    """The rows of all parts; not exact if they are more than _MOST_RUNS runs."""
    held, runs = list[ChangedRows](), 0
    for part in parts:
        held.append(part)
        runs += len(part)
        if runs > _MOST_RUNS:
            rows = ChangedRows.union(held)
            held = [rows.shortened(_MOST_RUNS // 2) or rows]
            runs = len(held[0])
    return ChangedRows.union(held)


def _read(files: Files, source: FilePath) -> Iterator[ChangedRows]:
    with reading(source.path):
        for ids in open_file(files, source).key_parts(*KEY):
            yield ChangedRows.of(*ids)


def _breaks(
    buckets: np.ndarray, write_ids: np.ndarray, firsts: np.ndarray, lasts: np.ndarray
) -> np.ndarray:
    """Mask (n,): a run does not follow at once on the run before."""
    breaks = group_begins(buckets, write_ids)
    breaks[1:] |= firsts[1:] != lasts[:-1] + 1
    return breaks


def _joined(
    buckets: np.ndarray, write_ids: np.ndarray, firsts: np.ndarray, lasts: np.ndarray, exact: bool
) -> ChangedRows:
    """Sorts runs, and joins those that touch or overlap."""
    if not ascend(buckets, write_ids, firsts):
        order = np.lexsort((firsts, write_ids, buckets))
        buckets, write_ids, firsts, lasts = (
            part[order] for part in (buckets, write_ids, firsts, lasts)
        )
    if not len(firsts):
        return ChangedRows(buckets, write_ids, firsts, lasts, exact)
    begins = group_begins(buckets, write_ids)
    # The highest row so far in each group: runs of one statement never overlap, but sets may.
    group = np.cumsum(begins)
    span = int(lasts.max()) + 2
    reach = np.maximum.accumulate(lasts + group * span) - group * span
    begins[1:] |= firsts[1:] > reach[:-1] + 1
    starts = np.flatnonzero(begins)
    ends = np.append(starts[1:], len(firsts)) - 1
    return ChangedRows(buckets[starts], write_ids[starts], firsts[starts], reach[ends], exact)


def write_empty_file(
    files: Files,
    directory: str,
    columns: Sequence[Column],
    compression: str,
    stored: FileFormat,
) -> RecordedFiles:
    """Write a data file without rows into `directory`; returns its record.

    Text, csv, json and avro get no file: without rows it would have no bytes, or need a writer of
    its own.
    """
    if stored.name not in WRITTEN_FORMATS:
        return NOTHING
    name = file_name(0, stored)
    writer = new_file(files, f"{directory}/{name}", columns, stored, compression, always=True)
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
    format: FileFormat = ACID_FORMAT
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
            self.format,
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
        below = f"{partition}/{directory}".lstrip("/")
        if not files.object_store:
            path = f"{self._path}/ready/{below}"
            files.system.create_dir(path, recursive=True)
            return path
        path = f"{self.target.location}/{below}"
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
            [(f"{self._path}/ready/{below}", f"{target.location}/{below}") for below in places],
            all_or_none=True,
        )
        return every

    def _empty_base(self, partition: str) -> WrittenDirectory:
        target, name = self.target, self.target.directory(overwrite=True)
        ready = self.ready(partition, name)
        contents = write_empty_file(
            target.files, ready, target.columns, target.compression, target.format
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
