"""The ids of columns, and of the fields inside of them, in the schema of a Parquet file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from acid_platform.layout.types import nested_id

_FIELD_ID = b"PARQUET:field_id"


def field_with_id(name: str, kind: pa.DataType, number: int, nullable: bool = False) -> pa.Field:
    metadata = {_FIELD_ID: str(number).encode()} if number else None
    return pa.field(name, kind, nullable, metadata)


def id_of(field: pa.Field) -> int:
    """The id of a column; 0 if it has none."""
    return int((field.metadata or {}).get(_FIELD_ID, 0))


def column_places(schema: pa.Schema) -> Mapping[int, int]:
    """The place of each column by its id, if columns have ids."""
    return {number: n for n, field in enumerate(schema) if (number := id_of(field))}


def leaf_paths(field: pa.Field) -> Iterator[str]:
    """The columns of a file that a column of Arrow's becomes."""
    return (path for path, _ in _leaves(field))


def bounded_paths(schema: pa.Schema) -> list[str]:
    """The columns of a file whose bounds are written: those of floating-point numbers would leave
    out NaN, which is more than any number, and readers would skip rows that have it."""
    leaves = (leaf for field in schema for leaf in _leaves(field))
    return [path for path, kind in leaves if not pa.types.is_floating(kind)]


def _leaves(field: pa.Field, before: str = "") -> Iterator[tuple[str, pa.DataType]]:
    inside, path = _inside(field.type), f"{before}{field.name}"
    between = {"list": "list.", "map": "key_value."}.get(_shape(field.type), "")
    for name, child in inside:
        yield from _leaves(child.with_name(name), f"{path}.{between}")
    if not inside:
        yield path, field.type


def _shape(kind: pa.DataType) -> str:
    """`struct`, `map`, `list`, or nothing."""
    for shape in ("struct", "map", "list"):
        if getattr(pa.types, f"is_{shape}")(kind):
            return shape
    return ""


def _inside(kind: pa.DataType) -> list[tuple[str, pa.Field]]:
    """The fields inside of a type, by their names in Parquet."""
    match _shape(kind):
        case "struct":
            return [(field.name, field) for field in kind]
        case "map":
            return [("key", kind.key_field), ("value", kind.item_field)]
        case "list":
            return [("element", kind.value_field)]
    return []


def with_ids(kind: pa.DataType, column: int, path: str = "") -> pa.DataType:
    """The type of a column with the ids of the fields inside of it; without, if it has none."""
    fields = [
        field_with_id(
            field.name,
            with_ids(field.type, column, f"{path}{name}."),
            nested_id(column, f"{path}{name}"),
            field.nullable,
        )
        for name, field in _inside(kind)
    ]
    if not fields or not column:
        return kind
    make = {"struct": lambda *each: pa.struct(each), "map": pa.map_, "list": pa.list_}
    return make[_shape(kind)](*fields)


def has_ids(kind: pa.DataType, column: int, path: str = "") -> bool:
    """Whether the fields inside of the type of a column have the ids that `with_ids` gives."""
    return all(
        id_of(field) == nested_id(column, f"{path}{name}")
        and has_ids(field.type, column, f"{path}{name}.")
        for name, field in _inside(kind)
    )
