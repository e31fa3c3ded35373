"""A scan: the files of a table at a snapshot and which rows count, for both engines; and its rows
as record batches, without a JVM.

Of these, only columns that the result, the predicate or the row tests need are decoded. A batch is
an ORC stripe or a Parquet row group. Threads read a few batches ahead, so memory is bounded by a
few stripes, however large the table is."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, count, islice
from typing import TypeVar

import numpy as np
import pyarrow as pa

from acid_platform.base.first_use import lent_threads, usable_cores
from acid_platform.base.progress import tell_to_read
from acid_platform.formats.file_access import count_rows, reading
from acid_platform.layout import acid_keys
from acid_platform.layout.acid_keys import decode_bucket
from acid_platform.layout.formats import ACID_FORMAT, FileFormat
from acid_platform.layout.names import parse_bucket_file
from acid_platform.layout.types import Column, HiveType
from acid_platform.scan.decode import FileRead, Work
from acid_platform.scan.deletes import NO_DELETES, DeletedRows, DeleteKeys
from acid_platform.scan.kept_columns import ScanColumns, columns_to_keep
from acid_platform.scan.result_columns import FILE_PLACES, PLACE, ROW_ID_TYPE, Predicate
from acid_platform.scan.source_files import EntitySources, RowIdentity, SourceFile, open_source
from acid_platform.storage.files import Files
from acid_platform.transactions import ValidWriteIdList
from acid_platform.values.arrow_types import arrow_type, scalar_of
from acid_platform.values.partition_texts import partition_value


@dataclass(frozen=True, slots=True)
class EntityScan:
    """The files of one partition, or of an unpartitioned table, and the keys of deleted rows."""

    sources: EntitySources
    deletes: DeleteKeys = NO_DELETES
    partition: str = ""
    """Such as `month=3`; empty for an unpartitioned table."""
    values: tuple[str | None, ...] = ()
    """Partition values in column order, as written in the directory name."""
    paths: tuple[str, ...] = ()
    """The directories and original files that the snapshot reads, whether pruned or not."""

    @classmethod
    def of_file(cls, source: SourceFile, values: tuple[str | None, ...] = ()) -> EntityScan:
        """One file, of which no row is deleted."""
        return cls(EntitySources("", (source,), ()), values=values)

    def with_inserts(self, inserts: Iterable[SourceFile]) -> EntityScan:
        """The entity with these of its insert files."""
        return replace(self, sources=replace(self.sources, inserts=tuple(inserts)))


@dataclass(frozen=True, slots=True)
class Scan:
    """What to read of a table at a snapshot.

    Each file of an entity comes with the tests that its rows need (`SourceFile.test_rows`, `above`,
    `length`); a row is left out if its key is among the deleted ones of its entity.
    """

    files: Files
    location: str
    columns: tuple[Column, ...]
    partition_columns: tuple[Column, ...]
    entities: tuple[EntityScan, ...]
    write_ids: ValidWriteIdList
    format: FileFormat = ACID_FORMAT
    still_open: Callable[[], object] | None = field(default=None, compare=False)
    """Raises SnapshotExpired or TxnAborted unless the files of the scan must still be there."""

    @property
    def read_bytes(self) -> int:
        """The size of the insert files that the scan opens, before column pruning."""
        return sum(source.size for entity in self.entities for source in entity.sources.inserts)

    def without_empty_files(self) -> Scan:
        """The scan without files that are known to have no rows, such as those of TRUNCATE, whose
        columns may have been of other types."""
        return replace(
            self,
            entities=tuple(
                entity.with_inserts(insert for insert in entity.sources.inserts if insert.rows != 0)
                for entity in self.entities
            ),
        )

    @property
    def highest_bucket(self) -> int:
        """The highest bucket number that a row of the scan can have; 0 without files."""
        return max(
            (
                _highest_bucket(source)
                for entity in self.entities
                for source in entity.sources.inserts
            ),
            default=0,
        )


def _highest_bucket(source: SourceFile) -> int:
    if source.identity is RowIdentity.RUN:
        return decode_bucket(source.bucket).number
    name = parse_bucket_file(source.path.rpartition("/")[2])
    return name.bucket if name else 0


def partition_scalars(
    columns: Sequence[Column], texts: Sequence[str | None]
) -> dict[str, pa.Scalar]:
    """The values of a partition by column; `texts` as its directory name spells them."""
    return {
        column.name: scalar_of(partition_value(text, column.type), arrow_type(column.type))
        for column, text in zip(columns, texts, strict=True)
    }


T = TypeVar("T")
SPLIT_BYTES = 1 << 20
"""From this size on, several threads may decode the columns of a piece."""
SMALL_FILE = SPLIT_BYTES // 4
"""Local files below this size in bytes are read one after the other by one thread."""

ENTITY = Column("__entity", HiveType("int"))
"""The place of a row's partition among the entities of its scan."""


