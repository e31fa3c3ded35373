"""The columns of a table in its files: rows as they are stored, and values as they are declared.

Timestamps with and without a zone: a table's are wall clocks (P17), those of Spark instants. Spark
has one type for both, in a session whose zone is UTC, so that only the zone has to go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal

import numpy as np
import pyarrow as pa

from acid_platform.base.first_use import arrow_functions as pc
from acid_platform.errors import (
    CorruptFile,
    InvalidDefinition,
    NeedsSpark,
    UnsupportedLayout,
    WrongType,
)
from acid_platform.layout.types import (
    CHAR_TYPES,
    FLOATING,
    INTEGRAL,
    LOCAL_ZONE,
    TEXTS,
    TIMESTAMPS,
    Column,
    HiveType,
    matched_columns,
    of_value,
    parse_type,
)
from acid_platform.values.arrow_types import (
    HIVE_TYPE,
    arrow_type,
    filled,
    from_numpy,
    has_ancient,
    has_leaf,
    hive_type,
    is_decimal,
    leaves,
    scalar_of,
    values_of,
    widens_to_decimal,
    with_leaves,
)
from acid_platform.values.fitting import (
    TEXT_TYPES,
    Unfit,
    fitted,
    is_one_of,
    other_partition,
    refuse_other_partition,
    refuse_timestamp,
    refuse_too_long,
)
from acid_platform.values.partition_texts import fixed_value, text_of
from acid_platform.values.python_values import converted, given_kind

_FIRST_LOST, _EPOCH = (scalar_of(micros, pa.int64()) for micros in (-999_000, 0))
"""ORC can't store timestamps from here up to 1970, in microseconds: 1969-12-31 23:59:59.001."""
_FIFTEEN_DIGITS = 15
"""A double holds any number of so many decimal digits exactly."""


