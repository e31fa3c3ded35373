"""Hive types as Arrow types, the arrays inside of nested ones, and Arrow arrays from Python and
NumPy and back, without pandas.

pyarrow imports pandas when it first converts a value, to recognise pandas' own objects; that takes
most of a second of a short command. There are none here.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from functools import lru_cache

import numpy as np
import pyarrow as pa

from acid_platform.base.first_use import arrow_functions as pc
from acid_platform.errors import InvalidDefinition
from acid_platform.layout.sql_text import quoted
from acid_platform.layout.types import TEXTS, Column, HiveType, parse_type, struct_of

_DECIMAL_DIGITS = 28
"""The digits of Python's default context, in which a value is scaled without rounding."""
_FIRST_DAY = datetime.date(1970, 1, 1).toordinal()


def values_of(array: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """The numbers, booleans, dates or times of an array, (n,), as a view where that is possible.

    Dates and times are integers. A NULL is an undefined value.
    """
    whole = array
    if isinstance(array, pa.ChunkedArray):
        chunks = array.chunks or [pa.nulls(0, array.type)]
        whole = chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)
    kind, buffer, end = whole.type, whole.buffers()[1], whole.offset + len(whole)
    if not len(whole):
        return np.empty(0, _dtype(kind))
    if pa.types.is_boolean(kind):
        bits = np.frombuffer(buffer, np.uint8)
        return np.unpackbits(bits, count=end, bitorder="little")[whole.offset :].astype(bool)
    return np.frombuffer(buffer, _dtype(kind), end)[whole.offset :]


def filled(array: pa.Array | pa.ChunkedArray, null: float) -> np.ndarray:
    """As `values_of`, with `null` for NULL."""
    values = values_of(array)
    return np.where(values_of(array.is_valid()), values, null) if array.null_count else values


def from_numpy(values: np.ndarray, nulls: pa.Array | None = None) -> pa.Array:
    """Numbers or booleans, (n,), as an Arrow array, with NULL where the array `nulls` has NULL."""
    kind = pa.from_numpy_dtype(values.dtype)
    data = np.packbits(values, bitorder="little") if kind == pa.bool_() else values
    valid = None
    if nulls is not None and nulls.null_count:
        valid = pa.py_buffer(np.packbits(values_of(nulls.is_valid()), bitorder="little"))
    buffers = [valid, pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(kind, len(values), buffers)


def group_begins(*columns: np.ndarray) -> np.ndarray:
    """Mask (n,): whether a row of these columns differs from the row before; True for the first."""
    differs = np.zeros(len(columns[0]), bool)
    differs[:1] = True
    for column in columns:
        differs[1:] |= column[1:] != column[:-1]
    return differs


def scalar_of(value: object, kind: pa.DataType) -> pa.Scalar:
    """As `pa.scalar`. Raises Arrow's errors, OverflowError."""
    if value is None:
        return pa.nulls(1, kind)[0]
    if isinstance(value, bool) and pa.types.is_boolean(kind):
        return from_numpy(np.array([value]))[0]
    if isinstance(value, int) and not isinstance(value, bool) and pa.types.is_integer(kind):
        whole = from_numpy(np.array([value], np.int64))
        return (whole if kind == whole.type else whole.cast(kind))[0]  # a cast imports much
    if isinstance(value, float) and pa.types.is_floating(kind):
        return from_numpy(np.array([value])).cast(kind)[0]
    if isinstance(value, str) and pa.types.is_string(kind):
        text = value.encode()
        ends = np.array([0, len(text)], np.int32)
        return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(ends), pa.py_buffer(text)])[0]
    if type(value) is datetime.date and pa.types.is_date32(kind):
        return from_numpy(np.array([value.toordinal() - _FIRST_DAY], np.int32)).cast(kind)[0]
    if isinstance(value, Decimal) and pa.types.is_decimal128(kind) and _fits(value, kind):
        unscaled = int(value.scaleb(kind.scale)).to_bytes(16, "little", signed=True)
        return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(unscaled)])[0]
    return pa.scalar(value, kind)


