"""Manifests and lists of manifests: Avro files whose schemas Iceberg's specification gives."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from acid_platform.errors import CorruptFile, InvalidDefinition
from acid_platform.iceberg.columns import Json, Plain, decimal_bytes, plain

LIVE, ADDED, REMOVED = 0, 1, 2
"""The status of an entry: from an earlier snapshot, of this one, or gone with it."""


def fastavro() -> Any:
    """The package; raises InvalidDefinition without it."""
    try:
        import fastavro
    except ModuleNotFoundError as error:
        raise InvalidDefinition(
            "Iceberg's metadata needs the package fastavro: pip install 'acid-platform[export]'"
        ) from error
    return fastavro


def _field(number: int, name: str, kind: Any, optional: bool = False) -> Json:
    if not optional:
        return {"name": name, "type": kind, "field-id": number}
    return {"name": name, "type": ["null", kind], "default": None, "field-id": number}


def _map(key: int, value: int, kind: str) -> Json:
    """Avro's maps have texts for keys; Iceberg writes a list of pairs."""
    fields = [_field(key, "key", "int"), _field(value, "value", kind)]
    pair = {"type": "record", "name": f"k{key}_v{value}", "fields": fields}
    return {"type": "array", "logicalType": "map", "items": pair}


_SIMPLE: dict[str, Any] = {
    **{name: name for name in ("boolean", "int", "long", "float", "double", "string")},
    "binary": "bytes",
    "date": {"type": "int", "logicalType": "date"},
    **{
        name: {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": utc}
        for name, utc in (("timestamp", False), ("timestamptz", True))
    },
}


def _avro_type(kind: str, number: int) -> Any:
    if not kind.startswith("decimal"):
        return _SIMPLE[kind]
    precision, scale = map(int, re.findall(r"\d+", kind))
    sizes = {"size": decimal_bytes(kind), "precision": precision, "scale": scale}
    return {"type": "fixed", "name": f"decimal_{number}", "logicalType": "decimal", **sizes}


def avro_name(field: Mapping[str, Any]) -> str:
    """The name of a partition field in Avro, which has letters, digits and `_` only; readers find
    it by its id."""
    name = str(field["name"])
    return name if re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name) else f"_{field['field-id']}"


def _entry_schema(spec: Sequence[Json], kinds: Sequence[str]) -> Json:
    partition = [
        _field(field["field-id"], avro_name(field), _avro_type(kind, field["field-id"]), True)
        for field, kind in zip(spec, kinds, strict=True)
    ]
    file = [
        _field(134, "content", "int"),
        _field(100, "file_path", "string"),
        _field(101, "file_format", "string"),
        _field(102, "partition", {"type": "record", "name": "r102", "fields": partition}),
        _field(103, "record_count", "long"),
        _field(104, "file_size_in_bytes", "long"),
        _field(109, "value_counts", _map(119, 120, "long"), True),
        _field(110, "null_value_counts", _map(121, 122, "long"), True),
        _field(125, "lower_bounds", _map(126, 127, "bytes"), True),
        _field(128, "upper_bounds", _map(129, 130, "bytes"), True),
        _field(140, "sort_order_id", "int", True),
    ]
    fields = [
        _field(0, "status", "int"),
        _field(1, "snapshot_id", "long", True),
        _field(3, "sequence_number", "long", True),
        _field(4, "file_sequence_number", "long", True),
        _field(2, "data_file", {"type": "record", "name": "r2", "fields": file}),
    ]
    return {"type": "record", "name": "manifest_entry", "fields": fields}


def _list_schema() -> Json:
    summary = [
        _field(509, "contains_null", "boolean"),
        _field(518, "contains_nan", "boolean", True),
        _field(510, "lower_bound", "bytes", True),
        _field(511, "upper_bound", "bytes", True),
    ]
    record = {"type": "record", "name": "r508", "fields": summary}
    counts = ((504, "added"), (505, "existing"), (506, "deleted"))
    fields = [
        _field(500, "manifest_path", "string"),
        _field(501, "manifest_length", "long"),
        _field(502, "partition_spec_id", "int"),
        _field(517, "content", "int"),
        _field(515, "sequence_number", "long"),
        _field(516, "min_sequence_number", "long"),
        _field(503, "added_snapshot_id", "long"),
        *(_field(number, f"{what}_files_count", "int") for number, what in counts),
        *(_field(number + 8, f"{what}_rows_count", "long") for number, what in counts),
        _field(507, "partitions", {"type": "array", "items": record, "element-id": 508}, True),
    ]
    return {"type": "record", "name": "manifest_file", "fields": fields}


def _written(schema: Json, rows: Iterable[Json], notes: Mapping[str, str]) -> bytes:
    out = io.BytesIO()
    fastavro().writer(out, schema, rows, codec="deflate", metadata=dict(notes))
    return out.getvalue()


def list_bytes(rows: Iterable[Json], notes: Mapping[str, str]) -> bytes:
    return _written(_list_schema(), rows, notes)


def manifest_bytes(
    entries: Sequence[Json], spec: Sequence[Json], kinds: Sequence[str], notes: Mapping[str, str]
) -> bytes:
    """`kinds`: the types of the fields of the partition spec, whose values entries have in order,
    as Plain."""

    def stored(value: Plain, kind: str) -> Any:
        if value is None or not kind.startswith("decimal"):
            return value
        return int(value).to_bytes(decimal_bytes(kind), "big", signed=True)

    def row(entry: Json) -> Json:
        values = zip(spec, entry["data_file"]["partition"], kinds, strict=True)
        partition = {avro_name(field): stored(value, kind) for field, value, kind in values}
        return {**entry, "data_file": {**entry["data_file"], "partition": partition}}

    return _written(_entry_schema(spec, kinds), map(row, entries), notes)


def read(content: bytes, path: str) -> list[Json]:
    """The rows of such a file. Raises CorruptFile."""
    avro = fastavro()
    try:
        return list(avro.reader(io.BytesIO(content)))
    except (ValueError, KeyError, EOFError, OSError, IndexError) as error:
        raise CorruptFile(f"{path} is no list of Iceberg's files: {error}; remove it") from error


def entries_of(content: bytes, path: str, spec: Sequence[Json], kinds: Sequence[str]) -> list[Json]:
    """The entries of a manifest, as `manifest_bytes` takes them. Raises CorruptFile."""
    entries = read(content, path)
    for entry in entries:
        values = entry["data_file"]["partition"]
        pairs = zip(spec, kinds, strict=True)
        entry["data_file"]["partition"] = [plain(values[avro_name(f)], kind) for f, kind in pairs]
    return entries
