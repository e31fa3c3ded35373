"""Python's values as a declared Hive type holds them, without loss.

Arrow itself would cut some in silence: 1.5 to 1, a datetime to a date, the nanoseconds of a
timestamp; and it would ignore the fields of a dict that the struct doesn't have.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from acid_platform.base import arrow_functions as pc
from acid_platform.layout.moments import moment_of_text
from acid_platform.layout.types import CHAR_TYPES, FLOATING, INTEGRAL, TIMESTAMPS, HiveType
from acid_platform.values.arrow_numpy import filled, from_numpy
from acid_platform.values.arrow_types import arrow_type
from acid_platform.values.arrow_values import TEXTS, require_keys, row_of
from acid_platform.values.coercion import Coerced, Coercion, NoCast, cast, cut
from acid_platform.values.exact_values import (
    day_of,
    decimal_of_float,
    decimal_of_text,
    plain_text,
)
from acid_platform.values.struct_fields import Unfit, spelled_fields

_EXACT: dict[str, type] = {
    "boolean": bool,
    **dict.fromkeys(INTEGRAL, int),
    "double": float,
    **dict.fromkeys(TEXTS, str),
    "binary": bytes,
    "date": datetime.date,
    **dict.fromkeys(TIMESTAMPS, datetime.datetime),
}
"""The type of which Arrow takes each value of a kind as it is, or refuses it."""
_MISSING = ("NAType", "NaTType")
"""The types of pandas' own values for a missing one."""


def array_of(
    values: Sequence[object], hive: HiveType, coercion: Coercion | None = None, place: str = ""
) -> pa.Array:
    """The values as an array of the declared type.

    None and pandas' NA and NaT are NULL, and so is NaN where the type has no NaN. `coercion`
    converts values that do not fit and counts them under `place`, their column. Raises Unfit.
    """
    match hive.kind:
        case "struct":
            return _structs(values, hive, coercion, place)
        case "array":
            items = [_items(value, row) for row, value in enumerate(values)]
            offsets, inner, nulls = _flat(items)
            elements = _inner(offsets, inner, hive.children[0][1], "[]", coercion, place)
            return pa.ListArray.from_arrays(offsets, elements, mask=nulls)
        case "map":
            pairs = [_pairs(value, row) for row, value in enumerate(values)]
            offsets, inner, nulls = _flat(pairs)
            (_, key), (_, item) = hive.children
            key_values, item_values = ([pair[half] for pair in inner] for half in (0, 1))
            keys = _inner(offsets, key_values, key, "[key]", coercion, place)
            elements = _inner(offsets, item_values, item, "[value]", coercion, place)
            require_keys(offsets, keys)
            return pa.MapArray.from_arrays(offsets, keys, elements, mask=nulls)
    return _leaves(values, hive) if coercion is None else _cast(values, hive, coercion, place)


def is_missing(value: object) -> bool:
    """Whether the value stands for NULL in a column that has no NaN."""
    if value is None or type(value).__name__ in _MISSING:
        return True
    if isinstance(value, np.datetime64):
        return bool(np.isnat(value))
    return isinstance(value, float | np.floating | Decimal) and bool(value != value)


# --- nested values --------------------------------------------------------------------------------


def _structs(
    values: Sequence[object], hive: HiveType, coercion: Coercion | None, place: str
) -> pa.StructArray:
    names = [name for name, _ in hive.children]
    columns: list[list[object]] = [[] for _ in names]
    nulls = np.zeros(len(values), bool)
    for row, value in enumerate(values):
        fields = _fields(value, hive, row)
        nulls[row] = fields is None
        for name, column in zip(names, columns, strict=True):
            column.append(None if fields is None else fields.get(name))
    children = []
    for (name, kind), column in zip(hive.children, columns, strict=True):
        try:
            children.append(array_of(column, kind, coercion, f"{place}.{name}"))
        except Unfit as fault:
            raise fault.below(f".{name}", fault.row) from fault
    mask = from_numpy(nulls) if nulls.any() else None
    return pa.StructArray.from_arrays(children, fields=list(arrow_type(hive)), mask=mask)


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
        raise Unfit(f"{_shown(value)} is not a struct", row)
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
        raise Unfit(f"{_shown(value)} is not an array", row)
    return list(plain)


