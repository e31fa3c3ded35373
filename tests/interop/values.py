"""Rows in one form, whoever has read them: JSON's types, exact."""

from __future__ import annotations

import base64
import datetime
import json
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from acid_platform import NeedsSpark, Warehouse
from acid_platform.layout.names import DEFAULT_PARTITION


def our_rows(warehouse: Warehouse, table: str) -> tuple[list[str], pa.Schema]:
    """This platform's rows, each as a line of JSON, sorted; and their types."""
    try:
        read = warehouse.table(table).to_arrow()
    except NeedsSpark:  # text and JSON are read by Spark
        read = warehouse.table(table).read().toArrow()
    columns = [
        [_ours(value, field.type) for value in column.to_pylist()]
        for column, field in zip(read.columns, read.schema, strict=True)
    ]
    rows = zip(*columns, strict=True)
    return sorted(json.dumps(list(row), ensure_ascii=False) for row in rows), read.schema


def _ours(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [_ours(one, kind.value_type) for one in value]
    if pa.types.is_map(kind):
        return {str(name): _ours(one, kind.item_type) for name, one in dict(value).items()}
    if pa.types.is_struct(kind):
        return [_ours(value[field.name], field.type) for field in kind]
    if pa.types.is_float32(kind):
        return str(np.float32(value))
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime.datetime):
        return value.replace(tzinfo=None).isoformat(" ", "microseconds")
    if isinstance(value, datetime.date | Decimal):
        return str(value)
    return value.rstrip(" ") if isinstance(value, str) else value


def trino_rows(rows: list[list[Any]], schema: pa.Schema) -> list[str]:
    """Rows of Trino's JSON in the form of `our_rows`."""
    return sorted(
        json.dumps(
            [_trino(one, field.type) for one, field in zip(row, schema, strict=True)],
            ensure_ascii=False,
        )
        for row in rows
    )


def _trino(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [_trino(one, kind.value_type) for one in value]
    if pa.types.is_map(kind):
        return {name: _trino(one, kind.item_type) for name, one in value.items()}
    if pa.types.is_struct(kind):
        return [_trino(one, field.type) for one, field in zip(value, kind, strict=True)]
    return _scalar(value, kind)


def hive_rows(lines: list[str], schema: pa.Schema) -> list[str]:
    """Lines of Hive's CLI, with tabs between values, in the form of `our_rows`."""
    return sorted(
        json.dumps(
            [_hive(text, field.type) for text, field in zip(line.split("\t"), schema, strict=True)],
            ensure_ascii=False,
        )
        for line in lines
    )


def _hive(text: str, kind: pa.DataType) -> Any:
    if text in ("NULL", DEFAULT_PARTITION):  # Hive shows NULL so in a partition column of text
        return None
    if pa.types.is_nested(kind):
        return _nested(json.loads(text), kind)
    if pa.types.is_boolean(kind):
        return {"true": True, "false": False}[text]
    if pa.types.is_integer(kind):
        return int(text)
    if pa.types.is_binary(kind):
        return base64.b64encode(text.encode()).decode()
    return _scalar(text, kind)


def _nested(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [_nested(one, kind.value_type) for one in value]
    if pa.types.is_map(kind):
        return {name: _nested(one, kind.item_type) for name, one in value.items()}
    if pa.types.is_struct(kind):
        return [_nested(value[field.name], field.type) for field in kind]
    return _scalar(value, kind)


def _scalar(value: Any, kind: pa.DataType) -> Any:
    """A number, time or text of another engine, which writes the same value otherwise."""
    if pa.types.is_float32(kind):
        return str(np.float32(value))
    if pa.types.is_float64(kind):
        return repr(float(value))
    if pa.types.is_decimal(kind):
        return str(Decimal(value).quantize(Decimal(1).scaleb(-kind.scale)))
    if pa.types.is_timestamp(kind):
        moment, _, fraction = str(value).partition(".")
        return f"{moment}.{fraction[:6].ljust(6, '0')}"
    return value.rstrip(" ") if isinstance(value, str) else value
