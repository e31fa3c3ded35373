"""Parquet as a format of tables: files of rows without keys, read and written.

Files of insert-only tables are written with the types that Spark and Hive write there.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from functools import cached_property, partial
from itertools import islice
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from acid_platform.base.first_use import Recent
from acid_platform.base.local_files import identity_of
from acid_platform.errors import CorruptFile
from acid_platform.formats.data_file import ColumnOfFile, DataFile, Keyed, mixed_times
from acid_platform.formats.field_ids import bounded_paths
from acid_platform.formats.parquet_files import (
    has_fine_times,
    has_lost_digits,
    is_fine,
    open_parquet,
    overflows_nanoseconds,
    parts_of,
    row_group,
    row_group_sizes,
    with_codes,
)
from acid_platform.layout.file_entries import (
    ColumnRange,
    FileEntry,
    Footer,
    RangeKind,
    text_range,
)
from acid_platform.layout.types import Column
from acid_platform.storage.files import Files
from acid_platform.values.arrow_types import arrow_schema, has_leaf, leaves

WRITTEN_BYTES = 64 << 20
"""Size of the Arrow arrays in memory at which their rows are written."""
WRITTEN_HERE: Recent[tuple[int, ...], bool] = Recent(10_000)
"""The local files that this process has written, by `identity_of`."""
GROUP_ROWS = 1 << 18
"""Rows of a row group at most: readers skip those whose bounds don't fit, and decode several at a
time."""


class ParquetData(DataFile):
    """An open file."""

    has_texts_as_bytes = decodes_in_threads = has_checksums = True

    def __init__(
        self,
        files: Files,
        path: str,
        unit: str = "us",
        opened: parquet.ParquetFile | None = None,
    ) -> None:
        """`opened`: the file, if it is open already."""
        self.path, self._files = path, files
        self._file = opened or open_parquet(files.open(path), path, unit)
        self._parts: Iterator[pa.Table] = iter(())
        self._next: tuple[int, int, list[str]] | None = None
        """The part of a row group that `_parts` goes on with."""

    @property
    def rows(self) -> int:
        return sum(self.piece_rows)

    @cached_property
    def piece_rows(self) -> list[int]:
        return [rows for _, _, rows in self._pieces]

    @cached_property
    def _pieces(self) -> list[tuple[int, int | None, int]]:
        """Row groups, the number of a piece in one of which it is not all, and its rows."""
        pieces = list[tuple[int, int | None, int]]()
        for group, rows in enumerate(row_group_sizes(self._file, self.path)):
            most = self._file.bounds.piece_of(group, rows)
            if most >= rows:
                pieces.append((group, None, rows))
                continue
            starts = range(0, rows, most)
            pieces += [(group, n, min(most, rows - at)) for n, at in enumerate(starts)]
        return pieces

    @property
    def names(self) -> list[str]:
        return list(self._file.schema_arrow.names)

    @property
    def summary(self) -> Footer:
        return Footer(self.rows, acid=False, format="parquet")

    def type_of(self, column: ColumnOfFile) -> pa.DataType:
        return self._file.schema_arrow.field(column).type

    def decode(
        self,
        piece: int,
        columns: Collection[ColumnOfFile],
        as_stored: bool = False,  # noqa: ARG002, it counts days as everybody does
        coded: bool = False,
    ) -> dict[ColumnOfFile, pa.Array]:
        names = [str(column) for column in columns]
        group, number, _ = self._pieces[piece]
        if number is None:
            table = row_group(self._coded if coded else self._file, group, names)
        else:
            table = self._part(group, number, names)
        if lost := {*names} - {*table.schema.names}:
            raise CorruptFile(
                f"{self.path}: row group {piece} lacks the column {min(lost)}, which its footer"
                " declares; restore it or drop its transaction"
            )
        if names and table.num_rows != self.piece_rows[piece]:
            raise CorruptFile(
                f"{self.path}: row group {piece} has {table.num_rows} rows, and its footer says"
                f" {self.piece_rows[piece]}; restore it or drop its transaction"
            )
        arrays = {name: table.column(name) for name in columns}
        return {name: _joined(each) for name, each in arrays.items()}

    @cached_property
    def _coded(self) -> parquet.ParquetFile:
        """The file, of which texts that repeat come with a dictionary: to look up each of them
        takes several times as long as to decode its number."""
        metadata, schema = self._file.metadata, self._file.schema_arrow
        groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
        if not (self.has_checked_text and self._files.local and metadata.num_rows >= _CODED_ROWS):
            return self._file
        columns = ((n, metadata.schema.column(n).path) for n in range(metadata.num_columns))
        names = [
            name
            for n, name in columns
            if name in schema.names
            and schema.field(name).type == pa.string()
            and all(_is_coded(group.column(n), group.num_rows) for group in groups)
        ]
        return with_codes(self._file, names)

    def _part(self, group: int, number: int, names: list[str]) -> pa.Table:
        """A part of a row group. The one after it goes on from there, others begin anew."""
        first = number
        if self._next == (group, number, names):
            first = 0
        else:
            most = self._file.bounds.piece_of(group, self._file.metadata.row_group(group).num_rows)
            self._parts = parts_of(self._file, group, names, most)
        self._next = (group, number + 1, names)
        return next(islice(self._parts, first, None), pa.table({}))

    def finer_times(
        self, piece: int, decoded: Mapping[ColumnOfFile, pa.Array]
    ) -> Mapping[ColumnOfFile, pa.Array]:
        """Only times of 96 bits can lack some: those of 64 bits are decoded as they are stored."""
        stored = map(self._file.schema.column, range(len(self._file.schema)))
        times = {
            name: array
            for name, array in decoded.items()
            if has_leaf(array.type, pa.types.is_timestamp)
        }
        if not times or all(column.physical_type != "INT96" for column in stored):
            return {}
        finer = dict[ColumnOfFile, pa.Array]()
        for name, fine in ParquetData(self._files, self.path, "ns").decode(piece, times).items():
            pairs = list(zip(leaves(fine), leaves(times[name]), strict=True))
            if any(is_fine(nanos.type) and has_lost_digits(nanos, cut) for nanos, cut in pairs):
                if any(overflows_nanoseconds(cut) for _, cut in pairs):
                    raise mixed_times(self.path)
                finer[name] = fine
        return finer

    def has_fine_times(self) -> bool:
        with self._files.open(self.path) as stream:
            return has_fine_times(stream, self.path)


_CODED_ROWS = 1 << 14
"""The least rows of a file of which dictionaries are worth it."""
_CODE_BYTES = 4
"""The most bytes of a row of a column with a dictionary; the writer goes on without one that would
be large."""


def _is_coded(column: parquet.ColumnChunkMetaData, rows: int) -> bool:
    """Whether the values have a dictionary."""
    return bool(column.has_dictionary_page and column.total_uncompressed_size <= _CODE_BYTES * rows)


def _joined(column: pa.ChunkedArray) -> pa.Array:
    """The values as one array; of one chunk they are not copied."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)


