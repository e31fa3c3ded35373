"""Values that callers give, of Python or of Arrow, in a declared type: whole, or refused.

Arrow converts what it does exactly. It alone would cut some in silence: 1.5 to 1, a datetime to a
date, the nanoseconds of a timestamp; and it would ignore the fields of a dict that the struct
doesn't have. What it refuses, and where it can't be trusted, is looked at value by value.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from acid_platform.base.arguments import has_half_character
from acid_platform.base.first_use import arrow_functions as pc
from acid_platform.layout.types import CHAR_TYPES, FLOATING, INTEGRAL, TEXTS, TIMESTAMPS, HiveType
from acid_platform.values.arrow_types import DIGITS, arrow_type, filled, from_numpy, values_of
from acid_platform.values.coercion import Coerced, Coercion, NoCast, cast, shown, whole_value
from acid_platform.values.fitting import (
    BYTES_TYPES,
    TEXT_TYPES,
    Unfit,
    below,
    is_one_of,
    require_keys,
    spelled_fields,
)

_OF_ARROW: dict[str, type] = {
    "boolean": bool,
    **dict.fromkeys(INTEGRAL, int),
    **dict.fromkeys(FLOATING, float),
    "decimal": Decimal,
    **dict.fromkeys(TEXTS, str),
    "binary": bytes,
    "date": datetime.date,
    **dict.fromkeys(TIMESTAMPS, datetime.datetime),
}
"""The type of Python of which Arrow takes each value of a kind as it is, or refuses it."""
_MISSING = ("NAType", "NaTType")
"""The types of pandas' own values for a missing one."""


def array_of(
    values: Sequence[object], hive: HiveType, coercion: Coercion | None = None, place: str = ""
) -> pa.Array:
    """Python's values as an array of the declared type.

    None and pandas' NA and NaT are NULL, and so is NaN where the type has no NaN. `coercion`
    converts values that do not fit and counts them under `place`, their column. Raises Unfit.
    """

    def inside(part: str, parts: Sequence[object], child: HiveType) -> pa.Array:
        return array_of(parts, child, coercion, place + part)

    match hive.kind:
        case "struct":
            rows = [_fields(value, hive, row) for row, value in enumerate(values)]
            children = []
            for name, child in hive.children:
                with below(f".{name}"):
                    column = [None if fields is None else fields.get(name) for fields in rows]
                    children.append(inside(f".{name}", column, child))
            mask = _nulls(rows)
            return pa.StructArray.from_arrays(children, fields=list(arrow_type(hive)), mask=mask)
        case "array":
            items = [_items(value, row) for row, value in enumerate(values)]
            offsets, elements, nulls = _flat(items)
            with below("[]", offsets):
                array = inside("[]", elements, hive.children[0][1])
            return pa.ListArray.from_arrays(offsets, array, mask=nulls)
        case "map":
            pairs = [_pairs(value, row) for row, value in enumerate(values)]
            offsets, entries, nulls = _flat(pairs)
            halves = []
            for half, (part, (_, child)) in enumerate(zip(_HALVES, hive.children, strict=True)):
                with below(part, offsets):
                    halves.append(inside(part, [entry[half] for entry in entries], child))
            require_keys(offsets, halves[0])
            return pa.MapArray.from_arrays(offsets, *halves, mask=nulls)
    return _leaves(values, hive) if coercion is None else _cast(values, hive, coercion, place)


_HALVES = ("[key]", "[value]")


def is_missing(value: object) -> bool:
    """Whether the value stands for NULL in a column that has no NaN."""
    if value is None or type(value).__name__ in _MISSING:
        return True
    if isinstance(value, np.datetime64):
        return bool(np.isnat(value))
    return isinstance(value, float | np.floating | Decimal) and bool(value != value)


# --- nested values --------------------------------------------------------------------------------


def _fields(value: object, hive: HiveType, row: int) -> Mapping[str, object] | None:
    """The value of a struct by the names of its fields; None is NULL."""
    plain = _unwrapped(value)
    if is_missing(plain):
        return None
    if isinstance(plain, tuple):
        own = getattr(plain, "_fields", None) or getattr(plain, "__fields__", None)
        if own is None and len(plain) == len(hive.children):
            own = [name for name, _ in hive.children]
        plain = dict(zip(own, plain, strict=True)) if own is not None else plain
    if not isinstance(plain, Mapping):
        raise Unfit(f"{shown(value)} is not a struct", row)
    try:
        spelled = spelled_fields(tuple(str(name) for name in plain), hive)
    except Unfit as fault:
        fault.row = row
        raise
    return {field: plain[name] for field, name in spelled.items()}