def _fits(value: Decimal, kind: pa.DataType) -> bool:
    """Whether the type holds the value as it is."""
    if not value.is_finite():
        return False
    _, digits, exponent = value.as_tuple()
    places = int(kind.scale) + int(exponent)
    return places >= 0 and len(digits) + places <= min(int(kind.precision), _DECIMAL_DIGITS)


def _dtype(kind: pa.DataType) -> np.dtype:
    if pa.types.is_boolean(kind):
        return np.dtype(bool)
    letter = (
        "f" if pa.types.is_floating(kind) else "u" if pa.types.is_unsigned_integer(kind) else "i"
    )
    return np.dtype(f"{letter}{kind.bit_width // 8}")


_ARROW: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "varchar": pa.string(),
    "char": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
}
_HIVE = {
    **{arrow: name for name, arrow in _ARROW.items()},
    **dict.fromkeys((pa.string(), pa.large_string(), pa.string_view()), "string"),
    pa.large_binary(): "binary",
    pa.binary_view(): "binary",
    pa.date64(): "date",
    pa.float16(): "float",
    pa.uint8(): "smallint",
    pa.uint16(): "int",
    pa.uint32(): "bigint",
}
_LISTS = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
)
HIVE_TYPE = b"hive_type"
"""The metadata of a field that holds its Hive type where Arrow has none, such as char(5)."""


def arrow_schema(columns: Iterable[Column], timestamps: str = "us") -> pa.Schema:
    """The schema of rows with these columns; `timestamps`: see `arrow_type`."""
    return pa.schema([(column.name, arrow_type(column.type, timestamps)) for column in columns])


def declared_columns(schema: pa.Schema) -> tuple[Column, ...]:
    """The columns of an Arrow schema as a table would declare them, with names in lower case.

    Raises InvalidDefinition, which names the column, for a type without one, as of a column of
    nothing but NULL.
    """
    return tuple(Column(field.name.lower(), _declared(field)) for field in schema)


def declared_text(columns: str | pa.Schema) -> str:
    """The columns of an Arrow schema in the form `id int, v string`; a text is in it already.

    Raises InvalidDefinition.
    """
    if isinstance(columns, str):
        return columns
    if not isinstance(columns, pa.Schema) or not columns.names:
        given = "an empty one" if isinstance(columns, pa.Schema) else f"a {type(columns).__name__}"
        raise InvalidDefinition(
            "columns are a text such as 'id int, v string' or an Arrow schema with a field for"
            f" each, not {given}"
        )
    return ", ".join(f"{quoted(column.name)} {column.type}" for column in declared_columns(columns))


def _declared(field: pa.Field) -> HiveType:
    try:
        if field.metadata and HIVE_TYPE in field.metadata:
            return parse_type(field.metadata[HIVE_TYPE].decode())
        return hive_type(field.type)
    except (InvalidDefinition, UnicodeDecodeError) as error:
        raise InvalidDefinition(f"column {field.name!r}: {error}") from error


