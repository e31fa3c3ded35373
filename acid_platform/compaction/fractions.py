"""Timestamps with digits below the microsecond, which Hive writes and Spark truncates.

A compaction must not change a value, so files are checked before they pass through microseconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from acid_platform.errors import CompactionRefused
from acid_platform.formats.orc import ROW, open_orc, reading
from acid_platform.layout.formats import ORC, FileFormat
from acid_platform.storage.files import Files
from acid_platform.values.arrow_numpy import filled
from acid_platform.values.arrow_types import has_leaf, leaves

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
    with reading(path):
        return bool(names) and file.has_nanoseconds(names)


def _finer_parquet(files: Files, path: str) -> bool:
    """Checks INT96 columns; Spark itself refuses Parquet's other nanosecond type."""
    with files.open(path) as stream, reading(path):
        nanos, micros = (
            parquet.ParquetFile(stream, coerce_int96_timestamp_unit=unit) for unit in ("ns", "us")
        )
        columns = (nanos.schema.column(i) for i in range(len(nanos.schema)))
        names = [column.path for column in columns if column.physical_type == "INT96"]
        if not names:
            return False
        pairs = zip(
            nanos.iter_batches(columns=names), micros.iter_batches(columns=names), strict=True
        )
        return any(
            _lost(fine, cut)
            for fine_batch, cut_batch in pairs
            for pair in zip(fine_batch.columns, cut_batch.columns, strict=True)
            for fine, cut in zip(*map(leaves, pair), strict=True)
            if pa.types.is_timestamp(fine.type)
        )


def _lost(nanos: pa.Array, micros: pa.Array) -> bool:
    """Whether truncation loses digits; values that overflow nanoseconds are skipped."""
    held = np.abs(filled(micros, 0)) < _MOST
    return bool((held & (filled(nanos, 0) % 1000 != 0)).any())


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
        inside = list(field.type) if pa.types.is_struct(field.type) else []
        if field.name != ROW or not inside or any("." in inner.name for inner in inside):
            if has_leaf(field.type, pa.types.is_timestamp):
                yield field.name
        else:
            for inner in inside:
                if has_leaf(inner.type, pa.types.is_timestamp):
                    yield f"{ROW}.{inner.name}"
