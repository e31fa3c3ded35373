"""Where the rows are that a statement changes, as DuckDB finds them.

A condition and a join read their own columns of all rows, as a stream. Other columns are decoded
afterwards, only where rows were found, and only of these: `dml.rows_at`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NoReturn

import duckdb
import numpy as np
import pyarrow as pa

from acid_platform.engine.local.computation import compute, condition_sql
from acid_platform.engine.local.query_sources import QuerySource
from acid_platform.engine.local.run_query import query
from acid_platform.engine.local.translation.scope import NameScope
from acid_platform.engine.reads import ROW_ID, Condition, TableRead
from acid_platform.errors import InvalidDefinition, NeedsSpark, UnsupportedLayout
from acid_platform.layout.schema import ROW_ID_COLUMN
from acid_platform.layout.sql_text import quoted
from acid_platform.layout.types import Column
from acid_platform.predicates.analysis import paths_of
from acid_platform.scan.decode import PLACE
from acid_platform.scan.scans import Scan
from acid_platform.storage.arrow_numpy import values_of

_ROWS = "acid_rows"
"""The name of the table's rows in DuckDB."""


def columns_read(
    texts: Iterable[str], columns: Sequence[Column], others: Iterable[tuple[str, str]] = ()
) -> tuple[str, ...]:
    """The columns that the expressions may read, in order.

    `others`: the name of another table and of its column, in lower case, for each of its columns.
    """
    names, of_others = set[str](), set(others)
    for text in texts:
        paths = paths_of(text)
        if paths is None:
            return tuple(column.name for column in columns)
        names |= {name for path in paths if path[:2] not in of_others for name in path}
    return tuple(column.name for column in columns if column.name in names)


def stream(scan: Scan, names: Sequence[str], row_id: bool = False) -> QuerySource:
    """These columns of all rows and the PLACE of each, as DuckDB reads them."""
    return QuerySource(TableRead(scan, tuple(names), row_id=row_id, place=True), filtered=False)


def places_where(scan: Scan, where: str) -> np.ndarray:
    """The places of the rows that the condition accepts, int64 (n,), ascending.

    Raises InvalidExpression, UnknownColumn, CorruptFile, TxnAborted, NeedsSpark.
    """
    columns = (*scan.columns, *scan.partition_columns, Column(ROW_ID_COLUMN, ROW_ID))
    names = columns_read([where], columns)
    row_id = ROW_ID_COLUMN in names
    source = stream(scan, [name for name in names if name != ROW_ID_COLUMN], row_id)
    condition = condition_sql(where, NameScope.of({_ROWS: columns}))
    found = compute(f"SELECT {PLACE.name} FROM {_ROWS} WHERE {condition}", {_ROWS: source})
    return np.sort(values_of(found.column(0)))


def accepted(scan: Scan, where: Condition) -> tuple[pa.Table, tuple[Column, ...]]:
    """PLACE of the rows that a condition accepts which reads other tables, ascending, and its
    values, with their columns.

    Raises InvalidExpression, UnknownColumn, CorruptFile, TxnAborted, NeedsSpark.
    """
    row_id = ROW_ID_COLUMN in where.text.lower()
    own = TableRead(scan, where.columns, where.pruning, row_id, place=True)
    try:
        result = query(
            f"SELECT {quoted(PLACE.name)}{where.text}",
            {**where.sources, where.target: own},
            _no_session,
            "",
        )
        columns = result.declared()[1:] if where.values else ()
        rows = result.to_arrow()
    except duckdb.Error as error:
        raise NeedsSpark(str(error).partition("\n")[0]) from error
    except (InvalidDefinition, UnsupportedLayout) as error:
        raise NeedsSpark(str(error)) from error
    named = rows.rename_columns([PLACE.name, *where.values])
    return named.sort_by(PLACE.name), columns


def _no_session() -> NoReturn:
    raise NeedsSpark("the rows of a condition")
