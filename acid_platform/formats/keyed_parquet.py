"""Parquet files of rows with keys: the user's columns, flat, each with its id (P15, F6).

The rows of a file that a statement inserts have keys that follow from their positions, and its
footer tells the first one: it holds the user's columns alone. A file of rows that were compacted
stores their keys in three columns more, and one of delete events stores nothing but keys, the write
id of each event, and whether it belongs to an update. Other readers see a plain file; the ids of
the columns of keys are ones that no table gives.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from functools import cached_property
from itertools import accumulate

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from acid_platform.errors import (
    CompactionRefused,
    CorruptFile,
    InvalidDefinition,
    UnsupportedLayout,
    WrongType,
)
from acid_platform.formats.data_file import (
    DELETE_EVENT,
    INSERT_EVENT,
    KEY,
    ColumnOfFile,
    Keyed,
    KeyPart,
    KeyRun,
    StoredKeys,
    WideTimestamps,
    require_operation,
)
from acid_platform.formats.field_ids import field_with_id, has_ids, id_of, leaf_paths, with_ids
from acid_platform.formats.parquet import ParquetData, ParquetWriter, column_ranges
from acid_platform.formats.parquet_files import open_parquet
from acid_platform.layout.acid_keys import RowKey, ascend
from acid_platform.layout.file_entries import (
    MOST_COLUMNS,
    ColumnRange,
    FileEntry,
    Footer,
    KeyRanges,
    of_id,
)
from acid_platform.layout.table_properties import FILE_FORMAT
from acid_platform.layout.types import Column, parse_type
from acid_platform.storage.files import Files
from acid_platform.values.arrow_types import from_numpy, has_leaf, is_utf8, values_of, with_leaves

ROWS_HAVE = b"acid.rows"
"""The key of the footer's note about the keys of the rows."""
_STORED, _DELETED, _FROM = "stored", "deleted", "from "
"""What it says: keys are stored, also of delete events, or those of all rows follow from the first,
as `from 7,536870912,0`: a write id, a bucket property and a rowId."""

_DECLARED = b"acid.columns"
"""The key of the note about the columns as the table declares them, whose types are more than those
of Parquet: JSON, a list of `[id, name, type]`. Files of delete events have none."""

_COLUMNS = {
    KeyPart.WRITE_ID: ("__write_id", pa.int64(), 2_000_000_001),
    KeyPart.BUCKET: ("__bucket", pa.int32(), 2_000_000_002),
    KeyPart.ROW_ID: ("__row_id", pa.int64(), 2_000_000_003),
    KeyPart.CHANGED_BY: ("__changed_by", pa.int64(), 2_000_000_004),
}
"""The name, type and id of the column with each part of the keys; the last is of delete events."""
NAMES_OF_KEYS = {part: name for part, (name, _, _) in _COLUMNS.items()}
_UPDATED = ("__updated", pa.bool_(), 2_000_000_005)
"""Whether a delete event belongs to an update."""
_HIDDEN = frozenset({_UPDATED[0], *(name for name, _, _ in _COLUMNS.values())})
_TEXTS = ("string", "varchar")
"""The types of texts with bounds; those of a CHAR have blanks."""
PAGE_ROWS = 1 << 16
"""Rows of a page at most: its header is looked at before it is decoded, and each has a decoder of
its own, so that many small ones cost more than readers win that skip some of them."""


