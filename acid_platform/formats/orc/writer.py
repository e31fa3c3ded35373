"""Writing ACID files: Arrow batches to ORC with the footer that Hive needs, in one pass.

Arrow's own writer takes more than twice the CPU for the rows of benchmarks/comparison (a table like
TPC-H's lineitem), and can write neither the footer's keys nor char and varchar. This writer
produces the same format, ORC 0.12, and names the same writer in the footer, so every reader accepts
its files.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from isal import isal_zlib

from acid_platform.errors import CorruptFile, UnsupportedLayout
from acid_platform.formats.data_file import Keyed
from acid_platform.formats.orc.column_statistics import (
    ColumnStatistics,
    column_ranges,
    key_ranges,
    message,
)
from acid_platform.formats.orc.encoding import (
    EncodedColumn,
    StreamKind,
    Unencoded,
    encode,
    encode_all,
)
from acid_platform.formats.orc.events import (
    ACID_COLUMNS,
    RAW_TEXT,
    UPDATES,
    stored_events,
    user_metadata,
)
from acid_platform.formats.orc.protobuf import delimited, number, packed
from acid_platform.formats.orc.strange_files import require_found_by_name
from acid_platform.formats.orc.tail import KINDS, MAGIC, user_metadata_fields, write_updates
from acid_platform.layout.acid_keys import RowKey, ascend
from acid_platform.layout.file_entries import FileEntry, Footer
from acid_platform.layout.types import Column, HiveType
from acid_platform.storage.files import Files
from acid_platform.values.arrow_types import arrow_type, is_utf8, values_of

BLOCK = 1 << 16
"""Compression block size: the most that a reader inflates in vain when it seeks a row group."""
_TINY = 128
"""Bytes of a block that would hardly become fewer: calling a codec takes longer than it saves."""


def _deflated(content: memoryview) -> bytes:
    return bytes(isal_zlib.compress(content, level=1, wbits=-15))


def _arrow(codec: str) -> Callable[[memoryview], bytes]:
    return lambda content: bytes(pa.compress(content, codec, asbytes=True))


@dataclass(frozen=True, slots=True)
class Blocks:
    """A stream as stored in the file."""

    content: bytes
    starts: tuple[int, ...] | None
    """The byte at which each block begins, and the end; None without compression."""

    def position(self, byte: int) -> tuple[int, ...]:
        """The position of a byte of the stream: its block, and the bytes to skip once inflated."""
        if self.starts is None:
            return (byte,)
        block, skipped = divmod(byte, BLOCK)
        if byte and block == len(self.starts) - 1:  # some readers refuse to seek to the end
            return self.starts[block - 1], BLOCK
        return self.starts[block], skipped


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """One column of one stripe, as its bytes in the file."""

    index: bytes
    streams: tuple[tuple[StreamKind, bytes], ...]
    encoding: bytes
    statistics: ColumnStatistics


@dataclass(frozen=True, slots=True)
class BlockCodec:
    """A codec of ORC, and how it compresses a block."""

    number: int
    compress: Callable[[memoryview], bytes] | None

    def blocks(self, content: bytes) -> Blocks:
        """A stream in this codec."""
        if self.compress is None:
            return Blocks(content, None)
        parts: list[bytes | memoryview] = []
        starts = [0]
        for at in range(0, len(content), BLOCK):
            block = memoryview(content)[at : at + BLOCK]
            small = self.compress(block) if len(block) > _TINY else block
            stored = len(small) >= len(block)  # the lowest bit says: stored uncompressed
            body = block if stored else small
            parts += [(len(body) << 1 | stored).to_bytes(3, "little"), body]
            starts.append(starts[-1] + 3 + len(body))
        return Blocks(b"".join(parts), tuple(starts))

    def stored(self, column: EncodedColumn) -> StoredColumn:
        """A column in this codec."""
        streams = [self.blocks(stream.content) for stream in column.streams]
        return StoredColumn(
            self.blocks(_row_index(column, streams)).content,
            tuple(
                (stream.kind, blocks.content)
                for stream, blocks in zip(column.streams, streams, strict=True)
            ),
            _encoding(column),
            ColumnStatistics.together(column.groups),
        )


_CODECS = {
    "uncompressed": BlockCodec(0, None),
    "zlib": BlockCodec(1, _deflated),
    "snappy": BlockCodec(2, _arrow("snappy")),
    "lz4": BlockCodec(4, _arrow("lz4_raw")),
    "zstd": BlockCodec(5, _arrow("zstd")),
}
WRITTEN_CODECS = tuple(_CODECS)


def written_codec(codec: str) -> str:
    """The codec of a small file: the table's own, or zlib if that can't be written here."""
    return codec if codec in _CODECS else "zlib"


def require_codec(codec: str, path: str) -> BlockCodec:
    """The codec of this name. Raises UnsupportedLayout if it can't be written here."""
    if codec not in _CODECS:
        compressed = ", ".join(name for name in _CODECS if name != "uncompressed")
        raise UnsupportedLayout(
            f"{path}: the codec {codec} can't be written; set the table's"
            f" orc.compress to none, {compressed}"
        )
    return _CODECS[codec]


