"""Hive types as Arrow types."""

from __future__ import annotations

import pyarrow as pa

from acid_platform.layout.types import HiveType

_ARROW: dict[str, pa.DataType] = {
    "boolean": pa.bool_(), "tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(),
    "bigint": pa.int64(), "float": pa.float32(), "double": pa.float64(), "string": pa.string(),
    "varchar": pa.string(), "char": pa.string(), "binary": pa.binary(), "date": pa.date32(),
    "timestamp with local time zone": pa.timestamp("us", "UTC"),
}


def arrow_type(hive: HiveType, timestamps: str = "us") -> pa.DataType:
    """Of a Hive type; `timestamps` is their unit: `us` as Spark takes them, `ns` as ORC gives."""
    match hive.kind:
        case "decimal":
            return pa.decimal128(*hive.sizes)
        case "array":
            return pa.list_(arrow_type(hive.children[0][1], timestamps))
        case "map":
            return pa.map_(*(arrow_type(child, timestamps) for _, child in hive.children))
        case "struct":
            return pa.struct([(name, arrow_type(one, timestamps)) for name, one in hive.children])
        case "timestamp":
            return pa.timestamp(timestamps)
        case kind:
            return _ARROW[kind]