def hive_type(arrow: pa.DataType) -> HiveType:
    """The Hive type that holds all values of an Arrow type. Raises InvalidDefinition."""
    if isinstance(arrow, pa.BaseExtensionType) and not is_period(arrow):
        return hive_type(arrow.storage_type)
    if pa.types.is_dictionary(arrow) or pa.types.is_run_end_encoded(arrow):
        return hive_type(arrow.value_type)
    if arrow == pa.uint64():
        return HiveType("decimal", (20, 0))
    if pa.types.is_decimal(arrow) and arrow.precision <= 38 and 0 <= arrow.scale <= arrow.precision:
        return HiveType("decimal", (arrow.precision, arrow.scale))
    if pa.types.is_timestamp(arrow):
        return HiveType("timestamp")
    if name := _HIVE.get(arrow):
        return HiveType(name)
    if pa.types.is_fixed_size_binary(arrow):
        return HiveType("binary")
    if is_any_list(arrow):
        return HiveType("array", (), (("element", hive_type(arrow.value_type)),))
    if pa.types.is_map(arrow):
        key, value = hive_type(arrow.key_type), hive_type(arrow.item_type)
        return HiveType("map", (), (("key", key), ("value", value)))
    if pa.types.is_struct(arrow) and arrow.num_fields:
        return struct_of((field.name, hive_type(field.type)) for field in arrow)
    if pa.types.is_null(arrow):
        raise InvalidDefinition(
            "Arrow's null has no Hive type: it holds nothing but NULL; cast the column, or declare"
            " it with its type"
        )
    raise InvalidDefinition(f"Arrow's {arrow} has no Hive type; cast the column")


def is_period(kind: pa.DataType) -> bool:
    """Whether it is a period of pandas, whose numbers mean nothing without its frequency."""
    return isinstance(kind, pa.BaseExtensionType) and kind.extension_name == "pandas.period"


def is_any_list(kind: pa.DataType) -> bool:
    """Whether it is one of Arrow's types of lists, also of lists of one length and views."""
    return any(test(kind) for test in _LISTS)


@lru_cache(1024)
def arrow_type(hive: HiveType, timestamps: str = "us") -> pa.DataType:
    """The Arrow type of a Hive type.

    `timestamps` is the unit of timestamps: `us` as in Spark, `ns` as Arrow reads them from ORC.
    """
    match hive.kind:
        case "decimal":
            return pa.decimal128(*hive.sizes)
        case "array":
            return pa.list_(arrow_type(hive.children[0][1], timestamps))
        case "map":
            return pa.map_(*(arrow_type(child, timestamps) for _, child in hive.children))
        case "struct":
            return pa.struct(
                [(name, arrow_type(child, timestamps)) for name, child in hive.children]
            )
        case "timestamp":
            return pa.timestamp(timestamps)
        case "timestamp with local time zone":
            return pa.timestamp(timestamps, "UTC")
        case kind:
            return _ARROW[kind]


def is_decimal(kind: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(kind))


def has_text_as_bytes(stored: pa.DataType, hive: HiveType) -> bool:
    """Whether it holds bytes where a table declares text. Old writers of Parquet did not say which
    bytes are a text."""
    kinds = {part.kind for part in hive.walk()}
    return "binary" not in kinds and not kinds.isdisjoint(TEXTS) and has_leaf(stored, _is_bytes)


def bytes_as_text(array: pa.Array) -> pa.Array:
    """The array with its bytes taken for texts, which may then be no UTF-8."""
    return with_leaves(array, _is_bytes, lambda part: part.view(pa.string()))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind))


DIGITS = {
    **{pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19},
    **{pa.uint8(): 3, pa.uint16(): 5, pa.uint32(): 10, pa.uint64(): 20},
}
"""The digits of the largest number of a type."""


def widens_to_decimal(stored: pa.DataType, hive: HiveType) -> bool:
    """Whether the decimal type holds all numbers of the stored type."""
    precision, scale = hive.sizes
    if pa.types.is_decimal(stored):
        return bool(stored.scale <= scale and stored.precision - stored.scale <= precision - scale)
    digits = DIGITS.get(stored)
    return digits is not None and digits <= precision - scale


def offsets_of(array: pa.Array) -> pa.Array:
    offsets = array.offsets
    return from_numpy(values_of(offsets)) if offsets.offset else offsets


def nulls_of(array: pa.Array) -> pa.Array | None:
    return pc.is_null(array) if array.null_count else None