def _items(value: object, row: int) -> list[object] | None:
    """The elements of an array; None is NULL."""
    plain = _unwrapped(value)
    if is_missing(plain):
        return None
    whole = isinstance(plain, str | bytes | bytearray | memoryview | Mapping)
    single = isinstance(plain, np.ndarray) and not plain.ndim
    if whole or single or not isinstance(plain, Iterable):
        raise Unfit(f"{shown(value)} is not an array", row)
    return list(plain)


def _pairs(value: object, row: int) -> list[tuple[object, object]] | None:
    """The entries of a map, given as a dict or as pairs; None is NULL."""
    plain = _unwrapped(value)
    if isinstance(plain, Mapping):
        return list(plain.items())
    entries = _items(plain, row) if isinstance(plain, list | tuple | np.ndarray) else None
    if entries is None and not is_missing(plain):
        raise Unfit(f"{shown(value)} is not a map", row)
    pairs: list[tuple[object, object]] = []
    for entry in entries or ():
        if isinstance(entry, Mapping) and set(entry) == {"key", "value"}:
            pairs.append((entry["key"], entry["value"]))
        elif isinstance(entry, tuple | list | np.ndarray) and len(entry) == 2:
            pairs.append((entry[0], entry[1]))
        else:
            raise Unfit(f"{shown(entry)} is not an entry of a map", row)
    return None if entries is None else pairs


def _flat(lists: Sequence[list[Any] | None]) -> tuple[pa.Array, list[Any], pa.Array | None]:
    """The offsets, all elements, and which lists are NULL."""
    lengths = np.array([len(part) if part else 0 for part in lists], np.int64)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]).astype(np.int32)
    return (
        from_numpy(offsets),
        [element for part in lists if part for element in part],
        _nulls(lists),
    )


def _nulls(values: Sequence[object]) -> pa.Array | None:
    nulls = np.array([value is None for value in values], bool)
    return from_numpy(nulls) if nulls.any() else None


# --- Python's values that are not nested ----------------------------------------------------------


def _leaves(values: Sequence[object], hive: HiveType) -> pa.Array:
    target = arrow_type(hive)
    if {type(value) for value in values} <= {_OF_ARROW[hive.kind], type(None)}:
        with suppress(ValueError, OverflowError, pa.ArrowException):
            stored = pa.array(values, target, from_pandas=False)
            if hive.kind != "float" or not pc.any(pc.is_inf(stored)).as_py():
                return stored
    whole = [_whole(value, hive, row) for row, value in enumerate(values)]
    try:
        return pa.array(whole, target, from_pandas=False)
    except (ValueError, OverflowError, pa.ArrowException) as error:
        raise Unfit(str(error)) from error


def _whole(value: object, hive: HiveType, row: int) -> object:
    """What the type holds of a value, which is all of it. Raises Unfit."""
    plain = _unwrapped(value)
    if _is_null(plain, hive):
        return None
    stored = whole_value(plain, hive)
    if stored is None:
        raise Unfit(f"{shown(plain)} is no {hive}, or would change", row)
    return _encodable(stored, row)


def _is_null(value: object, hive: HiveType) -> bool:
    is_number = hive.kind in FLOATING and isinstance(value, float | np.floating)
    return not is_number and is_missing(value)


def _encodable(value: object, row: int) -> object:
    if isinstance(value, str) and has_half_character(value):
        raise Unfit(f"{ascii(value)[:80]} holds half of a character (a lone surrogate)", row)
    return value


def _cast(values: Sequence[object], hive: HiveType, coercion: Coercion, place: str) -> pa.Array:
    """The values that fit, and the others as CAST converts them, which are counted."""
    if hive.kind not in CHAR_TYPES:
        with suppress(Unfit):
            return _leaves(values, hive)
    stored: list[object] = []
    changed = nulled = 0
    for row, value in enumerate(map(_unwrapped, values)):
        if _is_null(value, hive):
            stored.append(None)
            continue
        try:
            fitting, whole = cast(value, hive)
        except NoCast:
            raise Unfit(f"{shown(value)} can't be cast to {hive}", row) from None
        stored.append(_encodable(fitting, row))
        if not whole:
            changed += fitting is not None
            nulled += fitting is None
            coercion.keep(place, row, value)
    if changed or nulled:
        coercion.count(place, Coerced(changed, nulled))
    return pa.array(stored, arrow_type(hive), from_pandas=False)


def _unwrapped(value: object) -> Any:
    """The value as Python's, if it is one of Arrow's."""
    return value.as_py() if isinstance(value, pa.Scalar) else value


