"""Decoding one file of a scan: from a stripe or row group to a record batch of live rows.

Only columns that the result, the predicate or the row tests need are decoded, and columns that only
the result needs are decoded only if a row matches. Of them only the rows of the result are kept and
converted. A piece that holds most of a scan is decoded by several threads, a part of the columns
each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from acid_platform.base.first_use import lent_threads
from acid_platform.base.progress import tell_read
from acid_platform.errors import CorruptFile, NeedsSpark, UnsupportedLayout
from acid_platform.formats.data_file import (
    INSERT_EVENT,
    KEY,
    ColumnOfFile,
    DataFile,
    KeyPart,
    KeyRun,
    RowFilter,
    RowKeys,
    StoredKeys,
    require_operation,
)
from acid_platform.formats.file_access import WRITTEN_FORMATS, reading
from acid_platform.layout.formats import HEADER, LINES
from acid_platform.layout.types import Column
from acid_platform.scan.deletes import valid_ids
from acid_platform.scan.kept_columns import KeptFile
from acid_platform.scan.result_columns import PLACE, ResultColumns, Values, rows_in
from acid_platform.scan.source_files import RowIdentity, SourceFile, open_source
from acid_platform.scan.text_lines import line_blocks, line_columns
from acid_platform.values.arrow_types import (
    bytes_as_text,
    has_text,
    has_text_as_bytes,
    is_utf8,
    values_of,
)

if TYPE_CHECKING:
    from acid_platform.scan.scans import ArrowScan

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
        if self.source.by_arrow and stored.name in LINES:
            with reading(self.source.path):
                header = int(stored.options[HEADER])
                files, needed = self.read.scan.files, self._result.needed()
                blocks = line_blocks(files, self.source.path, size, header, needed)
                yield from (partial(self._lines, block) for block in blocks)
        elif size <= SMALL_BYTES:
            yield replace(self, threads=threads(size))._whole
        else:
            with reading(self.source.path):
                file = self._open()
                pieces, every = self._pieces(file), len(file.piece_rows)
            share = size // max(every, 1)
            tell_read(size - share * len(pieces))
            read, idle = replace(self, threads=threads(share)), [file]
            yield from (partial(read._alone, piece, share, idle) for piece in pieces)

    def pieces(self) -> tuple[int, int]:
        """How many stripes or row groups may hold rows of the result, and of how many. Raises
        CorruptFile, UnsupportedLayout."""
        with reading(self.source.path):
            file = self._open()
            return len(self._pieces(file)), len(file.piece_rows)

    @property
    def _result(self) -> ResultColumns:
        return ResultColumns(self.read, self.partition, self.source)

    def _whole(self) -> list[pa.RecordBatch]:
        with reading(self.source.path):
            file = self._open()
            found = [self._piece(file, piece) for piece in self._pieces(file)]
        tell_read(self.source.size)
        return found

    def _alone(self, piece: _Piece, size: int, idle: list[DataFile]) -> list[pa.RecordBatch]:
        """`idle`: the open file, once for each thread that has not more to do with it: to read a
        footer takes about as long as to decode a column."""
        with reading(self.source.path):
            try:
                file = idle.pop()
            except IndexError:
                file = self._open()
            found = [self._piece(file, piece)]
            idle.append(file)
        tell_read(size)
        return found

    def _open(self) -> DataFile:
        source, stored = self.source, self.read.scan.format.name
        if source.identity is RowIdentity.NONE and not source.by_arrow:
            if self.read.row_id:
                raise UnsupportedLayout(
                    f"{source.path} belongs to an insert-only table, whose rows have no row__id;"
                    " read it without row_id"
                )
            if stored not in WRITTEN_FORMATS:
                raise NeedsSpark(
                    f"{source.path} is a {stored} file, and without Spark only ORC and Parquet are"
                    " read; use read(), or SQL with engine='auto' or 'spark'"
                )
        open, kept = partial(open_source, self.read.scan.files, source), self.read.kept
        if kept is None or not self.read.scan.files.local:
            return open()
        return kept.file(source.path, source.length, open)

    def _pieces(self, file: DataFile) -> list[_Piece]:
        """The stripes or row groups that may hold rows of the result."""
        bounds = np.cumsum([0, *file.piece_rows])
        pieces = [_Piece(index, *span) for index, span in enumerate(pairwise(bounds.tolist()))]
        if self.rows is None:
            return self._promising(file, pieces)
        places = np.searchsorted(bounds, self.rows, side="right") - 1
        return [pieces[index] for index in np.unique(places)]

    def _promising(self, file: DataFile, pieces: list[_Piece]) -> list[_Piece]:
        """Those in which a row may satisfy the predicate, by the bounds of their values."""
        predicate = self.read.predicate
        tree = None if predicate is None else predicate.tree
        if predicate is None or tree is None or len(pieces) < 2:
            return pieces
        from acid_platform.scan.recorded_ranges import may_hold  # which imports this module

        inside = self._result.find(file)
        bounds = {
            name: known
            for name in predicate.columns & inside.keys()
            if (known := file.piece_ranges(inside[name]))
        }

        def promises(piece: _Piece) -> bool:
            known = {name: each[piece.index] for name, each in bounds.items()}
            ranges = {name: each for name, each in known.items() if each is not None}
            return may_hold(tree, ranges, self.read.scan.columns)

        return [piece for piece in pieces if promises(piece)] if bounds else pieces

    # --- decoding ------------------------------------------------------------------------------

    def _piece(self, file: DataFile, piece: _Piece) -> pa.RecordBatch:
        tested = self._tested_parts(file)
        result = self._result
        inside = result.find(file)
        early, late = result.phases()
        if not tested and self.read.predicate is None:  # of rows that are all deleted, none
            early, late = late, early
        arrays = self._decode(file, piece.index, [*tested, *_of(inside, early).values()])
        ids = {part: self._numbers(file, arrays[part]) for part in tested}
        identity = self._identity(ids, piece)
        keep = self._kept(ids, identity, piece)
        stored = self._named(file, piece.index, arrays, _of(inside, early), early)
        keep, values = result.accepted(keep, stored, early)
        if late and rows_in(keep):
            arrays = self._decode(file, piece.index, [*_of(inside, late).values()])
            named = self._named(file, piece.index, arrays, _of(inside, late), late)
            values |= result.kept(keep, named, late)
        return result.batch(values, keep, identity, self.first_place + piece.start)

    def _tested_parts(self, file: DataFile) -> list[KeyPart]:
        """The parts of stored keys by which rows are chosen, or that the result shows."""
        source, tested = self.source, list[KeyPart]()
        if source.identity is not RowIdentity.STORED:
            return tested
        if self.rows is None:
            tested += [KeyPart.EVENT] if source.keys is None else []
            tested += [KeyPart.CHANGED_BY] if source.test_rows or source.above >= 0 else []
        if (self.deleted is not None or self.read.row_id) and not self._is_contiguous(file):
            tested += KEY
        return tested

    def _named(
        self,
        file: DataFile,
        piece: int,
        arrays: Mapping[ColumnOfFile, pa.Array],
        inside: Mapping[str, str],
        columns: Sequence[Column],
    ) -> dict[str, pa.Array]:
        """The decoded arrays by the names of the table's columns; texts are checked."""
        if not (self.source.exact or self.read.as_stored):
            arrays = {**arrays, **file.finer_times(piece, arrays)}
        named = {name: arrays[stored] for name, stored in inside.items()}
        if file.has_texts_as_bytes:
            for column in columns:
                array = named.get(column.name)
                if array is not None and has_text_as_bytes(array.type, column.type):
                    named[column.name] = bytes_as_text(array)
        texts = {name: array for name, array in named.items() if has_text(array.type)}
        if texts and not self.read.as_stored and not file.has_checked_text:
            self._require_texts(texts)
        return named

    def _is_contiguous(self, file: DataFile) -> bool:
        """Whether the keys of an ACID file follow from the positions of its rows, by its record."""
        source = self.source
        return (
            source.keys is not None
            and source.length is None
            and source.keys.without_gaps(file.rows)
        )

    def _identity(self, ids: Mapping[KeyPart, np.ndarray], piece: _Piece) -> RowKeys:
        source = self.source
        if self.deleted is None and not self.read.row_id:
            return None
        if KeyPart.ROW_ID in ids:
            return StoredKeys(*(ids[part] for part in KEY))
        write_id, bucket, first = source.write_id, source.bucket, source.first_row_id
        if source.keys is not None:
            lows = (source.keys.write_ids, source.keys.buckets, source.keys.row_ids)
            write_id, bucket, first = (low for low, _ in lows)
        return KeyRun(write_id, bucket, first + piece.start)

    def _kept(
        self,
        ids: Mapping[KeyPart, np.ndarray],
        identity: RowKeys,
        piece: _Piece,
    ) -> np.ndarray:
        """Mask of the rows of a piece that are read, before the predicate, or their numbers."""
        source = self.source
        if self.rows is not None:
            low, high = np.searchsorted(self.rows, [piece.start, piece.end])
            return np.asarray(self.rows[low:high] - piece.start)
        keep = np.ones(piece.rows, bool)
        if KeyPart.EVENT in ids:
            require_operation(ids[KeyPart.EVENT], INSERT_EVENT, source.path)
        if source.test_rows:
            keep &= valid_ids(ids[KeyPart.CHANGED_BY], self.read.scan.write_ids)
        if source.above >= 0:
            keep &= ids[KeyPart.CHANGED_BY] > source.above
        if self.deleted is not None and identity is not None:
            keep &= identity.survivors(self.deleted, len(keep))
        return keep

    def _decode(
        self, file: DataFile, piece: int, columns: Sequence[ColumnOfFile]
    ) -> dict[ColumnOfFile, pa.Array]:
        """These columns of one piece. Texts may come with a dictionary if few are wanted."""
        if not columns:
            return {}
        coded = self.rows is not None or self.read.as_stored
        decode = partial(self._decoded, file, piece, coded)
        if self.read.kept is None or not isinstance(file, KeptFile):
            return decode(columns)
        part = (piece, self.read.as_stored)
        return self.read.kept.of_piece(file.identity, part, columns, decode, coded)

    def _decoded(
        self, file: DataFile, piece: int, coded: bool, columns: Sequence[ColumnOfFile]
    ) -> dict[ColumnOfFile, pa.Array]:
        first, others = columns, list[list[ColumnOfFile]]()
        if self.threads > 1 and not file.decodes_in_threads:
            types = {each: file.type_of(each) for each in columns}
            first, *others = shares(types, self.threads)
        if not others:
            return file.decode(piece, first, self.read.as_stored, coded)

        def decoded(share: Sequence[ColumnOfFile]) -> dict[ColumnOfFile, pa.Array]:
            return self._open().decode(piece, share, self.read.as_stored, coded)

        with lent_threads(len(others)) as pool:
            parts = [pool.submit(decoded, share) for share in others]
            arrays = file.decode(piece, first, self.read.as_stored, coded)
            for part in parts:
                arrays |= part.result()
        return arrays

    def _numbers(self, file: DataFile, array: pa.Array) -> np.ndarray:
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
        for column, array in arrays.items():
            if not is_utf8(array):
                if self.source.by_arrow:
                    raise UnsupportedLayout(
                        f"{self.source.path} has bytes that are not UTF-8 in the column {column};"
                        " declare it binary"
                    )
                raise NeedsSpark(
                    f"{self.source.path} has text that is not UTF-8 in the column {column};"
                    f" decode(CAST({column} AS binary), 'ISO-8859-1'), or its encoding, reads it in"
                    " Spark"
                )

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


# --- threads --------------------------------------------------------------------------------------

_WORTH_A_THREAD = 4
"""The cost of columns, see `_cost`, that takes longer than to start a thread for them."""


def shares(types: Mapping[ColumnOfFile, pa.DataType], threads: int) -> list[list[ColumnOfFile]]:
    """The columns for each thread, so that all take about the same time; at least one share."""
    columns = list(types)
    if threads < 2 or len(columns) < 2:
        return [columns]
    costs = {column: _cost(kind) for column, kind in types.items()}
    if sum(costs.values()) - max(costs.values()) < _WORTH_A_THREAD:
        return [columns]
    made: list[list[ColumnOfFile]] = [[] for _ in range(threads)]
    taken = [0] * len(made)
    for column in sorted(columns, key=lambda column: -costs[column]):
        least = taken.index(min(taken))
        made[least].append(column)
        taken[least] += costs[column]
    return [share for share in made if share]


def _cost(kind: pa.DataType) -> int:
    """How long a column takes to decode, where 1 is an integer; measured on TPC-H's lineitem."""
    if pa.types.is_nested(kind):
        return 20
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return 1
    if pa.types.is_floating(kind) or pa.types.is_date(kind):
        return 2
    return 5
