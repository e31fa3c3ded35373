"""ORC files through Arrow: opening, decoding, row keys, and declared types in footers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
from pyarrow import orc

from acid_platform.base.object_store import store_fault
from acid_platform.errors import CorruptFile
from acid_platform.layout import schema
from acid_platform.layout.types import Column
from acid_platform.orc.protobuf import read_varint
from acid_platform.orc.pyorc_rows import beyond_nanoseconds, wide_timestamps
from acid_platform.orc.tail import (
    TAIL_BYTES,
    Postscript,
    declared_footer,
    footer_of,
    has_declared,
    require_shallow,
    with_footer,
)
from acid_platform.orc.writer_zones import has_wall_clocks, on_the_clock, stripe_in_utc
from acid_platform.storage.files import Files

_SNAPPY, _LZ4, _ZSTD = 2, 4, 5
"""ORC's codecs beside zlib and LZO, which Arrow does not read."""
_LARGEST_FOOTER = 256 << 20
BATCH_ROWS = 1 << 17
"""Rows to decode at a time; a stripe may have millions."""


def _content(files: Files, path: str, length: int | None) -> pa.NativeFile:
    """The file, or its first `length` bytes. Raises CorruptFile if the file is shorter."""
    if length is None:
        return files.open(path)
    with files.open(path) as stream:
        content = stream.read_buffer(length)
    if content.size < length:
        raise CorruptFile(
            f"{path} has fewer than the {length} bytes that were committed; restore the file"
        )
    return pa.BufferReader(content)


