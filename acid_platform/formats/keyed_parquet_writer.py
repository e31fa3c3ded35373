"""Writing Parquet files of rows with keys.

The keys are stored unless they follow from the positions. A column whose values repeat gets a
dictionary, other whole numbers are packed: both are decoded in a fraction of the time that a codec
takes. The texts of a file that is copied keep the dictionary that they came with.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import Executor

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from acid_platform.errors import CompactionRefused, CorruptFile, WrongType
from acid_platform.formats.data_file import KEY, Keyed, KeyPart, KeyRun
from acid_platform.formats.field_ids import field_with_id, leaf_paths, with_ids
from acid_platform.formats.keyed_parquet import (
    BOUNDED_TEXTS,
    DECLARED,
    DELETED,
    FROM,
    HIDDEN,
    KEY_COLUMNS,
    ROWS_HAVE,
    SORTED,
    STORED,
    UPDATED,
    ranges_by_id,
    ranges_of_keys,
)
from acid_platform.formats.parquet import ParquetWriter
from acid_platform.layout.acid_keys import RowKey, ascend
from acid_platform.layout.file_entries import FileEntry, Footer
from acid_platform.layout.types import Column
from acid_platform.storage.files import Files
from acid_platform.values.arrow_types import from_numpy, is_utf8, plain, recoded

PAGE_ROWS = 1 << 16
"""Rows of a page at most: its header is looked at before it is decoded, and each has a decoder of
its own, so that many small ones cost more than readers win that skip some of them."""


class KeyedParquetWriter(ParquetWriter):
    """Writes one file of inserted rows or, with `deletes`, of delete events, see FileWriter.

    The keys are stored unless the first rows have a run of them: then so must all others. `put` and
    `close` raise CorruptFile if the keys do not ascend (F7), unless the rows are sorted
    `by_columns` (P85), WrongType for a text that is not UTF-8, which a Parquet file can't hold, and
    CompactionRefused for times with nanoseconds.
    """

    codec = "zstd"

    def __init__(
        self,
        files: Files,
        path: str,
        columns: Sequence[Column],
        deletes: bool = False,
        always: bool = False,
        pool: Executor | None = None,
        by_columns: bool = False,
    ) -> None:
        super().__init__(files, path, () if deletes else columns, always, pool)
        self._deletes, self._columns, self._by_columns = deletes, columns, by_columns
        own = zip(self._schema, () if deletes else columns, strict=True)
        self._own = [
            field_with_id(field.name, with_ids(field.type, column.id), column.id, True)
            for field, column in own
        ]
        self._first: KeyRun | None = None
        """The run of the keys of all rows; None: they are stored."""
        self._last: RowKey | None = None
        self._has_updates = False

    def put(self, rows: Keyed) -> None:
        if not len(rows):
            return
        if self._last is None:
            self._begin_with(rows)
        hidden = list[pa.Array]()
        if self._first is None:
            rows = rows.stored()
            self._require_order(rows)
            hidden = self._hidden(rows)
        else:
            self._require_run(rows)
        own = [] if rows.values is None else self._stored(rows)
        self.write(pa.RecordBatch.from_arrays([*own, *hidden], schema=self._schema))

    def _begin_with(self, rows: Keyed) -> None:
        """Decides by the first rows how keys are stored."""
        stored = self._deletes or self._by_columns
        self._first = rows.keys if isinstance(rows.keys, KeyRun) and not stored else None
        self._has_updates = rows.updated is not None
        if rows.values is not None:
            kinds = zip(self._own, rows.values.schema.types, strict=True)
            self._own = [
                field.with_type(kind) if pa.types.is_dictionary(kind) else field
                for field, kind in kinds
            ]
        self._schema = self._schema_of_file()

    def _schema_of_file(self) -> pa.Schema:
        hidden = (
            [] if self._first is not None else [field_with_id(*KEY_COLUMNS[part]) for part in KEY]
        )
        if self._deletes:
            hidden += [field_with_id(*KEY_COLUMNS[KeyPart.CHANGED_BY])]
            hidden += [field_with_id(*UPDATED)] if self._has_updates else []
        return pa.schema([*self._own, *hidden])

    def _require_run(self, rows: Keyed) -> None:
        keys, first = rows.keys, self._first
        assert isinstance(keys, KeyRun) and first is not None, "all rows have keys of one run"
        expected = KeyRun(first.write_id, first.bucket, first.first + self.rows)
        if keys != expected or rows.changed_by != first.write_id:
            raise CorruptFile(f"{self.path}: row keys are no run; run the statement again")
        self._last = (first.write_id, first.bucket, expected.first + len(rows) - 1)

    def _require_order(self, rows: Keyed) -> None:
        w, b, r = rows.ids
        first, last = ((int(w[at]), int(b[at]), int(r[at])) for at in (0, -1))
        ids = (each.astype(np.int64, copy=False) for each in (w, b, r))
        above_last = self._last is None or first > self._last
        if not self._by_columns and not (above_last and ascend(*ids)):
            raise CorruptFile(f"{self.path}: row keys do not ascend; run the statement again")
        if not self._deletes and (rows.makers() != w).any():
            raise CorruptFile(
                f"{self.path}: a row says that another write than that of its key inserted it;"
                " restore the file that it is from"
            )
        self._last = last

    def _hidden(self, rows: Keyed) -> list[pa.Array]:
        w, b, r = rows.ids
        made = [from_numpy(each) for each in (w, b.astype(np.int32, copy=False), r)]
        if self._deletes:
            made.append(from_numpy(rows.makers()))
            if self._has_updates:
                assert rows.updated is not None, "each event tells whether it is of an update"
                made.append(from_numpy(rows.updated))
        return made

    def _stored(self, rows: Keyed) -> list[pa.Array]:
        assert rows.values is not None
        columns = list[pa.Array]()
        for field, array in zip(self._own, rows.values.columns, strict=True):
            if pa.types.is_dictionary(field.type):
                columns.append(recoded(array))
                continue
            array = plain(array)
            if not rows.checked and not is_utf8(array):
                raise WrongType(
                    f"{self.path}: column {field.name} has a text that is not UTF-8, which Parquet"
                    " can't hold; store it as binary, or in a table whose acid.format is orc"
                )
            try:
                columns.append(array if array.type == field.type else array.cast(field.type))
            except pa.ArrowInvalid as error:
                raise CompactionRefused(
                    f"{self.path}: column {field.name} has times with nanoseconds, which would be"
                    f" cut to microseconds ({error}); round them where they are written"
                ) from error
        return columns

    def _options(self, first: pa.Table) -> dict[str, object]:
        hidden = [name for name in self._schema.names if name in HIDDEN and name != UPDATED[0]]
        own = [field for field in self._own if _has_repeated(first.column(field.name))]
        packed = [field.name for field in self._own if field not in own and _is_whole(field.type)]
        paths = (path for field in first.schema for path in leaf_paths(field))
        return {
            # What is packed has nothing left that a codec finds, and it takes most of the time.
            "compression": dict.fromkeys(paths, self.codec) | dict.fromkeys(packed, "none"),
            "write_page_index": True,
            "max_rows_per_page": PAGE_ROWS,
            "use_dictionary": [path for field in own for path in leaf_paths(field)],
            "column_encoding": dict.fromkeys([*hidden, *packed], "DELTA_BINARY_PACKED"),
        }

    def _begin(self, first: pa.Table) -> parquet.ParquetWriter:
        if self._last is None:  # a file without rows
            self._schema = self._schema_of_file()
            first = self._schema.empty_table()
        writer = super()._begin(first)
        note = DELETED if self._deletes else SORTED if self._by_columns else STORED
        if (run := self._first) is not None:
            note = f"{FROM}{run.write_id},{run.bucket},{run.first}"
        writer.add_key_value_metadata({ROWS_HAVE.decode(): note})
        if not self._deletes:
            told = [[each.id, each.name, str(each.type)] for each in self._columns]
            text = json.dumps(told, ensure_ascii=False, separators=(",", ":"))
            writer.add_key_value_metadata({DECLARED.decode(): text})
        return writer

    def record(self, name: str) -> FileEntry:
        footer = Footer(self.rows, acid=True, format="parquet", exact=True)
        if self._deletes or self._metadata is None or not self.rows:
            return FileEntry(name, self._size, footer)
        texts = {each.name for each in self._columns if each.type.kind in BOUNDED_TEXTS}
        ranges = ranges_by_id(self._metadata, self._own, texts)
        keys = ranges_of_keys(self._metadata, self._first, self._by_columns)
        return FileEntry(name, self._size, footer, None, ranges, keys)


_SAMPLED = 1 << 14
"""From twice as many rows on, about so many of them tell which columns get a dictionary."""


def _has_repeated(column: pa.ChunkedArray) -> bool:
    """Whether a dictionary of the values pays: of most columns without repetitions the writer would
    make a part of one, and then store their values all the same."""
    if len(column) < 2 * _SAMPLED or column.type.num_fields or pa.types.is_dictionary(column.type):
        return True
    step = len(column) // _SAMPLED  # out of all chunks at once, texts would be copied
    sample = pa.chunked_array([each[::step] for each in column.chunks], column.type)
    return len(sample.unique()) <= len(sample) // 2


def _is_whole(kind: pa.DataType) -> bool:
    """Whether the values are whole numbers of 32 or 64 bits in the file."""
    if pa.types.is_decimal(kind):
        return bool(kind.precision <= _DIGITS_OF_64_BITS)
    return bool(pa.types.is_integer(kind) or pa.types.is_temporal(kind))


_DIGITS_OF_64_BITS = 18
