"""Looking inside ORC files: row keys by column, events one by one, footers."""

from __future__ import annotations

import datetime
import decimal
import io
import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyorc
from pyarrow import dataset, orc

from acid_platform.errors import CorruptFile
from acid_platform.layout import schema
from acid_platform.layout.orc_tail import (
    declared_footer,
    footer_of,
    has_declared,
    is_proleptic,
)
from acid_platform.layout.schema import RowKey
from acid_platform.layout.types import Column
from acid_platform.storage.calendars import shown_day
from acid_platform.storage.files import Files

BATCH_ROWS = 1 << 17
"""A stripe may have millions of rows: so many are decoded at a time."""

_ROWS_AT_ONCE = 10_000
"""Python objects are large: so many rows before they become Arrow's."""


def _content(files: Files, path: str, length: int | None) -> pa.NativeFile:
    """Raises CorruptFile for a file that is shorter than `length`."""
    if length is None:
        return files.system.open_input_file(path)
    with files.system.open_input_file(path) as stream:
        content = stream.read_buffer(length)
    if content.size < length:
        raise CorruptFile(
            f"{path} has fewer than the {length} bytes that were committed; restore the file"
        )
    return pa.BufferReader(content)


def open_orc(files: Files, path: str, length: int | None = None) -> orc.ORCFile:
    """The ORC file, or what its first `length` bytes are (F9).

    Raises CorruptFile when there is no ORC tail; FileNotFoundError when there is no file.
    """
    try:
        file = orc.ORCFile(_content(files, path, length))
        _ = file.schema  # names that are no UTF-8 fail here, and not wherever they are looked at
        return file
    except (pa.ArrowInvalid, OSError, UnicodeDecodeError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        where = "" if length is None else f" at byte {length}, where its side file says it ends"
        raise CorruptFile(
            f"{path} can't be opened as ORC{where}: {error}; was its writer killed?"
            " Restore it or drop its transaction"
        ) from error


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Arrow's errors inside the block become CorruptFile with the file and the next step."""
    try:
        yield
    except FileNotFoundError as error:
        raise CorruptFile(
            f"{path} was listed but is gone; restore it, or read again if it was cleaned away"
        ) from error
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise CorruptFile(
            f"{path} can't be read: {error}; restore it or drop its transaction"
        ) from error


def acid_columns(file: orc.ORCFile, path: str) -> list[str]:
    """The six root names as this file spells them (some writers use lower case).

    Raises CorruptFile when the file does not have the ACID schema.
    """
    found = list(file.schema.names)
    if [name.lower() for name in found] != [name.lower() for name in schema.ACID_COLUMNS]:
        raise CorruptFile(
            f"{path} lacks the six ACID columns; it has {', '.join(found)}: restore"
            " it or drop its transaction"
        )
    return found


def beyond_nanoseconds(error: pa.ArrowInvalid) -> bool:
    """Whether Arrow gave up on a timestamp that its nanoseconds can't hold."""
    return "nanosecond" in str(error)


def read_stripe(
    files: Files,
    path: str,
    length: int | None,
    file: orc.ORCFile,
    index: int,
    names: Sequence[str],
) -> pa.RecordBatch:
    """These columns (`root` or `root.field`) of one stripe, in whatever timestamp unit they fit."""
    try:
        return file.read_stripe(index, columns=list(names))
    except pa.ArrowInvalid as error:
        if not beyond_nanoseconds(error):
            raise
    # Arrow holds ORC timestamps in nanoseconds, which end in 2262: row by row then.
    return wide_timestamps(files, path, length, index, file.schema, names)


def read_batches(
    files: Files, path: str, length: int | None, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """These root columns of all rows in their order, at most BATCH_ROWS at a time.

    Raises Arrow's errors, also for timestamps that don't fit nanoseconds.
    """
    fragment = dataset.OrcFileFormat().make_fragment(_content(files, path, length))
    yield from fragment.to_batches(
        columns=list(names),
        batch_size=BATCH_ROWS,
        batch_readahead=1,
        fragment_readahead=1,
        use_threads=False,
    )


def read_keys(file: orc.ORCFile, path: str, with_current: bool = False) -> tuple[np.ndarray, ...]:
    """originalTransaction, bucket, rowId [, currentTransaction] of all rows, int64 arrays (n,)."""
    columns = acid_columns(file, path)[1 : 5 if with_current else 4]
    table = file.read(columns=columns)
    return tuple(table.column(name).to_numpy().astype(np.int64, copy=False) for name in columns)


def stripe_ends(file: orc.ORCFile, path: str, keys_of: Sequence[str]) -> list[RowKey]:
    """Key of the last row of every stripe: Hive's `hive.acid.key.index`.

    `keys_of`: the three columns of the key. Raises CorruptFile when the keys of the file do not
    ascend row by row (F7): Hive would miss deletes without a word.
    """
    columns = list(keys_of)
    ends: list[RowKey] = []
    for index in range(file.nstripes):
        stripe = file.read_stripe(index, columns=columns)
        if not stripe.num_rows:
            continue
        keys = [
            stripe.column(i).to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
            for i in range(3)
        ]
        first = (int(keys[0][0]), int(keys[1][0]), int(keys[2][0]))
        if not ascend(*keys) or (ends and first <= ends[-1]):
            raise CorruptFile(f"{path}: row keys do not ascend; the statement has to be run again")
        ends.append((int(keys[0][-1]), int(keys[1][-1]), int(keys[2][-1])))
    return ends


def ascend(w: np.ndarray, b: np.ndarray, r: np.ndarray) -> bool:
    """Whether (w, b, r) rises strictly from row to row."""
    return all(
        _ascends(*(one[at : at + BATCH_ROWS + 1] for one in (w, b, r)))
        for at in range(0, len(r) - 1, BATCH_ROWS)
    )


def _ascends(w: np.ndarray, b: np.ndarray, r: np.ndarray) -> bool:
    dw, db, dr = np.diff(w), np.diff(b), np.diff(r)
    return bool(((dw > 0) | ((dw == 0) & ((db > 0) | ((db == 0) & (dr > 0))))).all())


def finish_file(files: Files, path: str, columns: Sequence[Column]) -> int:
    """Give a freshly written file of insert events the footer that Hive needs; returns its rows.

    `columns` are those of `row`, in their order. Raises CorruptFile when keys do not ascend (F7).
    """
    file = open_orc(files, path)
    rows = int(file.nrows)
    if rows:
        ends = stripe_ends(file, path, acid_columns(file, path)[1:4])
        footer = _declared(file, path, columns, acid=True)
        files.amend_orc(path, schema.user_metadata(ends, rows, 0), footer)
    return rows


def finish_plain_file(files: Files, path: str, columns: Sequence[Column]) -> int:
    """The same for a file of an insert-only table, which has no keys; returns its rows."""
    file = open_orc(files, path)
    if footer := _declared(file, path, columns, acid=False):
        files.amend_orc(path, {}, footer)
    return int(file.nrows)


def _declared(file: orc.ORCFile, path: str, columns: Sequence[Column], acid: bool) -> bytes | None:
    """None: the file has the declared types as it is."""
    if not has_declared(columns):
        return None
    footer = footer_of(file.reader.serialized_file_tail())
    return declared_footer(footer, columns, acid, path)


@contextmanager
def parsing(path: str) -> Iterator[None]:
    """pyorc's errors inside the block become CorruptFile with the file and the next step.

    Beside its own it raises what the C++ library throws as RuntimeError, as for bytes that can't be
    decompressed.
    """
    try:
        yield
    except (pyorc.ParseError, RuntimeError, UnicodeDecodeError) as error:
        raise CorruptFile(
            f"{path} can't be read as ORC: {error}; was its writer killed?"
            " Restore it or drop its transaction"
        ) from error


_TIMESTAMPS = (pyorc.TypeKind.TIMESTAMP, pyorc.TypeKind.TIMESTAMP_INSTANT)


class _Days(pyorc.converters.ORCConverter):
    """Since 1970, as an integer: Python's date begins with the year 1, files hold earlier days."""

    @staticmethod
    def from_orc(days: int) -> int:
        return days

    @staticmethod
    def to_orc(value: int) -> int:
        return value


class _ShownDate(pyorc.converters.DateConverter):
    @staticmethod
    def from_orc(days: int) -> datetime.date:
        return pyorc.converters.DateConverter.from_orc(shown_day(days))


class _ShownTimestamp(pyorc.converters.TimestampConverter):
    @staticmethod
    def from_orc(seconds: int, nanoseconds: int, zone: Any) -> datetime.datetime:
        days, rest = divmod(seconds, 86_400)
        return pyorc.converters.TimestampConverter.from_orc(
            shown_day(days) * 86_400 + rest, nanoseconds, zone
        )


class _Microseconds(pyorc.converters.ORCConverter):
    """Since 1970, as an integer: Python's datetime ends with the year 9999."""

    @staticmethod
    def from_orc(seconds: int, nanoseconds: int, _: object) -> int:
        return seconds * 1_000_000 + nanoseconds // 1000

    @staticmethod
    def to_orc(value: int, _: object) -> tuple[int, int]:
        return value // 1_000_000, value % 1_000_000 * 1000


def stripe_rows(files: Files, path: str) -> list[int]:
    """Rows of each stripe, from the footer. Raises CorruptFile."""
    with parsing(path), files.system.open_input_file(path) as stream:
        return [len(stripe) for stripe in pyorc.Reader(stream).iter_stripes()]


@dataclass(frozen=True, slots=True)
class KeyRun:
    """A stripe that holds exactly the rows (write id, bucket property, first..last)."""

    write_id: int
    bucket: int
    first: int
    last: int

    @property
    def rows(self) -> int:
        return self.last - self.first + 1


def key_runs(files: Files, path: str) -> list[KeyRun] | None:
    """The keys of an insert file by its stripes' statistics, without decoding a row.

    None where they don't tell: several write ids or buckets in a stripe, gaps between rowIds (which
    are unique in a file, P15), events of another kind, no statistics. Raises CorruptFile.
    """
    runs = []
    with parsing(path), files.system.open_input_file(path) as stream:
        for stripe in pyorc.Reader(stream).iter_stripes():
            try:
                found = [stripe[column].statistics for column in range(1, 5)]
            except IndexError:  # of a column without any statistics
                return None
            if any(
                one["number_of_values"] < len(stripe) or not {"minimum", "maximum"} <= one.keys()
                for one in found
            ):
                return None
            low, high = ([one[edge] for one in found] for edge in ("minimum", "maximum"))
            run = KeyRun(low[1], low[2], low[3], high[3])
            if low[0] != schema.INSERT_EVENT or low[:3] != high[:3] or run.rows != len(stripe):
                return None
            runs.append(run)
    return runs


def wide_timestamps(
    files: Files,
    path: str,
    length: int | None,
    stripe: int,
    schema: pa.Schema,
    names: Sequence[str],
) -> pa.RecordBatch:
    """What `ORCFile.read_stripe(stripe, names)` gives, with timestamps in microseconds.

    Row by row, for years that Arrow's nanoseconds can't hold. `schema` is the file's in Arrow;
    `names` are root columns or `root.field`; `length` cuts the file. Raises CorruptFile.
    """
    wanted: dict[str, list[str]] = {}
    for name in names:
        root, _, field = name.partition(".")
        whole = root not in schema.names or not field
        wanted.setdefault(name if whole else root, []).extend([] if whole else [field])
    with parsing(path), files.system.open_input_file(path) as stream:
        content = io.BytesIO(stream.read(length))
        kinds = {
            root: _in_microseconds(
                pa.struct([schema.field(root).type.field(name) for name in fields])
                if fields
                else schema.field(root).type
            )
            for root, fields in wanted.items()
        }
        reader = pyorc.Reader(
            content,
            struct_repr=pyorc.StructRepr.DICT,
            converters={pyorc.TypeKind.DATE: _Days, **dict.fromkeys(_TIMESTAMPS, _Microseconds)},
        )
        rows = iter(reader.read_stripe(stripe))
        parts = []
        while some := list(itertools.islice(rows, _ROWS_AT_ONCE)):
            parts.append(
                pa.RecordBatch.from_arrays(
                    [
                        pa.array([_for_arrow(row[root], kind) for row in some], kind)
                        for root, kind in kinds.items()
                    ],
                    list(kinds),
                )
            )
    return pa.concat_batches(parts)


def _in_microseconds(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_struct(kind):
        return pa.struct([(one.name, _in_microseconds(one.type)) for one in kind])
    if pa.types.is_list(kind):
        return pa.list_(_in_microseconds(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_in_microseconds(kind.key_type), _in_microseconds(kind.item_type))
    return kind


def _for_arrow(value: Any, kind: pa.DataType) -> Any:
    """Arrow takes maps as pairs, and of a struct only the fields of its type."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {one.name: _for_arrow(value[one.name], one.type) for one in kind}
    if pa.types.is_list(kind):
        return [_for_arrow(one, kind.value_type) for one in value]
    if pa.types.is_map(kind):
        return [
            (_for_arrow(key, kind.key_type), _for_arrow(one, kind.item_type))
            for key, one in value.items()
        ]
    return value


def orc_schema(files: Files, path: str, length: int | None = None) -> str:
    """The file's type in ORC's form, e.g. `struct<operation:int,…>`; `length` cuts the file.

    Raises CorruptFile.
    """
    with parsing(path), files.system.open_input_file(path) as stream:
        return str(
            pyorc.Reader(stream if length is None else io.BytesIO(stream.read(length))).schema
        )


def events(files: Files, path: str) -> Iterator[dict[str, Any]]:
    """Every row of a file as a JSON-able dict; ACID files give the five ids and `row`.

    Raises CorruptFile.
    """
    julian: dict[pyorc.TypeKind, type[pyorc.converters.ORCConverter]] = {
        pyorc.TypeKind.DATE: _ShownDate,
        **dict.fromkeys(_TIMESTAMPS, _ShownTimestamp),
    }
    if is_proleptic(footer_of(open_orc(files, path).reader.serialized_file_tail())):
        julian = {}
    with parsing(path), files.system.open_input_file(path) as stream:
        reader = pyorc.Reader(stream, struct_repr=pyorc.StructRepr.DICT, converters=julian or None)
        for row in reader:
            yield {key: _plain(value) for key, value in row.items()}


def metadata(files: Files, path: str) -> dict[str, Any]:
    """Schema, stripes, compression and user metadata of a file, JSON-able. Raises CorruptFile."""
    with parsing(path), files.system.open_input_file(path) as stream:
        reader = pyorc.Reader(stream)
        return {
            "schema": str(reader.schema),
            "rows": len(reader),
            "compression": pyorc.CompressionKind(reader.compression).name.lower(),
            "stripes": [
                {"offset": stripe.bytes_offset, "bytes": stripe.bytes_length, "rows": len(stripe)}
                for stripe in reader.iter_stripes()
            ],
            "user_metadata": {
                key: value.decode("utf-8", "replace")
                for key, value in sorted(reader.user_metadata.items())
            },
        }


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {str(key): _plain(one) for key, one in value.items()}
        case list() | tuple():
            return [_plain(one) for one in value]
        case decimal.Decimal() | datetime.date():
            return str(value)
        case bytes():
            return value.hex()
        case _:
            return value
