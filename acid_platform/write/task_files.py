"""The files that one task of a statement writes, in their final form (P19).

This runs inside Spark tasks and imports no engine. The driver gets one small record per file: no
row, no row key and no footer goes through it. Each file is written once, under a name that no other
attempt of the task uses, so that an attempt that was given up leaves nothing that a commit names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

import numpy as np
import pyarrow as pa

from acid_platform.errors import (
    CorruptFile,
    InvalidDefinition,
    PublicationFailed,
    SourceRowsAmbiguous,
)
from acid_platform.formats.data_file import FileWriter, Keyed, KeyRun, StoredKeys
from acid_platform.formats.file_access import new_file, to_be_stored
from acid_platform.layout.acid_keys import MAX_BUCKET, Bucket, bucket_numbers
from acid_platform.layout.file_entries import FileEntry, RecordedFiles
from acid_platform.layout.formats import ACID_FORMAT, FileFormat
from acid_platform.layout.names import DEFAULT_PARTITION, BucketFile, partition_name
from acid_platform.layout.types import Column
from acid_platform.storage.files import Files, asking
from acid_platform.values.arrow_types import arrow_type, from_numpy, values_of

DELETES, INSERTS = 1, 2
"""The bits of a row's kind: it becomes a delete event, an insert event, or both."""

_ROWS_PER_FILE, _MOST_FILES = 1_000_000, 64


