"""Decoding one file of a scan: from a stripe or row group to a record batch of live rows.

Only columns that the result, the predicate or the row tests need are decoded, and columns that only
the result needs are decoded only if a row matches. A piece that holds most of a scan is decoded by
several threads, a part of the columns each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from acid_platform.errors import CorruptFile, NeedsSpark, UnsupportedLayout
from acid_platform.layout import schema
from acid_platform.layout.external_formats import HEADER, LINES
from acid_platform.layout.types import Column
from acid_platform.orc import OrcFile, reading
from acid_platform.scan.csv_lines import CsvLines
from acid_platform.scan.deletes import require_operation, valid_ids
from acid_platform.scan.delimited_text import DelimitedText
from acid_platform.scan.footers import open_source
from acid_platform.scan.json_lines import json_columns
from acid_platform.scan.line_blocks import line_blocks, lines_of
from acid_platform.scan.source_files import SourceFile, SourceKind
from acid_platform.storage.arrow_numpy import filled, from_numpy, values_of
from acid_platform.storage.arrow_types import arrow_type, conform

if TYPE_CHECKING:
    from acid_platform.scan.arrow_scan import ArrowScan

SMALL_BYTES = 4 << 20
"""A file up to this size is one piece of work; a larger file is split by stripe."""
_WORTH_A_THREAD = 4
"""The cost of columns, see `_cost`, that takes longer than to start a thread for them."""

ROW_ID_TYPE = pa.struct([("writeid", pa.int64()), ("bucketid", pa.int32()), ("rowid", pa.int64())])
Work: TypeAlias = Callable[[], list[pa.RecordBatch]]
Values: TypeAlias = Mapping[str, pa.Array | pa.Scalar]
_Arrays: TypeAlias = Mapping[str, pa.Array]


class Predicate(Protocol):
    """Keeps the rows for which `mask` is true; a NULL drops the row."""

    @property
    def columns(self) -> frozenset[str]: ...

    def mask(self, values: Values) -> pa.Array | pa.Scalar: ...


class RowFilter(Protocol):
    """Chooses rows by their keys."""

    def survivors(self, w: np.ndarray, b: np.ndarray, r: np.ndarray) -> np.ndarray:
        """Mask (n,) of the rows (write id, bucket property, rowId) that are wanted."""
        ...


@dataclass(frozen=True, slots=True)
class FileRead:
    """One file of a scan."""

    read: ArrowScan
    partition: Values
    """The values of the file's partition by column."""
    source: SourceFile
    deleted: RowFilter | None
    """Which rows survive; None if no row of the file can be deleted."""
    threads: int = 1
    """How many threads decode a piece, each a part of its columns."""

    def work(self, threads: Callable[[int], int] = lambda _size: 1) -> Iterator[Work]:
        """The pieces of work: the whole file, or each stripe or row group of a large one.

        `threads`: how many decode a piece of so many bytes. The pieces raise CorruptFile,
        UnsupportedLayout.
        """
        size, stored = self.source.size, self.read.scan.format
        if self.source.kind is SourceKind.EXTERNAL and stored.name in LINES:
            with reading(self.source.path):
                header = int(stored.options[HEADER])
                blocks = line_blocks(self.read.scan.files, self.source.path, size, header)
                yield from (partial(self._lines, block) for block in blocks)
        elif size <= SMALL_BYTES:
            yield replace(self, threads=threads(size))._whole
        else:
            with reading(self.source.path):
                pieces = _pieces(self._open())
            read = replace(self, threads=threads(size // max(pieces, 1)))
            yield from (partial(read._alone, index) for index in range(pieces))

    def _whole(self) -> list[pa.RecordBatch]:
        with reading(self.source.path):
            file = self._open()
            return [self._piece(file, index) for index in range(_pieces(file))]

    def _alone(self, index: int) -> list[pa.RecordBatch]:
        with reading(self.source.path):
            return [self._piece(self._open(), index)]

    def _open(self) -> OrcFile | parquet.ParquetFile:
        """A file of an insert-only table is recognized by its magic bytes."""
        source, files = self.source, self.read.scan.files
        if source.kind is SourceKind.EXTERNAL:
            return parquet.ParquetFile(files.open(source.path))
        if source.kind is not SourceKind.PLAIN:
            return open_source(files, source)
        if self.read.row_id:
            raise UnsupportedLayout(
                f"{source.path} belongs to an insert-only table, whose rows have no row__id; read"
                " it without row_id"
            )
        stored = self.read.scan.format.name
        if stored not in ("orc", "parquet"):
            raise NeedsSpark(
                f"{source.path} is a {stored} file, and without Spark only ORC and Parquet are"
                " read; use read(), or SQL with engine='auto' or 'spark'"
            )
        with files.open(source.path) as stream:
            magic = bytes(stream.read(4))
        if magic[:3] == b"ORC":
            return open_source(files, source)
        if magic == b"PAR1":
            return parquet.ParquetFile(files.open(source.path))
        raise UnsupportedLayout(
            f"{source.path} is neither ORC nor Parquet, the only formats that to_arrow reads; use"
            " read()"
        )

    # --- decoding ------------------------------------------------------------------------------

    def _piece(self, file: OrcFile | parquet.ParquetFile, index: int) -> pa.RecordBatch:
        if isinstance(file, parquet.ParquetFile):
            return self._row_group(file, index)
        source = self.source
        roots = list(file.schema.names)
        names, prefix, tested = roots, "", dict[int, str]()
        if source.kind is SourceKind.ACID:
            names, prefix, tested = self._acid_columns(file)
        stored_names = self._find(names)

        def fields(columns: Sequence[Column], *keys: str) -> tuple[_Arrays, _Arrays]:
            """The key columns by their names in the file, and the table's columns."""
            there = {
                column.name: prefix + stored_names[column.name]
                for column in columns
                if column.name in stored_names
            }
            arrays = self._decode(file, index, [*keys, *there.values()] or roots[:1])
            return arrays, {name: arrays[inside] for name, inside in there.items()}

        early, late = self._phases()
        arrays, stored = fields(early, *tested.values())
        rows = len(next(iter(arrays.values())))
        if tested:
            ids = {place: _numbers(arrays[name], source.path) for place, name in tested.items()}
            keep, identity = self._tested(ids)
        else:
            keep, identity = np.ones(rows, bool), self._positions(file, index, rows)
        if self.deleted is not None:
            keep &= self.deleted.survivors(*identity)
        keep, values = self._accepted(keep, stored, early)
        if late and keep.any():
            values |= self._conformed(fields(late)[1], rows, late)
        return self._result(values, keep, identity)

    def _acid_columns(self, file: OrcFile) -> tuple[list[str], str, dict[int, str]]:
        """The names of the table's columns in the file, what stands before them in the names of
        the fields of `row`, and the ACID columns that are tested, by their places."""
        roots = file.acid_columns()
        row = file.schema.field(roots[5]).type
        if not pa.types.is_struct(row):
            raise CorruptFile(
                f"{self.source.path}: the column row is {row} instead of a struct; restore the file"
            )
        tested = [0]
        if self.deleted is not None or self.read.row_id:
            tested += [1, 2, 3]
        if self.source.test_rows or self.source.above >= 0:
            tested.append(4)
        names = [row.field(i).name for i in range(row.num_fields)]
        return names, f"{roots[5]}.", {place: roots[place] for place in tested}

    def _tested(self, ids: Mapping[int, np.ndarray]) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
        """Which events the snapshot sees, and the keys of all if they are needed."""
        source = self.source
        require_operation(ids[0], schema.INSERT_EVENT, source.path)
        keep = np.ones(len(ids[0]), bool)
        if source.test_rows:
            keep &= valid_ids(ids[4], self.read.scan.write_ids)
        if source.above >= 0:
            keep &= ids[4] > source.above
        return keep, tuple(ids[place] for place in (1, 2, 3) if place in ids)

    def _positions(self, file: OrcFile, index: int, rows: int) -> tuple[np.ndarray, ...]:
        """The keys of the rows of a stripe without ACID columns if they are needed."""
        source = self.source
        if self.deleted is None and not self.read.row_id:
            return ()
        first = source.first_row_id + (sum(file.stripe_rows[:index]) if index else 0)
        return (
            np.full(rows, source.write_id),
            np.full(rows, source.bucket),
            np.arange(first, first + rows),
        )

    def _decode(self, file: OrcFile, index: int, names: Sequence[str]) -> dict[str, pa.Array]:
        """These columns (`root` or `root.field`) of one stripe."""
        first, *others = shares(names, file.schema, self.threads)
        if not others:
            return self._decoded(file, index, first)
        with ThreadPoolExecutor(len(others)) as pool:
            parts = [
                pool.submit(
                    self._decoded, open_source(self.read.scan.files, self.source), index, share
                )
                for share in others
            ]
            arrays = self._decoded(file, index, first)
            for part in parts:
                arrays |= part.result()
        return arrays

    def _decoded(self, file: OrcFile, index: int, names: Sequence[str]) -> dict[str, pa.Array]:
        batch = file.stripe(index, names, self.read.as_stored)
        return {name: _column(batch, name) for name in names}

    def _row_group(self, file: parquet.ParquetFile, index: int) -> pa.RecordBatch:
        stored_names = self._find(file.schema_arrow.names)
        table = file.read_row_group(index, columns=list(stored_names.values()))
        stored = {name: _joined(table.column(inside)) for name, inside in stored_names.items()}
        keep = np.ones(file.metadata.row_group(index).num_rows, bool)
        keep, values = self._accepted(keep, stored, self._needed())
        return self._result(values, keep, ())

    def _lines(self, block: bytes) -> list[pa.RecordBatch]:
        """The rows of a block of lines."""
        scan, path = self.read.scan, self.source.path
        lines = lines_of(block, path)
        names = {column.name for column in self._needed()}
        match scan.format.name:
            case "text":
                stored = DelimitedText.of(scan.format).columns(lines, scan.columns, names)
            case "csv":
                stored = CsvLines.of(scan.format, path).columns(lines, scan.columns, names)
            case _:
                stored = json_columns(lines, scan.columns, names, path)
        keep, values = self._accepted(np.ones(len(lines), bool), stored, self._needed())
        return [self._result(values, keep, ())]

    # --- result --------------------------------------------------------------------------------

    def _needed(self) -> tuple[Column, ...]:
        """The stored columns that the result or the predicate needs."""
        predicate = self.read.predicate
        names = {*self.read.names, *(predicate.columns if predicate else ())}
        return tuple(column for column in self.read.scan.columns if column.name in names)

    def _phases(self) -> tuple[tuple[Column, ...], tuple[Column, ...]]:
        """Columns that the predicate needs, and columns that only its matches need."""
        needed, predicate = self._needed(), self.read.predicate
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
        if schema.is_positional(stored):
            names = dict(
                zip((column.name for column in self.read.scan.columns), stored, strict=False)
            )
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
                _unit(stored[column.name].type) if self.read.as_stored else "us",
            )
            if column.name in stored
            else pa.nulls(rows, arrow_type(column.type))
            for column in columns
        }

    def _accepted(
        self, keep: np.ndarray, stored: _Arrays, columns: Sequence[Column]
    ) -> tuple[np.ndarray, dict[str, pa.Array | pa.Scalar]]:
        """The rows that the predicate keeps, and the values decoded so far, by column."""
        values = {**self.partition, **self._conformed(stored, len(keep), columns)}
        if self.read.predicate is not None:
            mask = self.read.predicate.mask(values)
            if isinstance(mask, pa.Scalar):
                keep = keep & bool(mask.as_py())
            else:
                keep = keep & filled(mask, False)
        return keep, values

    def _result(
        self, values: Values, keep: np.ndarray, identity: Sequence[np.ndarray]
    ) -> pa.RecordBatch:
        target = self.read.schema
        if not len(target):
            return without_columns(int(np.count_nonzero(keep)))
        if not keep.any():
            return pa.RecordBatch.from_arrays(
                [pa.nulls(0, field.type) for field in target], schema=target
            )
        arrays = [
            value if isinstance(value := values[name], pa.Array) else pa.repeat(value, len(keep))
            for name in self.read.names
        ]
        if self.read.row_id:
            w, b, r = identity
            arrays.append(
                pa.StructArray.from_arrays(
                    [from_numpy(w), from_numpy(b.astype(np.int32)), from_numpy(r)],
                    fields=list(ROW_ID_TYPE),
                )
            )
        if self.read.as_stored:
            target = pa.schema(
                [(name, array.type) for name, array in zip(target.names, arrays, strict=True)]
            )
        batch = pa.RecordBatch.from_arrays(arrays, schema=target)
        return batch if keep.all() else batch.filter(from_numpy(keep))


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    if name in batch.schema.names:
        return batch.column(name)
    root, _, field = name.partition(".")
    inner = batch.column(root)
    return pc.struct_field(inner, [inner.type.get_field_index(field)])