def _pairs(value: object, row: int) -> list[tuple[object, object]] | None:
    """The entries of a map, given as a dict or as pairs; None is NULL."""
    plain = _unwrapped(value)
    if isinstance(plain, Mapping):
        return list(plain.items())
    entries = _items(plain, row) if isinstance(plain, list | tuple | np.ndarray) else None
    if entries is None and not is_missing(plain):
        raise Unfit(f"{_shown(value)} is not a map", row)
    pairs: list[tuple[object, object]] = []
    for entry in entries or ():
        if isinstance(entry, Mapping) and set(entry) == {"key", "value"}:
            pairs.append((entry["key"], entry["value"]))
        elif isinstance(entry, tuple | list | np.ndarray) and len(entry) == 2:
            pairs.append((entry[0], entry[1]))
        else:
            raise Unfit(f"{_shown(entry)} is not an entry of a map", row)
    return None if entries is None else pairs


def _flat(lists: Sequence[list[Any] | None]) -> tuple[pa.Array, list[Any], pa.Array | None]:
    """The offsets, all elements, and which lists are NULL."""
    lengths = np.array([len(one) if one else 0 for one in lists], np.int64)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]).astype(np.int32)
    nulls = np.array([one is None for one in lists], bool)
    inner = [element for one in lists if one for element in one]
    return from_numpy(offsets), inner, from_numpy(nulls) if nulls.any() else None


def _inner(
    offsets: pa.Array,
    values: Sequence[object],
    hive: HiveType,
    part: str,
    coercion: Coercion | None,
    place: str,
) -> pa.Array:
    try:
        return array_of(values, hive, coercion, place + part)
    except Unfit as fault:
        raise fault.below(part, row_of(offsets, fault.row)) from fault


# --- values that are not nested -------------------------------------------------------------------


def _leaves(values: Sequence[object], hive: HiveType) -> pa.Array:
    kind, target = hive.kind, arrow_type(hive)
    ready = values
    if not {type(value) for value in values} <= {_EXACT.get(kind), type(None)}:
        ready = [_leaf(value, kind, row) for row, value in enumerate(values)]
    try:
        stored = pa.array(ready, target, from_pandas=False)
    except (ValueError, OverflowError, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise _first_refused(values, ready, target, error) from error
    if kind in FLOATING:
        _require_finite(values, stored)
    return stored


def _first_refused(
    values: Sequence[object], ready: Sequence[object], target: pa.DataType, error: Exception
) -> Unfit:
    """The first of the `values` that Arrow does not take, `ready` as they are for it."""
    for row, value in enumerate(ready):
        try:
            pa.array([value], target, from_pandas=False)
        except UnicodeEncodeError:
            return Unfit(f"{ascii(value)[:80]} holds half of a character (a lone surrogate)", row)
        except (pa.ArrowException, ValueError, OverflowError) as refusal:
            return Unfit(f"{_shown(_unwrapped(values[row]))} does not fit: {refusal}", row)
    return Unfit(str(error))


def _cast(values: Sequence[object], hive: HiveType, coercion: Coercion, place: str) -> pa.Array:
    """The values that fit, and the others as CAST converts them, which are counted."""
    if hive.kind not in CHAR_TYPES:
        with suppress(Unfit):
            return _leaves(values, hive)
    stored: list[object] = []
    changed = nulled = 0
    for row, value in enumerate(map(_unwrapped, values)):
        try:
            [fitting] = _leaves([value], hive).to_pylist()
            whole = True
            if hive.kind in CHAR_TYPES and fitting is not None:
                fitting, whole = cut(fitting, hive)
        except Unfit:
            try:
                fitting, whole = cast(value, hive)
            except NoCast:
                raise Unfit(f"{_shown(value)} can't be cast to {hive}", row) from None
        stored.append(fitting)
        changed += not whole and fitting is not None
        nulled += not whole and fitting is None
    if changed or nulled:
        coercion.count(place, Coerced(changed, nulled))
    return _leaves(stored, hive)


def _require_finite(values: Sequence[object], stored: pa.Array) -> None:
    """Raises Unfit for a number that became infinite."""
    for row in np.flatnonzero(filled(pc.is_inf(stored), False)).tolist():
        value = _unwrapped(values[row])
        if abs(value) != float("inf"):
            raise Unfit(f"{value!r} is too large", row)


def _leaf(value: object, kind: str, row: int) -> object:
    """The value as the type of Python that Arrow takes for the kind. Raises Unfit."""
    plain = _unwrapped(value)
    if is_missing(plain) and (kind not in FLOATING or not isinstance(plain, float | np.floating)):
        return None
    stored = _CONVERSIONS[kind](plain)
    if stored is None:
        raise Unfit(f"{_shown(plain)} is no {kind}, or would change", row)
    return stored


def _unwrapped(value: object) -> Any:
    """The value as Python's, if it is one of Arrow's."""
    return value.as_py() if isinstance(value, pa.Scalar) else value


def _shown(value: object) -> str:
    text = ascii(value)
    return f"{text[:80]}{'…' if len(text) > 80 else ''} ({type(value).__name__})"


def _boolean(value: object) -> bool | None:
    return bool(value) if isinstance(value, bool | np.bool_) else None


def _whole(value: object) -> int | None:
    if isinstance(value, bool | np.bool_):
        return None
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating | Decimal) and np.isfinite(float(value)):
        return int(value) if int(value) == value else None
    return None


