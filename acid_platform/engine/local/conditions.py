"""Conditions that read other tables: which rows of the scan they accept, as their keys."""

from __future__ import annotations

from typing import NoReturn

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from acid_platform.engine.local.run import query
from acid_platform.engine.reads import Condition, TableRead
from acid_platform.errors import NeedsSpark
from acid_platform.layout.schema import ROW_ID_COLUMN
from acid_platform.layout.sql_text import quoted
from acid_platform.scan.scans import Scan, partition_scalars


def accepted_keys(scan: Scan, where: Condition, entity: str) -> pa.Table:
    """The row ids that the condition accepts; `entity` names the column with the place of the
    row's partition in the scan.

    Raises InvalidExpression, UnknownColumn, NeedsSpark.
    """
    names = [*(column.name for column in scan.partition_columns), ROW_ID_COLUMN]
    selection = ", ".join(map(quoted, names))
    own = TableRead(scan, None, where.pruning, row_id=True)
    sources = {**where.sources, where.target: own}
    try:
        found = query(f"SELECT {selection}{where.text}", sources, _no_session, "").to_arrow()
    except duckdb.Error as error:
        raise NeedsSpark(str(error).partition("\n")[0]) from error
    places = _places(scan)
    values = zip(*(found.column(place).to_pylist() for place in range(len(names) - 1)), strict=True)
    index = [places[value] for value in values] if names[:-1] else [0] * found.num_rows
    keys = found.column(len(names) - 1)
    return pa.table(
        {
            entity: pa.array(index, pa.int32()),
            **{name: pc.struct_field(keys, [place]) for place, name in enumerate("wbr")},
        }
    )


def _places(scan: Scan) -> dict[tuple[object, ...], int]:
    """The place of each partition in the scan, by its typed values."""
    places: dict[tuple[object, ...], int] = {}
    for place, entity in enumerate(scan.entities):
        scalars = partition_scalars(scan.partition_columns, entity.values)
        key = tuple(scalar.as_py() for scalar in scalars.values())
        if any(value != value for value in key) or places.setdefault(key, place) != place:
            raise NeedsSpark("a condition with a subquery over partitions of equal values")
    return places


def _no_session() -> NoReturn:
    raise NeedsSpark("the rows of a condition")
