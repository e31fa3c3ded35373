"""Rows of JSON, one object a line: a value is taken if the column's type holds it exactly."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from acid_platform.errors import CorruptFile
from acid_platform.layout.types import INTEGRAL, Column, HiveType
from acid_platform.scan.number_texts import typed_texts
from acid_platform.storage.json_texts import parsed
from acid_platform.values.arrow_types import arrow_type

_AS_TEXT = ("date", "timestamp")
_EXACT = Context(prec=100)
"""Python's own context refuses to round to more than 28 digits; a decimal has up to 38."""
_MOST_DIGITS = 400
"""After the point of a number; more would only fill the memory."""


class NoSuchValue(ValueError):
    """A value that the column's type does not hold."""


def json_columns(
    lines: pa.StringArray, columns: Sequence[Column], needed: Collection[str], path: str
) -> dict[str, pa.Array]:
    """The needed columns, by name. Keys match ignoring case; a missing one is NULL, and one that no
    column has is left out.

    Raises CorruptFile for a line that is no object, and for a value that its column does not hold.
    """
    chosen = [column for column in columns if column.name in needed]
    values: dict[str, list[object]] = {column.name: [] for column in chosen}
    for line in lines.to_pylist():
        try:
            row = parsed(line)
            if not isinstance(row, dict):
                raise NoSuchValue("it is no object")
            own = {str(key).lower(): value for key, value in row.items()}
            for column in chosen:
                values[column.name].append(fitting(own.get(column.name), column.type, column.name))
        except ValueError as error:
            raise CorruptFile(f"{path}: {error}, in the line {line[:120]!r}; correct it") from error
    return {
        column.name: pa.array(values[column.name], arrow_type(column.type)) for column in chosen
    }


def fitting(value: Any, kind: HiveType, place: str) -> object:
    """A value of JSON as Arrow takes it for the type. Raises NoSuchValue, which names the place."""
    if value is None:
        return None
    match kind.kind:
        case "struct" if isinstance(value, Mapping):
            own = {str(key).lower(): part for key, part in value.items()}
            if len(own) < len(value):
                raise NoSuchValue(f"{place} has two names that differ in their case only")
            return {
                name: fitting(own.get(name.lower()), child, f"{place}.{name}")
                for name, child in kind.children
            }
        case "array" if isinstance(value, list):
            return [fitting(part, kind.children[0][1], f"{place}[]") for part in value]
        case "map" if isinstance(value, Mapping):
            (_, key), (_, item) = kind.children
            return [
                (_text_value(name, key, place), fitting(part, item, f"{place}[value]"))
                for name, part in value.items()
            ]
        case "boolean" if isinstance(value, bool):
            return value
        case "string" | "char" | "varchar" if not isinstance(value, dict | list):
            return str(value) if isinstance(value, str | Decimal) else json.dumps(value)
        case text if text in _AS_TEXT and isinstance(value, str):
            return _text_value(value, kind, place)
        case number if number in (*INTEGRAL, "decimal", "float", "double") and not isinstance(
            value, bool | str | dict | list
        ):
            return _number(value, kind, place)
    raise NoSuchValue(f"{place} is {json.dumps(value, default=str)[:60]}, which is no {kind}")


def _text_value(text: str, kind: HiveType, place: str) -> object:
    """A key of a map, a day or a time, as Hive's delimited text has them."""
    value = typed_texts(pa.array([text], pa.string()), kind)[0].as_py()
    if value is None:
        raise NoSuchValue(f"{place} is {text[:60]!r}, which is no {kind}")
    return value


def as_stored(value: int | Decimal | float, kind: HiveType) -> float:
    """The nearest float or double; infinity beyond the largest."""
    try:
        number = float(value)
    except OverflowError:
        return math.inf
    with np.errstate(over="ignore"):
        return float(np.float32(number)) if kind.kind == "float" else number


def _number(value: int | Decimal | float, kind: HiveType, place: str) -> object:
    if kind.kind in ("float", "double"):
        number = as_stored(value, kind)
        if math.isinf(number) and not (isinstance(value, float) and math.isinf(value)):
            raise NoSuchValue(f"{place} is {str(value)[:40]}, which is too large for a {kind}")
        return number
    exact = Decimal(value)
    if exact.is_finite() and not -_MOST_DIGITS < exact.adjusted() < 40 and exact:
        raise NoSuchValue(f"{place} is {str(value)[:40]}, which is no {kind}")
    whole = kind.kind in INTEGRAL
    limit = Decimal(1 << arrow_type(kind).bit_width - 1) if whole else None
    scale = 0 if whole else kind.sizes[1]
    step = Decimal(1).scaleb(-scale)
    if not exact.is_finite() or exact != (rounded := exact.quantize(step, context=_EXACT)):
        raise NoSuchValue(f"{place} is {value}, which is no {kind}")
    if limit is not None and -limit <= exact < limit:
        return int(exact)
    if limit is None and exact.copy_abs() < Decimal(10) ** (kind.sizes[0] - scale):
        return rounded
    raise NoSuchValue(f"{place} is {value}, which is no {kind}")
