"""Expressions of a statement, computed by DuckDB over Arrow tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import duckdb
import numpy as np
import pyarrow as pa

from acid_platform.engine.local.duckdb_connection import connect
from acid_platform.engine.local.duckdb_types import identifier, of_value
from acid_platform.engine.local.expressions import as_condition, translate_value
from acid_platform.engine.local.failures import translated
from acid_platform.engine.local.running import RunningStatement
from acid_platform.engine.local.scope import NameScope
from acid_platform.engine.local.storing import stored
from acid_platform.errors import NeedsSpark
from acid_platform.layout.types import LOCAL_ZONE, Column
from acid_platform.storage.arrow_numpy import from_numpy
from acid_platform.storage.arrow_types import arrow_type

POSITION = "__n"
"""The column with the number of a row in its table."""


@dataclass(slots=True)
class Computation:
    """A DuckDB connection of one statement; use as a context manager. `statement` may stop it."""

    statement: RunningStatement
    _connection: duckdb.DuckDBPyConnection = field(default_factory=connect)

    def __enter__(self) -> Computation:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def run(self, sql: str, tables: Mapping[str, pa.Table]) -> pa.Table:
        """The result of a SELECT over these tables.

        Raises WrongType, InvalidExpression, TxnAborted, NeedsSpark.
        """
        with self.statement.computing(self._connection), _ours():
            for name, table in tables.items():
                self._connection.register(name, without_zones(table))
            try:
                return self._connection.sql(sql).to_arrow_table()
            finally:
                for name in tables:
                    self._connection.unregister(name)


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


def value_sql(text: str, column: Column, scope: NameScope, table: str) -> str:
    """DuckDB's SQL of an expression as a value of the column, under the column's name.

    Raises WrongType, UnknownColumn, InvalidExpression, NeedsSpark.
    """
    if column.type.nested:
        given = translate_value(text, scope)
        zones = any(kind.kind == LOCAL_ZONE for kind in column.type.walk())
        if zones or given.type != of_value(column.type):
            raise NeedsSpark(f"an expression for {column}")
        return f"{given.sql} AS {identifier(column.name)}"
    value = stored(translate_value(text, scope), column, table, text)
    return f"{value} AS {identifier(column.name)}"


def in_declared_type(values: pa.ChunkedArray, column: Column) -> pa.ChunkedArray:
    """What `value_sql` computed, in the Arrow type of the column."""
    target = arrow_type(column.type)
    if column.type.kind == LOCAL_ZONE:
        return values.cast(pa.timestamp("us")).cast(target)
    return values.cast(target)