class KeyedParquet(ParquetData):
    """An open file whose rows have keys."""

    has_texts_as_bytes = False
    has_checked_text = has_key_index = True

    @cached_property
    def _note(self) -> str:
        """Raises CorruptFile for a file without keys."""
        told: bytes = (self._file.metadata.metadata or {}).get(ROWS_HAVE, b"")
        note = told.decode("utf-8", "replace")
        if note not in (_STORED, _DELETED) and self._run_of(note) is None:
            raise CorruptFile(
                f"{self.path} does not say which keys its rows have, but {note[:60]!r}; restore it"
                " or drop its transaction"
            )
        return note

    @staticmethod
    def _run_of(note: str) -> KeyRun | None:
        numbers = note.removeprefix(_FROM).split(",")
        if not note.startswith(_FROM) or len(numbers) != 3 or not all(map(str.isdecimal, numbers)):
            return None
        return KeyRun(*map(int, numbers))

    @cached_property
    def _run(self) -> KeyRun | None:
        return self._run_of(self._note)

    @cached_property
    def _starts(self) -> list[int]:
        return [*accumulate(self.piece_rows, initial=0)]

    @property
    def names(self) -> list[str]:
        return [name for name in super().names if name not in _HIDDEN]

    @cached_property
    def ids(self) -> Mapping[int, str]:
        return {number: field.name for field in self._fields if (number := id_of(field))}

    @property
    def without_ids_inside(self) -> frozenset[int]:
        """The ids of columns with fields inside that have none, as older versions wrote them."""
        fields = {id_of(field): field.type for field in self._fields}
        return frozenset(number for number, kind in fields.items() if not has_ids(kind, number))

    @property
    def declared(self) -> tuple[Column, ...]:
        """The columns as the table declared them when it was written. Raises CorruptFile, and
        UnsupportedLayout for a file that does not tell."""
        notes: Mapping[bytes, bytes] = self._file.metadata.metadata or {}
        if ROWS_HAVE not in notes:
            raise UnsupportedLayout(
                f"{self.path} is plain Parquet, whose rows have no keys; `acid import parquet`"
                " brings them into a table, or CREATE EXTERNAL TABLE … LOCATION reads them there"
            )
        note = notes.get(_DECLARED)
        if note is None:
            raise UnsupportedLayout(
                f"{self.path} does not tell the types that were declared; adopt_table(name,"
                f" location, 'id int, …', properties={{'{FILE_FORMAT.name}': 'parquet'}})"
            )
        try:
            told = [(int(number), str(name), str(kind)) for number, name, kind in json.loads(note)]
            return tuple(Column(name, parse_type(kind), number) for number, name, kind in told)
        except (ValueError, TypeError, RecursionError, InvalidDefinition) as error:
            raise CorruptFile(
                f"{self.path} has a note of columns that can't be read: {error}; restore it"
            ) from error

    @property
    def _fields(self) -> list[pa.Field]:
        return [field for field in self._file.schema_arrow if field.name not in _HIDDEN]

    @property
    def summary(self) -> Footer:
        _ = self._note
        return Footer(self.rows, acid=True, format="parquet")

    def type_of(self, column: ColumnOfFile) -> pa.DataType:
        if isinstance(column, KeyPart):
            return _COLUMNS[column][1] if column in _COLUMNS else pa.int32()
        return super().type_of(column)

    # --- statistics ----------------------------------------------------------------------------

    @property
    def ranges(self) -> Mapping[str, ColumnRange]:
        """Without the bounds of texts: those of a CHAR have blanks, and nobody says which are."""
        return _by_id(self._file.metadata, self._fields)

    def piece_ranges(self, column: str) -> Sequence[ColumnRange | None]:
        metadata, groups = self._file.metadata, range(self._file.metadata.num_row_groups)
        known = [column_ranges(metadata, [column], self._texts, group) for group in groups]
        return [known[group].get(column) for group, _, _ in self._pieces]

    @cached_property
    def _texts(self) -> set[str]:
        """The columns that were declared as texts whose bounds say how they compare."""
        if _DECLARED not in (self._file.metadata.metadata or {}):
            return set()
        return {each.name for each in self.declared if each.type.kind in _TEXTS}

    @property
    def key_ranges(self) -> KeyRanges | None:
        if self._note == _DELETED or not self.rows:
            return None
        return _key_ranges(self._file.metadata, self._run)

    # --- keys ----------------------------------------------------------------------------------

    @property
    def key_columns(self) -> list[str]:
        names = {part: name for part, (name, _, _) in _COLUMNS.items()}
        _ = self._note
        if self._note != _DELETED:
            names[KeyPart.CHANGED_BY] = names[KeyPart.WRITE_ID]
        return [names.get(part, "the kind of an event") for part in KeyPart]

    def decode(
        self,
        piece: int,
        columns: Collection[ColumnOfFile],
        as_stored: bool = False,
        coded: bool = False,
    ) -> dict[ColumnOfFile, pa.Array]:
        parts = [column for column in columns if isinstance(column, KeyPart)]
        stored = {part: self.key_columns[part] for part in parts} if self._run is None else {}
        stored.pop(KeyPart.EVENT, None)
        names = dict.fromkeys([*(each for each in columns if each not in parts), *stored.values()])
        arrays = super().decode(piece, list(names), as_stored, coded) if names else {}
        made = {part: self._key_part(part, piece, arrays, stored) for part in parts}
        return {column: made[column] if column in parts else arrays[column] for column in columns}

    def _key_part(
        self,
        part: KeyPart,
        piece: int,
        arrays: Mapping[ColumnOfFile, pa.Array],
        stored: Mapping[KeyPart, str],
    ) -> pa.Array:
        """A part of the keys of a piece."""
        if part in stored:
            return arrays[stored[part]]
        rows, run = self.piece_rows[piece], self._run
        if run is None or part is KeyPart.EVENT:
            event = DELETE_EVENT if self._note == _DELETED else INSERT_EVENT
            return from_numpy(np.full(rows, event, np.int32))
        if part is KeyPart.ROW_ID:
            first = run.first + self._starts[piece]
            return from_numpy(np.arange(first, first + rows))
        return from_numpy(np.full(rows, run.bucket if part is KeyPart.BUCKET else run.write_id))

    def key_parts(self, *parts: KeyPart) -> Iterator[list[np.ndarray]]:
        for piece in range(len(self.piece_rows)):
            arrays = self.decode(piece, parts)
            yield [self._numbers(arrays[part]) for part in parts]

    def _numbers(self, array: pa.Array) -> np.ndarray:
        if array.null_count:
            raise CorruptFile(f"{self.path} has an event without a row key; restore the file")
        return values_of(array).astype(np.int64, copy=False)

    def changes(
        self,
        run: KeyRun | None = None,
        deletes: bool = False,
        timestamps: str = "ns",
        values: bool = True,
    ) -> Iterator[Keyed]:
        assert run is None, "the file says which keys its rows have"
        expected = DELETE_EVENT if deletes else INSERT_EVENT
        event = DELETE_EVENT if self._note == _DELETED else INSERT_EVENT
        require_operation(np.array([event]), expected, self.path)
        names = self.names if values and not deletes else []
        for piece, rows in enumerate(self.piece_rows):
            if not rows:
                continue
            arrays = self.decode(piece, [*KEY, KeyPart.CHANGED_BY, *names])
            keys = StoredKeys(*(self._numbers(arrays[part]) for part in KEY))
            batch = None
            if names:
                columns = [_in_unit(arrays[name], timestamps) for name in names]
                fields = [
                    field.with_type(column.type)
                    for field, column in zip(self._fields, columns, strict=True)
                ]
                batch = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
            yield Keyed(keys, self._numbers(arrays[KeyPart.CHANGED_BY]), batch)

    def bounds(self, part: KeyPart) -> tuple[int, int]:
        every = [ids for (ids,) in self.key_parts(part) if len(ids)]
        if not every:
            raise CorruptFile(f"{self.path} has no row; restore the file")
        return min(int(ids.min()) for ids in every), max(int(ids.max()) for ids in every)

    def updates(self, events: int) -> np.ndarray:
        name, _, _ = _UPDATED
        if name not in super().names:
            return np.zeros(events, bool)
        pieces = range(len(self.piece_rows))
        told = [values_of(super(KeyedParquet, self).decode(n, [name])[name]) for n in pieces]
        updated = np.concatenate([np.zeros(0, bool), *told])
        if len(updated) != events:
            raise CorruptFile(f"{self.path} has {len(updated)} events, not {events}; restore it")
        return updated

    def holds_deletes(self) -> bool:
        return self._note == _DELETED

    def key_index_flaw(
        self,
        ids: Sequence[np.ndarray],  # noqa: ARG002, other formats need them
    ) -> tuple[str, bool] | None:
        return None