def files_needed(rows: int) -> int:
    """Into how many files an unbucketed table gets that many new rows, by either engine."""
    return max(1, min(rows // _ROWS_PER_FILE + 1, _MOST_FILES))


def file_rows(number: int) -> int:
    """How many rows a file gets, if nobody knows how many come: at last more, so that the numbers
    suffice."""
    return _ROWS_PER_FILE << number // _MOST_FILES


class RowKind(Enum):
    """What the rows of a statement become."""

    INSERT = "insert"
    DELETE = "delete"
    UPDATE = "update"
    """Both a delete event of the row's key and an insert event of its new values."""
    EACH = "each"
    """Each row says it in a column of bits, as in MERGE."""


_COUNTED = {
    RowKind.INSERT: "inserted",
    RowKind.DELETE: "deleted",
    RowKind.UPDATE: "updated",
}


@dataclass(frozen=True, slots=True)
class TaskTarget:
    """Where and how the tasks of a statement write; sent to executors.

    The rows of a task come in the order of their partitions, and within one in the order of the
    keys (P15). Their columns: the texts of the partition columns; unless `rows` is INSERT, the key
    (write id, bucket property, rowId); if `rows` is EACH, the bits; unless `rows` is DELETE, the
    values.
    """

    location: str
    """A path or URI that names the warehouse's file system."""
    directory: str
    """An existing directory for the files."""
    columns: tuple[Column, ...]
    partition_names: tuple[str, ...]
    write_id: int
    statement: int
    compression: str
    rows: RowKind
    format: FileFormat = ACID_FORMAT


@dataclass(frozen=True, slots=True)
class Received:
    """How many rows tasks were given, by what they become."""

    inserted: int = 0
    deleted: int = 0
    updated: int = 0
    repeated: int = 0
    """Those that delete a row which one before them deletes."""

    @property
    def rows(self) -> int:
        return self.inserted + self.deleted + self.updated + self.repeated

    def __add__(self, other: Received) -> Received:
        return Received(
            self.inserted + other.inserted,
            self.deleted + other.deleted,
            self.updated + other.updated,
            self.repeated + other.repeated,
        )


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A finished file, and where it belongs."""

    path: str
    partition: str
    """Such as `month=3`; empty for an unpartitioned table."""
    deletes: bool
    entry: FileEntry
    """As the commit records it, under the name that it will have."""

    def packed(self) -> tuple[str, str, bool, str]:
        """The file as plain values, which a task answers."""
        return self.path, self.partition, self.deletes, str(RecordedFiles((self.entry,)))

    @classmethod
    def unpacked(cls, path: str, partition: str, deletes: bool, record: str) -> StagedFile:
        (entry,) = RecordedFiles.parse(record).files
        return cls(path, partition, deletes, entry)


class TaskFiles:
    """Writes the files of one attempt of the task that writes bucket `bucket`.

    `attempt` is unique among all attempts of the statement's tasks.
    """

    def __init__(self, target: TaskTarget, bucket: int, attempt: int) -> None:
        self.received = Received()
        """The rows that were given."""
        self._target, self._bucket, self._attempt = target, bucket, attempt
        self._files, _ = Files.of(target.location)
        self._open: dict[bool, FileWriter] = {}
        """The open files of the partition, by whether they hold delete events."""
        self._events = {False: 0, True: 0}
        """The number of events that the open files were given."""
        self._partition: tuple[str, ...] | None = None
        self._done: set[tuple[str, ...]] = set()
        self._next_id = 0
        self._count = 0
        self._last_key: tuple[int, ...] | None = None
        """The last key of the partition, if several rows may have one key."""
        self._last_deletes = False
        """Whether the row with that key is only deleted."""

    def write(self, batch: pa.RecordBatch) -> Iterator[StagedFile]:
        """Writes the rows; yields the files of partitions that are complete.

        Raises PublicationFailed, CorruptFile if keys do not ascend, InvalidDefinition for a bucket
        number above the largest, SourceRowsAmbiguous if rows of the kind EACH have the same key,
        and don't all delete.
        """
        if batch.num_rows:
            require_bucket(self._bucket)
        depth = len(self._target.partition_names)
        texts = batch.columns[:depth]
        for start, end in _runs(texts, batch.num_rows):
            partition = tuple(text[start].as_py() for text in texts)
            if partition != self._partition:
                yield from self.finish()
                if partition in self._done:
                    raise PublicationFailed(
                        f"{self._target.directory}: two files for bucket {self._bucket} of"
                        f" {self._name(partition)}: rows came out of order; nothing was published,"
                        " run the statement again"
                    )
                self._partition = partition
            self._write_run(batch.columns[depth:], start, end)

    def finish(self) -> Iterator[StagedFile]:
        """Completes the open files and yields them. Raises PublicationFailed, CorruptFile."""
        if self._partition is None:
            return
        partition = self._partition
        self._done.add(partition)
        self._partition = self._last_key = None
        for deletes, writer in sorted(self._open.items(), reverse=True):
            del self._open[deletes]
            expected, self._events[deletes] = self._events[deletes], 0
            try:
                rows = writer.close()
            except BaseException:
                writer.give_up()
                raise
            if rows != expected:
                raise PublicationFailed(
                    f"{writer.path}: {expected} events were given, the file holds {rows};"
                    " nothing was published, run the statement again"
                )
            entry = writer.record(file_name(self._bucket, self._target.format))
            yield StagedFile(writer.path, self._name(partition), deletes, entry)

    def give_up(self) -> None:
        """Closes incomplete files."""
        for writer in self._open.values():
            with suppress(OSError):
                writer.give_up()

    def _name(self, partition: Sequence[str]) -> str:
        return partition_name(
            {
                name: None if text == DEFAULT_PARTITION else text
                for name, text in zip(self._target.partition_names, partition, strict=True)
            }
        )

    def _write_run(self, columns: Sequence[pa.Array], start: int, end: int) -> None:
        kind, rest = self._target.rows, [column.slice(start, end - start) for column in columns]
        gone = fresh = None
        updated = np.full(end - start, kind is RowKind.UPDATE)
        if kind is RowKind.EACH:
            bits = values_of(rest.pop(3))
            first = self._first_of_keys(rest[:3], bits)
            if not first.all():
                self.received += Received(repeated=int(np.count_nonzero(~first)))
                rest, bits = [_taken(each, _where(first)) for each in rest], bits[first]
            updated = bits[bits & DELETES != 0] & INSERTS != 0
            gone, fresh = (_where(bits & bit != 0) for bit in (DELETES, INSERTS))
            per_kind = np.bincount(bits, minlength=4).tolist()
            self.received += Received(
                per_kind[INSERTS], per_kind[DELETES], per_kind[DELETES | INSERTS]
            )
        else:
            self.received += Received(**{_COUNTED[kind]: end - start})
        if kind is not RowKind.INSERT:
            keys, rest = [_taken(key, gone) for key in rest[:3]], rest[3:]
            if len(keys[0]):
                self._put(True, self._deleted(keys, updated))
        if kind is not RowKind.DELETE:
            values = [_taken(value, fresh) for value in rest]
            if len(values[0]):
                self._put(False, self._inserted(values))

    def _first_of_keys(self, keys: Sequence[pa.Array], bits: np.ndarray) -> np.ndarray:
        """Which rows are not deleted by the row before them; (n,) bool, of keys and bits (n,).

        Raises SourceRowsAmbiguous if two rows have one key, and don't both delete.
        """
        first = np.ones(len(bits), bool)
        (places,) = np.nonzero(bits & DELETES)
        if not len(places):
            return first
        chosen = _where(bits & DELETES != 0)
        ids = np.stack([values_of(_taken(key, chosen)).astype(np.int64) for key in keys])
        deletes = bits[places] == DELETES
        before = self._last_key or (-1, -1, -1)
        ids = np.column_stack([np.array(before), ids])
        deletes = np.concatenate([[self._last_deletes], deletes])
        again = (ids[:, 1:] == ids[:, :-1]).all(axis=0)
        wrong = again & ~(deletes[1:] & deletes[:-1])
        if wrong.any():
            key = tuple(ids[:, int(np.argmax(wrong))].tolist())
            raise SourceRowsAmbiguous(f"several source rows match one row (row__id {key})")
        self._last_key, self._last_deletes = tuple(ids[:, -1].tolist()), bool(deletes[-1])
        first[places] = ~again
        return first

    def _put(self, deletes: bool, rows: Keyed) -> None:
        if deletes not in self._open:
            self._open[deletes] = self._writer(deletes)
        self._events[deletes] += len(rows)
        self._open[deletes].put(rows)

    def _writer(self, deletes: bool) -> FileWriter:
        target = self._target
        path = f"{target.directory}/{self._bucket:05d}-{self._attempt}-{self._count}"
        self._count += 1
        return new_file(
            self._files, path, target.columns, target.format, target.compression, deletes
        )

    def _inserted(self, values: Sequence[pa.Array]) -> Keyed:
        target, keys = self._target, None
        batch = pa.RecordBatch.from_arrays(
            list(values), names=[column.name for column in target.columns]
        )
        if target.format.keyed:
            bucket = Bucket(self._bucket, target.statement).property
            keys = KeyRun(target.write_id, bucket, self._next_id)
            self._next_id += batch.num_rows
        return Keyed(keys, target.write_id, batch, checked=False)

    def _deleted(self, keys: Sequence[pa.Array], updated: np.ndarray) -> Keyed:
        ids = StoredKeys(*map(values_of, keys))
        numbers = bucket_numbers(ids.buckets)
        if (numbers != self._bucket).any():
            raise CorruptFile(
                f"{self._target.directory}: the task of bucket {self._bucket} got a row of bucket"
                f" {int(numbers[numbers != self._bucket][0])}; run the statement again"
            )
        return Keyed(ids, self._target.write_id, None, updated=updated)


def file_name(bucket: int, stored: FileFormat) -> str:
    """The name of a file of a bucket. Raises InvalidDefinition."""
    return str(BucketFile(bucket)) if stored.keyed else plain_name(bucket)


def plain_name(bucket: int) -> str:
    """The name of a file of an insert-only table. Raises InvalidDefinition."""
    require_bucket(bucket)
    return f"{bucket:06d}_0"


def require_bucket(bucket: int) -> None:
    """Raises InvalidDefinition for a number above the largest."""
    if bucket > MAX_BUCKET:
        raise InvalidDefinition(
            f"a statement would write more than {MAX_BUCKET + 1} files into a directory: coalesce"
            f" the frame to at most {MAX_BUCKET + 1} partitions"
        )


def write_task(
    target: TaskTarget, bucket: int, attempt: int, batches: Iterable[pa.RecordBatch]
) -> Iterator[StagedFile | Received]:
    """Writes the rows of a task; yields each finished file, and at last what it got.

    Raises what TaskFiles raises; an OSError becomes PublicationFailed, StoreRefused or
    StoreUnavailable.
    """
    files = TaskFiles(target, bucket, attempt)
    try:
        with asking(target.directory):
            for batch in batches:
                yield from files.write(stored(batch, target))
            yield from files.finish()
    except OSError as error:
        files.give_up()
        raise PublicationFailed(
            f"{target.directory} can't be written: {error}; nothing was published: free space, or"
            " grant the permission, see that every executor reaches the warehouse, and run the"
            " statement again"
        ) from error
    except BaseException:
        files.give_up()
        raise
    yield files.received


def stored(batch: pa.RecordBatch, target: TaskTarget) -> pa.RecordBatch:
    """The batch with its values as the writer takes them, whatever Spark's settings."""
    if target.rows is RowKind.DELETE:
        return batch
    first = batch.num_columns - len(target.columns)
    columns = [
        *batch.columns[:first],
        *(
            _stored(value, arrow_type(column.type), target.format)
            for value, column in zip(batch.columns[first:], target.columns, strict=True)
        ),
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _stored(values: pa.Array, declared: pa.DataType, stored: FileFormat) -> pa.Array:
    as_declared = values if _same_layout(values.type, declared) else values.cast(declared)
    return to_be_stored(as_declared, stored)


def _same_layout(kind: pa.DataType, other: pa.DataType) -> bool:
    """Whether arrays of both types have the same buffers: names and time zones don't matter."""
    if kind.id != other.id:
        return False
    if pa.types.is_timestamp(kind):
        return bool(kind.unit == other.unit)
    if kind.num_fields:
        return kind.num_fields == other.num_fields and all(
            _same_layout(kind.field(i).type, other.field(i).type) for i in range(kind.num_fields)
        )
    return bool(kind == other)


def _runs(texts: Sequence[pa.Array], rows: int) -> list[tuple[int, int]]:
    """(start, end) of each run of rows with the same texts, at most `rows` long."""
    if not rows:
        return []
    changes = np.zeros(rows - 1, bool)
    for text in texts:
        codes = values_of(text.dictionary_encode().indices)
        changes |= codes[1:] != codes[:-1]
    edges = [0, *(np.flatnonzero(changes) + 1).tolist(), rows]
    return list(pairwise(edges))


def _where(chosen: np.ndarray) -> pa.Array | None:
    """A mask (n,) for `_taken`; None if it has all rows."""
    return None if chosen.all() else from_numpy(chosen)


def _taken(values: pa.Array, chosen: pa.Array | None) -> pa.Array:
    return values if chosen is None else values.filter(chosen)
