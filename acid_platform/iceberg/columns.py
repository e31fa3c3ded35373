"""Columns, partitions and bounds of values as Iceberg's specification spells them (format 2)."""

from __future__ import annotations

import datetime
import struct
from collections.abc import Mapping, Sequence
from decimal import Context, Decimal
from typing import Any, TypeAlias

from acid_platform.errors import UnsupportedLayout
from acid_platform.layout.file_entries import ColumnRange, RangeKind
from acid_platform.layout.types import LOCAL_ZONE, Column, HiveType, nested_id

Json: TypeAlias = dict[str, Any]
Plain: TypeAlias = int | float | str | bytes | None
"""A partition value: days of a date, microseconds of a time, a decimal without its point."""

_NAMES = {
    "boolean": "boolean",
    **dict.fromkeys(("tinyint", "smallint", "int"), "int"),
    "bigint": "long",
    "float": "float",
    "double": "double",
    **dict.fromkeys(("string", "varchar", "char"), "string"),
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamp",
    LOCAL_ZONE: "timestamptz",
}
PARTITION_COLUMNS = 1_000_000_000
"""The ids of partition columns are those above: no file holds them."""
_FIRST_PARTITION_FIELD = 1000
_MOST_DIGITS = Context(prec=60)
_EPOCH = datetime.datetime(1970, 1, 1)
_FIRST_DAY = datetime.date(1970, 1, 1).toordinal()


def simple_type(kind: HiveType) -> str:
    """The name of a type without children."""
    if kind.kind == "decimal":
        return "decimal({}, {})".format(*kind.sizes)
    return _NAMES[kind.kind]


def schema_fields(columns: Sequence[Column], keys: Sequence[Column], table: str) -> list[Json]:
    """The fields of a schema; `keys` are the partition columns. The `doc` of a field is its type
    here.

    Raises UnsupportedLayout if two nested fields would have one id.
    """
    numbers = [(column.id, column) for column in columns]
    numbers += [(PARTITION_COLUMNS + n, column) for n, column in enumerate(keys)]
    used: dict[int, str] = {}

    def typed(column: int, kind: HiveType, path: str) -> Any:
        if not kind.children:
            return simple_type(kind)
        ids = {name: nested_id(column, f"{path}{name}") for name, _ in kind.children}
        types = {name: typed(column, child, f"{path}{name}.") for name, child in kind.children}
        for name, number in ids.items():
            if used.setdefault(number, f"{column}.{path}{name}") != f"{column}.{path}{name}":
                raise UnsupportedLayout(
                    f"{table}: the fields {used[number]} and {column}.{path}{name} would have one"
                    " id in Iceberg; rename one of them"
                )
        if kind.kind == "struct":
            return {"type": "struct", "fields": [_field(ids[n], n, types[n]) for n in ids]}
        ends = [f"{part}-id" for part in ids]
        numbers = dict(zip(ends, ids.values(), strict=True))
        if kind.kind == "array":
            return {"type": "list", **numbers, "element-required": False, **types}
        return {"type": "map", **numbers, "value-required": False, **types}

    return [
        _field(number, column.name, typed(number, column.type, "")) | {"doc": str(column.type)}
        for number, column in numbers
    ]


def _field(number: int, name: str, kind: Any) -> Json:
    return {"id": number, "name": name, "required": False, "type": kind}


def highest_id(fields: Sequence[Json]) -> int:
    """The highest id in a schema, also of nested fields."""

    def ids(kind: Any) -> list[int]:
        if not isinstance(kind, dict):
            return []
        own = [number for key, number in kind.items() if key.endswith("-id")]
        inside = [field["type"] for field in kind.get("fields", ())]
        own += [field["id"] for field in kind.get("fields", ())]
        inside += [kind[part] for part in ("element", "key", "value") if part in kind]
        return own + [number for child in inside for number in ids(child)]

    return max([0, *ids({"fields": fields})])