def open_parquet_rows(files: Files, path: str, keyed: bool | None) -> ParquetData:
    """The file of a path. `keyed`: whether its rows have keys; None: its footer tells. Raises as
    `file_access.open_file`."""
    opened = open_parquet(files.open(path), path)
    says_keys = ROWS_HAVE in (opened.metadata.metadata or {})
    if says_keys and keyed is False:
        raise UnsupportedLayout(
            f"{path} is a file of a transactional table, which says by itself nothing of what"
            " counts; make its directory a table by `acid adopt`, or read the table"
        )
    return (KeyedParquet if keyed or says_keys else ParquetData)(files, path, opened=opened)


def shown_batches(files: Files, path: str) -> Iterator[pa.RecordBatch]:
    """All rows of a file with their keys, if they have some. Raises as `file_access.open_file`."""
    file = open_parquet_rows(files, path, None)
    parts = [*KEY, KeyPart.CHANGED_BY] if isinstance(file, KeyedParquet) else []
    shown = [_COLUMNS[part][0] for part in parts]
    for piece in range(len(file.piece_rows)):
        arrays = file.decode(piece, [*parts, *file.names])
        yield pa.RecordBatch.from_arrays([*arrays.values()], names=[*shown, *file.names])


def _in_unit(array: pa.Array, timestamps: str) -> pa.Array:
    """The array with its times, which are in microseconds, in this unit. Raises WideTimestamps."""
    if timestamps == "us" or not has_leaf(array.type, pa.types.is_timestamp):
        return array
    try:
        return with_leaves(
            array, pa.types.is_timestamp, lambda part: part.cast(pa.timestamp("ns", part.type.tz))
        )
    except pa.ArrowInvalid as error:
        raise WideTimestamps from error


