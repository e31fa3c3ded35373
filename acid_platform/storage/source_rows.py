"""Rows of one source through Arrow, each with its identity (storage.md section 7.1)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acid_platform.errors import CorruptFile
from acid_platform.layout.types import Column
from acid_platform.snapshot.sources import Source, SourceKind
from acid_platform.storage.arrow_types import arrow_type
from acid_platform.storage.files import Files
from acid_platform.storage.orc import acid_columns
from acid_platform.storage.sources import open_source

IDENTITY = ("__w", "__b", "__r", "__c")
"""Write id, bucket property, rowId and currentTransaction: bigint, int, bigint, bigint."""


def source_batches(
    files: Files, source: Source, columns: Sequence[Column], table: Sequence[Column]
) -> Iterator[pa.RecordBatch]:
    """`columns` and IDENTITY of an ACID or RAW source, a stripe at a time; no row is left out.

    Columns are matched by name, in any case, or by their position in `table` where the file has
    none; absent ones are NULL. Raises CorruptFile.
    """
    file = open_source(files, source)
    acid = source.kind is SourceKind.ACID
    names = acid_columns(file, source.path) if acid else list(file.schema.names)
    first = source.first_row_id
    for index in range(file.nstripes):
        batch = file.read_stripe(index)
        rows = batch.num_rows
        if not rows:
            continue
        if acid:
            keys = [batch.column(i) for i in (1, 2, 3, 4)]
            row = batch.column(names.index(names[5]))
            stored = {row.type.field(i).name.lower(): pc.struct_field(row, [i])
                      for i in range(row.type.num_fields)}
        else:
            keys = [np.full(rows, source.write_id), np.full(rows, source.bucket),
                    np.arange(first, first + rows), np.full(rows, source.write_id)]
            given = [c.name for c in table] if source.positional else [n.lower() for n in names]
            stored = dict(zip(given, batch.columns, strict=False))
            first += rows
        kinds = (pa.int64(), pa.int32(), pa.int64(), pa.int64())
        arrays = [_as_declared(stored.get(one.name), one, rows, source.path) for one in columns]
        arrays += [_key(key, kind) for key, kind in zip(keys, kinds, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, [*(one.name for one in columns), *IDENTITY])


def _key(values: pa.Array | np.ndarray, kind: pa.DataType) -> pa.Array:
    return values.cast(kind) if isinstance(values, pa.Array) else pa.array(values, kind)


def _as_declared(stored: pa.Array | None, column: Column, rows: int, path: str) -> pa.Array:
    wanted = arrow_type(column.type)
    if stored is None:
        return pa.nulls(rows, wanted)
    try:
        # Spark's timestamps have microseconds, ORC's nanoseconds: the rest is cut, as Spark does.
        return stored.cast(wanted, safe=not pa.types.is_timestamp(wanted))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise CorruptFile(
            f"{path}: column {column.name!r} is {column.type} in the table, and the file has"
            f" {stored.type}: {error}; declare the column as the file has it") from error
