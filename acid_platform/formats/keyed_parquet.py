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
from dataclasses import replace
from functools import cached_property
from itertools import accumulate

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from acid_platform.errors import (
    CorruptFile,
    InvalidDefinition,
    UnsupportedLayout,
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
from acid_platform.formats.field_ids import has_ids, id_of
from acid_platform.formats.parquet import ParquetData, column_ranges
from acid_platform.formats.parquet_files import open_parquet
from acid_platform.layout.file_entries import (
    MOST_COLUMNS,
    ColumnRange,
    Footer,
    KeyRanges,
    of_id,
)
from acid_platform.layout.table_properties import FILE_FORMAT
from acid_platform.layout.types import Column, parse_type
from acid_platform.storage.files import Files
from acid_platform.values.arrow_types import (
    from_numpy,
    has_leaf,
    values_of,
    with_leaves,
)

ROWS_HAVE = b"acid.rows"
"""The key of the footer's note about the keys of the rows."""
STORED, SORTED, DELETED, FROM = "stored", "stored by columns", "deleted", "from "
"""What it says: keys are stored and ascend, or are in any order because the rows are in that of
columns, or are those of delete events; or those of all rows follow from the first, as
`from 7,536870912,0`: a write id, a bucket property and a rowId."""

DECLARED = b"acid.columns"
"""The key of the note about the columns as the table declares them, whose types are more than those
of Parquet: JSON, a list of `[id, name, type]`. Files of delete events have none."""

KEY_COLUMNS = {
    KeyPart.WRITE_ID: ("__write_id", pa.int64(), 2_000_000_001),
    KeyPart.BUCKET: ("__bucket", pa.int32(), 2_000_000_002),
    KeyPart.ROW_ID: ("__row_id", pa.int64(), 2_000_000_003),
    KeyPart.CHANGED_BY: ("__changed_by", pa.int64(), 2_000_000_004),
}
"""The name, type and id of the column with each part of the keys; the last is of delete events."""
NAMES_OF_KEYS = {part: name for part, (name, _, _) in KEY_COLUMNS.items()}
UPDATED = ("__updated", pa.bool_(), 2_000_000_005)
"""Whether a delete event belongs to an update."""
HIDDEN = frozenset({UPDATED[0], *(name for name, _, _ in KEY_COLUMNS.values())})
BOUNDED_TEXTS = ("string", "varchar")
"""The types of texts with bounds; those of a CHAR have blanks."""


class KeyedParquet(ParquetData):
    """An open file whose rows have keys."""

    has_texts_as_bytes = False
    has_checked_text = True

    @cached_property
    def _note(self) -> str:
        """Raises CorruptFile for a file without keys."""
        told: bytes = (self._file.metadata.metadata or {}).get(ROWS_HAVE, b"")
        note = told.decode("utf-8", "replace")
        if note not in (STORED, SORTED, DELETED) and self._run_of(note) is None:
            raise CorruptFile(
                f"{self.path} does not say which keys its rows have, but {note[:60]!r}; restore it"
                " or drop its transaction"
            )
        return note

    @property
    def by_columns(self) -> bool:  # type: ignore[override]
        return self._note == SORTED

    @property
    def has_key_index(self) -> bool:  # type: ignore[override]
        return not self.by_columns

    @staticmethod
    def _run_of(note: str) -> KeyRun | None:
        numbers = note.removeprefix(FROM).split(",")
        if not note.startswith(FROM) or len(numbers) != 3 or not all(map(str.isdecimal, numbers)):
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
        return [name for name in super().names if name not in HIDDEN]

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
        note = notes.get(DECLARED)
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
        return [field for field in self._file.schema_arrow if field.name not in HIDDEN]

    @property
    def summary(self) -> Footer:
        _ = self._note
        return Footer(self.rows, acid=True, format="parquet")

    def type_of(self, column: ColumnOfFile) -> pa.DataType:
        if isinstance(column, KeyPart):
            return KEY_COLUMNS[column][1] if column in KEY_COLUMNS else pa.int32()
        return super().type_of(column)

    def require_bounded(self, names: Sequence[str]) -> None:
        """Looks at what these columns would unpack to, for a reader that does not. Raises
        CorruptFile as `decode`."""
        for group in range(self._file.num_row_groups):
            self._file.bounds.require(group, names)

    # --- statistics ----------------------------------------------------------------------------

    @property
    def ranges(self) -> Mapping[str, ColumnRange]:
        """Without the bounds of texts: those of a CHAR have blanks, and nobody says which are."""
        return ranges_by_id(self._file.metadata, self._fields)

    def piece_ranges(self, column: str) -> Sequence[ColumnRange | None]:
        metadata, groups = self._file.metadata, range(self._file.metadata.num_row_groups)
        known = [column_ranges(metadata, [column], self._texts, group) for group in groups]
        return [known[group].get(column) for group, _, _ in self._pieces]

    @cached_property
    def _texts(self) -> set[str]:
        """The columns that were declared as texts whose bounds say how they compare."""
        if DECLARED not in (self._file.metadata.metadata or {}):
            return set()
        return {each.name for each in self.declared if each.type.kind in BOUNDED_TEXTS}

    @property
    def key_ranges(self) -> KeyRanges | None:
        if self._note == DELETED or not self.rows:
            return None
        return ranges_of_keys(self._file.metadata, self._run, self.by_columns)

    # --- keys ----------------------------------------------------------------------------------

    @property
    def key_columns(self) -> list[str]:
        names = {part: name for part, (name, _, _) in KEY_COLUMNS.items()}
        _ = self._note
        if self._note != DELETED:
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
            event = DELETE_EVENT if self._note == DELETED else INSERT_EVENT
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
        event = DELETE_EVENT if self._note == DELETED else INSERT_EVENT
        require_operation(np.array([event]), expected, self.path)
        names = self.names if values and not deletes else []
        for piece, rows in enumerate(self.piece_rows):
            if not rows:
                continue
            arrays = self.decode(piece, [*KEY, KeyPart.CHANGED_BY, *names], coded=True)
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
        name, _, _ = UPDATED
        if name not in super().names:
            return np.zeros(events, bool)
        pieces = range(len(self.piece_rows))
        told = [values_of(super(KeyedParquet, self).decode(n, [name])[name]) for n in pieces]
        updated = np.concatenate([np.zeros(0, bool), *told])
        if len(updated) != events:
            raise CorruptFile(f"{self.path} has {len(updated)} events, not {events}; restore it")
        return updated

    def holds_deletes(self) -> bool:
        return self._note == DELETED

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
    shown = [KEY_COLUMNS[part][0] for part in parts]
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


def ranges_by_id(
    metadata: parquet.FileMetaData, fields: Sequence[pa.Field], texts: Container[str] = ()
) -> Mapping[str, ColumnRange]:
    """The ranges of these columns, as a record has them."""
    keys = {field.name: of_id(id_of(field)) for field in fields[:MOST_COLUMNS]}
    return {keys[name]: each for name, each in column_ranges(metadata, keys, texts).items()}


def ranges_of_keys(
    metadata: parquet.FileMetaData, run: KeyRun | None, by_columns: bool = False
) -> KeyRanges | None:
    """The bounds of the keys of all rows, of a run, or else as they are stored. Those of rows in
    the order of columns are wider if need be, so that nobody takes them for a run."""
    if run is not None:
        last = run.first + metadata.num_rows - 1
        return KeyRanges((run.write_id,) * 2, (run.bucket,) * 2, (run.first, last))
    stored = column_ranges(metadata, [KEY_COLUMNS[part][0] for part in KEY])
    bounds = list[tuple[int, int]]()
    for part in KEY:
        known = stored.get(KEY_COLUMNS[part][0])
        if known is None or not isinstance(known.low, int) or not isinstance(known.high, int):
            return None
        if known.nulls or known.low < 0:  # scans take a negative number for a missing key
            return None
        bounds.append((known.low, known.high))
    ranges = KeyRanges(*bounds)
    if by_columns and ranges.without_gaps(metadata.num_rows):
        first, last = ranges.row_ids
        return replace(ranges, row_ids=(first, last + 1))
    return ranges