def _row_index(column: EncodedColumn, stored: Sequence[Blocks]) -> bytes:
    """ORC's RowIndex: the positions of each row group in the streams, and its statistics."""
    sought = [
        (stream.seeks, blocks)
        for stream, blocks in zip(column.streams, stored, strict=True)
        if stream.seeks
    ]
    entries = []
    for group, statistics in enumerate(column.groups):
        places = [
            position
            for seeks, blocks in sought
            for position in (*blocks.position(seeks[group][0]), *seeks[group][1:])
        ]
        entries.append(
            delimited(1, packed(1, places) + delimited(2, message(statistics, column.type)))
        )
    return b"".join(entries)


def _encoding(column: EncodedColumn) -> bytes:
    size = number(2, column.dictionary_size) if column.dictionary_size else b""
    return delimited(2, number(1, column.encoding) + size)


STRIPE_BYTES = 64 << 20
"""Size of the Arrow arrays in memory at which a stripe is written."""

_GROUP = 10_000
_JOINED = 1 << 20
"""The parts of a stripe below this size in bytes are written at once."""
_WORTH_THREADS = 1 << 20
"""Stripes below this size in bytes of Arrow arrays are encoded by the thread that writes them."""
_MOST_TEXT = (1 << 31) - 1
"""The most bytes of an Arrow array of texts."""
_VERSION = (0, 12)
_WRITER, _WRITER_VERSION = 1, 6
"""The ids of ORC's C++ writer, which Arrow's writer uses too. Readers work around the known bugs of
a writer by its id."""


_Job: TypeAlias = Callable[[], list[StoredColumn]]


