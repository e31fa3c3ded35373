"""Timestamps that ORC can't store: the last second before 1970, except its first millisecond.

ORC stores seconds and nanoseconds separately. Before 1970 its writers round the seconds towards
zero; its readers correct that by the sign of the seconds, but zero has no sign. So every engine
would read 1969-12-31 23:59:59.5 as 1970-01-01 00:00:00.5.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from acid_platform.engine.spark.failures import NOT_IN_ORC
from acid_platform.layout.types import TIMESTAMPS, HiveType
from acid_platform.layout.types import Column as TableColumn

_FIRST, _END = "TIMESTAMP '1969-12-31 23:59:59.001'", "TIMESTAMP '1970-01-01 00:00:00'"


def storable(value: Column, column: TableColumn) -> Column:
    """The value; a row with a timestamp that ORC can't store fails the job (NOT_IN_ORC)."""
    return _checked(value, column.type, column)


def _checked(value: Column, kind: HiveType, column: TableColumn) -> Column:
    if not any(part.kind in TIMESTAMPS for part in kind.walk()):
        return value
    match kind.kind:
        case "array":
            ((_, item),) = kind.children
            return F.transform(value, lambda part: _checked(part, item, column))
        case "map":
            (_, key), (_, item) = kind.children
            return F.map_from_arrays(
                F.transform(F.map_keys(value), lambda part: _checked(part, key, column)),
                F.transform(F.map_values(value), lambda part: _checked(part, item, column)),
            )
        case "struct":
            fields = [
                _checked(value.getField(name), child, column).alias(name)
                for name, child in kind.children
            ]
            return F.when(value.isNotNull(), F.struct(*fields))
        case _:
            message = F.concat(
                F.lit(f"{NOT_IN_ORC} column {column.name} has "), value.cast("string")
            )
            lost = (value >= F.expr(_FIRST)) & (value < F.expr(_END))
            return F.when(lost, F.raise_error(message)).otherwise(value)