def _by_id(
    metadata: parquet.FileMetaData, fields: Sequence[pa.Field], texts: Container[str] = ()
) -> Mapping[str, ColumnRange]:
    """The ranges of these columns, as a record has them."""
    keys = {field.name: of_id(id_of(field)) for field in fields[:MOST_COLUMNS]}
    return {keys[name]: each for name, each in column_ranges(metadata, keys, texts).items()}


def _key_ranges(metadata: parquet.FileMetaData, run: KeyRun | None) -> KeyRanges | None:
    """The bounds of the keys of all rows, of a run, or else as they are stored."""
    if run is not None:
        last = run.first + metadata.num_rows - 1
        return KeyRanges((run.write_id,) * 2, (run.bucket,) * 2, (run.first, last))
    ranges = column_ranges(metadata, [_COLUMNS[part][0] for part in KEY])
    bounds = list[tuple[int, int]]()
    for part in KEY:
        known = ranges.get(_COLUMNS[part][0])
        if known is None or not isinstance(known.low, int) or not isinstance(known.high, int):
            return None
        if known.nulls or known.low < 0:  # scans take a negative number for a missing key
            return None
        bounds.append((known.low, known.high))
    return KeyRanges(*bounds)


class KeyedParquetWriter(ParquetWriter):
    """Writes one file of inserted rows or, with `deletes`, of delete events, see FileWriter.

    The keys are stored unless the first rows have a run of them: then so must all others. `put` and
    `close` raise CorruptFile if the keys do not ascend (F7), WrongType for a text that is not
    UTF-8, which a Parquet file can't hold, and CompactionRefused for times with nanoseconds.
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
    ) -> None:
        super().__init__(files, path, () if deletes else columns, always, pool)
        self._deletes, self._columns = deletes, columns
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
        self._first = rows.keys if isinstance(rows.keys, KeyRun) and not self._deletes else None
        self._has_updates = rows.updated is not None
        self._schema = self._schema_of_file()

    def _schema_of_file(self) -> pa.Schema:
        hidden = [] if self._first is not None else [field_with_id(*_COLUMNS[part]) for part in KEY]
        if self._deletes:
            hidden += [field_with_id(*_COLUMNS[KeyPart.CHANGED_BY])]
            hidden += [field_with_id(*_UPDATED)] if self._has_updates else []
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
        if not ascend(*(each.astype(np.int64, copy=False) for each in (w, b, r))) or (
            self._last is not None and first <= self._last
        ):
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
        hidden = [name for name in self._schema.names if name in _HIDDEN and name != _UPDATED[0]]
        own = [field for field in self._own if _has_repeated(first.column(field.name))]
        return {
            "compression": self.codec,
            "write_page_index": True,
            "max_rows_per_page": PAGE_ROWS,
            "use_dictionary": [path for field in own for path in leaf_paths(field)],
            "column_encoding": dict.fromkeys(hidden, "DELTA_BINARY_PACKED"),
        }

    def _begin(self, first: pa.Table) -> parquet.ParquetWriter:
        if self._last is None:  # a file without rows
            self._schema = self._schema_of_file()
            first = self._schema.empty_table()
        writer = super()._begin(first)
        note = _DELETED if self._deletes else _STORED
        if (run := self._first) is not None:
            note = f"{_FROM}{run.write_id},{run.bucket},{run.first}"
        writer.add_key_value_metadata({ROWS_HAVE.decode(): note})
        if not self._deletes:
            told = [[each.id, each.name, str(each.type)] for each in self._columns]
            text = json.dumps(told, ensure_ascii=False, separators=(",", ":"))
            writer.add_key_value_metadata({_DECLARED.decode(): text})
        return writer

    def record(self, name: str) -> FileEntry:
        footer = Footer(self.rows, acid=True, format="parquet", exact=True)
        if self._deletes or self._metadata is None or not self.rows:
            return FileEntry(name, self._size, footer)
        texts = {each.name for each in self._columns if each.type.kind in _TEXTS}
        ranges = _by_id(self._metadata, self._own, texts)
        keys = _key_ranges(self._metadata, self._first)
        return FileEntry(name, self._size, footer, None, ranges, keys)


_SAMPLED = 1 << 14
"""From twice as many rows on, about so many of them tell which columns get a dictionary."""


def _has_repeated(column: pa.ChunkedArray) -> bool:
    """Whether a dictionary of the values pays: of most columns without repetitions the writer would
    make a part of one, and then store their values all the same."""
    if len(column) < 2 * _SAMPLED or pa.types.is_nested(column.type):
        return True
    step = len(column) // _SAMPLED  # out of all chunks at once, texts would be copied
    sample = pa.chunked_array([each[::step] for each in column.chunks], column.type)
    return len(sample.unique()) <= len(sample) // 2