@dataclass(frozen=True, slots=True)
class ArrowScan:
    """A scan, and what to return of its rows."""

    scan: Scan
    names: tuple[str, ...]
    """Columns of the result, in order: existing ones, in lower case, ENTITY, or PLACE."""
    predicate: Predicate | None = None
    row_id: bool = False
    places: np.ndarray | None = None
    """Only these rows, which another scan of the same files returned as PLACE: int64 (n,),
    ascending strictly. Other columns of theirs are decoded where they lie, and nowhere else."""
    as_stored: bool = False
    """Keep what the files store and Spark can't show: timestamps keep their nanoseconds, and days
    before 15 October 1582 are not converted to the Gregorian calendar. The schema of a batch tells
    the unit of its timestamps. For comparing files."""
    kept: ScanColumns | None = None
    """Where decoded columns are looked for, and kept."""

    @property
    def schema(self) -> pa.Schema:
        columns = (*self.scan.columns, *self.scan.partition_columns, ENTITY, PLACE)
        types = {each.name: arrow_type(each.type) for each in columns if each.name in self.names}
        fields = [(name, types[name]) for name in self.names]
        return pa.schema(
            [*fields, (acid_keys.ROW_ID_COLUMN, ROW_ID_TYPE)] if self.row_id else fields
        )

    @property
    def most_rows(self) -> int | None:
        """At most so many rows, by the records of the files; None if one of them has none."""
        if self.places is not None:
            return len(self.places)
        inserts = chain.from_iterable(entity.sources.inserts for entity in self.scan.entities)
        known = [source.rows for source in inserts]
        return None if None in known else sum(rows for rows in known if rows is not None)

    def batches(self, threads: int | None = None) -> Iterator[pa.RecordBatch]:
        """Live rows in file order, decoded by `threads` threads (default: one for each core that
        this process may use, at most 8).

        Raises CorruptFile, UnsupportedLayout.
        """
        workers = threads or usable_cores()
        tell_to_read(self.scan)
        if sum(len(entity.sources.inserts) for entity in self.scan.entities) == 1:
            pieces = list(islice(self._work(workers), 2))
            if len(pieces) < 2:  # a thread of its own would only have to be started
                for piece in pieces:
                    yield from piece()
                return
        yield from read_ahead(self._joined_work(workers), workers)

    def mapped(self, made: Callable[[list[pa.RecordBatch]], T], threads: int) -> Iterator[T]:
        """What `made` makes of a few batches at a time, in the thread that decoded them; in file
        order."""

        def of(piece: Work) -> list[T]:
            return [made(piece())]

        tell_to_read(self.scan)
        yield from read_ahead((partial(of, piece) for piece in self._joined_work(threads)), threads)

    def table(self, threads: int | None = None) -> pa.Table:
        return pa.Table.from_batches(self.batches(threads), schema=self.schema)

    def first(self, limit: int) -> pa.Table:
        """The first rows in file order; decodes no more batches than they need."""
        return pa.Table.from_batches(self.first_batches(limit), schema=self.schema)

    def first_batches(self, limit: int) -> Iterator[pa.RecordBatch]:
        """As `first`, batch by batch."""
        batches = self.one_by_one()
        while limit > 0 and (batch := next(batches, None)) is not None:
            yield batch.slice(0, limit)
            limit -= min(limit, batch.num_rows)

    def one_by_one(self, backwards: bool = False) -> Iterator[pa.RecordBatch]:
        """Live rows in file order, or from the end; a batch is decoded when it is asked for."""
        pieces = self._work(usable_cores())
        for piece in reversed(list(pieces)) if backwards else pieces:
            yield from piece()

    def count(self, threads: int | None = None) -> int:
        """How many rows `table` would return.

        A file is counted from its record or footer if none of its rows needs a test. If some may
        be deleted, the deleted keys are subtracted, provided that the bounds of the file's keys
        describe them all. Only the remaining files are read, and all of them if there is a
        predicate that names another column than those of the partitions.
        """
        tested, counted = [], 0
        for entity in self.scan.entities:
            accepted = self._accepted(entity)
            if accepted is False:
                continue
            uncounted = []
            for source in entity.sources.inserts:
                rows = None if accepted is None else self._live_rows(entity, source)
                if rows is None:
                    uncounted.append(source)
                else:
                    counted += rows
            if uncounted:
                tested.append(entity.with_inserts(uncounted))
        rest = replace(self.scan, entities=tuple(tested))
        left = replace(self, scan=rest, names=(), row_id=False)
        return counted + sum(int(batch.num_rows) for batch in left.batches(threads))

    def kept_files(self) -> list[EntityScan] | None:
        """The files with rows that the predicate keeps, each as an entity of its own with what
        deletes some of them; None if the values of the partitions don't tell for one of them."""
        files: list[EntityScan] = []
        for entity in self.scan.entities:
            accepted = self._accepted(entity)
            if accepted is None:
                return None
            if accepted:
                files += map(entity.with_inserts, ((insert,) for insert in entity.sources.inserts))
        return files

    def _accepted(self, entity: EntityScan) -> bool | None:
        """Whether the predicate keeps all rows of a partition (True) or none (False); None if the
        values of the partition don't tell."""
        keys = self.scan.partition_columns
        if self.predicate is None:
            return True
        if not self.predicate.columns <= {column.name for column in keys}:
            return None
        mask = self.predicate.mask(partition_scalars(keys, entity.values))
        return bool(mask.as_py()) if isinstance(mask, pa.Scalar) else None

    def _live_rows(self, entity: EntityScan, source: SourceFile) -> int | None:
        """Live rows of the file; None if they can only be counted by reading them."""
        if source.test_rows or source.above >= 0 or source.by_arrow:
            return None
        deletes = entity.deletes
        if not deletes.may_touch(source.low, source.high, source.number):
            return self._rows(source)
        if source.identity is not RowIdentity.STORED or source.length is not None:
            return None
        keys, rows = source.keys, source.rows
        if keys is None or rows is None:
            with reading(source.path):
                file = open_source(self.scan.files, source)
                keys, rows = file.key_ranges, file.rows
        if keys is None or not keys.without_gaps(rows):
            return None
        return rows - deletes.within(keys.write_ids[0], keys.buckets[0], *keys.row_ids)

    def _rows(self, source: SourceFile) -> int:
        with reading(source.path):
            if source.rows is not None:
                return source.rows
            if source.identity is RowIdentity.NONE:
                return count_rows(self.scan.files, source.path, self.scan.format)
            return open_source(self.scan.files, source).rows

    def _work(self, threads: int) -> Iterator[Work]:
        """The pieces in file order."""
        for read in self.files_read():
            yield from read.work(partial(self._decoders, threads))

    def _joined_work(self, threads: int) -> Iterator[Work]:
        """The pieces in file order, where small local files after each other are one: to hand a
        piece to a thread takes about as long as to read one of them."""
        small, size, local = list[Work](), 0, self.scan.files.local
        for read in self.files_read():
            work, joined = read.work(partial(self._decoders, threads)), False
            if local and read.source.size < SMALL_FILE:
                small, size, joined = [*small, *work], size + read.source.size, True
            if small and (size >= SPLIT_BYTES or not joined):
                yield partial(_one_after_another, small)
                small, size = [], 0
            if not joined:
                yield from work
        if small:
            yield partial(_one_after_another, small)

    def _decoders(self, threads: int, size: int) -> int:
        """Threads for a piece: several for one that the others would have to wait for."""
        return threads if size >= SPLIT_BYTES and size * threads > self.scan.read_bytes else 1

    def files_read(self) -> Iterator[FileRead]:
        """Each file of which a row may be in the result."""
        file_places = count(0, FILE_PLACES)
        for index, entity in enumerate(self.scan.entities):
            values = partition_scalars(self.scan.partition_columns, entity.values)
            if ENTITY.name in self.names:
                values[ENTITY.name] = scalar_of(index, pa.int32())
            deleted = DeletedRows(entity.deletes) if len(entity.deletes) else None
            for source, first in zip(entity.sources.inserts, file_places, strict=False):
                rows, touched = self._rows_at(first), False
                if rows is None:
                    touched = entity.deletes.may_touch(source.low, source.high, source.number)
                elif not len(rows):
                    continue
                gone = deleted if touched else None
                yield FileRead(self, values, source, gone, rows, first)

    def _rows_at(self, first: int) -> np.ndarray | None:
        """The numbers of the rows of `places` in the file whose first row has the place `first`."""
        return None if self.places is None else rows_of_file(self.places, first)


