"""Arrow's values as a declared Hive type holds them, without loss."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from acid_platform.base import arrow_functions as pc
from acid_platform.layout.moments import moment_of_text
from acid_platform.layout.types import CHAR_TYPES, INTEGRAL, TIMESTAMPS, HiveType
from acid_platform.values.arrow_numpy import filled, from_numpy, scalar_of, values_of
from acid_platform.values.arrow_types import arrow_type, is_any_list, nulls_of, offsets_of
from acid_platform.values.exact_values import (
    day_of_text,
    decimal_of_float,
    decimal_of_text,
)
from acid_platform.values.struct_fields import Unfit, spelled_fields

Leaf: TypeAlias = Callable[[pa.Array, HiveType], pa.Array]
"""Converts values that are not nested; raises Unfit."""
TEXTS = ("string", *CHAR_TYPES)
_DIGITS = {"int8": 3, "uint8": 3, "int16": 5, "uint16": 5, "int32": 10, "uint32": 10}
_MOST_DIGITS = 20
_DAY = 86_400_000_000
TEXT_TYPES = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
BYTES_TYPES = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
)


def fitted(array: pa.Array, hive: HiveType, leaf: Leaf) -> pa.Array:
    """The values in the declared type; what is nested is taken apart, the rest goes to `leaf`.

    Raises Unfit.
    """
    array = plain_values(array)
    target = arrow_type(hive)
    kinds = {part.kind for part in hive.walk()}
    if array.type == target and "map" not in kinds:
        return array
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), target)
    match hive.kind:
        case "struct" if pa.types.is_struct(array.type):
            return _struct(array, hive, leaf)
        case "array" if is_any_list(array.type):
            offsets, elements = _dense(array)
            values = _inner(offsets, elements, hive.children[0][1], "[]", leaf)
            return pa.ListArray.from_arrays(offsets, values, mask=nulls_of(array))
        case "map" if pa.types.is_map(array.type) or _is_entries(array.type):
            offsets, entries = _dense(array)
            (_, key), (_, item) = hive.children
            halves = (pc.struct_field(entries, [half]) for half in (0, 1))
            keys = _inner(offsets, next(halves), key, "[key]", leaf)
            items = _inner(offsets, next(halves), item, "[value]", leaf)
            require_keys(offsets, keys)
            return pa.MapArray.from_arrays(offsets, keys, items, mask=nulls_of(array))
    if hive.nested or pa.types.is_nested(array.type):
        raise Unfit(f"the rows have {array.type}")
    return leaf(array, hive)


def plain_values(array: pa.Array) -> pa.Array:
    """Without an encoding that no table has, nor views, which Arrow computes little with."""
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return plain_values(array.storage)
    if pa.types.is_dictionary(kind):
        return plain_values(array.dictionary).take(array.indices)
    if pa.types.is_run_end_encoded(kind):
        return plain_values(pc.run_end_decode(array))
    if pa.types.is_string_view(kind):
        return array.cast(pa.large_string())
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        # A cast to short offsets looks at where a slice is, not only at how long.
        far = array.offset and array.get_total_buffer_size() >> 31
        return array.take(from_numpy(np.arange(len(array)))) if far else array
    return array.cast(pa.large_binary()) if pa.types.is_binary_view(kind) else array


def is_one_of(kind: pa.DataType, tests: Sequence[Callable[[pa.DataType], bool]]) -> bool:
    return any(test(kind) for test in tests)


def _is_entries(kind: pa.DataType) -> bool:
    """Whether it is a map as Polars has it, a list of keys with values."""
    if not is_any_list(kind) or not pa.types.is_struct(kind.value_type):
        return False
    return [field.name for field in kind.value_type] == ["key", "value"]


def _dense(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The offsets, int32 from 0 on, and the elements of lists or of a map, without those below a
    NULL.

    Casts no list, since pyarrow 26 makes wrong offsets of a list view, and takes no elements, for
    which it has no code if they are views.
    """
    if pa.types.is_map(array.type):
        entries = pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])
        array = pa.ListArray.from_arrays(offsets_of(array), entries, mask=nulls_of(array))
    lengths = filled(pc.list_value_length(array), 0).astype(np.int64)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    return from_numpy(offsets).cast(pa.int32()), array.flatten()


