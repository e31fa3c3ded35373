"""The rows that a statement changes, and their new values, as DuckDB computes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from acid_platform.engine.local.assigned_values import AssignedValues
from acid_platform.engine.local.computation import POSITION, compute, condition_sql, numbered
from acid_platform.engine.local.run_query import query
from acid_platform.engine.local.translation.scope import NameScope
from acid_platform.engine.reads import ROW_ID, Condition, TableRead, Where
from acid_platform.errors import InvalidDefinition, NeedsSpark
from acid_platform.layout.schema import ROW_ID_COLUMN
from acid_platform.layout.sql_text import quoted
from acid_platform.layout.types import Column
from acid_platform.predicates.analysis import columns_of
from acid_platform.scan.arrow_scan import ENTITY
from acid_platform.scan.scans import Scan, partition_scalars

_ROWS = "acid_rows"
"""The name of the table's rows in DuckDB."""
_KEYS = "acid_keys"
"""The name of the keys that a condition with subqueries accepts, each once, with its values."""
_ACCEPTED = (
    f" JOIN {_KEYS} ON {_KEYS}.{ENTITY.name} = {_ROWS}.{ENTITY.name}"
    f" AND {_KEYS}.w = {_ROWS}.{ROW_ID_COLUMN}.writeid"
    f" AND {_KEYS}.b = {_ROWS}.{ROW_ID_COLUMN}.bucketid"
    f" AND {_KEYS}.r = {_ROWS}.{ROW_ID_COLUMN}.rowid"
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
        members = {_ROWS: columns}
        self._keys: dict[str, pa.Table] = {}
        if isinstance(where, Condition):
            self._keys[_KEYS], members[_KEYS] = _accepted_keys(scan, where)
        texts = list(assignments.values())
        self._assigned = AssignedValues.of(assignments, scan.columns, NameScope.of(members), table)
        self._sql = f"SELECT {', '.join((POSITION, *self._assigned.sql))} FROM {_ROWS}"
        if isinstance(where, Condition):
            self._sql += _ACCEPTED
        elif where is not None:
            texts.append(where)
            with_keys = (*columns, Column(ROW_ID_COLUMN, ROW_ID))
            self._sql += f" WHERE {condition_sql(where, NameScope.of({_ROWS: with_keys}))}"
        changed = {target.column.name for target in self._assigned.targets}
        self.columns = _named(texts, columns) | changed
        """The columns of the scan that it needs, besides ENTITY and ROW_ID_COLUMN."""

    def of(self, rows: pa.Table) -> pa.Table:
        """The accepted rows of a batch, with the new values of changed columns.

        Raises WrongType, InvalidExpression, TxnAborted, NeedsSpark.
        """
        if not rows.num_rows:
            return rows
        computed = compute(self._sql, {_ROWS: numbered(rows), **self._keys})
        return self._assigned.put_into(rows.take(computed.column(POSITION)), computed)


def _named(texts: Sequence[str], columns: Sequence[Column]) -> set[str]:
    """The columns that the expressions may read."""
    every = {column.name for column in columns}
    return set[str]().union(
        *(every if (read := columns_of(text)) is None else read for text in texts)
    )


def _accepted_keys(scan: Scan, where: Condition) -> tuple[pa.Table, tuple[Column, ...]]:
    """The row ids that a condition accepts which reads other tables, with the place of each row's
    partition in the scan as ENTITY; and its values, beside their columns.

    Raises InvalidExpression, UnknownColumn, NeedsSpark.
    """
    names = [*(column.name for column in scan.partition_columns), ROW_ID_COLUMN]
    selection = ", ".join(map(quoted, names))
    own = TableRead(scan, None, where.pruning, row_id=True)
    sources = {**where.sources, where.target: own}
    try:
        result = query(f"SELECT {selection}{where.text}", sources, _no_session, "")
        columns = result.declared()[len(names) :] if where.values else ()
        rows = result.to_arrow()
    except duckdb.Error as error:
        raise NeedsSpark(str(error).partition("\n")[0]) from error
    except InvalidDefinition as error:
        raise NeedsSpark(str(error)) from error
    *values, keys = rows.columns[: len(names)]
    places = _places(scan)
    index = [places[key] for key in zip(*(value.to_pylist() for value in values), strict=True)]
    table = pa.table(
        {
            ENTITY.name: pa.array(index if values else [0] * rows.num_rows, pa.int32()),
            **{name: pc.struct_field(keys, [place]) for place, name in enumerate("wbr")},
            **dict(zip(where.values, rows.columns[len(names) :], strict=True)),
        }
    )
    return table, columns


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
