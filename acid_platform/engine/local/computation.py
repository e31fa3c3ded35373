"""The expressions of a statement, computed by DuckDB over Arrow tables as a table stores them.

Which types fit a column are the rules of Spark's ANSI store assignment, except that fractions may
not go into whole numbers.

DuckDB is a calculator here: a database in memory that sees nothing but what it is given.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager

import duckdb
import numpy as np
import pyarrow as pa

from acid_platform.base.databases import in_memory, not_yet_closed
from acid_platform.base.first_use import PerProcess
from acid_platform.engine.interface import TableRead
from acid_platform.engine.local.query_sources import QuerySource
from acid_platform.engine.local.running import stoppable
from acid_platform.engine.local.translation.casts import as_condition, cast
from acid_platform.engine.local.translation.duckdb_failures import (
    is_internal,
    raise_as_ours,
    too_long,
    translated,
    wrong_type,
)
from acid_platform.engine.local.translation.duckdb_types import (
    DATE,
    DOUBLE,
    NUMERIC,
    STRING,
    TIMESTAMP,
    VOID,
    identifier,
    spark_name,
)
from acid_platform.engine.local.translation.expressions import translate_value
from acid_platform.engine.local.translation.scope import NameScope
from acid_platform.errors import NeedsSpark, UnsupportedLayout, WrongType
from acid_platform.layout.types import CHAR_TYPES, INTEGRAL, LOCAL_ZONE, Column, HiveType, of_value
from acid_platform.scan.scans import Scan
from acid_platform.values.arrow_types import arrow_type, from_numpy

MEMORY_SHARE = 0.25
"""The part of the machine's memory that queries may take before they spill to disk."""
MOST_BYTES = 1 << 30
"""More than this they don't take, on any machine."""


def connect() -> duckdb.DuckDBPyConnection:
    """A connection that sees nothing: what it registers is its own.

    All connections of this process share one empty database in memory, with its limit: to make a
    database takes 50 ms, to connect to it less than one.
    """
    return _DATABASE.get().cursor()


def new_database() -> duckdb.DuckDBPyConnection:
    """An empty database in memory, which can read no file and no variable of this process."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")  # psutil is slow to import
    limit = int(min(MOST_BYTES, memory * MEMORY_SHARE))
    return in_memory(memory_limit=f"{limit >> 20}MB")


_DATABASE = PerProcess(new_database)


@contextmanager
def _leaving_broken() -> Iterator[None]:
    """After an error inside of DuckDB, which invalidates its database, others get a new one."""
    try:
        yield
    except duckdb.Error as error:
        if is_internal(error):
            _DATABASE.close()
        raise


@contextmanager
def reading(
    sources: Mapping[str, Callable[[], QuerySource]],
) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection for a block, with the sources as tables, each under its name.

    Raises what went wrong in a source, and DuckDB's errors as ours.
    """
    opened = {name: make() for name, make in sources.items()}
    connection = connect()
    try:
        for name, source in opened.items():
            connection.register(name, source)
        try:
            with stoppable(connection), raise_as_ours(), _leaving_broken():
                yield connection
        except Exception:
            for source in opened.values():
                source.raise_failure()
            raise
    finally:
        connection.close()


def with_views(tables: Mapping[str, Scan]) -> duckdb.DuckDBPyConnection:
    """A database for people and BI tools: a schema for each database, a view for each table.

    `tables` go by `database.table`. A view reads its files when it is queried, all columns of it,
    batch by batch. The caller closes the connection.
    """
    connection = not_yet_closed()
    for number, (name, scan) in enumerate(tables.items()):
        database, _, table = name.partition(".")
        source = f"acid_{number}"
        connection.register(source, QuerySource(TableRead(scan), filtered=False))
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {identifier(database)}")
        connection.execute(
            f"CREATE VIEW {identifier(database)}.{identifier(table)} AS SELECT * FROM {source}"
        )
    return connection


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
    with closing(connect()) as connection, stoppable(connection), _ours(), _leaving_broken():
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
    for index, column in enumerate(table.schema):
        if pa.types.is_timestamp(column.type) and column.type.tz:
            values = table.column(index).cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us"))
            table = table.set_column(index, column.name, values)
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
    if value.type == DOUBLE and column.type.kind == "float":
        failure = wrong_type(f"[CAST_OVERFLOW] a number of column {column.name!r} is beyond float")
        beyond = f"isinf({stored}) AND NOT isinf({value.sql})"
        stored = f"CASE WHEN {beyond} THEN {failure} ELSE {stored} END"
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
