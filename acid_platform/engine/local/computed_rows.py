"""The rows that a statement changes, and their new values, as DuckDB computes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from acid_platform.engine.local.computation import (
    POSITION,
    Computation,
    condition_sql,
    in_declared_type,
    numbered,
    value_sql,
)
from acid_platform.engine.local.conditions import accepted_keys
from acid_platform.engine.local.query_sources import ROW_ID
from acid_platform.engine.local.running import RunningStatement
from acid_platform.engine.local.scope import NameScope
from acid_platform.engine.reads import Condition, Where
from acid_platform.layout.schema import ROW_ID_COLUMN
from acid_platform.layout.types import Column
from acid_platform.predicates.analysis import columns_of
from acid_platform.scan.arrow_scan import ENTITY
from acid_platform.scan.scans import Scan

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
    """What becomes of the rows of a scan, batch by batch; use as a context manager.

    `where` accepts rows, None all of them. Making it raises WrongType, UnknownColumn,
    InvalidExpression, NeedsSpark.
    """

    def __init__(
        self,
        scan: Scan,
        where: Where,
        assignments: Mapping[str, str],
        table: str,
        statement: RunningStatement,
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
            self._keys[_KEYS] = accepted_keys(scan, where, ENTITY.name)
            self._sql += _ACCEPTED
        elif where is not None:
            texts.append(where)
            seen = (*columns, Column(ROW_ID_COLUMN, ROW_ID))
            self._sql += f" WHERE {condition_sql(where, NameScope.of({_ROWS: seen}))}"
        self.columns = _named(texts, columns)
        """The columns of the scan that it needs, besides ENTITY and ROW_ID_COLUMN."""
        self._computation = Computation(statement)

    def __enter__(self) -> ComputedRows:
        self._computation.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._computation.__exit__(*error)

    def of(self, rows: pa.Table) -> pa.Table:
        """The accepted rows of a batch, with the new values of changed columns.

        Raises WrongType, InvalidExpression, TxnAborted, NeedsSpark.
        """
        if not rows.num_rows:
            return rows
        computed = self._computation.run(self._sql, {_ROWS: numbered(rows), **self._keys})
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
