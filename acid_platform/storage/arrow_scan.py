"""The reader without a JVM: from the files of a snapshot to record batches of live rows.

Only columns that the result, the predicate or the row tests need are decoded. A batch is an ORC
stripe or a Parquet row group. Threads read a few batches ahead, so memory is bounded by a few
stripes, however large the table is.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import orc, parquet

from acid_platform.errors import CorruptFile, UnsupportedLayout
from acid_platform.layout import schema
from acid_platform.layout.formats import ORC, FileFormat
from acid_platform.layout.types import Column
from acid_platform.snapshot.sources import EntitySources, Source, SourceKind
from acid_platform.storage.arrow_numpy import filled, from_numpy, values_of
from acid_platform.storage.arrow_types import arrow_type, conform
from acid_platform.storage.calendars import as_written
from acid_platform.storage.deletes import (
    DeletedRows,
    DeleteKeys,
    require_operation,
    valid_ids,
)
from acid_platform.storage.files import Files
from acid_platform.storage.orc import acid_columns, read_stripe, reading
from acid_platform.storage.orc_rows import key_runs, stripe_rows
from acid_platform.storage.plain import count_rows
from acid_platform.storage.sources import is_positional, open_source
from acid_platform.transactions import ValidWriteIdList

ROW_ID_TYPE = pa.struct([("writeid", pa.int64()), ("bucketid", pa.int32()), ("rowid", pa.int64())])
SMALL_BYTES = 16 << 20
"""A file up to this size is one piece of work; a larger file is split by stripe."""

Values: TypeAlias = Mapping[str, pa.Array | pa.Scalar]
_Arrays: TypeAlias = Mapping[str, pa.Array]


class Predicate(Protocol):
    """Keeps the rows for which `mask` is true; a NULL drops the row."""

    @property
    def columns(self) -> frozenset[str]: ...

    def mask(self, values: Values) -> pa.Array | pa.Scalar: ...


@dataclass(frozen=True, slots=True)
class EntityRead:
    """One entity of a snapshot: its files, deleted keys and typed partition values."""

    sources: EntitySources
    deletes: DeleteKeys
    partition: Mapping[str, pa.Scalar]


@dataclass(frozen=True, slots=True)
class ArrowScan:
    """What a read of one table at one snapshot needs; immutable."""

    files: Files
    columns: tuple[Column, ...]
    partition_columns: tuple[Column, ...]
    entities: tuple[EntityRead, ...]
    write_ids: ValidWriteIdList
    wanted: tuple[str, ...]
    """Columns of the result, in order; lower case, and all of them exist."""
    predicate: Predicate | None = None
    row_id: bool = False
    format: FileFormat = ORC
    """File format of an insert-only table; not used for full ACID tables."""
    as_stored: bool = False
    """Keep what the files store and Spark can't show: timestamps keep their nanoseconds, and days
    before 15 October 1582 are not converted to the Gregorian calendar. The schema of a batch tells
    the unit of its timestamps. For comparing files (C32)."""

    @property
    def schema(self) -> pa.Schema:
        types = {
            column.name: arrow_type(column.type)
            for column in (*self.columns, *self.partition_columns)
        }
        fields = [(name, types[name]) for name in self.wanted]
        return pa.schema([*fields, (schema.ROW_ID_COLUMN, ROW_ID_TYPE)] if self.row_id else fields)

    def batches(self, threads: int | None = None) -> Iterator[pa.RecordBatch]:
        """Live rows in file order, decoded by `threads` threads (default: one per core, at most 8).

        Raises CorruptFile, UnsupportedLayout.
        """
        workers = threads or min(8, os.cpu_count() or 1)
        pool = ThreadPoolExecutor(workers)
        ahead: deque[Future[list[pa.RecordBatch]]] = deque()
        try:
            for work in self._work():
                ahead.append(pool.submit(work))
                if len(ahead) > workers:
                    yield from ahead.popleft().result()
            while ahead:
                yield from ahead.popleft().result()
        finally:
            # The consumer may stop early. Then this runs when the generator is collected, perhaps
            # while its thread holds the lock that waiting for other threads needs: so don't wait.
            pool.shutdown(wait=False, cancel_futures=True)

    def table(self, threads: int | None = None) -> pa.Table:
        return pa.Table.from_batches(self.batches(threads), schema=self.schema)

    def count(self, threads: int | None = None) -> int:
        """How many rows `table` would return.

        A file is counted from its footer if none of its rows needs a test. If some may be deleted,
        the deleted keys are subtracted, provided that the file's statistics describe all its keys.
        Only the remaining files are read.
        """
        tested, counted = [], 0
        for entity in self.entities:
            uncounted = []
            for source in entity.sources.inserts:
                rows = None if self.predicate else self._live_rows(entity, source)
                if rows is None:
                    uncounted.append(source)
                else:
                    counted += rows
            if uncounted:
                sources = replace(entity.sources, inserts=tuple(uncounted))
                tested.append(replace(entity, sources=sources))
        scan = replace(self, entities=tuple(tested), wanted=(), row_id=False)
        return counted + sum(int(batch.num_rows) for batch in scan.batches(threads))

    def _live_rows(self, entity: EntityRead, source: Source) -> int | None:
        """Live rows of the file; None if they can only be counted by reading them."""
        if source.test_rows or source.above >= 0:
            return None
        deletes = entity.deletes
        if not deletes.may_touch(source.low, source.high, source.number):
            return self._rows(source)
        if source.kind is not SourceKind.ACID or source.length is not None:
            return None
        with reading(source.path):
            runs = key_runs(self.files, source.path)
        return (
            None
            if runs is None
            else sum(
                run.rows - deletes.within(run.write_id, run.bucket, run.first, run.last)
                for run in runs
            )
        )

    def _rows(self, source: Source) -> int:
        with reading(source.path):
            if source.rows is not None:
                return source.rows
            if source.kind is SourceKind.PLAIN:
                return count_rows(self.files, source.path, self.format)
            return int(open_source(self.files, source).nrows)

    def _work(self) -> Iterator[Callable[[], list[pa.RecordBatch]]]:
        for entity in self.entities:
            deleted = DeletedRows(entity.deletes) if len(entity.deletes) else None
            for source in entity.sources.inserts:
                touched = entity.deletes.may_touch(source.low, source.high, source.number)
                read = _SourceRead(self, entity, source, deleted if touched else None)
                if source.size <= SMALL_BYTES:
                    yield read.whole
                else:
                    yield from (read.piece(index) for index in range(read.pieces()))


@dataclass(frozen=True, slots=True)
class _SourceRead:
    scan: ArrowScan
    entity: EntityRead
    source: Source
    deleted: DeletedRows | None
    """None if no row of the file can be deleted."""

    def whole(self) -> list[pa.RecordBatch]:
        with reading(self.source.path):
            file = self._open()
            return [self._piece(file, index) for index in range(_pieces(file))]

    def pieces(self) -> int:
        """Stripes, or row groups of Parquet."""
        with reading(self.source.path):
            return _pieces(self._open())

    def piece(self, index: int) -> Callable[[], list[pa.RecordBatch]]:
        def work() -> list[pa.RecordBatch]:
            with reading(self.source.path):
                return [self._piece(self._open(), index)]

        return work

    def _open(self) -> orc.ORCFile | parquet.ParquetFile:
        """A file of an insert-only table is recognized by its magic bytes."""
        source, files = self.source, self.scan.files
        if source.kind is not SourceKind.PLAIN:
            return open_source(files, source)
        if self.scan.row_id:
            raise UnsupportedLayout(
                f"{source.path} belongs to an insert-only table, whose rows have no row__id; read"
                " it without row_id"
            )
        with files.system.open_input_file(source.path) as stream:
            magic = bytes(stream.read(4))
        if magic[:3] == b"ORC":
            return open_source(files, source)
        if magic == b"PAR1":
            return parquet.ParquetFile(files.system.open_input_file(source.path))
        raise UnsupportedLayout(
            f"{source.path} is neither ORC nor Parquet, the only formats that to_arrow reads; use"
            " read()"
        )

    # --- decoding ------------------------------------------------------------------------------

    def _piece(self, file: orc.ORCFile | parquet.ParquetFile, index: int) -> pa.RecordBatch:
        if isinstance(file, parquet.ParquetFile):
            return self._row_group(file, index)
        if self.source.kind is SourceKind.ACID:
            return self._acid(file, index)
        return self._raw(file, index)

    def _acid(self, file: orc.ORCFile, index: int) -> pa.RecordBatch:
        source, path = self.source, self.source.path
        roots = acid_columns(file, path)
        row = roots[5]
        row_type = file.schema.field(row).type
        if not pa.types.is_struct(row_type):
            raise CorruptFile(
                f"{path}: the column row is {row_type} instead of a struct; restore the file"
            )
        stored_names = self._find([row_type.field(i).name for i in range(row_type.num_fields)])
        tested = [0]
        if self.deleted is not None or self.scan.row_id:
            tested += [1, 2, 3]
        if source.test_rows or source.above >= 0:
            tested.append(4)

        def fields(columns: Sequence[Column], *keys: str) -> tuple[pa.RecordBatch, _Arrays]:
            there = [column.name for column in columns if column.name in stored_names]
            batch = self._decode(
                file, index, [*keys, *(f"{row}.{stored_names[name]}" for name in there)]
            )
            if not there:
                return batch, {}
            inner = batch.column(row)
            return batch, {
                name: pc.struct_field(inner, [inner.type.get_field_index(stored_names[name])])
                for name in there
            }

        early, late = self._phases()
        batch, stored = fields(early, *(roots[i] for i in tested))
        ids = {i: _numbers(batch.column(roots[i]), path) for i in tested}
        require_operation(ids[0], schema.INSERT_EVENT, path)
        keep = np.ones(batch.num_rows, bool)
        if source.test_rows:
            keep &= valid_ids(ids[4], self.scan.write_ids)
        if source.above >= 0:
            keep &= ids[4] > source.above
        identity = tuple(ids[i] for i in (1, 2, 3) if i in ids)
        if self.deleted is not None:
            keep &= self.deleted.survivors(*identity)
        keep, values = self._accepted(keep, stored, early)
        if late and keep.any():
            values |= self._conformed(fields(late)[1], len(keep), late)
        return self._result(values, keep, identity)

    def _raw(self, file: orc.ORCFile, index: int) -> pa.RecordBatch:
        source = self.source
        names = list(file.schema.names)
        stored_names = self._find(names)

        def fields(columns: Sequence[Column]) -> tuple[pa.RecordBatch, _Arrays]:
            there = {
                column.name: stored_names[column.name]
                for column in columns
                if column.name in stored_names
            }
            batch = self._decode(file, index, list(there.values()) or names[:1])
            return batch, {name: batch.column(inside) for name, inside in there.items()}

        early, late = self._phases()
        batch, stored = fields(early)
        rows = batch.num_rows
        keep = np.ones(rows, bool)
        identity: tuple[np.ndarray, ...] = ()
        if self.deleted is not None or self.scan.row_id:
            first = source.first_row_id
            if index:
                first += sum(stripe_rows(self.scan.files, source.path)[:index])
            identity = (
                np.full(rows, source.write_id),
                np.full(rows, source.bucket),
                np.arange(first, first + rows),
            )
            if self.deleted is not None:
                keep = self.deleted.survivors(*identity)
        keep, values = self._accepted(keep, stored, early)
        if late and keep.any():
            values |= self._conformed(fields(late)[1], rows, late)
        return self._result(values, keep, identity)

    def _decode(self, file: orc.ORCFile, index: int, names: list[str]) -> pa.RecordBatch:
        batch = read_stripe(
            self.scan.files, self.source.path, self.source.length, file, index, names
        )
        return batch if self.scan.as_stored else as_written(batch, file)

    def _row_group(self, file: parquet.ParquetFile, index: int) -> pa.RecordBatch:
        stored_names = self._find(file.schema_arrow.names)
        table = file.read_row_group(index, columns=list(stored_names.values()))
        stored = {name: _joined(table.column(inside)) for name, inside in stored_names.items()}
        keep = np.ones(file.metadata.row_group(index).num_rows, bool)
        keep, values = self._accepted(keep, stored, self._needed())
        return self._result(values, keep, ())

    # --- result --------------------------------------------------------------------------------

    def _needed(self) -> tuple[Column, ...]:
        """The stored columns that the result or the predicate needs."""
        predicate = self.scan.predicate
        names = {*self.scan.wanted, *(predicate.columns if predicate else ())}
        return tuple(column for column in self.scan.columns if column.name in names)

    def _phases(self) -> tuple[tuple[Column, ...], tuple[Column, ...]]:
        """Columns that the predicate needs, and columns that only its matches need."""
        needed, predicate = self._needed(), self.scan.predicate
        if predicate is None:
            return needed, ()
        return (
            tuple(column for column in needed if column.name in predicate.columns),
            tuple(column for column in needed if column.name not in predicate.columns),
        )

    def _find(self, stored: Sequence[str]) -> dict[str, str]:
        """Needed column → its name in the file; columns that the file lacks are left out.

        Columns match by name, ignoring case, or by position if an old writer stored no names.
        """
        if is_positional(list(stored)):
            names = dict(zip((column.name for column in self.scan.columns), stored, strict=False))
        else:
            names = {name.lower(): name for name in stored}
        return {
            column.name: names[column.name] for column in self._needed() if column.name in names
        }

    def _conformed(
        self, stored: _Arrays, rows: int, columns: Sequence[Column]
    ) -> dict[str, pa.Array | pa.Scalar]:
        return {
            column.name: conform(
                stored[column.name],
                column.type,
                f"{self.source.path}, column {column.name}",
                _unit(stored[column.name].type) if self.scan.as_stored else "us",
            )
            if column.name in stored
            else pa.nulls(rows, arrow_type(column.type))
            for column in columns
        }

    def _accepted(
        self, keep: np.ndarray, stored: _Arrays, columns: Sequence[Column]
    ) -> tuple[np.ndarray, dict[str, pa.Array | pa.Scalar]]:
        """The rows that the predicate keeps, and the values decoded so far, by column."""
        values = {**self.entity.partition, **self._conformed(stored, len(keep), columns)}
        if self.scan.predicate is not None:
            mask = self.scan.predicate.mask(values)
            if isinstance(mask, pa.Scalar):
                keep = keep & bool(mask.as_py())
            else:
                keep = keep & filled(mask, False)
        return keep, values

    def _result(
        self, values: Values, keep: np.ndarray, identity: Sequence[np.ndarray]
    ) -> pa.RecordBatch:
        target = self.scan.schema
        if not len(target):
            return _without_columns(int(np.count_nonzero(keep)))
        if not keep.any():
            return pa.RecordBatch.from_arrays(
                [pa.nulls(0, field.type) for field in target], schema=target
            )
        arrays = [
            value if isinstance(value := values[name], pa.Array) else pa.repeat(value, len(keep))
            for name in self.scan.wanted
        ]
        if self.scan.row_id:
            w, b, r = identity
            arrays.append(
                pa.StructArray.from_arrays(
                    [from_numpy(w), from_numpy(b.astype(np.int32)), from_numpy(r)],
                    fields=list(ROW_ID_TYPE),
                )
            )
        if self.scan.as_stored:
            target = pa.schema(
                [(name, array.type) for name, array in zip(target.names, arrays, strict=True)]
            )
        batch = pa.RecordBatch.from_arrays(arrays, schema=target)
        return batch if keep.all() else batch.filter(from_numpy(keep))


def _pieces(file: orc.ORCFile | parquet.ParquetFile) -> int:
    return int(file.num_row_groups if isinstance(file, parquet.ParquetFile) else file.nstripes)


def _unit(kind: pa.DataType) -> str:
    """The unit of the timestamps in a decoded column; `us` if it has none."""
    if pa.types.is_timestamp(kind):
        return str(kind.unit)
    units = {_unit(kind.field(i).type) for i in range(kind.num_fields)}
    return "ns" if "ns" in units else "us"


def _joined(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)


def _without_columns(rows: int) -> pa.RecordBatch:
    nothing = pa.StructArray.from_buffers(pa.struct([]), rows, [None])
    return pa.RecordBatch.from_struct_array(nothing)


def _numbers(array: pa.Array, path: str) -> np.ndarray:
    if array.null_count:
        raise CorruptFile(
            f"{path} has a row with NULL in an ACID column ({', '.join(schema.ACID_COLUMNS[:5])});"
            " restore the file"
        )
    numbers: np.ndarray = values_of(array).astype(np.int64, copy=False)
    return numbers