def rows_of_file(places: np.ndarray, first: int) -> np.ndarray:
    """The numbers of the rows with these places in the file whose first row has the place `first`;
    both ascend."""
    low, high = np.searchsorted(places, [first, first + FILE_PLACES])
    return np.asarray(places[low:high] - first)


def keeping(scan: ArrowScan) -> ArrowScan:
    """The scan, whose columns the next one shall find decoded: but of the files of external tables,
    which others may change."""
    return scan if scan.scan.still_open is None else replace(scan, kept=columns_to_keep())


def _one_after_another(pieces: Sequence[Work]) -> list[pa.RecordBatch]:
    return [batch for piece in pieces for batch in piece()]


def read_ahead(work: Iterator[Callable[[], list[T]]], workers: int) -> Iterator[T]:
    """What each piece of work makes, in order; so many threads work a few pieces ahead."""
    ahead: deque[Future[list[T]]] = deque()
    # The consumer may stop early. Then the block ends when the generator is collected, perhaps
    # while its thread holds the lock that waiting for other threads needs: it does not wait.
    with lent_threads(workers) as pool:
        for piece in work:
            ahead.append(pool.submit(piece))
            if len(ahead) > workers:
                yield from ahead.popleft().result()
        while ahead:
            yield from ahead.popleft().result()
