"""Timestamps with and without a zone: a table's are wall clocks (P17), those of Spark instants.

Spark has one type for both, in a session whose zone is UTC, so that only the zone has to go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from acid_platform.layout.types import LOCAL_ZONE, HiveType
from acid_platform.values.arrow_types import has_leaf, with_leaves
from acid_platform.values.stored_values import as_declared


def wall_clocks(table: pa.Table, kinds: Sequence[HiveType | None]) -> pa.Table:
    """Spark's rows as `Table.to_arrow` returns them: only what is declared as TIMESTAMP WITH LOCAL
    TIME ZONE has a zone.

    `kinds` are the declared types of the columns, None where no table declares one.
    """
    for place, (field, hive) in enumerate(zip(table.schema, kinds, strict=True)):
        if not has_leaf(field.type, _is_instant):
            continue
        chunks = table.column(place).chunks or [pa.nulls(0, field.type)]
        if hive is not None and any(part.kind == LOCAL_ZONE for part in hive.walk()):
            values = pa.chunked_array([as_declared(chunk, hive, field.name) for chunk in chunks])
        else:
            values = _changed(chunks, _is_instant, lambda array: array.cast(pa.timestamp("us")))
        table = table.set_column(place, field.with_type(values.type), values)
    return table


def in_full_batches(table: pa.Table) -> pa.Table:
    """The rows in batches none of which is empty, or in one: Spark 4.3 makes no row of what follows
    an empty one."""
    if not table.num_columns:
        return table
    batches = [batch for batch in table.to_batches() if batch.num_rows]
    none = table.schema.empty_table()
    return pa.Table.from_batches(batches, table.schema) if batches else none


def instants(table: pa.Table) -> pa.Table:
    """The rows as Spark takes them: each timestamp is an instant, whose zone is UTC."""
    table = in_full_batches(table)
    for place, field in enumerate(table.schema):
        if has_leaf(field.type, _is_wall_clock):
            chunks = table.column(place).chunks or [pa.nulls(0, field.type)]
            values = _changed(
                chunks, _is_wall_clock, lambda array: array.cast(pa.timestamp("us", "UTC"))
            )
            table = table.set_column(place, field.with_type(values.type), values)
    return table


def _changed(
    chunks: Sequence[pa.Array],
    chosen: Callable[[pa.DataType], bool],
    change: Callable[[pa.Array], pa.Array],
) -> pa.ChunkedArray:
    return pa.chunked_array([with_leaves(chunk, chosen, change) for chunk in chunks])


def _is_instant(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.tz)


def _is_wall_clock(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and not kind.tz)