# --- Arrow's values that are not nested -----------------------------------------------------------


def exact(array: pa.Array, hive: HiveType) -> pa.Array:
    """A leaf for rows that callers give: values that would change are refused. Raises Unfit."""
    kind, target = hive.kind, arrow_type(hive)
    if array.type == target:
        return array
    given = given_kind(array.type)
    if (given, kind) in _VALUE_BY_VALUE:
        if given == "real":
            _require_none(array, pc.is_nan(array), f"is no {hive}")
        return _leaves(python_values(array), hive)
    if kind not in _BY_ARROW.get(given, ()):
        raise Unfit(f"the rows have {array.type}")
    try:
        return converted(array, given, target)
    except pa.ArrowInvalid as error:
        raise _first_refused(array, given, target, error) from error
    except pa.ArrowNotImplementedError as error:
        raise Unfit(str(error)) from error


_BY_ARROW: dict[str, tuple[str, ...]] = {
    "text": TEXTS,
    "boolean": TEXTS,
    "bytes": ("binary",),
    "whole": (*TEXTS, *INTEGRAL, *FLOATING, "decimal"),
    "real": (*INTEGRAL, *FLOATING),
    "decimal": (*INTEGRAL, "decimal"),
    "date": ("date", *TIMESTAMPS),
    "moment": ("date", *TIMESTAMPS),
    "instant": TIMESTAMPS,
}
"""The kinds of types to which Arrow converts what it has, or refuses to."""
_VALUE_BY_VALUE = {
    *(("text", kind) for kind in ("decimal", "date", *TIMESTAMPS)),
    *(("decimal", kind) for kind in FLOATING),
    ("real", "decimal"),
}


def given_kind(kind: pa.DataType) -> str:
    """What an array of the type has."""
    if pa.types.is_timestamp(kind):
        return "moment" if kind.tz is None else "instant"
    tests: dict[str, Sequence[Callable[[pa.DataType], bool]]] = {
        "text": TEXT_TYPES,
        "bytes": BYTES_TYPES,
        "boolean": (pa.types.is_boolean,),
        "whole": (pa.types.is_integer,),
        "real": (pa.types.is_floating,),
        "decimal": (pa.types.is_decimal,),
        "date": (pa.types.is_date,),
    }
    return next((given for given, each in tests.items() if is_one_of(kind, each)), "")


def converted(array: pa.Array, given: str, target: pa.DataType) -> pa.Array:
    """Values of this kind as Arrow converts them. Raises Arrow's errors, and Unfit for what Arrow
    would cut."""
    if given == "whole" and pa.types.is_decimal(target):
        array = array.cast(pa.decimal128(DIGITS[array.type], 0))
    if given == "moment" or (given == "date" and pa.types.is_timestamp(target)):
        array = array.cast(pa.timestamp("us"))
    stored = array.cast(target)
    if given == "moment" and pa.types.is_date(target):
        _require_none(array, pc.not_equal(stored.cast(array.type), array), "has a time of day")
    if given == "real" and pa.types.is_float32(target):
        lost = pc.and_(pc.is_inf(stored), pc.invert(pc.is_inf(array)))
        _require_none(array, lost, "is too large")
    return stored


def _require_none(array: pa.Array, lost: pa.Array, what: str) -> None:
    """Raises Unfit for the first value that would change."""
    rows = np.flatnonzero(filled(lost, False))
    if len(rows):
        raise Unfit(f"{_shown_at(array, int(rows[0]))} {what}", int(rows[0]))


def _first_refused(
    array: pa.Array, given: str, target: pa.DataType, error: pa.ArrowInvalid
) -> Unfit:
    """The first value that Arrow does not convert, and its row."""
    low, high = 0, len(array)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            converted(array.slice(low, middle - low), given, target)
            low = middle
        except pa.ArrowInvalid:
            high = middle
    if not len(array):
        return Unfit(str(error))
    return Unfit(f"{_shown_at(array, low)} does not fit: {error}", low)


def _shown_at(array: pa.Array, row: int) -> str:
    try:
        return ascii(str(array[row]))[:80]
    except (OverflowError, ValueError):  # a moment that Python has no object for
        return str(array.slice(row, 1).to_string(skip_new_lines=True))


def python_values(array: pa.Array | pa.ChunkedArray) -> list[object]:
    """The values of an Arrow array; floats of 32 bits stay such, which are written shorter."""
    listed: list[object] = array.to_pylist()
    if not pa.types.is_floating(array.type):
        return listed
    numbers = list(values_of(array))
    return [None if value is None else numbers[row] for row, value in enumerate(listed)]
