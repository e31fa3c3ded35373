"""Rows that readers are asked for, and have found, in a form in which they can be compared."""

from __future__ import annotations

import datetime
import operator
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

Row = Mapping[str, Any]
_COMPARED = {">=": operator.ge, "<=": operator.le, "=": operator.eq}


def texts(rows: Sequence[Row]) -> list[str]:
    """The rows in an order of their own, with columns in the order of their names."""
    return sorted(repr([_plain(row[name]) for name in sorted(row)]) for row in rows)


def _plain(value: Any) -> Any:
    match value:
        case datetime.datetime() if value.tzinfo is not None:
            return value.astimezone(datetime.UTC).replace(tzinfo=None)
        case list():
            return [_plain(each) for each in value]
        case tuple():
            return tuple(_plain(each) for each in value)
        case dict():
            return {name: _plain(value[name]) for name in sorted(value)}
    return value


def _same(value: Any, _kind: pa.DataType) -> Any:
    return value


def shaped(value: Any, kind: pa.DataType, scalar: Callable[[Any, pa.DataType], Any] = _same) -> Any:
    """A reader's value as ours of this type: maps may come as dicts or lists of structs, structs as
    lists; `scalar`: makes one that is not nested."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        pairs = value.items() if isinstance(value, dict) else value
        pairs = [(p["key"], p["value"]) if isinstance(p, dict) else p for p in pairs]
        made = [
            (shaped(key, kind.key_type, scalar), shaped(each, kind.item_type, scalar))
            for key, each in pairs
        ]
        return sorted(made, key=repr)
    if pa.types.is_list(kind):
        return [shaped(each, kind.value_type, scalar) for each in value]
    if pa.types.is_struct(kind):
        parts = [value[f.name] for f in kind] if isinstance(value, dict) else value
        pairs = zip(kind, parts, strict=True)
        return {field.name: shaped(each, field.type, scalar) for field, each in pairs}
    return scalar(value, kind)


def as_pyiceberg(rows: Sequence[Row], schema: pa.Schema) -> list[Row]:
    """Our rows, where an array or map of structs that is NULL is an empty one: pyiceberg 0.12 reads
    it so, whoever has written it."""
    return [{f.name: _of_pyiceberg(row[f.name], f.type) for f in schema} for row in rows]


def _of_pyiceberg(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_map(kind):
        if value is None:
            return [] if _has_structs(kind.item_type) else None
        return [(key, _of_pyiceberg(each, kind.item_type)) for key, each in value]
    if pa.types.is_list(kind):
        if value is None:
            return [] if _has_structs(kind.value_type) else None
        return [_of_pyiceberg(each, kind.value_type) for each in value]
    if pa.types.is_struct(kind) and value is not None:
        return {each.name: _of_pyiceberg(value[each.name], each.type) for each in kind}
    return value


def _has_structs(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return _has_structs(kind.item_type)
    if pa.types.is_list(kind):
        return _has_structs(kind.value_type)
    return bool(pa.types.is_struct(kind))


@dataclass(frozen=True, slots=True)
class Condition:
    """A column compared with a value: which files readers leave out shows whether their bounds are
    right."""

    column: str
    how: str
    value: int | str | Decimal | datetime.date

    @classmethod
    def chosen(cls, dice: random.Random, rows: Sequence[Row]) -> Condition | None:
        """One that some of these rows fulfil; None if there is none."""
        row = dice.choice(rows) if rows else {}
        kinds = (int, str, Decimal, datetime.date)
        some = [name for name, value in row.items() if type(value) in kinds and value != "it's"]
        if not some:
            return None
        column = dice.choice(some)
        return cls(column, dice.choice([*_COMPARED]), row[column])

    def fulfilled(self, rows: Sequence[Row]) -> list[Row]:
        compared = _COMPARED[self.how]
        values = [(row, row[self.column]) for row in rows]
        return [row for row, value in values if value is not None and compared(value, self.value)]

    @property
    def sql(self) -> str:
        """As DuckDB, Spark and Trino take it."""
        match self.value:
            case datetime.date():
                text = f"DATE '{self.value}'"
            case Decimal():
                digits = max(
                    len(self.value.as_tuple().digits), -int(self.value.as_tuple().exponent)
                )
                places = -int(self.value.as_tuple().exponent)
                text = f"CAST('{self.value:f}' AS decimal({digits},{places}))"
            case str():
                text = f"'{self.value}'"
            case _:
                text = f"CAST('{self.value}' AS bigint)"
        return f"{self.column} {self.how} {text}"
