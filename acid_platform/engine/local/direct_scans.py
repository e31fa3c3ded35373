"""Scans of which DuckDB reads the files itself, on all cores, with their statistics and what the
joins of a query find while it runs (P82); others are streams of Arrow's batches (computation.py).

Those are local files of rows with keys in Parquet, which hold the columns of the table as they are.
A row is left out by its number in its file: one bit for each row. What a file would unpack to is
looked at before DuckDB sees it, once in a process, as before Arrow decodes it (P65).
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import duckdb
import numpy as np
import pyarrow as pa

from acid_platform.base.first_use import Recent
from acid_platform.base.local_files import identity_of
from acid_platform.engine.interface import ChangeRead, TableRead, columns_of
from acid_platform.engine.local.translation.duckdb_sql import duckdb_type, identifier, text
from acid_platform.errors import CorruptFile
from acid_platform.formats.data_file import KeyRun
from acid_platform.formats.file_access import reading
from acid_platform.formats.keyed_parquet import KeyedParquet
from acid_platform.formats.parquet import WRITTEN_HERE
from acid_platform.layout.types import CHAR_TYPES, FRACTIONS, LOCAL_ZONE, Column
from acid_platform.scan.deletes import DeletedRows
from acid_platform.scan.result_columns import FILE_PLACES, PLACE
from acid_platform.scan.scans import (
    ArrowScan,
    EntityScan,
    Scan,
    partition_scalars,
    rows_of_file,
)
from acid_platform.scan.source_files import SourceFile, open_source
from acid_platform.values.arrow_types import arrow_type, values_of

_FILE, _ROW = "file_index", "file_row_number"
"""DuckDB's names of the number of a file in its list, and of a row in its file."""
_GLOB = frozenset("*?[")
_ROWS_OF_BITS = 1 << 20
_SHORT = 1 << 13
"""Bytes of bits."""
_VALUES_AS_TEXT = ("tinyint", "smallint", "int", "bigint", "string", "date", "decimal")
"""The types of partition columns whose values DuckDB makes of their texts as we do."""
_FEW_BYTES = 32 << 20
_WIDTHS = {"boolean": 1, "tinyint": 1, "smallint": 2, "int": 4, "date": 4, "float": 4}
_WIDTHS |= dict.fromkeys(("bigint", "double", "timestamp"), 8)
_WIDE = 24
"""The bytes of a decoded value, about."""


class UnreadFiles(CorruptFile):
    """DuckDB could not read files itself: as a stream they are read, or an error names the file."""


@dataclass(frozen=True, slots=True)
class _KnownFile:
    """What is known of a file that this process has opened."""

    identity: Hashable
    names: Mapping[int, str]
    """By the id of a column."""
    types: Mapping[str, pa.DataType]
    rows: int
    bounded: frozenset[str] = frozenset()
    """The columns that were looked at."""


_FILES: Recent[Hashable, _KnownFile] = Recent(10_000)
_GONE: Recent[Hashable, tuple[object, np.ndarray]] = Recent(10_000, 64 << 20)
"""By a file and the object with what is deleted in it, which is kept beside: see `_gone`."""


@dataclass(frozen=True, slots=True)
class _FilePart:
    """A file, and what differs between the files of a scan."""

    path: str
    number: int
    """Its number in the scan, see PLACE."""
    rows: int
    stored: tuple[str | None, ...]
    """The name in the file of each column of the scan; None if it has no such column."""
    values: tuple[str | None, ...]
    """The values of its partition."""
    gone: np.ndarray | None
    """A bit for each row, uint8 (⌈rows / 8⌉,), of which the first is the highest: those that are
    set are not read. None: all rows are."""