def name_mapping(fields: Sequence[Json]) -> list[Json]:
    """By which names files without ids have these columns."""

    def of(number: int, name: str, kind: Any) -> Json:
        row: Json = {"field-id": number, "names": [name]}
        if isinstance(kind, dict):
            inside = [(each["id"], each["name"], each["type"]) for each in kind.get("fields", ())]
            parts = ("element", "key", "value")
            inside += [(kind[f"{part}-id"], part, kind[part]) for part in parts if part in kind]
            row["fields"] = [of(*each) for each in inside]
        return row

    return [of(field["id"], field["name"], field["type"]) for field in fields]


def partition_fields(keys: Sequence[Column]) -> list[Json]:
    """The fields of the partition spec: each partition column as it is."""
    return [
        {
            "name": column.name,
            "transform": "identity",
            "source-id": PARTITION_COLUMNS + n,
            "field-id": _FIRST_PARTITION_FIELD + n,
        }
        for n, column in enumerate(keys)
    ]


def plain(value: Any, kind: str) -> Plain:
    """A partition value of an Iceberg type, from Python's."""
    match value:
        case datetime.datetime():
            naive = value.astimezone(datetime.UTC).replace(tzinfo=None) if value.tzinfo else value
            return (naive - _EPOCH) // datetime.timedelta(microseconds=1)
        case datetime.date():
            return value.toordinal() - _FIRST_DAY
        case Decimal():
            return _unscaled(value, kind)
    return value  # type: ignore[no-any-return]


def _unscaled(value: Decimal, kind: str) -> int:
    scale = int(kind.rpartition(",")[2].strip(" )"))
    return int(value.scaleb(scale, _MOST_DIGITS))


def decimal_bytes(kind: str) -> int:
    """The bytes of a decimal in Avro."""
    precision = int(kind.partition("(")[2].partition(",")[0])
    return int(10**precision).bit_length() // 8 + 1


def single_value(value: Plain, kind: str) -> bytes:
    """Iceberg's single-value form of a value that is not NULL."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    if kind == "boolean":
        return bytes([bool(value)])
    if kind.startswith("decimal"):
        whole = int(value or 0)
        return whole.to_bytes((whole + (whole < 0)).bit_length() // 8 + 1, "big", signed=True)
    code = {"int": "<i", "date": "<i", "float": "<f", "double": "<d"}.get(kind, "<q")
    return struct.pack(code, value)


_BOUNDED = {
    RangeKind.INTEGER: ("int", "long"),
    RangeKind.DATE: ("date",),
    RangeKind.TEXT: ("string",),
}


def statistics(rows: int, columns: Sequence[Column], ranges: Mapping[str, ColumnRange]) -> Json:
    """What a manifest says of the values of a file, of which these ranges are recorded."""
    told: dict[str, list[Json]] = {
        name: [] for name in ("value_counts", "null_value_counts", "lower_bounds", "upper_bounds")
    }
    for column in columns:
        known = ranges.get(column.name)
        if known is None or column.type.children:
            continue
        kind = simple_type(column.type)
        told["value_counts"].append({"key": column.id, "value": rows})
        told["null_value_counts"].append({"key": column.id, "value": known.nulls})
        for name, bound in (("lower_bounds", known.low), ("upper_bounds", known.high)):
            value = _bound(bound, known.kind, kind)
            if value is not None:
                told[name].append({"key": column.id, "value": value})
    return {name: rows or None for name, rows in told.items()}


def _bound(bound: int | Decimal | str | None, what: RangeKind, kind: str) -> bytes | None:
    """The bound in Iceberg's form; None if there is none, or it is of another type."""
    if bound is None:
        return None
    if isinstance(bound, Decimal):
        return single_value(_unscaled(bound, kind), kind) if kind.startswith("decimal") else None
    return single_value(bound, kind) if kind in _BOUNDED.get(what, ()) else None
