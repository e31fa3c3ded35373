"""Rows as the files of a table hold them: exactly its columns, and the values that Spark stores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal

import pyarrow as pa

from acid_platform.base import arrow_functions as pc
from acid_platform.errors import InvalidDefinition, NeedsSpark, UnknownColumn
from acid_platform.layout.types import (
    CHAR_TYPES,
    INTEGRAL,
    TIMESTAMPS,
    Column,
    HiveType,
    of_value,
    parse_type,
    require_columns,
)
from acid_platform.values import arrow_types
from acid_platform.values.arrow_numpy import scalar_of
from acid_platform.values.arrow_types import HIVE_TYPE, arrow_type, has_ancient
from acid_platform.values.arrow_values import fitted
from acid_platform.values.partition_texts import fixed_value, text_of
from acid_platform.values.refusals import (
    other_partition,
    refuse_other_partition,
    refuse_timestamp,
    refuse_too_long,
)
from acid_platform.values.struct_fields import Unfit

_FIRST_LOST, _EPOCH = (scalar_of(micros, pa.int64()) for micros in (-999_000, 0))
"""ORC can't store timestamps from here up to 1970, in microseconds: 1969-12-31 23:59:59.001."""
_DIGITS = {"int8": 3, "int16": 5, "int32": 10, "int64": 19}
_FIFTEEN_DIGITS = 15
"""A double holds any number of so many decimal digits exactly."""


def conform(
    rows: pa.Table,
    columns: Sequence[Column],
    table: str,
    fixed: Mapping[str, str | None] | None = None,
    in_files: Sequence[Column] = (),
) -> pa.Table:
    """`rows` with exactly the table's columns, with the values that its files store.

    `columns` are the table's columns and partition columns; missing ones become NULL. `fixed` gives
    values of partition columns; rows may leave them out. `in_files`: the columns that are not
    partition columns.
    Raises UnknownColumn, WrongType (another partition, a text that is too long, a timestamp that
    ORC can't store), and NeedsSpark for a conversion that is not known to be as in Spark.
    """
    fixed = fixed or {}
    places = _by_name(rows, columns, table)
    arrays = []
    for column in columns:
        name = column.name
        if name in places:
            values = assigned(_as_value(rows, places[name], column), column, table)
            if name in fixed:
                values = _agreeing(values, fixed_value(fixed[name], column), column, table)
        else:
            value = fixed_value(fixed.get(name), column)
            values = pa.chunked_array([pa.repeat(value, rows.num_rows)])
        arrays.append(to_be_stored(values, column, table))
    stored = pa.table(arrays, [column.name for column in columns])
    for column in in_files:
        require_storable(stored.column(column.name), column)
    return stored


def _as_value(rows: pa.Table, place: int, column: Column) -> pa.ChunkedArray:
    """The values of a column of the rows; those of a CHAR without blanks, unless for a CHAR."""
    values, metadata = rows.column(place), rows.schema.field(place).metadata or {}
    if HIVE_TYPE not in metadata:
        return values
    kind = parse_type(metadata[HIVE_TYPE].decode())
    if kind.kind == "char" and column.type.kind != "char":
        return pc.utf8_rtrim(values, " ")
    if kind.nested and kind.has_char and kind != column.type:
        raise NeedsSpark(f"{kind} as {column}")
    return values


def _by_name(rows: pa.Table, columns: Sequence[Column], table: str) -> dict[str, int]:
    """The place of each of the table's columns in the rows."""
    require_columns(rows.column_names, columns, table)
    places: dict[str, int] = {}
    for place, spelled in enumerate(rows.column_names):
        name = spelled.lower()
        if name in places:
            raise UnknownColumn(f"column {name!r} of {table} is given twice")
        places[name] = place
    return places


def _agreeing(
    values: pa.ChunkedArray, fixed: pa.Scalar, column: Column, table: str
) -> pa.ChunkedArray:
    """The fixed value for each row. Raises WrongType for a row with a different value."""
    if fixed.is_valid:
        other = pc.fill_null(pc.not_equal(values, fixed), scalar_of(True, pa.bool_()))
    else:
        other = pc.is_valid(values)
    if pc.any(other).as_py():
        first = values.filter(other)[0].as_py()
        own, right = (
            "NULL" if value is None else text_of(value, column.type) or ""
            for value in (first, fixed.as_py())
        )
        raise refuse_other_partition(other_partition(table, column.name, own, right))
    return pa.chunked_array([pa.repeat(fixed, len(values))])


# --- conversion ----------------------------------------------------------------------------------


def assigned(values: pa.ChunkedArray, column: Column, table: str = "the table") -> pa.ChunkedArray:
    """The values in the column's type, for the conversions that are exact or as in Spark.

    Raises UnknownColumn for a field that a struct lacks, WrongType, and NeedsSpark for all other
    conversions, such as a decimal that has to be rounded or a number that is too large: Spark
    converts the value, or says why it can't.
    """
    target = arrow_type(column.type)
    if values.type == target:
        return values

    def converted(array: pa.Array, kind: HiveType) -> pa.Array:
        convert = _conversion(array.type, arrow_type(kind), kind)
        if convert is None:
            raise NeedsSpark(f"{values.type} as {column}")
        try:
            return convert(array)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise NeedsSpark(f"{values.type} as {column}: {error}") from error

    try:
        chunks = [fitted(chunk, column.type, converted) for chunk in values.chunks]
    except Unfit as fault:
        raise fault.error(column, table) from fault
    return pa.chunked_array(chunks, target)