class OrcWriter:
    """Writes one ORC file whose columns are `columns`, as in an insert-only table.

    Batches have the columns' types (`arrow_type`), in order. The file is complete once `close` has
    returned; without rows no file is written unless `always` is True. Raises UnsupportedLayout for
    a codec that can't be written here, and for columns that readers can't tell apart.

    The threads of `pool` encode the columns of a stripe, while the caller brings the rows of the
    next one: two stripes are in memory. Without it the caller's thread encodes.
    """

    def __init__(
        self,
        files: Files,
        path: str,
        columns: Sequence[Column],
        compression: str,
        stripe_bytes: int = STRIPE_BYTES,
        always: bool = False,
        pool: Executor | None = None,
    ) -> None:
        self._codec = require_codec(compression, path)
        if any("." in column.name for column in columns):
            fields = (pa.field(column.name, arrow_type(column.type)) for column in columns)
            require_found_by_name(fields, path)
        self.rows, self.size = 0, 0
        """Rows and bytes written so far."""
        self.footer = b""
        """The footer of the finished file, as ORC defines it, before compression."""
        self._always = always
        self._files, self.path = files, path
        self._limit = stripe_bytes
        self._type = self._root(columns)
        self._names = [name for name, _ in self._type.children]
        self._stream: pa.NativeFile | None = None
        self._pool = pool
        self._raw_text = False
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0
        self._encoding: deque[tuple[int, list[Future[list[StoredColumn]]]]] = deque()
        """The stripes that are being encoded: their rows, and their columns in order."""
        self._stripes: list[bytes] = []
        self._statistics: list[list[ColumnStatistics]] = []
        """Statistics by stripe, then by column."""

    def write(self, batch: pa.RecordBatch, checked: bool = True) -> None:
        """Append a batch. Unless it is `checked`, its texts may come from a file of another writer:
        if they are not UTF-8, the footer of this file says so."""
        if not batch.num_rows:
            return
        if not checked and not all(map(is_utf8, batch.columns)):
            self._raw_text = True
        self._waiting.append(batch)
        self._bytes += batch.nbytes
        alone = len(self._waiting) == 1  # then nothing has to be copied
        if self._bytes >= (self._limit // 2 if alone else self._limit):
            self._write_stripes()

    def put(self, rows: Keyed) -> None:
        """Append rows, of which this file stores the values."""
        assert rows.values is not None, "a file without keys has no delete events"
        self.write(rows.values, rows.checked)

    def close(self) -> int:
        """Finish the file; returns its row count."""
        self._write_stripes()
        while self._encoding:
            self._put_stripe()
        if self._always and self._stream is None:
            self._put(b"")
        if self._stream is not None:
            self._put(self._tail())
            self._stream.close()
        return self.rows

    def record(self, name: str) -> FileEntry:
        """The record of the finished file under this name, equal to that of `recorded_file`."""
        ranges = column_ranges(self.footer, acid=False)
        footer = Footer(self.rows, acid=False, format="orc", exact=True)
        return FileEntry(name, self.size, footer, None, ranges)

    def give_up(self) -> None:
        """Close the incomplete file, which is not valid ORC."""
        for _, columns in self._encoding:
            for column in columns:
                column.cancel()
        if self._stream is not None:
            self._stream.close()

    def _put(self, content: bytes) -> None:
        if self._stream is None:
            self._stream = self._files.system.open_output_stream(self.path)
            self._stream.write(MAGIC)
            self.size = len(MAGIC)
        self._stream.write(content)
        self.size += len(content)

    def _write_stripes(self) -> None:
        """Write one stripe; several if its texts may exceed the size limit of an Arrow array."""
        batches, size = self._waiting, self._bytes
        self._waiting, self._bytes = [], 0
        if batches and size <= _MOST_TEXT:
            self._write_stripe(batches)
        else:
            for batch in batches:
                self._write_stripe([batch])

    def _write_stripe(self, batches: Sequence[pa.RecordBatch]) -> None:
        self._checked(batches)
        rows = sum(batch.num_rows for batch in batches)
        bounds = np.append(np.arange(0, rows, _GROUP), rows)
        root = pa.chunked_array(
            [pa.StructArray.from_arrays(batch.columns, names=self._names) for batch in batches]
        )
        jobs = list(self._jobs(Unencoded(root, self._type, bounds)))
        pool = self._pool if sum(size for size, _ in jobs) >= _WORTH_THREADS else None
        # The largest first, so that all threads end at about the same time.
        order = sorted(range(len(jobs)), key=lambda index: -jobs[index][0])
        submitted = {index: _submitted(pool, jobs[index][1]) for index in order}
        self._encoding.append((rows, [submitted[index] for index in range(len(jobs))]))
        while len(self._encoding) > (pool is not None):
            self._put_stripe()

    def _jobs(self, column: Unencoded) -> Iterator[tuple[int, _Job]]:
        """What can be encoded at the same time, in the order of the columns, with its bytes."""
        if not column.plain_struct:
            yield column.values.nbytes, partial(self._stored, encode_all(column))
            return
        encoded, below = encode(column)
        yield 0, partial(self._stored, (encoded,))
        for child in below:
            yield from self._jobs(child)

    def _stored(self, columns: Iterable[EncodedColumn]) -> list[StoredColumn]:
        return [self._codec.stored(column) for column in columns]

    def _put_stripe(self) -> None:
        """Writes the first of the stripes that are being encoded, once it is."""
        rows, jobs = self._encoding.popleft()
        columns = [column for job in jobs for column in job.result()]
        indexes = [column.index for column in columns]
        bodies = [content for column in columns for _, content in column.streams]
        streams = [
            *(
                _stream(StreamKind.ROW_INDEX, position, index)
                for position, index in enumerate(indexes)
            ),
            *(
                _stream(kind, position, content)
                for position, column in enumerate(columns)
                for kind, content in column.streams
            ),
        ]
        encodings = [column.encoding for column in columns]
        # Timestamps are stored in UTC, whatever the machine's time zone.
        footer = self._codec.blocks(b"".join((*streams, *encodings, delimited(3, b"GMT")))).content
        start = self.size or len(MAGIC)
        parts = (*indexes, *bodies, footer)
        # A small file is one write instead of dozens; large parts are not copied once more.
        small = sum(map(len, parts)) < _JOINED
        for part in (b"".join(parts),) if small else parts:
            self._put(part)
        lengths = (start, sum(map(len, indexes)), sum(map(len, bodies)), len(footer), rows)
        self._stripes.append(b"".join(number(key, value) for key, value in enumerate(lengths, 1)))
        self._statistics.append([column.statistics for column in columns])
        self.rows += rows

    def _checked(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Called with the rows of each stripe before it is written."""

    def _root(self, columns: Sequence[Column]) -> HiveType:
        return HiveType("struct", (), tuple((column.name, column.type) for column in columns))

    def _user_metadata(self) -> dict[str, bytes]:
        return {RAW_TEXT: b"1"} if self._raw_text else {}

    def _tail(self) -> bytes:
        kinds = list(self._type.walk())
        whole = [
            ColumnStatistics.together(stripe[index] for stripe in self._statistics)
            for index in range(len(kinds))
        ]
        metadata = self._codec.blocks(
            b"".join(
                delimited(
                    1,
                    b"".join(
                        delimited(1, message(statistics, kind))
                        for statistics, kind in zip(stripe, kinds, strict=True)
                    ),
                )
                for stripe in self._statistics
            )
        ).content
        self.footer = b"".join(
            (
                number(1, len(MAGIC)),
                number(2, self.size),
                *(delimited(3, stripe) for stripe in self._stripes),
                *_types(self._type),
                number(6, self.rows),
                *(
                    delimited(7, message(statistics, kind))
                    for statistics, kind in zip(whole, kinds, strict=True)
                ),
                number(8, _GROUP),
                number(9, _WRITER),
                user_metadata_fields(self._user_metadata()),
            )
        )
        footer = self._codec.blocks(self.footer).content
        postscript = b"".join(
            (
                number(1, len(footer)),
                number(2, self._codec.number),
                number(3, BLOCK) if self._codec.number else b"",
                packed(4, _VERSION),
                number(5, len(metadata)),
                number(6, _WRITER_VERSION),
                delimited(8000, MAGIC),
            )
        )
        return metadata + footer + postscript + bytes([len(postscript)])


class AcidWriter(OrcWriter):
    """Writes one file of insert events or, with `deletes`, of delete events, whose `row` is NULL.

    `columns` are the fields of `row`. Batches must come in key order and have the schema
    `acid_schema`; `write` and `close` raise CorruptFile if the keys do not ascend (F7).
    """

    def __init__(
        self,
        files: Files,
        path: str,
        columns: Sequence[Column],
        compression: str,
        deletes: bool = False,
        stripe_bytes: int = STRIPE_BYTES,
        always: bool = False,
        pool: Executor | None = None,
    ) -> None:
        self._deletes = deletes
        self._columns = [column.name for column in columns]
        self._updated: list[np.ndarray] = []
        self._ends: list[RowKey] = []
        """The last key of each stripe."""
        self._last: RowKey | None = None
        super().__init__(files, path, columns, compression, stripe_bytes, always, pool)

    def _root(self, columns: Sequence[Column]) -> HiveType:
        kinds = [HiveType(kind) for kind in ("int", "bigint", "int", "bigint", "bigint")]
        row = super()._root(columns)
        return HiveType("struct", (), tuple(zip(ACID_COLUMNS, (*kinds, row), strict=True)))

    def _user_metadata(self) -> dict[str, bytes]:
        counts = (0, self.rows) if self._deletes else (self.rows, 0)
        metadata = super()._user_metadata() | user_metadata(self._ends, *counts)
        if self._updated:
            metadata[UPDATES] = write_updates(np.concatenate(self._updated))
        return metadata

    def put(self, rows: Keyed) -> None:
        """Append rows, or delete events of rows, with their keys."""
        if rows.updated is not None:
            self._updated.append(rows.updated)
        self.write(stored_events(rows, self._columns), rows.checked)

    def record(self, name: str) -> FileEntry:
        footer = Footer(self.rows, acid=True, exact=True)
        if self._deletes:
            return FileEntry(name, self.size, footer)
        ranges = column_ranges(self.footer, acid=True)
        return FileEntry(name, self.size, footer, None, ranges, key_ranges(self.footer))

    def _checked(self, batches: Sequence[pa.RecordBatch]) -> None:
        for batch in batches:
            keys = [values_of(batch.column(at)).astype(np.int64, copy=False) for at in (1, 2, 3)]
            first, last = ((int(keys[0][at]), int(keys[1][at]), int(keys[2][at])) for at in (0, -1))
            if not ascend(*keys) or (self._last is not None and first <= self._last):
                raise CorruptFile(f"{self.path}: row keys do not ascend; run the statement again")
            self._last = last
        if self._last is not None:
            self._ends.append(self._last)


def _submitted(pool: Executor | None, job: _Job) -> Future[list[StoredColumn]]:
    """The result of the job, which the pool has begun, or which is there if there is no pool."""
    if pool is not None:
        return pool.submit(job)
    made: Future[list[StoredColumn]] = Future()
    made.set_result(job())
    return made


def _types(root: HiveType) -> Iterator[bytes]:
    """ORC's Type message of each column, by column number."""
    for index, kind in enumerate(root.walk()):
        children, at = [], index + 1
        for _, child in kind.children:
            children.append(at)
            at += sum(1 for _ in child.walk())
        parts = [number(1, KINDS[kind.kind])]
        if children:
            parts.append(packed(2, children))
        if kind.kind == "struct":
            parts += [delimited(3, name.encode()) for name, _ in kind.children]
        if kind.kind == "decimal":
            parts += [number(5, kind.sizes[0]), number(6, kind.sizes[1])]
        elif kind.sizes:
            parts.append(number(4, kind.sizes[0]))
        yield delimited(4, b"".join(parts))


def _stream(kind: StreamKind, column: int, content: bytes) -> bytes:
    return delimited(1, number(1, kind) + number(2, column) + number(3, len(content)))
