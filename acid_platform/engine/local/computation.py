"""The expressions of a statement, computed by DuckDB over Arrow tables as a table stores them.

Which types fit a column are the rules of Spark's ANSI store assignment, except that fractions may
not go into whole numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager

import duckdb
import numpy as np
import pyarrow as pa

from acid_platform.engine.local.duckdb_connection import connect
from acid_platform.engine.local.query_sources import QuerySource
from acid_platform.engine.local.running import stoppable
from acid_platform.engine.local.translation.casts import cast
from acid_platform.engine.local.translation.duckdb_failures import too_long, translated
from acid_platform.engine.local.translation.duckdb_types import (
    DATE,
    NUMERIC,
    STRING,
    TIMESTAMP,
    VOID,
    identifier,
    of_value,
    spark_name,
)
from acid_platform.engine.local.translation.expressions import as_condition, translate_value
from acid_platform.engine.local.translation.scope import NameScope
from acid_platform.errors import NeedsSpark, UnsupportedLayout, WrongType
from acid_platform.layout.types import CHAR_TYPES, INTEGRAL, LOCAL_ZONE, Column, HiveType
from acid_platform.storage.arrow_numpy import from_numpy
from acid_platform.storage.arrow_types import arrow_type

POSITION = "__n"
"""The column with the number of a row in its table."""


def compute(
    sql: str, tables: Mapping[str, pa.Table | pa.RecordBatchReader | QuerySource]
) -> pa.Table:
    """The result of a SELECT in DuckDB's SQL over these tables.

    DuckDB knows the number of rows only of a Table. To join two streams it builds a hash table of
    the second one, and the first one streams through.
    Raises WrongType, InvalidExpression, CorruptFile, TxnAborted, NeedsSpark.
    """
    with closing(connect()) as connection, stoppable(connection), _ours():
        for name, table in tables.items():
            whole = isinstance(table, pa.Table)
            connection.register(name, without_zones(table) if whole else table)
        try:
            return connection.sql(sql).to_arrow_table()
        except duckdb.Error:
            for table in tables.values():
                if isinstance(table, QuerySource):
                    table.raise_failure()
            raise


@contextmanager
def _ours() -> Iterator[None]:
    """DuckDB's errors as Spark's would become. What DuckDB can't do, Spark has to."""
    try:
        yield
    except duckdb.InterruptException:
        raise
    except duckdb.Error as error:
        ours = translated(error)
        raise ours or NeedsSpark(str(error).partition("\n")[0]) from error
    except UnsupportedLayout as error:
        raise NeedsSpark(str(error)) from error


def without_zones(table: pa.Table) -> pa.Table:
    """The table with instants as timestamps in UTC, as Spark's expressions see them."""
    for place, column in enumerate(table.schema):
        if pa.types.is_timestamp(column.type) and column.type.tz:
            values = table.column(place).cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us"))
            table = table.set_column(place, column.name, values)
    return table


def numbered(table: pa.Table) -> pa.Table:
    """The table with POSITION as its last column."""
    return table.append_column(POSITION, from_numpy(np.arange(table.num_rows)))


def condition_sql(text: str, scope: NameScope) -> str:
    """DuckDB's SQL of a condition. Raises InvalidExpression, UnknownColumn, NeedsSpark."""
    return as_condition(translate_value(text, scope), text, null=True).sql


def join_sql(text: str, scope: NameScope) -> str:
    """As `condition_sql` for ON. Raises NeedsSpark if it may fail for pairs that Spark skips."""
    condition = as_condition(translate_value(text, scope), text)
    if condition.fails:
        raise NeedsSpark(f"ON {text}, which may fail")
    return condition.sql


# --- values of a column ---------------------------------------------------------------------------


def value_sql(text: str, column: Column, scope: NameScope, table: str) -> str:
    """DuckDB's SQL of an expression as a value of the column, under the column's name.

    Raises WrongType if the type does not fit, UnknownColumn, InvalidExpression, NeedsSpark. The SQL
    fails with WrongType for a value that does not fit.
    """
    value = translate_value(text, scope)
    if column.type.nested:
        zones = any(kind.kind == LOCAL_ZONE for kind in column.type.walk())
        if zones or value.type != of_value(column.type):
            raise NeedsSpark(f"an expression for {column}")
        return f"{value.sql} AS {identifier(column.name)}"
    if not _fits(value.type, column.type):
        raise WrongType(
            f"column {column.name!r} of {table} = {text}: {spark_name(value.type)} does not fit"
            f" {column.type}; cast it explicitly"
        )
    stored = cast(value, column.type).sql
    if column.type.kind in CHAR_TYPES:
        stored = _cut(stored, column, table)
    return f"{stored} AS {identifier(column.name)}"


def in_declared_type(values: pa.ChunkedArray, column: Column) -> pa.ChunkedArray:
    """What `value_sql` computed, in the Arrow type of the column."""
    target = arrow_type(column.type)
    if column.type.kind == LOCAL_ZONE:
        return values.cast(pa.timestamp("us")).cast(target)
    return values.cast(target)


def _cut(value: str, column: Column, table: str) -> str:
    """Blanks beyond the length are cut, as in Hive; any other text that is too long fails."""
    (length,) = column.type.sizes
    size = f"length(rtrim({value}, ' '))"
    failure = too_long(f"column {column.name} of {table} takes {column.type}, a value has ", size)
    cut = f"left({value}, {length})"
    if column.type.kind == "char":
        cut = f"rpad({value}, {length}, ' ')"
    return f"CASE WHEN {size} > {length} THEN {failure} ELSE {cut} END"


def _fits(source: HiveType, target: HiveType) -> bool:
    """Whether a value of `source` may be stored in `target`, which is not nested."""
    stored = of_value(target)
    if source in (stored, VOID):
        return True
    if source.nested:
        return False
    whole = source.kind in INTEGRAL or (source.kind == "decimal" and source.sizes[1] == 0)
    fits = {
        **dict.fromkeys(INTEGRAL, whole),
        **dict.fromkeys(("decimal", "float", "double"), source.kind in NUMERIC),
        STRING.kind: source.kind != "binary",
        TIMESTAMP.kind: source in (DATE, TIMESTAMP),
    }
    return fits.get(stored.kind, False)