def _pieces(file: OrcFile | parquet.ParquetFile) -> int:
    return int(file.num_row_groups if isinstance(file, parquet.ParquetFile) else file.nstripes)


def _unit(kind: pa.DataType) -> str:
    """The unit of the timestamps in a decoded column; `us` if it has none."""
    if pa.types.is_timestamp(kind):
        return str(kind.unit)
    units = {_unit(kind.field(i).type) for i in range(kind.num_fields)}
    return "ns" if "ns" in units else "us"


def _joined(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)


def without_columns(rows: int) -> pa.RecordBatch:
    """A batch of so many rows and no column."""
    nothing = pa.StructArray.from_buffers(pa.struct([]), rows, [None])
    return pa.RecordBatch.from_struct_array(nothing)


def _numbers(array: pa.Array, path: str) -> np.ndarray:
    if array.null_count:
        raise CorruptFile(
            f"{path} has a row with NULL in an ACID column ({', '.join(schema.ACID_COLUMNS[:5])});"
            " restore the file"
        )
    return values_of(array)


def shares(names: Sequence[str], stored: pa.Schema, threads: int) -> list[list[str]]:
    """The columns for each thread, so that all take about the same time; at least one share."""
    if threads < 2 or len(names) < 2:
        return [list(names)]
    costs = {name: _cost(stored, name) for name in names}
    if sum(costs.values()) - max(costs.values()) < _WORTH_A_THREAD:
        return [list(names)]
    made: list[list[str]] = [[] for _ in range(threads)]
    taken = [0] * len(made)
    for name in sorted(names, key=lambda name: -costs[name]):
        least = taken.index(min(taken))
        made[least].append(name)
        taken[least] += costs[name]
    return [share for share in made if share]


def _cost(stored: pa.Schema, name: str) -> int:
    """How long a column takes to decode, where 1 is an integer; measured on TPC-H's lineitem."""
    at = stored.get_field_index(name)
    if at < 0:
        root, _, field = name.partition(".")
        kind = stored.field(root).type.field(field).type
    else:
        kind = stored.field(at).type
    if pa.types.is_nested(kind):
        return 20
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return 1
    if pa.types.is_floating(kind) or pa.types.is_date(kind):
        return 2
    return 5