def _real(value: object) -> float | None:
    if isinstance(value, bool | np.bool_):
        return None
    if isinstance(value, int | np.integer):
        try:
            return float(value) if float(value) == int(value) else None
        except OverflowError:
            return None
    return float(value) if isinstance(value, float | np.floating | Decimal) else None


def _single(value: object) -> float | None:
    number = _real(value)
    whole = isinstance(value, int | np.integer)
    exact = (
        number is None or not whole or abs(number) < 1 << 24 or float(np.float32(number)) == number
    )
    return number if exact else None


def _decimal(value: object) -> Decimal | None:
    if isinstance(value, Decimal):
        return value
    if isinstance(value, float | np.floating):
        return decimal_of_float(value)
    if isinstance(value, str):
        return decimal_of_text(value)
    number = _whole(value)
    return None if number is None else Decimal(number)


def _bytes(value: object) -> bytes | None:
    return bytes(value) if isinstance(value, bytes | bytearray | memoryview) else None


def _moment(value: object) -> datetime.datetime | None:
    """A date is its first moment; a datetime or text with a zone is written in UTC."""
    if isinstance(value, str):
        return moment_of_text(value)
    if isinstance(value, np.datetime64):
        micros = value.astype("datetime64[us]")
        item = micros.item() if micros == value else None
        return item if isinstance(item, datetime.datetime) else None
    if isinstance(value, datetime.datetime):
        if getattr(value, "nanosecond", 0):
            return None
        to_python: Callable[..., datetime.datetime] | None = getattr(value, "to_pydatetime", None)
        return value if to_python is None else to_python()
    if isinstance(value, datetime.date):
        return datetime.datetime.combine(value, datetime.time())
    return None


_CONVERSIONS: dict[str, Callable[[object], object]] = {
    "boolean": _boolean,
    **dict.fromkeys(INTEGRAL, _whole),
    "float": _single,
    "double": _real,
    "decimal": _decimal,
    **dict.fromkeys(TEXTS, plain_text),
    "binary": _bytes,
    "date": lambda value: day_of(_moment(value)),
    **dict.fromkeys(TIMESTAMPS, _moment),
}