def stored_rows(
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
    places = matched_columns(rows.column_names, columns, table)
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
        arrays.append(_stored(values, column, table))
    stored = pa.table(arrays, [column.name for column in columns])
    for column in in_files:
        require_storable(stored.column(column.name), column)
    return stored


def _as_value(rows: pa.Table, index: int, column: Column) -> pa.ChunkedArray:
    """The values of a column of the rows; those of a CHAR without blanks, unless for a CHAR."""
    values, metadata = rows.column(index), rows.schema.field(index).metadata or {}
    if HIVE_TYPE not in metadata:
        return values
    kind = parse_type(metadata[HIVE_TYPE].decode())
    if kind.kind == "char" and column.type.kind != "char":
        return pc.utf8_rtrim(values, " ")
    if kind.nested and kind.has_char and kind != column.type:
        raise NeedsSpark(f"{kind} as {column}")
    return values


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

    def leaf(array: pa.Array, kind: HiveType) -> pa.Array:
        if kind.nested or pa.types.is_nested(array.type):
            raise Unfit(f"the rows have {array.type}")
        try:
            if (made := _as_in_spark(array, kind)) is not None:
                return made
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise NeedsSpark(f"{values.type} as {column}: {error}") from error
        raise NeedsSpark(f"{values.type} as {column}")

    try:
        chunks = [fitted(chunk, column.type, leaf) for chunk in values.chunks]
    except Unfit as fault:
        raise fault.error(column, table) from fault
    return pa.chunked_array(chunks, target)


def _as_in_spark(array: pa.Array, hive: HiveType) -> pa.Array | None:
    """Values that are not nested, if their conversion is exact or as in Spark; else None."""
    source, kind, target = array.type, hive.kind, arrow_type(hive)
    given = given_kind(source)
    if given == "whole" and kind in FLOATING:
        return array.cast(target, safe=False)
    if given == "decimal" and kind == "double" and source.scale <= _FIFTEEN_DIGITS:
        return _as_double(array)
    if (
        _hive_type(source) == of_value(hive)
        or (given == "whole" and kind in (*INTEGRAL, "string", "decimal"))
        or (given == "decimal" and (kind == "decimal" or (kind in INTEGRAL and not source.scale)))
        or (given == "boolean" and kind == "string")
        or (pa.types.is_float32(source) and kind == "double")
        or (pa.types.is_date32(source) and kind == "timestamp")
    ):
        return converted(array, given, target)
    return None


def _hive_type(arrow: pa.DataType) -> HiveType | None:
    try:
        return hive_type(arrow)
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


# --- what a table stores --------------------------------------------------------------------------


def _stored(values: pa.ChunkedArray, column: Column, table: str) -> pa.ChunkedArray:
    """The values with CHAR padded and VARCHAR cut to its length.

    Trailing blanks beyond the length are cut, as in Hive. Raises WrongType for a longer text.
    """
    kinds = {kind.kind for kind in column.type.walk()}
    if kinds.isdisjoint(CHAR_TYPES):
        return values
    if "map" in kinds:
        raise NeedsSpark(f"{column}: the keys of a map that are cut may become equal")

    def leaf(part: pa.Array, kind: HiveType) -> pa.Array:
        if kind.kind not in CHAR_TYPES:
            return part
        lengths = pc.utf8_length(pc.utf8_rtrim(part, " "))
        long = pc.greater(lengths, kind.sizes[0])
        if pc.any(long).as_py():
            length = lengths.filter(long)[0].as_py()
            raise refuse_too_long(
                f"column {column.name} of {table} takes {kind}, a value has {length} characters"
            )
        return _of_length(part, kind)

    try:
        stored = [fitted(chunk, column.type, leaf, of_file=True) for chunk in values.chunks]
    except pa.ArrowInvalid as error:
        raise NeedsSpark(f"{column} has text that is not UTF-8: {error}") from error
    return pa.chunked_array(stored, arrow_type(column.type))


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
        for part in (part for chunk in values.chunks for part in leaves(chunk)):
            if pa.types.is_timestamp(part.type):
                _require_timestamps(part, column)


def _require_timestamps(array: pa.Array, column: Column) -> None:
    moments = array.cast(pa.int64())
    lost = pc.and_(pc.greater_equal(moments, _FIRST_LOST), pc.less(moments, _EPOCH))
    if pc.any(lost).as_py():
        first = array.filter(lost)[0].as_py().replace(tzinfo=None)
        text = text_of(first, HiveType("timestamp"))
        raise refuse_timestamp(f"column {column.name} has {text}")


# --- what a file holds ----------------------------------------------------------------------------


def as_declared(
    array: pa.Array, hive: HiveType, path: str, timestamps: str = "us", external: bool = False
) -> pa.Array:
    """File values converted to the column's declared type, or an error (F18).

    Struct fields match by name, ignoring case; missing fields become NULL. Numbers widen, decimals
    and numbers without a sign become what holds their values exactly, whole numbers become text,
    char is padded to its length and varchar is cut to it. `timestamps` is the unit of the result;
    digits below a microsecond, which `us` would cut, raise WrongType. In files that are `external`,
    of no table, a time that is declared as a text is its text with all digits. Raises
    UnsupportedLayout, naming `path`, for any other change of type.
    """

    def leaf(part: pa.Array, kind: HiveType) -> pa.Array:
        if external and pa.types.is_timestamp(part.type) and kind.kind == "string":
            return part.cast(pa.string())
        try:
            return _widened(part, kind, path, timestamps)
        except FineTime as error:
            raise fine_times(path, external) from error

    return fitted(array, hive, leaf, timestamps, of_file=True)


class FineTime(ValueError):
    """A time has digits below a microsecond, which no timestamp has."""


def require_digits(array: pa.Array, where: str) -> None:
    """Raises CorruptFile for a decimal with more digits than its type has."""
    if error := beyond_digits(array):
        raise CorruptFile(
            f"{where}, says that its type is {array.type}, and holds another value: {error};"
            " write the file again with a wider type"
        )


def are_exact(rows: pa.RecordBatch) -> bool:
    """Whether no decimal has more digits than its type, and no time any below the microsecond."""
    return not any(map(beyond_digits, rows.columns)) and not any(
        has_fine(part)
        for column in rows.columns
        for part in leaves(column)
        if pa.types.is_timestamp(part.type) and part.type.unit == "ns"
    )


def beyond_digits(array: pa.Array) -> str:
    """What is wrong with a decimal that has more digits than its type; empty if none has.

    DuckDB takes the lowest bytes of such a value, which are another number.
    """
    for part in leaves(array) if has_leaf(array.type, is_decimal) else ():
        if is_decimal(part.type) and not _have_few_digits(part):
            try:
                part.validate(full=True)
            except pa.ArrowInvalid as error:
                return str(error)
    return ""


_LONG_DIGITS = 18
"""The most digits that all numbers of 64 bits have room for."""


def _have_few_digits(decimals: pa.Array) -> bool:
    """Whether that is plain to see: to look at each number takes three times as long."""
    kind, content = decimals.type, decimals.buffers()[1]
    if kind.bit_width != 128 or kind.precision > _LONG_DIGITS or decimals.null_count:
        return False
    if not len(decimals):
        return True
    words = np.frombuffer(content, np.int64, 2 * len(decimals), 16 * decimals.offset)
    low, high, most = words[::2], words[1::2], 10**kind.precision
    return bool((high == low >> 63).all() and low.max() < most and low.min() > -most)


def fine_times(where: str, external: bool) -> WrongType:
    """The error for times that a column would cut, in a file of a table or an `external` one."""
    way = "round the times where they are written"
    if external:
        way += (
            ", or declare the type string in place of timestamp, which gives their texts with all"
            " digits, and cut these"
        )
    else:
        way += ", as by UPDATE in Hive or Trino through the gateway, or leave the column out"
    return WrongType(f"{where}: a timestamp has microseconds, and no nanoseconds; {way}")


def _widened(array: pa.Array, hive: HiveType, path: str, timestamps: str) -> pa.Array:
    target, stored = arrow_type(hive, timestamps), array.type
    match hive.kind:
        case kind if kind in TIMESTAMPS and pa.types.is_timestamp(stored):
            return _microseconds(array, target)
        case kind if kind in TEXTS and is_one_of(stored, (pa.types.is_integer, *TEXT_TYPES)):
            return _of_length(array.cast(target), hive)
        case kind if stored == target:
            return array
        case kind if pa.types.is_integer(stored) and kind in INTEGRAL:
            if stored.bit_width < target.bit_width:
                return array.cast(target)
            if pa.types.is_unsigned_integer(stored) and stored.bit_width == target.bit_width:
                return _exact(array, hive, path)
        case kind if _is_number(stored) and kind in FLOATING and stored != pa.float64():
            return array.cast(target, safe=False)  # a long as a double may lose its last digits
        case "decimal" if pa.types.is_integer(stored) or pa.types.is_decimal(stored):
            if widens_to_decimal(stored, hive):
                return array.cast(target)
            if pa.types.is_decimal(stored):
                return _exact(array, hive, path)
        case "binary" if pa.types.is_fixed_size_binary(stored):
            return array.cast(target)
    raise UnsupportedLayout(
        f"{path} holds {stored}, but the table declares {hive}; {_declare(stored)}"
    )


def _of_length(array: pa.Array, hive: HiveType) -> pa.Array:
    """Texts as a CHAR, which is padded to its length, or as a VARCHAR, which is cut to it."""
    if hive.kind == "string":
        return array
    if hive.kind == "varchar":
        return pc.utf8_slice_codeunits(array, 0, hive.sizes[0])
    short = pc.utf8_slice_codeunits(pc.utf8_rtrim(array, " "), 0, hive.sizes[0])
    return pc.utf8_rpad(short, hive.sizes[0], " ")


def _exact(array: pa.Array, hive: HiveType, path: str) -> pa.Array:
    try:
        return array.cast(arrow_type(hive))
    except pa.ArrowInvalid as error:
        raise UnsupportedLayout(
            f"{path} holds {array.type}, with a value that is no {hive}: {error};"
            f" {_declare(array.type)}"
        ) from error


def _declare(stored: pa.DataType) -> str:
    """What to do about a type that the table does not declare."""
    try:
        return f"declare the column as it is stored: {hive_type(stored)}"
    except InvalidDefinition:
        return "no type of Hive has such values; leave the column out, or write the file again"


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _microseconds(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Raises FineTime for digits that the target's unit lacks."""
    if (array.type.unit, target.unit) == ("ns", "us"):
        nanos = values_of(array)
        micros = np.floor_divide(nanos, 1000)
        if (micros * 1000 != nanos).any() and has_fine(array):
            raise FineTime
        return from_numpy(micros, array).cast(target)
    return array.cast(target)


def has_fine(times: pa.Array) -> bool:
    """Whether a time in nanoseconds has digits below the microsecond."""
    return bool((filled(times, 0) % 1000 != 0).any())


def wall_clocks(table: pa.Table, kinds: Sequence[HiveType | None]) -> pa.Table:
    """Spark's rows as `Table.to_arrow` returns them: only what is declared as TIMESTAMP WITH LOCAL
    TIME ZONE has a zone, and no part of the schema says that it is never NULL.

    `kinds` are the declared types of the columns, None where no table declares one.
    """
    for index, (field, hive) in enumerate(zip(table.schema, kinds, strict=True)):
        if not has_leaf(field.type, _is_instant):
            continue
        chunks = table.column(index).chunks or [pa.nulls(0, field.type)]
        if hive is not None and any(part.kind == LOCAL_ZONE for part in hive.walk()):
            values = pa.chunked_array([as_declared(chunk, hive, field.name) for chunk in chunks])
        else:
            values = _changed(chunks, _is_instant, lambda array: array.cast(pa.timestamp("us")))
        table = table.set_column(index, field.with_type(values.type), values)
    fields = [field.with_type(_nullable(field.type)).with_nullable(True) for field in table.schema]
    return table.cast(pa.schema(fields, table.schema.metadata))


def _nullable(kind: pa.DataType) -> pa.DataType:
    """The type whose parts may be NULL."""
    if pa.types.is_list(kind):
        return pa.list_(_nullable(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_nullable(kind.key_type), _nullable(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, _nullable(each.type)) for each in kind])
    return kind


def in_full_batches(table: pa.Table) -> pa.Table:
    """The rows in batches none of which is empty, or in one: Spark 4.3 makes no row of what follows
    an empty one."""
    if not table.num_columns:
        return table
    batches = [batch for batch in table.to_batches() if batch.num_rows]
    none = table.schema.empty_table()
    return pa.Table.from_batches(batches, table.schema) if batches else none


def instants(table: pa.Table) -> pa.Table:
    """The rows as Spark takes them: each timestamp is an instant, whose zone is UTC."""
    table = in_full_batches(table)
    for index, field in enumerate(table.schema):
        if has_leaf(field.type, _is_wall_clock):
            chunks = table.column(index).chunks or [pa.nulls(0, field.type)]
            values = _changed(
                chunks, _is_wall_clock, lambda array: array.cast(pa.timestamp("us", "UTC"))
            )
            table = table.set_column(index, field.with_type(values.type), values)
    return table


def _changed(
    chunks: Sequence[pa.Array],
    chosen: Callable[[pa.DataType], bool],
    change: Callable[[pa.Array], pa.Array],
) -> pa.ChunkedArray:
    return pa.chunked_array([with_leaves(chunk, chosen, change) for chunk in chunks])


def _is_instant(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.tz)


def _is_wall_clock(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and not kind.tz)
