"""The changes of a table between two snapshots, as one value that both engines run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pyarrow as pa

from acid_platform.errors import CorruptFile
from acid_platform.layout.types import Column, require_columns
from acid_platform.scan.arrow_scan import read_ahead
from acid_platform.scan.change_rows import (
    CHANGE_COLUMNS,
    ChangeReader,
    FileChanges,
    RemovedRows,
    Stamp,
)
from acid_platform.scan.decode import Work
from acid_platform.scan.scans import partition_scalars

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
        for place, entity in enumerate(self.entities):
            values = partition_scalars(self.reader.partition_columns, entity.values)
            for part in entity.parts:
                for piece in self.reader.work(part, values):
                    if isinstance(part, RemovedRows):
                        yield _counting(piece, counts[place])
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