@dataclass(frozen=True, slots=True)
class DirectScan:
    """A scan as DuckDB reads it."""

    columns: tuple[Column, ...]
    partition_columns: tuple[Column, ...]
    files: tuple[_FilePart, ...]
    directory: str
    """Where its files lie."""

    @property
    def rows(self) -> int:
        """The rows of its files, whether they are read or not."""
        return sum(file.rows for file in self.files)

    def of_all_rows(self) -> DirectScan:
        """The scan with the rows, too, that are not read: see `live`."""
        return replace(self, files=tuple(replace(file, gone=None) for file in self.files))

    def live(self, places: np.ndarray) -> np.ndarray:
        """The mask (n,) of the rows with these places, which ascend, that are read."""
        keep = np.ones(len(places), bool)
        for file in self.files:
            if file.gone is None:
                continue
            low, high = np.searchsorted(
                places, [file.number * FILE_PLACES, (file.number + 1) * FILE_PLACES]
            )
            rows = places[low:high] - file.number * FILE_PLACES
            keep[low:high] = file.gone[rows >> 3] >> (7 - (rows & 7)) & 1 == 0
        return keep

    @property
    def is_better_kept(self) -> bool:
        """Whether a query that is asked again takes less time if its columns stay decoded: to look
        at a bit of each row takes longer than to read a few columns of it."""
        changed = any(file.gone is not None for file in self.files)
        widths = sum(_WIDTHS.get(column.type.kind, _WIDE) for column in self.columns)
        return changed and self.rows * widths <= _FEW_BYTES

    @property
    def in_order(self) -> bool:
        """Whether its rows come in the order of their places."""
        return len({file.stored for file in self.files}) < 2

    def create(self, connection: duckdb.DuckDBPyConnection, name: str) -> None:
        """Makes the view `name`, which this connection alone sees. Raises duckdb.Error."""
        alike = dict[tuple[str | None, ...], list[_FilePart]]()
        for file in self.files:
            alike.setdefault(file.stored, []).append(file)
        selects = [
            self._select(_Variables(connection, f"{name}_{number}"), files)
            for number, files in enumerate(alike.values())
        ]
        sql = " UNION ALL ".join(selects)
        connection.execute(f"CREATE TEMP VIEW {identifier(name)} AS {sql}")

    def _select(self, variables: _Variables, files: Sequence[_FilePart]) -> str:
        """SQL of the rows of files whose columns have the same names."""

        def of_each(values: Sequence[object], kind: str) -> str:
            """A value that each row of a file has."""
            return f"list_extract({variables.holding(values, kind)}, ({_FILE} + 1)::BIGINT)"

        items = list[str]()
        for column, stored in zip(self.columns, files[0].stored, strict=True):
            if column == PLACE:
                first = of_each([each.number * FILE_PLACES for each in files], "BIGINT[]")
                value = f"{first} + {_ROW}"
            else:
                value = _value(column, stored)
            items.append(f"{value} AS {identifier(column.name)}")
        for number, column in enumerate(self.partition_columns):
            values = [each.values[number] for each in files]
            value = f"CAST({of_each(values, 'VARCHAR[]')} AS {duckdb_type(column.type)})"
            items.append(f"{value} AS {identifier(column.name)}")
        paths = ", ".join(text(each.path) for each in files)
        sql = (
            f"SELECT {', '.join(items)}"
            f" FROM read_parquet([{paths}], hive_partitioning = false, union_by_name = false)"
        )
        if all(each.gone is None for each in files):
            return sql
        return f"{sql} WHERE {_chosen(_FILE, _bits(files, variables))} = 0"


def _value(column: Column, stored: str | None) -> str:
    """SQL of a column that a file has under this name, or has not."""
    if stored is None:
        return f"CAST(NULL AS {duckdb_type(column.type)})"
    own = identifier(stored)
    if all(part.kind not in FRACTIONS for part in column.type.walk()):
        return own
    # The bounds in a file leave NaN out, and DuckDB skips row groups by them: but it looks at no
    # bounds for an expression of two columns.
    return f"CASE WHEN {_ROW} <> -1 THEN {own} END"


class _Variables:
    """Values that the SQL of one connection names."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, name: str) -> None:
        self._connection, self._name, self._count = connection, name, 0

    def holding(self, value: object, kind: str) -> str:
        """SQL of the value, in this type of DuckDB."""
        self._count += 1
        name = f"{self._name}_{self._count}"
        self._connection.execute(f"SET VARIABLE {identifier(name)} = CAST(? AS {kind})", [value])
        return f"getvariable({text(name)})"


def _bits(files: Sequence[_FilePart], variables: _Variables) -> list[tuple[int, str]]:
    """SQL of the bit of a row in each file, by its number in the list.

    DuckDB copies a constant for each few thousand rows: a long one would take longer than to look
    at it. To make a variable takes half a millisecond: those of small files are one list.
    """
    pieces = list[bytes]()
    short = "{short}"

    def of(file: _FilePart) -> str:
        if file.gone is None:
            return "0"
        texts = list[tuple[int, str]]()
        for start in range(0, file.rows, _ROWS_OF_BITS):
            bits = file.gone[start // 8 : (start + _ROWS_OF_BITS) // 8].tobytes()
            if len(bits) < _SHORT:
                pieces.append(bits)
                own = f"{short}[{len(pieces)}]"
            else:
                own = variables.holding(bits, "BIT")
            texts.append((start, f"get_bit({own}, ({_ROW} - {start})::INTEGER)"))
        return _chosen(_ROW, texts)

    found = [of(file) for file in files]
    every = variables.holding(pieces, "BIT[]") if pieces else ""
    return [(number, sql.replace(short, every)) for number, sql in enumerate(found)]


def _chosen(number: str, parts: Sequence[tuple[int, str]]) -> str:
    """SQL of the last part that begins at or before a number."""
    if len(parts) == 1:
        return parts[0][1]
    half = len(parts) // 2
    before, after = _chosen(number, parts[:half]), _chosen(number, parts[half:])
    return f"CASE WHEN {number} < {parts[half][0]} THEN {before} ELSE {after} END"


def direct_scan(
    read: TableRead | ChangeRead, places: np.ndarray | None = None
) -> DirectScan | None:
    """The scan as DuckDB reads it; None if it can't, or if values have to be looked at.

    `places`: only these rows, see ArrowScan; int64 (n,), ascending strictly.
    Raises CorruptFile, UnsupportedLayout.
    """
    if isinstance(read, ChangeRead) or read.row_id or read.file_name:
        return None
    scan, columns = read.scan, columns_of(read)
    keys = tuple(column for column in columns if column in scan.partition_columns)
    stored = tuple(column for column in columns if column not in keys)
    plain = tuple(column for column in stored if column != PLACE)
    inserts = [(entity, source) for entity in scan.entities for source in entity.sources.inserts]
    if (
        not scan.files.local
        or scan.still_open is None
        or not columns
        or not inserts
        or any(column.type.kind not in _VALUES_AS_TEXT for column in keys)
        or not all(_is_plain(source, plain) for _, source in inserts)
    ):
        return None
    parts = list[_FilePart]()
    for number, (entity, source) in enumerate(inserts):
        chosen = None if places is None else rows_of_file(places, number * FILE_PLACES)
        if chosen is not None and not len(chosen):
            continue
        known = _known(scan, source, plain)
        if known is None:
            return None
        gone = _all_but(chosen, known.rows) if chosen is not None else None
        parts.append(
            _FilePart(
                source.path,
                number,
                known.rows,
                tuple(known.names.get(column.id) for column in stored),
                _texts(scan, entity, keys),
                _gone(scan, entity, source, known) if gone is None else gone,
            )
        )
    return DirectScan(stored, keys, tuple(parts), _enclosing(scan.location))


def _is_plain(source: SourceFile, columns: Sequence[Column]) -> bool:
    """Whether the columns of a file have the values of the table's, if they have its types."""
    kinds = {part.kind for column in columns for part in column.type.walk()}
    return (
        source.keyed
        and source.format == "parquet"
        and source.length is None
        and not _GLOB & {*source.path}
        and LOCAL_ZONE not in kinds
        and (source.as_declared or kinds.isdisjoint(CHAR_TYPES))
        and all(map(source.is_sure, columns))
    )


