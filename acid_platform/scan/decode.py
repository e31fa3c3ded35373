"""Decoding one file of a scan: from a stripe or row group to a record batch of live rows.

Only columns that the result, the predicate or the row tests need are decoded, and columns that only
the result needs are decoded only if a row matches. Of them only the rows of the result are kept and
converted. A piece that holds most of a scan is decoded by several threads, a part of the columns
each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from acid_platform.base import arrow_functions as pc
from acid_platform.errors import CorruptFile, NeedsSpark, UnsupportedLayout
from acid_platform.formats.keyed import (
    INSERT_EVENT,
    KeyRun,
    RowFilter,
    RowKeys,
    StoredKeys,
    require_operation,
)
from acid_platform.formats.orc import OrcFile, reading
from acid_platform.formats.parquet import open_parquet, row_group, row_group_sizes
from acid_platform.layout.external_formats import HEADER, LINES
from acid_platform.layout.types import Column
from acid_platform.scan.deletes import valid_ids
from acid_platform.scan.result_columns import PLACE, ResultColumns, Values
from acid_platform.scan.source_files import SourceFile, SourceKind, open_source
from acid_platform.scan.text_lines import line_blocks, line_columns
from acid_platform.values.arrow_numpy import values_of
from acid_platform.values.arrow_types import (
    bytes_as_text,
    has_text,
    has_text_as_bytes,
    is_utf8,
)

if TYPE_CHECKING:
    from acid_platform.scan.arrow_scan import ArrowScan

SMALL_BYTES = 4 << 20
"""A file up to this size is one piece of work; a larger file is split by stripe."""

Work: TypeAlias = Callable[[], list[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class _Piece:
    """A stripe or a row group: its place in the file, and which of the file's rows it holds."""

    index: int
    start: int
    end: int

    @property
    def rows(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class FileRead:
    """One file of a scan."""

    read: ArrowScan
    partition: Values
    """The values of the file's partition by column."""
    source: SourceFile
    deleted: RowFilter | None
    """Which rows survive; None if no row of the file can be deleted."""
    rows: np.ndarray | None = None
    """The numbers of the rows of the result in the file, int64 (n,), ascending strictly; None: all
    that survive. They are not tested again."""
    first_place: int = 0
    """The place of the file's first row in the scan, see PLACE."""
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
                file = self._open()
                pieces, every = self._pieces(file), _pieces(file)
            read = replace(self, threads=threads(size // max(every, 1)))
            yield from (partial(read._alone, piece) for piece in pieces)

    @property
    def _result(self) -> ResultColumns:
        return ResultColumns(self.read, self.partition, self.source.path)

    def _whole(self) -> list[pa.RecordBatch]:
        with reading(self.source.path):
            file = self._open()
            return [self._piece(file, piece) for piece in self._pieces(file)]

    def _alone(self, piece: _Piece) -> list[pa.RecordBatch]:
        with reading(self.source.path):
            return [self._piece(self._open(), piece)]

    def _open(self) -> OrcFile | parquet.ParquetFile:
        """A file of an insert-only table is recognized by its magic bytes."""
        source, files = self.source, self.read.scan.files
        if source.kind is SourceKind.EXTERNAL:
            return open_parquet(files.open(source.path), source.path)
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
            return open_parquet(files.open(source.path), source.path)
        raise UnsupportedLayout(
            f"{source.path} is neither ORC nor Parquet, the only formats that to_arrow reads; use"
            " read()"
        )

    def _pieces(self, file: OrcFile | parquet.ParquetFile) -> list[_Piece]:
        """The stripes or row groups that may hold rows of the result."""
        orc = isinstance(file, OrcFile)
        sizes = file.stripe_rows if orc else row_group_sizes(file, self.source.path)
        bounds = np.cumsum([0, *sizes])
        pieces = [_Piece(index, *span) for index, span in enumerate(pairwise(bounds.tolist()))]
        if self.rows is None:
            return pieces
        places = np.searchsorted(bounds, self.rows, side="right") - 1
        return [pieces[index] for index in np.unique(places)]

    # --- decoding ------------------------------------------------------------------------------

    def _piece(self, file: OrcFile | parquet.ParquetFile, piece: _Piece) -> pa.RecordBatch:
        if isinstance(file, parquet.ParquetFile):
            return self._row_group(file, piece)
        roots = list(file.schema.names)
        names, prefix, tested = roots, "", dict[int, str]()
        if self.source.kind is SourceKind.ACID:
            names, prefix, tested = self._acid_columns(file)
        result = self._result
        inside = {name: prefix + stored for name, stored in result.find(names).items()}
        index = piece.index
        early, late = result.phases()
        arrays = self._decode(file, index, [*tested.values(), *_of(inside, early).values()])
        ids = {part: self._numbers(file, arrays[name]) for part, name in tested.items()}
        identity = self._identity(ids, piece)
        keep = self._kept(ids, identity, piece)
        stored = {name: arrays[stored] for name, stored in _of(inside, early).items()}
        keep, values = result.accepted(keep, stored, early)
        if late and keep.any():
            arrays = self._decode(file, index, [*_of(inside, late).values()])
            stored = {name: arrays[stored] for name, stored in _of(inside, late).items()}
            values |= result.kept(keep, stored, late)
        return result.batch(values, keep, identity, self.first_place + piece.start)

    def _acid_columns(self, file: OrcFile) -> tuple[list[str], str, dict[int, str]]:
        """The names of the table's columns in the file, what stands before them in the names of
        the fields of `row`, and the ACID columns that are tested, by their places."""
        roots = file.acid_columns()
        row = file.schema.field(roots[5]).type
        if not pa.types.is_struct(row):
            raise CorruptFile(
                f"{self.source.path}: the column row is {row} instead of a struct; restore the file"
            )
        source, tested = self.source, []
        if self.rows is None:
            tested += [0] if source.keys is None else []
            tested += [4] if source.test_rows or source.above >= 0 else []
        if (self.deleted is not None or self.read.row_id) and not self._is_contiguous(file):
            tested += [1, 2, 3]
        names = [row.field(i).name for i in range(row.num_fields)]
        return names, f"{roots[5]}.", {place: roots[place] for place in tested}

    def _is_contiguous(self, file: OrcFile) -> bool:
        """Whether the keys of an ACID file follow from the positions of its rows, by its record."""
        source = self.source
        return (
            source.keys is not None
            and source.length is None
            and source.keys.without_gaps(int(file.nrows))
        )

    def _identity(self, ids: Mapping[int, np.ndarray], piece: _Piece) -> RowKeys:
        source = self.source
        if self.deleted is None and not self.read.row_id:
            return None
        if 1 in ids:
            return StoredKeys(ids[1], ids[2], ids[3])
        write_id, bucket, first = source.write_id, source.bucket, source.first_row_id
        if source.keys is not None:
            lows = (source.keys.write_ids, source.keys.buckets, source.keys.row_ids)
            write_id, bucket, first = (low for low, _ in lows)
        return KeyRun(write_id, bucket, first + piece.start)

    def _kept(
        self,
        ids: Mapping[int, np.ndarray],
        identity: RowKeys,
        piece: _Piece,
    ) -> np.ndarray:
        """Mask of the rows of a piece that are read, before the predicate."""
        source = self.source
        if self.rows is not None:
            keep = np.zeros(piece.rows, bool)
            low, high = np.searchsorted(self.rows, [piece.start, piece.end])
            keep[self.rows[low:high] - piece.start] = True
            return keep
        keep = np.ones(piece.rows, bool)
        if 0 in ids:
            require_operation(ids[0], INSERT_EVENT, source.path)
        if source.test_rows:
            keep &= valid_ids(ids[4], self.read.scan.write_ids)
        if source.above >= 0:
            keep &= ids[4] > source.above
        if self.deleted is not None and identity is not None:
            keep &= identity.survivors(self.deleted, len(keep))
        return keep

    def _decode(self, file: OrcFile, index: int, names: Sequence[str]) -> dict[str, pa.Array]:
        """These columns (`root` or `root.field`) of one stripe."""
        if not names:
            return {}
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
        arrays = {name: _column(batch, name) for name in names}
        texts = {name: array for name, array in arrays.items() if has_text(array.type)}
        if texts and not self.read.as_stored and not file.has_checked_text:
            self._require_texts(texts)
        return arrays

    def _numbers(self, file: OrcFile, array: pa.Array) -> np.ndarray:
        if array.null_count:
            raise CorruptFile(
                f"{self.source.path} has a row with NULL in an ACID column"
                f" ({', '.join(file.key_columns)}); restore the file"
            )
        return values_of(array)

    def _require_texts(self, arrays: Mapping[str, pa.Array]) -> None:
        """Raises NeedsSpark for text that is not UTF-8, of which DuckDB and Python make nothing.

        For a file that Spark reads through here too it is UnsupportedLayout.
        """
        for name, array in arrays.items():
            if not is_utf8(array):
                column = name.removeprefix("row.")
                if self.source.kind is SourceKind.EXTERNAL:
                    raise UnsupportedLayout(
                        f"{self.source.path} has bytes that are not UTF-8 in the column {column};"
                        " declare it binary"
                    )
                raise NeedsSpark(
                    f"{self.source.path} has text that is not UTF-8 in the column {column};"
                    f" decode(CAST({column} AS binary), 'ISO-8859-1'), or its encoding, reads it in"
                    " Spark"
                )

    def _row_group(self, file: parquet.ParquetFile, piece: _Piece) -> pa.RecordBatch:
        result, index = self._result, piece.index
        stored_names = result.find(file.schema_arrow.names)
        table = row_group(file, index, list(stored_names.values()), self.source.path)
        if lost := {*stored_names.values()} - {*table.schema.names}:
            raise CorruptFile(
                f"{self.source.path}: row group {index} lacks the column {min(lost)}, which its"
                " footer declares; restore it or drop its transaction"
            )
        kinds = {column.name: column.type for column in result.needed()}
        stored = {}
        for name, inside in stored_names.items():
            array = _joined(table.column(inside))
            as_text = has_text_as_bytes(array.type, kinds[name])
            stored[name] = bytes_as_text(array) if as_text else array
        self._require_texts(stored)
        if stored and table.num_rows != piece.rows:
            raise CorruptFile(
                f"{self.source.path}: row group {index} has {table.num_rows} rows, and its footer"
                f" says {piece.rows}; restore it or drop its transaction"
            )
        keep, values = result.accepted(self._kept({}, None, piece), stored, result.needed())
        return result.batch(values, keep, None, self.first_place + piece.start)

    def _lines(self, block: bytes) -> list[pa.RecordBatch]:
        """The rows of a block of lines."""
        scan, path, result = self.read.scan, self.source.path, self._result
        names = {column.name for column in result.needed()}
        rows, stored = line_columns(block, scan.format, path, scan.columns, names)
        keep, values = result.accepted(np.ones(rows, bool), stored, result.needed())
        assert self.rows is None and PLACE.name not in self.read.names, "a line has no place"
        return [result.batch(values, keep, None, 0)]


def _of(inside: Mapping[str, str], columns: Sequence[Column]) -> dict[str, str]:
    """These columns, as far as the file has them, and the name of each in it."""
    return {column.name: inside[column.name] for column in columns if column.name in inside}


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    if name in batch.schema.names:
        return batch.column(name)
    root, _, field = name.partition(".")
    inner = batch.column(root)
    place = inner.type.get_field_index(field)
    # The function also sees to the NULLs of the struct, and takes longer than a small file.
    return pc.struct_field(inner, [place]) if inner.null_count else inner.field(place)


def _pieces(file: OrcFile | parquet.ParquetFile) -> int:
    return int(file.num_row_groups if isinstance(file, parquet.ParquetFile) else file.nstripes)


def _joined(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)


# --- threads --------------------------------------------------------------------------------------

_WORTH_A_THREAD = 4
"""The cost of columns, see `_cost`, that takes longer than to start a thread for them."""


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