def with_leaves(
    array: pa.Array, chosen: Callable[[pa.DataType], bool], changed: Callable[[pa.Array], pa.Array]
) -> pa.Array:
    """The array with each array of a chosen type, at any depth, replaced by `changed` of it."""
    kind = array.type
    if chosen(kind):
        return changed(array)
    if pa.types.is_struct(kind):
        parts = [with_leaves(array.field(i), chosen, changed) for i in range(kind.num_fields)]
        fields = [field.with_type(part.type) for field, part in zip(kind, parts, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=nulls_of(array))
    if pa.types.is_map(kind):
        return pa.MapArray.from_arrays(
            offsets_of(array),
            with_leaves(array.keys, chosen, changed),
            with_leaves(array.items, chosen, changed),
            mask=nulls_of(array),
        )
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(
            offsets_of(array), with_leaves(array.values, chosen, changed), mask=nulls_of(array)
        )
    return array


def leaves(array: pa.Array) -> Iterator[pa.Array]:
    """The arrays without parts in a possibly nested array."""
    if pa.types.is_struct(array.type):
        parts = array.flatten()
    elif pa.types.is_map(array.type):
        parts = [array.keys, array.items]
    elif pa.types.is_nested(array.type):
        parts = [array.flatten()]
    else:
        yield array
        return
    for part in parts:
        yield from leaves(part)


def has_leaf(kind: pa.DataType, chosen: Callable[[pa.DataType], bool]) -> bool:
    """Whether the type, or one inside of it, is a chosen one."""
    parts = range(kind.num_fields)
    return chosen(kind) or any(has_leaf(kind.field(part).type, chosen) for part in parts)


def is_utf8(column: pa.Array | pa.ChunkedArray) -> bool:
    """Whether the bytes of all of its texts are UTF-8; files of others may hold any."""
    if not has_text(column.type):
        return True
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def plain(array: pa.Array) -> pa.Array:
    """The values of an array with a dictionary; another array as it is."""
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def keeps_codes(kind: pa.DataType, hive: HiveType) -> bool:
    """Whether it is a text with a dictionary that is its column's value as it is: those of a CHAR
    get blanks."""
    return pa.types.is_dictionary(kind) and hive.kind == "string"


def recoded(array: pa.Array) -> pa.DictionaryArray:
    """The values with a dictionary of nothing but them: without those of rows that are gone."""
    if not pa.types.is_dictionary(array.type):
        return array.dictionary_encode()
    used = np.zeros(len(array.dictionary), bool)
    used[values_of(array.indices.drop_null())] = True
    if used.all():
        return array
    codes = (np.cumsum(used) - 1).astype(np.int32)[filled(array.indices, 0)]
    values = array.dictionary.filter(from_numpy(used))
    return pa.DictionaryArray.from_arrays(from_numpy(codes, array.indices), values)


def has_text(kind: pa.DataType) -> bool:
    return has_leaf(kind, lambda part: pa.types.is_string(part) or pa.types.is_large_string(part))


FIRST_GREGORIAN = -141_427
"""15 October 1582, in days since 1970."""
_DAY = 86_400_000_000
"""In microseconds."""


def has_ancient(array: pa.Array) -> bool:
    """Whether a date or timestamp of the array is before 15 October 1582."""
    if not has_leaf(array.type, lambda kind: units_per_day(kind) > 0):
        return False
    for part in leaves(array):
        if per_day := units_per_day(part.type):
            low = pc.min(part.cast(integer_of(part.type))).as_py()
            if low is not None and low < FIRST_GREGORIAN * per_day:
                return True
    return False


def units_per_day(kind: pa.DataType) -> int:
    """Units per day of a date or timestamp type; 0 if it can't hold days before 1582."""
    if pa.types.is_date32(kind):
        return 1
    # Timestamps in nanoseconds begin in 1677.
    return _DAY if pa.types.is_timestamp(kind) and kind.unit == "us" else 0


def integer_of(kind: pa.DataType) -> pa.DataType:
    return pa.int32() if pa.types.is_date32(kind) else pa.int64()
