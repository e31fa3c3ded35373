"""The rows that a statement changes, and their new values, as DuckDB computes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from acid_platform.engine.local.computation import (
    POSITION,
    compute,
    condition_sql,
    in_declared_type,
    numbered,
    value_sql,
)
from acid_platform.engine.local.run_query import query
from acid_platform.engine.local.translation.scope import NameScope
from acid_platform.engine.reads import ROW_ID, Condition, TableRead, Where
from acid_platform.errors import NeedsSpark
from acid_platform.layout.schema import ROW_ID_COLUMN
from acid_platform.layout.sql_text import quoted
from acid_platform.layout.types import Column
from acid_platform.predicates.analysis import columns_of
from acid_platform.scan.arrow_scan import ENTITY
from acid_platform.scan.scans import Scan, partition_scalars

_ROWS = "acid_rows"
"""The name of the table's rows in DuckDB."""
_KEYS = "acid_keys"
"""The name of the keys that a condition with subqueries accepts."""
_ACCEPTED = (
    f" WHERE EXISTS (SELECT 1 FROM {_KEYS} k WHERE k.{ENTITY.name} = {_ROWS}.{ENTITY.name}"
    f" AND k.w = {_ROWS}.{ROW_ID_COLUMN}.writeid AND k.b = {_ROWS}.{ROW_ID_COLUMN}.bucketid"
    f" AND k.r = {_ROWS}.{ROW_ID_COLUMN}.rowid)"
)


class ComputedRows:
    """What becomes of the rows of a scan, batch by batch.

    `where` accepts rows, None all of them. Making it raises WrongType, UnknownColumn,
    InvalidExpression, NeedsSpark.
    """

    def __init__(
        self, scan: Scan, where: Where, assignments: Mapping[str, str], table: str
    ) -> None:
        columns = (*scan.columns, *scan.partition_columns)
        scope = NameScope.of({_ROWS: columns})
        self._changed = [column for column in scan.columns if column.name in assignments]
        texts = [assignments[column.name] for column in self._changed]
        values = [
            value_sql(text, column, scope, table)
            for text, column in zip(texts, self._changed, strict=True)
        ]
        self._sql = f"SELECT {', '.join((POSITION, *values))} FROM {_ROWS}"
        self._keys: dict[str, pa.Table] = {}
        if isinstance(where, Condition):
            self._keys[_KEYS] = _accepted_keys(scan, where)
            self._sql += _ACCEPTED
        elif where is not None:
            texts.append(where)
            with_keys = (*columns, Column(ROW_ID_COLUMN, ROW_ID))
            self._sql += f" WHERE {condition_sql(where, NameScope.of({_ROWS: with_keys}))}"
        self.columns = _named(texts, columns)
        """The columns of the scan that it needs, besides ENTITY and ROW_ID_COLUMN."""

    def of(self, rows: pa.Table) -> pa.Table:
        """The accepted rows of a batch, with the new values of changed columns.

        Raises WrongType, InvalidExpression, TxnAborted, NeedsSpark.
        """
        if not rows.num_rows:
            return rows
        computed = compute(self._sql, {_ROWS: numbered(rows), **self._keys})
        rows = rows.take(computed.column(POSITION))
        for column in self._changed:
            values = in_declared_type(computed.column(column.name), column)
            rows = rows.set_column(rows.column_names.index(column.name), column.name, values)
        return rows


def _named(texts: Sequence[str], columns: Sequence[Column]) -> set[str]:
    """The columns that the expressions may read."""
    every = {column.name for column in columns}
    return set[str]().union(
        *(every if (read := columns_of(text)) is None else read for text in texts)
    )


def _accepted_keys(scan: Scan, where: Condition) -> pa.Table:
    """The row ids that a condition accepts which reads other tables, with the place of each row's
    partition in the scan as ENTITY.

    Raises InvalidExpression, UnknownColumn, NeedsSpark.
    """
    names = [*(column.name for column in scan.partition_columns), ROW_ID_COLUMN]
    selection = ", ".join(map(quoted, names))
    own = TableRead(scan, None, where.pruning, row_id=True)
    sources = {**where.sources, where.target: own}
    try:
        rows = query(f"SELECT {selection}{where.text}", sources, _no_session, "").to_arrow()
    except duckdb.Error as error:
        raise NeedsSpark(str(error).partition("\n")[0]) from error
    *values, keys = rows.columns
    places = _places(scan)
    index = [places[key] for key in zip(*(value.to_pylist() for value in values), strict=True)]
    return pa.table(
        {
            ENTITY.name: pa.array(index if values else [0] * rows.num_rows, pa.int32()),
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
