"""Rows of ORC files through pyorc, one by one, where Arrow's reader can't: years that nanoseconds
do not hold, digits below the microsecond, and types in ORC's own notation."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyorc

from acid_platform.base.object_store import store_fault
from acid_platform.errors import CorruptFile, InvalidDefinition, UnsupportedLayout
from acid_platform.layout.types import HiveType, parse_type
from acid_platform.storage.files import Files
from acid_platform.values.arrow_types import has_leaf

JAVA_SCALE = 10
"""ORC's library for Java reads decimals without a scale as decimal(38,10)."""
_ROWS_AT_ONCE = 10_000
"""Rows to hold as Python objects, which are large, before they become Arrow arrays."""


@contextmanager
def parsing(path: str) -> Iterator[None]:
    """pyorc's errors inside the block become CorruptFile with the file and the next step, or
    StoreRefused and StoreUnavailable if the store is to blame.

    pyorc passes errors of the C++ library on as RuntimeError, e.g. for bytes that can't be
    decompressed.
    """
    try:
        yield
    except (pyorc.ParseError, RuntimeError, UnicodeDecodeError, OSError) as error:
        if fault := store_fault(error, path):
            raise fault from error
        if isinstance(error, OSError):
            raise
        raise CorruptFile(
            f"{path} can't be read as ORC: {error}; restore it or drop its transaction"
        ) from error


TIMESTAMPS = (pyorc.TypeKind.TIMESTAMP, pyorc.TypeKind.TIMESTAMP_INSTANT)


class _Days(pyorc.converters.ORCConverter):
    """Days since 1970 as integers: Python's date can't hold days before the year 1."""

    @staticmethod
    def from_orc(days: int) -> int:
        return days

    @staticmethod
    def to_orc(value: int) -> int:
        return value


class _Microseconds(pyorc.converters.ORCConverter):
    """Microseconds since 1970 as integers: Python's datetime can't hold years after 9999."""

    @staticmethod
    def from_orc(seconds: int, nanoseconds: int, _: object) -> int:
        return seconds * 1_000_000 + nanoseconds // 1000

    @staticmethod
    def to_orc(value: int, _: object) -> tuple[int, int]:
        return value // 1_000_000, value % 1_000_000 * 1000


def wide_timestamps(
    content: bytes,
    path: str,
    stripe: int,
    schema: pa.Schema,
    names: Sequence[str],
) -> pa.RecordBatch:
    """The result of `ORCFile.read_stripe(stripe, names)`, with timestamps in microseconds.

    Decodes row by row, for years that Arrow's nanoseconds can't hold. `schema` is the file's Arrow
    schema; `names` are root columns or `root.field`; `content`: the file of this path. Raises
    CorruptFile.
    """
    fields_of_roots: dict[str, list[str]] = {}
    for name in names:
        root, _, field = name.partition(".")
        whole = root not in schema.names or not field
        fields_of_roots.setdefault(name if whole else root, []).extend([] if whole else [field])
    with parsing(path):
        kinds = {
            root: _in_microseconds(
                pa.struct([schema.field(root).type.field(name) for name in fields])
                if fields
                else schema.field(root).type
            )
            for root, fields in fields_of_roots.items()
        }
        reader = pyorc.Reader(
            io.BytesIO(content),
            struct_repr=pyorc.StructRepr.DICT,
            converters={pyorc.TypeKind.DATE: _Days, **dict.fromkeys(TIMESTAMPS, _Microseconds)},
        )
        rows = iter(reader.read_stripe(stripe))
        parts = []
        while block := list(itertools.islice(rows, _ROWS_AT_ONCE)):
            parts.append(
                pa.RecordBatch.from_arrays(
                    [
                        pa.array([_for_arrow(row[root], kind) for row in block], kind)
                        for root, kind in kinds.items()
                    ],
                    list(kinds),
                )
            )
    return pa.concat_batches(parts)


def has_nanoseconds(content: bytes, path: str, roots: set[str]) -> bool:
    """Whether a timestamp in these root columns has digits below the microsecond.

    Decodes row by row, as `wide_timestamps` does. Raises CorruptFile.
    """
    finer: list[bool] = []

    class Watch(_Microseconds):
        @staticmethod
        def from_orc(_seconds: int, nanoseconds: int, _zone: object) -> int:
            if nanoseconds % 1000:
                finer.append(True)
            return 0

    with parsing(path):
        reader = pyorc.Reader(
            io.BytesIO(content),
            column_names=sorted(roots),
            converters=dict.fromkeys(TIMESTAMPS, Watch),
        )
        return any(finer for _ in reader)


def _in_microseconds(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _in_microseconds(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_in_microseconds(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_in_microseconds(kind.key_type), _in_microseconds(kind.item_type))
    return kind


def in_microseconds(kind: pa.DataType) -> bool:
    """Whether the type is or contains a timestamp in microseconds."""
    return has_leaf(kind, lambda leaf: pa.types.is_timestamp(leaf) and leaf.unit == "us")


def _for_arrow(value: Any, kind: pa.DataType) -> Any:
    """The value as Arrow takes it: a map as pairs, a struct with only the fields of its type."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: _for_arrow(value[field.name], field.type) for field in kind}
    if pa.types.is_list(kind):
        return [_for_arrow(item, kind.value_type) for item in value]
    if pa.types.is_map(kind):
        return [
            (_for_arrow(key, kind.key_type), _for_arrow(item, kind.item_type))
            for key, item in value.items()
        ]
    return value


def orc_schema(files: Files, path: str, length: int | None = None) -> str:
    """The file's type in ORC's notation, e.g. `struct<operation:int,…>`.

    `length` is the committed length of the file. Raises CorruptFile.
    """
    with parsing(path), files.open(path) as stream:
        reader = pyorc.Reader(stream if length is None else io.BytesIO(stream.read(length)))
        return str(reader.schema).replace("decimal(0,0)", f"decimal(38,{JAVA_SCALE})")


def orc_fields(files: Files, path: str) -> tuple[tuple[str, HiveType], ...]:
    """The names and types of the file's columns. Raises CorruptFile, UnsupportedLayout."""
    text = orc_schema(files, path)
    if text == "struct<>":
        raise UnsupportedLayout(f"{path} is an ORC file without columns; remove it")
    try:
        return parse_type(text).children
    except InvalidDefinition as error:
        raise UnsupportedLayout(f"{path} has columns that no table has: {error}") from error