class ParquetWriter:
    """Writes one file, see FileWriter.

    A thread of `pool` encodes rows, while the caller brings the next ones. Without it the caller's
    thread encodes.
    """

    def __init__(
        self,
        files: Files,
        path: str,
        columns: Sequence[Column],
        always: bool = False,
        pool: Executor | None = None,
    ) -> None:
        self.rows = 0
        self._files, self.path, self._always, self._pool = files, path, always, pool
        self._schema = arrow_schema(columns)
        self._metadata: parquet.FileMetaData | None = None
        """The footer of the finished file."""
        self._size = 0
        """Its bytes."""
        self._stream: pa.NativeFile | None = None
        self._writer: parquet.ParquetWriter | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = self._rows = 0
        """How much is waiting."""
        self._encoding: Future[None] | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        """Append a batch."""
        if not batch.num_rows:
            return
        self._waiting.append(batch)
        self._bytes += batch.nbytes
        self._rows += batch.num_rows
        self.rows += batch.num_rows
        if self._bytes >= WRITTEN_BYTES or self._rows >= GROUP_ROWS:
            self._write_groups()

    def put(self, rows: Keyed) -> None:
        """Append rows, of which this file stores the values."""
        assert rows.values is not None, "a file without keys has no delete events"
        self.write(rows.values)

    def close(self) -> int:
        """Finish the file; returns its row count."""
        self._write_groups()
        self._encoded()
        if self._always and self._writer is None:
            self._begin(self._schema.empty_table())
        if self._writer is not None and self._stream is not None:
            self._writer.close()
            self._metadata = self._writer.writer.metadata
            self._size = int(self._stream.tell())
            self._stream.close()
            if self._files.local:
                WRITTEN_HERE.put(identity_of(self.path), True)
        return self.rows

    def record(self, name: str) -> FileEntry:
        """The record of the finished file under this name."""
        footer = Footer(self.rows, False, format="parquet", exact=True)
        return FileEntry(name, self._size, footer)

    def give_up(self) -> None:
        """Close the incomplete file."""
        with suppress(Exception):  # one that nobody waits for any more
            self._encoded()
        if self._stream is not None:
            self._stream.close()

    def _write_groups(self) -> None:
        if not self._waiting:
            return
        rows = pa.Table.from_batches(self._waiting, self._schema).unify_dictionaries()
        self._waiting, self._bytes, self._rows = [], 0, 0
        writer = self._writer or self._begin(rows)
        groups = -(-rows.num_rows // GROUP_ROWS)
        encode = partial(writer.write_table, rows, row_group_size=-(-rows.num_rows // groups))
        if self._pool is None:
            encode()
            return
        self._encoded()
        self._encoding = self._pool.submit(encode)

    def _encoded(self) -> None:
        """Waits for the rows that are being encoded."""
        encoding, self._encoding = self._encoding, None
        if encoding is not None:
            encoding.result()

    def _begin(self, first: pa.Table) -> parquet.ParquetWriter:
        """Begins the file, of which these are the first rows."""
        self._stream = self._files.system.open_output_stream(self.path)
        self._writer = parquet.ParquetWriter(
            self._stream,
            self._schema,
            store_schema=False,
            store_decimal_as_integer=True,
            write_page_checksum=True,
            write_statistics=bounded_paths(self._schema) or False,
            **self._options(first),
        )
        return self._writer

    def _options(self, first: pa.Table) -> dict[str, Any]:  # noqa: ARG002, of files with keys
        """What is written otherwise than Arrow's defaults say, in a file with these first rows."""
        return {}


def column_ranges(
    metadata: parquet.FileMetaData,
    names: Collection[str],
    texts: Container[str] = (),
    group: int | None = None,
) -> dict[str, ColumnRange]:
    """The ranges of these flat columns in a row group (default: in the file); `texts`: those of
    type string and varchar, whose bounds are recorded. A column without statistics is left out."""
    columns = {metadata.schema.column(n).path: n for n in range(metadata.num_columns)}
    every_group = range(metadata.num_row_groups) if group is None else [group]
    groups = [metadata.row_group(index) for index in every_group]
    rows = sum(each.num_rows for each in groups)
    ranges = dict[str, ColumnRange]()
    for name in names:
        every = [group.column(columns[name]).statistics for group in groups if name in columns]
        if not every or not all(each is not None and each.has_null_count for each in every):
            continue
        nulls = sum(each.null_count for each in every)
        bounds = ColumnRange(RangeKind.OTHER, None, None, nulls, rows > nulls)
        full = [
            each
            for each, group in zip(every, groups, strict=True)
            if each.null_count < group.num_rows
        ]
        if full and all(each.has_min_max for each in full):
            bounds = _bounded_range(full, bounds, name in texts)
        ranges[name] = bounds
    return ranges


def _bounded_range(every: Sequence[Any], bounds: ColumnRange, text: bool) -> ColumnRange:
    """The range of a column that has these statistics in its row groups."""
    kind, nulls = every[0].logical_type.type, bounds.nulls
    if kind == "DATE" or (every[0].physical_type in ("INT32", "INT64") and kind in ("INT", "NONE")):
        low, high = min(each.min_raw for each in every), max(each.max_raw for each in every)
        whole = RangeKind.DATE if kind == "DATE" else RangeKind.INTEGER
        return ColumnRange(whole, low, high, nulls)
    if kind == "DECIMAL" or (kind == "STRING" and text):
        low, high = min(each.min for each in every), max(each.max for each in every)
        if kind == "STRING":
            return text_range(low, high, nulls)
        return ColumnRange(RangeKind.DECIMAL, low, high, nulls)
    return bounds
