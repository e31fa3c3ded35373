"""The changes of a table between two snapshots, as one value that both engines run, and their rows,
file by file (P39).

A piece of work reads one file of one entity and needs nothing but its own fields, so that threads
and Spark's tasks run it alike. New rows are those of a write's own files. Removed rows are found by
their keys in the files of before; of a stripe without such a row, only the keys are decoded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

import numpy as np
import pyarrow as pa

from acid_platform.errors import CorruptFile
from acid_platform.formats.data_file import RowFilter
from acid_platform.layout.acid_keys import ROW_ID_COLUMN
from acid_platform.layout.formats import ACID_FORMAT, FileFormat
from acid_platform.layout.types import Column, HiveType, require_columns
from acid_platform.scan.change_events import NO_EVENTS, MarkedKeys, WriteEvents, places
from acid_platform.scan.decode import FileRead, Work
from acid_platform.scan.deletes import NO_DELETES, DeletedRows, DeleteKeys
from acid_platform.scan.result_columns import Values, without_columns
from acid_platform.scan.scans import ArrowScan, Scan, partition_scalars, read_ahead
from acid_platform.scan.source_files import RowIdentity, SourceFile
from acid_platform.storage.files import Files
from acid_platform.transactions import ValidWriteIdList
from acid_platform.values.arrow_types import arrow_type, from_numpy, values_of

INSERT, DELETE = "insert", "delete"
PREIMAGE, POSTIMAGE = "update_preimage", "update_postimage"
TYPES = (INSERT, DELETE, PREIMAGE, POSTIMAGE)

CHANGE_TYPE, WRITE_ID, TXN_ID, COMMITTED = (
    "_change_type",
    "_write_id",
    "_txn_id",
    "_commit_timestamp",
)
CHANGE_COLUMNS = (
    Column(CHANGE_TYPE, HiveType("string")),
    Column(WRITE_ID, HiveType("bigint")),
    Column(TXN_ID, HiveType("bigint")),
    Column(COMMITTED, HiveType("timestamp")),
)


@dataclass(frozen=True, slots=True)
class Stamp:
    """The commit of a change; `at`: microseconds UTC, which ascend with the order of commits."""

    write_id: int
    txn_id: int
    at: int


@dataclass(frozen=True, slots=True)
class FileChanges(ABC):
    """What one file has of the changes."""

    source: SourceFile
    write_ids: ValidWriteIdList

    @property
    @abstractmethod
    def deleted(self) -> RowFilter | None:
        """What is left out of the file."""

    @abstractmethod
    def marks(
        self, rows: int, keys: tuple[np.ndarray, ...] | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """For each row its type, as a place in TYPES, and the place of its stamp."""


@dataclass(frozen=True, slots=True)
class NewRows(FileChanges):
    """The rows of a file that a write has added."""

    stamp: int
    events: WriteEvents = NO_EVENTS

    @property
    def deleted(self) -> RowFilter | None:
        return DeletedRows(self.events.own) if len(self.events.own) else None

    def marks(
        self, rows: int, keys: tuple[np.ndarray, ...] | None
    ) -> tuple[np.ndarray, np.ndarray]:
        kinds = np.zeros(rows, np.int8)
        if keys is not None and self.events.updated_from:
            for bucket, first in self.events.updated_from.items():
                kinds[(keys[1] == bucket) & (keys[2] >= first)] = TYPES.index(POSTIMAGE)
            kinds[~DeletedRows(self.events.inserted).survivors(*keys)] = TYPES.index(INSERT)
        return kinds, np.full(rows, self.stamp)


@dataclass(frozen=True, slots=True)
class RemovedRows(FileChanges):
    """The rows of a file with one of these keys, as they were."""

    keys: MarkedKeys

    @property
    def deleted(self) -> RowFilter | None:
        return _Only(self.keys.as_deleted())

    def marks(
        self,
        rows: int,  # noqa: ARG002, other changes need it
        keys: tuple[np.ndarray, ...] | None,
    ) -> tuple[np.ndarray, np.ndarray]:
        assert keys is not None
        at = places(self.keys, *keys)
        updated = self.keys.updated[at]
        kinds = np.where(updated, TYPES.index(PREIMAGE), TYPES.index(DELETE)).astype(np.int8)
        return kinds, self.keys.writes[at]


@dataclass(frozen=True, slots=True)
class LiveRows(FileChanges):
    """All rows of a file that a snapshot sees: they were replaced or dropped, or are the first."""

    stamp: int
    gone: DeleteKeys = NO_DELETES
    type: str = DELETE

    @property
    def deleted(self) -> RowFilter | None:
        return DeletedRows(self.gone) if len(self.gone) else None

    def marks(
        self,
        rows: int,
        keys: tuple[np.ndarray, ...] | None,  # noqa: ARG002
    ) -> tuple[np.ndarray, np.ndarray]:
        return np.full(rows, TYPES.index(self.type), np.int8), np.full(rows, self.stamp)


@dataclass(frozen=True, slots=True)
class _Only:
    """Keeps the rows that have one of the keys."""

    keys: DeleteKeys

    def survivors(self, w: np.ndarray, b: np.ndarray, r: np.ndarray) -> np.ndarray:
        return np.asarray(~DeletedRows(self.keys).survivors(w, b, r))

    def survivors_of_run(self, write_id: int, bucket: int, first: int, rows: int) -> np.ndarray:
        return np.asarray(~DeletedRows(self.keys).survivors_of_run(write_id, bucket, first, rows))


class _Late:
    """A condition without columns: values are decoded only where rows are wanted."""

    columns: frozenset[str] = frozenset()
    tree = None

    def mask(self, values: Values) -> pa.Scalar:  # noqa: ARG002, a Predicate has it
        return pa.scalar(True)


@dataclass(frozen=True, slots=True)
class ChangeReader:
    """Reads the parts of one table. `names`: the columns, in the order of the result; the
    partition columns and those of CHANGE_COLUMNS are among them if they are asked for."""

    files: Files
    columns: tuple[Column, ...]
    partition_columns: tuple[Column, ...]
    stamps: tuple[Stamp, ...]
    names: tuple[str, ...]
    format: FileFormat = ACID_FORMAT

    @property
    def schema(self) -> pa.Schema:
        every = (*self.columns, *self.partition_columns, *CHANGE_COLUMNS)
        types = {column.name: arrow_type(column.type) for column in every}
        return pa.schema([(name, types[name]) for name in self.names])

    def work(self, part: FileChanges, partition: Mapping[str, pa.Scalar]) -> Iterator[Work]:
        """Pieces of work, of which each returns record batches of `schema`.

        `partition`: the values of the partition columns. The pieces raise CorruptFile,
        UnsupportedLayout.
        """
        with_keys = part.source.identity is not RowIdentity.NONE
        stored = tuple(
            name for name in self.names if name not in {column.name for column in CHANGE_COLUMNS}
        )
        scan = ArrowScan(
            Scan(
                self.files,
                "",
                self.columns,
                self.partition_columns,
                (),
                part.write_ids,
                self.format,
            ),
            stored or ((self.columns[0].name,) if not with_keys else ()),
            _Late() if isinstance(part, RemovedRows) else None,
            with_keys,
        )
        read = FileRead(scan, partition, part.source, part.deleted)

        def marked(piece: Work) -> list[pa.RecordBatch]:
            return [self._marked(part, batch) for batch in piece() if batch.num_rows]

        return (partial(marked, piece) for piece in read.work())

    def _marked(self, part: FileChanges, batch: pa.RecordBatch) -> pa.RecordBatch:
        keys = None
        if ROW_ID_COLUMN in batch.schema.names:
            ids = batch.column(ROW_ID_COLUMN)
            keys = tuple(values_of(ids.field(i)).astype(np.int64) for i in range(3))
        kinds, stamps = part.marks(batch.num_rows, keys)
        added = {
            CHANGE_TYPE: lambda: pa.array(TYPES).take(pa.array(kinds, pa.int8())),
            WRITE_ID: lambda: from_numpy(self._of_stamps("write_id")[stamps]),
            TXN_ID: lambda: from_numpy(self._of_stamps("txn_id")[stamps]),
            COMMITTED: lambda: pa.array(self._of_stamps("at")[stamps]).cast(pa.timestamp("us")),
        }
        arrays = [added[name]() if name in added else batch.column(name) for name in self.names]
        if not arrays:
            return without_columns(batch.num_rows)
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _of_stamps(self, name: str) -> np.ndarray:
        return np.array([getattr(stamp, name) for stamp in self.stamps], np.int64)


_THREADS = 8


@dataclass(frozen=True, slots=True)
class EntityParts:
    """What an entity has of the changes; `values` of its partition, as directory names spell them.

    `removed`: how many rows the parts of the kind RemovedRows have to find.
    """

    partition: str
    values: tuple[str | None, ...]
    parts: tuple[FileChanges, ...]
    removed: int = 0


@dataclass(frozen=True, slots=True)
class ChangeScan:
    """The changes of a table between two snapshots, opened for reading; a plain value."""

    table: str
    reader: ChangeReader
    entities: tuple[EntityParts, ...]
    after: int
    """The moment up to which they lead."""
    before: int = 0
    """The moment of the consumer's cursor; 0: it has none, or nobody consumes them."""
    still_open: Callable[[], object] | None = field(default=None, compare=False)

    @property
    def columns(self) -> tuple[Column, ...]:
        """All columns: the table's, the partition columns, and those of a change."""
        return (*self.reader.columns, *self.reader.partition_columns, *CHANGE_COLUMNS)

    @property
    def read_bytes(self) -> int:
        """The size of the files that are opened for rows, before column pruning."""
        return sum(part.source.size for entity in self.entities for part in entity.parts)

    def wanting(self, columns: Sequence[str] | None) -> ChangeScan:
        """The changes with these columns, in their order; None: all. Raises UnknownColumn."""
        names = [column.name for column in self.columns]
        column_names = tuple(names if columns is None else (name.lower() for name in columns))
        require_columns(column_names, self.columns, self.table)
        return replace(self, reader=replace(self.reader, names=column_names))

    @property
    def schema(self) -> pa.Schema:
        return self.reader.schema

    def batches(self, threads: int = _THREADS) -> Iterator[pa.RecordBatch]:
        """The changes; of each partition first the removed rows.

        A few pieces of work are in memory at a time. Raises CorruptFile, UnsupportedLayout.
        """
        counts: list[list[int]] = [[] for _ in self.entities]
        yield from read_ahead(self._work(counts), threads)
        for entity, pieces in zip(self.entities, counts, strict=True):
            if sum(pieces) != entity.removed:
                raise CorruptFile(
                    f"{self.table} {entity.partition}: {entity.removed} rows were removed, and"
                    f" {sum(pieces)} of them are in the files of before; run acid fsck"
                )

    def _work(self, counts: list[list[int]]) -> Iterator[Work]:
        """The pieces of work; those that find removed rows note how many, by entity."""
        for index, entity in enumerate(self.entities):
            values = partition_scalars(self.reader.partition_columns, entity.values)
            for part in entity.parts:
                for piece in self.reader.work(part, values):
                    if isinstance(part, RemovedRows):
                        yield _counting(piece, counts[index])
                    else:
                        yield piece


def _counting(piece: Work, counts: list[int]) -> Work:
    def work() -> list[pa.RecordBatch]:
        batches = piece()
        # Several threads do so at a time: each adds a number of its own, and no sum loses one.
        counts.append(sum(batch.num_rows for batch in batches))
        return batches

    return work


def commit_time(stamp: Stamp) -> datetime:
    """When it was committed."""
    return datetime.fromtimestamp(stamp.at / 1_000_000, UTC)