def _inner(offsets: pa.Array, values: pa.Array, hive: HiveType, part: str, leaf: Leaf) -> pa.Array:
    try:
        return fitted(values, hive, leaf)
    except Unfit as fault:
        raise fault.below(part, row_of(offsets, fault.row)) from fault


def row_of(offsets: pa.Array, position: int | None) -> int | None:
    """The row of a list or map array that holds the value at a position; None stays None."""
    if position is None:
        return None
    return bisect_right(values_of(offsets), position) - 1


def _struct(array: pa.StructArray, hive: HiveType, leaf: Leaf) -> pa.StructArray:
    names = tuple(field.name for field in array.type)
    spelled = spelled_fields(names, hive)
    target = arrow_type(hive)
    children = []
    for (name, kind), field in zip(hive.children, target, strict=True):
        if name not in spelled:
            children.append(pa.nulls(len(array), field.type))
            continue
        try:
            child = pc.struct_field(array, [names.index(spelled[name])])
            children.append(fitted(child, kind, leaf))
        except Unfit as fault:
            raise fault.below(f".{name}", fault.row) from fault
    return pa.StructArray.from_arrays(children, fields=list(target), mask=nulls_of(array))


def require_keys(offsets: pa.Array, keys: pa.Array) -> None:
    """Raises Unfit for a map with a NULL as key, or a key twice: engines keep different ones."""
    if keys.null_count:
        position = int(values_of(keys.is_null()).argmax())
        raise Unfit("a map has NULL as a key", row_of(offsets, position))
    bounds = values_of(offsets).astype(np.int64)
    rows = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    if len(rows) < 2 or np.diff(bounds).max() < 2:
        return
    if pa.types.is_nested(keys.type):
        texts = {text: number for number, text in enumerate(map(repr, keys.to_pylist()))}
        codes = np.array([texts[repr(key)] for key in keys.to_pylist()], np.int64)
    else:
        plain = (
            pc.add(keys, scalar_of(0.0, keys.type)) if pa.types.is_floating(keys.type) else keys
        )  # -0.0 is 0.0
        codes = values_of(pc.dictionary_encode(plain).indices).astype(np.int64)
    pairs = rows * (int(codes.max(initial=0)) + 1) + codes
    _, first = np.unique(pairs, return_index=True)
    if len(first) < len(pairs):
        again = np.ones(len(pairs), bool)
        again[first] = False
        position = int(again.argmax())
        raise Unfit(f"a map has the key {keys[position].as_py()!r} twice", int(rows[position]))


# --- values that are not nested -------------------------------------------------------------------


def exact(array: pa.Array, hive: HiveType) -> pa.Array:
    """A leaf for rows that callers give: values that would change are refused."""
    kind, source, target = hive.kind, array.type, arrow_type(hive)
    if source == target:
        return array
    try:
        converted = _converted(array, kind, source, target)
    except pa.ArrowInvalid as error:
        raise _first_refused(array, hive, error) from error
    except pa.ArrowNotImplementedError as error:
        raise Unfit(str(error)) from error
    if converted is None:
        raise Unfit(f"the rows have {source}")
    return converted


def _first_refused(array: pa.Array, hive: HiveType, error: pa.ArrowInvalid) -> Unfit:
    """The first value that Arrow does not convert, and its row."""
    low, high = 0, len(array)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            _converted(array.slice(low, middle - low), hive.kind, array.type, arrow_type(hive))
            low = middle
        except pa.ArrowInvalid:
            high = middle
    if not len(array):
        return Unfit(str(error))
    try:
        value = str(array[low])
    except (OverflowError, ValueError):  # a moment that Python has no object for
        value = array.slice(low, 1).to_string(skip_new_lines=True)
    return Unfit(f"{ascii(value)[:80]} does not fit: {error}", low)