def open_orc(files: Files, path: str, length: int | None = None) -> orc.ORCFile:
    """Open the file, or its first `length` bytes, if a streaming writer committed those.

    Raises CorruptFile if they do not end in an ORC tail, FileNotFoundError if there is no file,
    StoreRefused, StoreUnavailable.
    """
    try:
        file = orc.ORCFile(_content(files, path, length))
        _ = file.schema  # column names that are not UTF-8 fail here, not later
        return file
    except (pa.ArrowInvalid, OSError, UnicodeDecodeError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        if fault := store_fault(error, path):
            raise fault from error
        raise _unopened(path, length, error) from error


def _unopened(path: str, length: int | None, error: Exception) -> CorruptFile:
    where = "" if length is None else f" up to byte {length}, its length in the side file"
    return CorruptFile(
        f"{path} can't be opened as ORC{where}: {error}; was its writer killed?"
        " Restore it or drop its transaction"
    )


def open_strange_orc(files: Files, path: str, length: int | None = None) -> orc.ORCFile:
    """As `open_orc`, for a file that another program wrote and that was not recorded yet."""
    require_shallow_types(files, path, length)
    return open_orc(files, path, length)


def require_shallow_types(files: Files, path: str, length: int | None = None) -> None:
    """Raises CorruptFile for an ORC file whose types would crash Arrow and pyorc, before they see
    them; also for a footer that can't be opened. Raises StoreRefused, StoreUnavailable."""
    with reading(path), files.open(path) as stream:
        size = stream.size() if length is None else length
        stream.seek(max(0, size - TAIL_BYTES))
        tail = bytes(stream.read(min(size, TAIL_BYTES)))
        try:
            postscript = Postscript.of(tail, path)
        except CorruptFile as error:
            raise _unopened(path, length, error) from error
        whole = postscript.footer_length + postscript.size
        if whole > min(size, _LARGEST_FOOTER):
            raise CorruptFile(f"{path} has an ORC footer of {whole:,} bytes")
        if whole > len(tail):
            stream.seek(size - whole)
            tail = bytes(stream.read(whole))
    footer = tail[len(tail) - whole : len(tail) - postscript.size]
    require_shallow(postscript.opened(footer, _inflated, path), path)


def _inflated(codec: int, chunk: bytes, most: int) -> bytes:
    """A chunk of ORC's codec of that number. Raises ValueError, OSError, IndexError."""
    if codec == _ZSTD:
        with pa.input_stream(pa.py_buffer(chunk), compression="zstd") as stream:
            return bytes(stream.read(most))
    if codec == _SNAPPY:
        return bytes(pa.Codec("snappy").decompress(chunk, read_varint(chunk, 0)[0]))
    if codec == _LZ4:
        return bytes(pa.Codec("lz4_raw").decompress(chunk, lz4_size(chunk)))
    raise ValueError(f"codec {codec} is not known")


def lz4_size(block: bytes) -> int:
    """How many bytes a raw block of LZ4 holds. Raises IndexError for one that is cut off."""
    at = size = 0

    def run(first: int) -> int:
        nonlocal at
        count = first
        while first == 15:
            more = block[at]
            at, count = at + 1, count + more
            first = 15 if more == 255 else 0
        return count

    while at < len(block):
        token, at = block[at], at + 1
        literals = run(token >> 4)
        at, size = at + literals, size + literals
        if at < len(block):  # the last sequence has no match
            at += 2
            size += 4 + run(token & 15)
    return size


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Arrow's errors inside the block become CorruptFile with the file and the next step, or
    StoreRefused and StoreUnavailable if the store is to blame."""
    try:
        yield
    except FileNotFoundError as error:
        raise CorruptFile(
            f"{path} was listed but is gone; read again if the Cleaner removed it, else restore it"
        ) from error
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if fault := store_fault(error, path):
            raise fault from error
        raise CorruptFile(
            f"{path} can't be read: {error}; restore it or drop its transaction"
        ) from error


def acid_columns(file: orc.ORCFile, path: str) -> list[str]:
    """The names of the six ACID columns as this file spells them; some writers use lower case.

    Raises CorruptFile if the file does not have the ACID schema.
    """
    names = list(file.schema.names)
    if [name.lower() for name in names] != [name.lower() for name in schema.ACID_COLUMNS]:
        raise CorruptFile(
            f"{path} does not have the six ACID columns but {', '.join(names)}; restore it or drop"
            " its transaction"
        )
    return names


def read_stripe(
    files: Files,
    path: str,
    length: int | None,
    file: orc.ORCFile,
    index: int,
    names: Sequence[str],
) -> pa.RecordBatch:
    """These columns (`root` or `root.field`) of one stripe.

    Timestamps are in nanoseconds if all of them fit, else in microseconds, and wall clock times are
    those of the writer's time zone. Raises Arrow's errors, CorruptFile, UnsupportedLayout.
    """
    alone, zone = None, ""
    if _with_wall_clocks(file.schema, names):
        in_utc = stripe_in_utc(files, path, length, file, index)
        if in_utc is not None:
            alone, zone = in_utc
            file, index = orc.ORCFile(pa.BufferReader(alone)), 0
    try:
        batch = file.read_stripe(index, columns=list(names))
        return on_the_clock(batch, zone, path) if zone else batch
    except (pa.ArrowInvalid, OverflowError) as error:
        if isinstance(error, pa.ArrowInvalid) and not beyond_nanoseconds(error):
            raise
    # Arrow reads ORC timestamps in nanoseconds, which end in 2262: decode row by row instead.
    if alone is None:
        with files.open(path) as stream:
            alone = bytes(stream.read(length))
    batch = wide_timestamps(alone, path, index, file.schema, names)
    return on_the_clock(batch, zone, path) if zone else batch


def _with_wall_clocks(kinds: pa.Schema, names: Sequence[str]) -> bool:
    for name in names:
        root, _, field = name.partition(".")
        kind = kinds.field(name if name in kinds.names else root).type
        if name not in kinds.names and field:
            kind = kind.field(field).type
        if has_wall_clocks(kind):
            return True
    return False


def read_batches(
    files: Files, path: str, length: int | None, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """These root columns of all rows in file order, in batches of at most BATCH_ROWS rows.

    Raises Arrow's errors, also for timestamps that do not fit nanoseconds.
    """
    from pyarrow import dataset  # imports pandas, which takes long

    fragment = dataset.OrcFileFormat().make_fragment(_content(files, path, length))
    yield from fragment.to_batches(
        columns=list(names),
        batch_size=BATCH_ROWS,
        batch_readahead=1,
        fragment_readahead=1,
        use_threads=False,
    )


def ascend(w: np.ndarray, b: np.ndarray, r: np.ndarray) -> bool:
    """Whether (write id, bucket property, rowId), int64 (n,) each, ascend strictly."""
    return all(
        bool(ascending_steps(*(ids[at : at + BATCH_ROWS + 1] for ids in (w, b, r))).all())
        for at in range(0, len(r) - 1, BATCH_ROWS)
    )


def ascending_steps(w: np.ndarray, b: np.ndarray, r: np.ndarray) -> np.ndarray:
    """Mask (n - 1,): whether each key (w, b, r) is below the next one."""
    dw, db, dr = np.diff(w), np.diff(b), np.diff(r)
    steps: np.ndarray = (dw > 0) | ((dw == 0) & ((db > 0) | ((db == 0) & (dr > 0))))
    return steps


def finish_plain_file(files: Files, path: str, columns: Sequence[Column]) -> None:
    """Declare the column types in a file of an insert-only table that Spark or Arrow wrote.

    Raises CorruptFile.
    """
    if has_declared(columns):
        footer = footer_of(open_orc(files, path).reader.serialized_file_tail())
        replace_footer(files, path, declared_footer(footer, columns, path))


def replace_footer(files: Files, path: str, footer: bytes) -> None:
    """Give another footer to a finished ORC file that nobody reads yet. Raises CorruptFile."""
    size = files.system.get_file_info(path).size
    with files.system.open_input_file(path) as stream:
        stream.seek(max(0, size - TAIL_BYTES))
        change = with_footer(bytes(stream.read()), footer, path)
    if files.local:
        with open(path, "r+b") as handle:
            handle.truncate(size - change.drop)
            handle.seek(0, 2)
            handle.write(change.append)
    else:  # only a local file can be truncated: rewrite it
        files.write(path, files.read(path)[: size - change.drop] + change.append)