def _texts(scan: Scan, entity: EntityScan, keys: Sequence[Column]) -> tuple[str | None, ...]:
    """The values of these partition columns, which DuckDB casts to their types."""
    values = partition_scalars(scan.partition_columns, entity.values)
    found = (values[column.name] for column in keys)
    return tuple(str(value) if value.is_valid else None for value in found)


def _known(scan: Scan, source: SourceFile, columns: Sequence[Column]) -> _KnownFile | None:
    """The file, of which these columns were looked at; None if DuckDB reads other values of it."""
    with reading(source.path):
        identity = identity_of(source.path)
        known = _FILES.get(identity)
        if known is None or not _names(known, columns) <= known.bounded:
            file = open_source(scan.files, source)
            if not isinstance(file, KeyedParquet):
                return None
            if known is None:
                types = {name: file.type_of(name) for name in file.names}
                known = _KnownFile(identity, file.ids, types, file.rows)
            names = known.bounded | _names(known, columns)
            if not WRITTEN_HERE.get(identity):
                file.require_bounded(sorted(names - known.bounded))
            known = replace(known, bounded=names)
            _FILES.put(identity, known)
    if {_FILE, _ROW} & {name.lower() for name in known.types}:
        return None
    for column in columns:
        name = known.names.get(column.id)
        if name is not None and not known.types[name].equals(arrow_type(column.type)):
            return None
    return known


def _names(known: _KnownFile, columns: Sequence[Column]) -> set[str]:
    return {known.names[column.id] for column in columns if column.id in known.names}


def _gone(
    scan: Scan, entity: EntityScan, source: SourceFile, file: _KnownFile
) -> np.ndarray | None:
    """The bits of the rows that are not read, see _FilePart; None if all are."""
    touched = entity.deletes.may_touch(source.low, source.high, source.number)
    tested = source.test_rows or source.above >= 0 or source.keys is None
    if not (touched or tested):
        return None
    deletes, rows = entity.deletes, file.rows
    key = (file.identity, source, id(deletes), scan.write_ids if tested else None)
    if (kept := _GONE.get(key)) is not None:
        bits = kept[1]
    else:
        if source.keys is not None and source.keys.without_gaps(rows) and not tested:
            (write_id, _), (bucket, _), (first, _) = (
                source.keys.write_ids,
                source.keys.buckets,
                source.keys.row_ids,
            )
            run = KeyRun(write_id, bucket, first)
            gone = ~run.survivors(DeletedRows(deletes), rows)
        else:
            alone = replace(scan, entities=(entity.with_inserts([source]),))
            gone = np.ones(rows, bool)
            gone[values_of(ArrowScan(alone, (PLACE.name,)).table().column(0))] = False
        bits = np.packbits(gone)
        _GONE.put(key, (deletes, bits), bits.nbytes)
    return bits if bits.any() else None


def _all_but(rows: np.ndarray, count: int) -> np.ndarray:
    """The bits of all rows of a file but these."""
    gone = np.ones(count, bool)
    gone[rows] = False
    return np.packbits(gone)


def _enclosing(location: str) -> str:
    """The directory of the table's database, if it lies in one: it has the next table, too."""
    above = os.path.dirname(location)
    return above if above.endswith(".db") else location


def directories_of(scans: Sequence[DirectScan | None]) -> frozenset[str]:
    """Where the files of these scans lie."""
    return frozenset(chain.from_iterable([scan.directory] if scan else [] for scan in scans))