def _converted(
    array: pa.Array, kind: str, source: pa.DataType, target: pa.DataType
) -> pa.Array | None:
    whole = pa.types.is_integer(source)
    if kind in TEXTS:
        if is_one_of(source, TEXT_TYPES) or whole or pa.types.is_boolean(source):
            return array.cast(target)
    elif kind == "binary":
        if is_one_of(source, BYTES_TYPES):
            return array.cast(target)
    elif kind in INTEGRAL:
        if whole or pa.types.is_floating(source) or pa.types.is_decimal(source):
            return array.cast(target)
    elif kind in ("float", "double"):
        if whole:
            return array.cast(target)
        if pa.types.is_floating(source):
            return _finite(array, array.cast(target))
        if pa.types.is_decimal(source):
            numbers = [None if one is None else float(one) for one in array.to_pylist()]
            doubles = pa.array(numbers, pa.float64())
            return _finite(doubles, doubles.cast(target))
    elif kind == "decimal":
        if pa.types.is_floating(source):
            return _parsed(array, values_of(array), decimal_of_float, target)
        if is_one_of(source, TEXT_TYPES):
            return _parsed(array, array.to_pylist(), decimal_of_text, target)
        if whole:
            digits = _DIGITS.get(str(source), _MOST_DIGITS)
            array = array.cast(pa.decimal128(digits, 0))
        if whole or pa.types.is_decimal(source):
            return array.cast(target)
    elif kind == "date":
        if pa.types.is_date(source):
            return array.cast(target)
        if pa.types.is_timestamp(source) and source.tz is None:
            return _days(array.cast(pa.timestamp("us")))
        if is_one_of(source, TEXT_TYPES):
            return _parsed(array, array.to_pylist(), day_of_text, target)
    elif kind in TIMESTAMPS:
        if is_one_of(source, TEXT_TYPES):
            return _parsed(array, array.to_pylist(), moment_of_text, target)
        if pa.types.is_timestamp(source):
            return array.cast(target)
        if pa.types.is_date(source):
            return array.cast(pa.timestamp("us")).cast(target)
    return None


def _parsed(
    array: pa.Array,
    values: Iterable[Any],
    parse: Callable[[Any], object],
    target: pa.DataType,
) -> pa.Array:
    """The values of the array as `parse` reads them; its None is an error. Raises Unfit."""
    valid = values_of(array.is_valid())
    parsed: list[object] = []
    for row, value in enumerate(values):
        one = parse(value) if valid[row] else None
        if valid[row] and one is None:
            text = ascii(value)[:80] if isinstance(value, str) else str(value)
            raise Unfit(f"{text} is not exactly a {target}", row)
        parsed.append(one)
    return pa.array(parsed, target)


def _finite(values: pa.Array, stored: pa.Array) -> pa.Array:
    """`stored`. Raises Unfit for a number that became infinite."""
    lost = filled(pc.and_(pc.is_inf(stored), pc.invert(pc.is_inf(values))), False)
    if lost.any():
        position = int(lost.argmax())
        raise Unfit(f"{values[position].as_py()!r} is too large", position)
    return stored


def _days(moments: pa.Array) -> pa.Array:
    """Midnights as days. Raises Unfit for another time."""
    micros = moments.cast(pa.int64())
    days = pc.divide(micros, scalar_of(_DAY, pa.int64()))
    odd = filled(pc.not_equal(pc.multiply(days, scalar_of(_DAY, pa.int64())), micros), False)
    if odd.any():
        position = int(odd.argmax())
        raise Unfit(f"{moments[position].as_py()} is not the beginning of a day", position)
    return moments.cast(pa.date32())