def _conversion(
    source: pa.DataType, target: pa.DataType, kind: HiveType
) -> Callable[[pa.Array], pa.Array] | None:
    """The conversion of values that are not nested, if it is exact or as in Spark."""

    def cast(values: pa.Array) -> pa.Array:
        return values.cast(target)

    whole, fraction = str(source) in _DIGITS, pa.types.is_decimal(source)
    if (
        source == target
        or _hive_type(source) == of_value(kind)
        or (whole and kind.kind in (*INTEGRAL, "string"))
        or (fraction and kind.kind == "decimal")
        or (fraction and kind.kind in INTEGRAL and not source.scale)
        or (pa.types.is_boolean(source) and kind.kind == "string")
        or (pa.types.is_float32(source) and kind.kind == "double")
        or (pa.types.is_date32(source) and kind.kind == "timestamp")
    ):
        return cast
    if whole and kind.kind in ("float", "double"):
        return lambda values: values.cast(target, safe=False)
    if whole and kind.kind == "decimal":
        digits = pa.decimal128(_DIGITS[str(source)], 0)
        return lambda values: values.cast(digits).cast(target)
    if fraction and kind.kind == "double" and source.scale <= _FIFTEEN_DIGITS:
        return _as_double
    return None


def _hive_type(arrow: pa.DataType) -> HiveType | None:
    try:
        return arrow_types.hive_type(arrow)
    except InvalidDefinition:
        return None


def _as_double(values: pa.Array) -> pa.Array:
    """Decimals of at most fifteen digits as doubles, rounded once as in Java; ArrowInvalid for
    longer ones."""
    scale = values.type.scale
    power = scalar_of(Decimal(10**scale), pa.decimal128(scale + 1, 0))
    unscaled = pc.multiply(values.cast(pa.decimal128(_FIFTEEN_DIGITS, scale)), power)
    whole = unscaled.cast(pa.int64()).cast(pa.float64())
    return pc.divide(whole, scalar_of(float(10**scale), pa.float64()))


# --- what files hold -----------------------------------------------------------------------------


def to_be_stored(values: pa.ChunkedArray, column: Column, table: str) -> pa.ChunkedArray:
    """The values with CHAR padded and VARCHAR cut to its length.

    Trailing blanks beyond the length are cut, as in Hive. Raises WrongType for a longer text.
    """
    kinds = list(column.type.walk())
    if not any(kind.kind in CHAR_TYPES for kind in kinds):
        return values
    if any(kind.kind == "map" for kind in kinds):
        raise NeedsSpark(f"{column}: the keys of a map that are cut may become equal")
    try:
        for part, kind in _leaves(values, column.type):
            if kind.kind in CHAR_TYPES:
                _require_short(part, kind, column, table)
        stored = [arrow_types.conform(chunk, column.type, table) for chunk in values.chunks]
    except pa.ArrowInvalid as error:
        raise NeedsSpark(f"{column} has text that is not UTF-8: {error}") from error
    return pa.chunked_array(stored, arrow_type(column.type))


def _require_short(array: pa.Array, kind: HiveType, column: Column, table: str) -> None:
    lengths = pc.utf8_length(pc.utf8_rtrim(array, " "))
    long = pc.greater(lengths, kind.sizes[0])
    if pc.any(long).as_py():
        length = lengths.filter(long)[0].as_py()
        raise refuse_too_long(
            f"column {column.name} of {table} takes {kind}, a value has {length} characters"
        )


def _leaves(
    values: pa.Array | pa.ChunkedArray, kind: HiveType
) -> Iterator[tuple[pa.Array, HiveType]]:
    """The values that are not nested, with their types, without those below a NULL; of no map."""
    if isinstance(values, pa.ChunkedArray):
        for chunk in values.chunks:
            yield from _leaves(chunk, kind)
    elif kind.kind == "array":
        yield from _leaves(pc.list_flatten(values), kind.children[0][1])
    elif kind.kind == "struct":
        for place, (_, child) in enumerate(kind.children):
            yield from _leaves(pc.struct_field(values, [place]), child)
    else:
        yield values, kind


def require_storable(values: pa.ChunkedArray, column: Column) -> None:
    """Raises WrongType for a timestamp that ORC can't store, and NeedsSpark for days before
    15 October 1582, which Spark's writer counts in another calendar."""
    kinds = {kind.kind for kind in column.type.walk()}
    if not kinds & {*TIMESTAMPS, "date"}:
        return
    if any(has_ancient(chunk) for chunk in values.chunks):
        raise NeedsSpark(f"{column}: days before 15 October 1582")
    if kinds & {*TIMESTAMPS}:
        if "map" in kinds:
            raise NeedsSpark(f"{column}: timestamps in a map")
        for part, kind in _leaves(values, column.type):
            if kind.kind in TIMESTAMPS:
                _require_timestamps(part, column)


def _require_timestamps(array: pa.Array, column: Column) -> None:
    moments = array.cast(pa.int64())
    lost = pc.and_(pc.greater_equal(moments, _FIRST_LOST), pc.less(moments, _EPOCH))
    if pc.any(lost).as_py():
        first = array.filter(lost)[0].as_py().replace(tzinfo=None)
        text = text_of(first, HiveType("timestamp"))
        raise refuse_timestamp(f"column {column.name} has {text}")
