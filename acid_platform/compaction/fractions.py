"""Timestamps with digits below the microsecond, which Hive writes and Spark truncates.

A compaction must not change a value, so files are checked before they pass through microseconds.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyorc
from pyarrow import orc, parquet

from acid_platform.errors import CompactionRefused
from acid_platform.layout.formats import ORC, FileFormat
from acid_platform.layout.schema import ROW
from acid_platform.orc.pyorc_rows import beyond_nanoseconds, parsing
from acid_platform.orc.reader import open_orc, reading
from acid_platform.orc.writer_zones import stripe_in_utc
from acid_platform.storage.files import Files

_BLOCK = 1 << 20
_IN_TEXT = re.compile(rb":\d\d\.\d{6}\d*[1-9]")
_OVERLAP = 64
_MOST = 9_223_372_036_854_775  # microseconds that nanoseconds can hold too


def refuse_finer(
    files: Files, path: str, stored: FileFormat = ORC, length: int | None = None
) -> None:
    """Raises CompactionRefused if the file has timestamps with nanoseconds; also CorruptFile.

    In text formats, any text that looks like such a timestamp counts. `length` is the committed
    length of an ORC file.
    """
    match stored.name:
        case "orc":
            finer = _finer_orc(files, path, length)
        case "parquet":
            finer = _finer_parquet(files, path)
        case "avro":  # its own precision is microseconds
            finer = False
        case _:
            finer = _finer_text(files, path)
    if finer:
        raise CompactionRefused(
            f"{path} holds timestamps with nanoseconds, which this compaction"
            " would truncate to microseconds; compact the table with Hive"
        )


def _finer_orc(files: Files, path: str, length: int | None) -> bool:
    file = open_orc(files, path, length)
    names = list(_timestamps(file.schema))
    if not names:
        return False
    for index in range(file.nstripes):
        with reading(path):
            in_utc = stripe_in_utc(files, path, length, file, index)
            content = None if in_utc is None else in_utc[0]
            stripe = file if content is None else orc.ORCFile(pa.BufferReader(content))
            try:
                finer = _finer(stripe.read_stripe(index if content is None else 0, columns=names))
            except pa.ArrowInvalid as error:
                if not beyond_nanoseconds(error):
                    raise
                if content is None:
                    with files.open(path) as stream:
                        content = bytes(stream.read(length))
                finer = _finer_by_row(content, path, {name.partition(".")[0] for name in names})
        if finer:
            return True
    return False


def _finer_by_row(content: bytes, path: str, roots: set[str]) -> bool:
    finer: list[bool] = []

    class Watch(pyorc.converters.ORCConverter):
        @staticmethod
        def from_orc(_seconds: int, nanoseconds: int, _zone: Any) -> datetime | None:
            if nanoseconds % 1000:
                finer.append(True)
            return None

        @staticmethod
        def to_orc(value: Any, zone: Any) -> tuple[int, int]:
            raise NotImplementedError("only for reading")

    with parsing(path):
        reader = pyorc.Reader(
            io.BytesIO(content),
            column_names=sorted(roots),
            converters=dict.fromkeys(
                (pyorc.TypeKind.TIMESTAMP, pyorc.TypeKind.TIMESTAMP_INSTANT), Watch
            ),
        )
        return any(finer for _ in reader)


def _finer_parquet(files: Files, path: str) -> bool:
    """Checks INT96 columns; Spark itself refuses Parquet's other nanosecond type."""
    with files.open(path) as stream, reading(path):
        nanos, micros = (
            parquet.ParquetFile(stream, coerce_int96_timestamp_unit=unit) for unit in ("ns", "us")
        )
        leaves = (nanos.schema.column(i) for i in range(len(nanos.schema)))
        names = [leaf.path for leaf in leaves if leaf.physical_type == "INT96"]
        if not names:
            return False
        pairs = zip(
            nanos.iter_batches(columns=names), micros.iter_batches(columns=names), strict=True
        )
        return any(
            _lost(fine, cut)
            for fine_batch, cut_batch in pairs
            for columns in zip(fine_batch.columns, cut_batch.columns, strict=True)
            for fine, cut in zip(*map(_leaves, columns), strict=True)
        )


def _lost(nanos: pa.Array, micros: pa.Array) -> bool:
    """Whether truncation loses digits; values that overflow nanoseconds are skipped."""
    held = np.abs(_integers(micros)) < _MOST
    return bool((held & (_integers(nanos) % 1000 != 0)).any())


def _finer_text(files: Files, path: str) -> bool:
    with files.system.open_input_stream(path) as stream:
        end = b""
        for block in iter(lambda: stream.read(_BLOCK), b""):
            if _IN_TEXT.search(end + block):
                return True
            end = block[-_OVERLAP:]
    return False


def _timestamps(schema: pa.Schema) -> Iterator[str]:
    """Columns that contain a timestamp; of an ACID file, fields of `row`."""
    for field in schema:
        if not _holds(field.type):
            continue
        if field.name != ROW or any("." in inner.name for inner in _fields(field.type)):
            yield field.name
        else:
            yield from (
                f"{ROW}.{inner.name}" for inner in _fields(field.type) if _holds(inner.type)
            )


def _fields(kind: pa.DataType) -> list[pa.Field]:
    return [kind.field(i) for i in range(kind.num_fields)]


def _holds(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) or any(_holds(field.type) for field in _fields(kind))


def _leaves(array: pa.Array) -> Iterator[pa.Array]:
    """The timestamp arrays inside a possibly nested array."""
    kind = array.type
    if pa.types.is_timestamp(kind):
        yield array
    elif pa.types.is_struct(kind):
        for field in array.flatten():
            yield from _leaves(field)
    elif pa.types.is_map(kind):
        yield from _leaves(array.keys)
        yield from _leaves(array.items)
    elif pa.types.is_list(kind):
        yield from _leaves(array.flatten())


def _finer(batch: pa.RecordBatch) -> bool:
    return any(
        (_integers(leaf) % 1000 != 0).any()
        for column in batch.columns
        for leaf in _leaves(column)
        if leaf.type.unit == "ns"
    )


def _integers(array: pa.Array) -> np.ndarray:
    integers: np.ndarray = array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return integers
