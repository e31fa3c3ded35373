"""The expressions of a statement, computed by DuckDB over Arrow tables and scans.

DuckDB is a calculator here: a database in memory that sees nothing but what it is given. A scan is
a stream of batches that it reads in bounded memory, as often as it needs. It pushes no conditions
into such a stream; those that Arrow evaluates exactly as Spark does are applied while the files are
read, and the query still has all of them.

Which types fit a column are the rules of Spark's ANSI store assignment, except that fractions may
not go into whole numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from copy import copy
from dataclasses import replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
from duckdb import _seam
from duckdb._sources import ArrowScanSource  # what DuckDB makes of any source by itself

from acid_platform.base.databases import not_yet_closed
from acid_platform.engine.interface import ChangeRead, TableRead, columns_of
from acid_platform.engine.local.direct_scans import DirectScan, UnreadFiles, directories_of
from acid_platform.engine.local.engine import stoppable
from acid_platform.engine.local.shared_database import connect, leaving_broken
from acid_platform.engine.local.translation.casts import Typed, as_condition, cast
from acid_platform.engine.local.translation.column_names import NameScope
from acid_platform.engine.local.translation.duckdb_sql import (
    DATE,
    DOUBLE,
    NUMERIC,
    STRING,
    TIMESTAMP,
    VOID,
    batches_of,
    identifier,
    in_proportion,
    may_fail,
    raise_as_ours,
    spark_name,
    too_long,
    translated,
    wrong_type,
)
from acid_platform.engine.local.translation.expressions import translate_value
from acid_platform.errors import (
    AcidError,
    CorruptFile,
    NeedsSpark,
    NoSuchTxn,
    SnapshotExpired,
    TxnAborted,
    UnsupportedLayout,
    WrongType,
)
from acid_platform.layout.acid_keys import ROW_ID_COLUMN
from acid_platform.layout.types import CHAR_TYPES, INTEGRAL, LOCAL_ZONE, Column, HiveType, of_value
from acid_platform.predicates.arrow_predicates import predicate_or_none
from acid_platform.scan.scans import ArrowScan, Scan, keeping
from acid_platform.values.arrow_types import arrow_type, from_numpy
from acid_platform.values.row_streams import ArrowLender, table_of_parts

if TYPE_CHECKING:
    from acid_platform.scan.change_scan import ChangeScan


class QuerySource(ArrowLender, ArrowScanSource):
    """What a query reads of a table; of `places` only these rows (see ArrowScan).

    `most`: how many rows of the first ones are enough. `keep`: whether the next query shall find
    the columns decoded, see scan/kept_columns.py. `direct`: how DuckDB reads the files itself, in
    place of this stream. DuckDB asks a Source how many rows it may
    have, without which it guesses an order of joins, and for the columns that it needs.
    """

    def __init__(
        self,
        read: TableRead | ChangeRead,
        places: np.ndarray | None = None,
        most: int | None = None,
        keep: bool = False,
        direct: DirectScan | None = None,
    ) -> None:
        super().__init__(read)
        self.columns, self.direct = columns_of(read), direct
        self.scan: ArrowScan | ChangeScan
        if isinstance(read, ChangeRead):
            self.scan = read.scan.wanting([column.name for column in self.columns])
        else:
            scan = replace(arrow_scan_of(read), places=places)
            self.scan = keeping(scan) if keep else scan
        self._most = most
        self._still_open = read.scan.still_open
        self.failure: BaseException | None = None
        """What went wrong while DuckDB read the stream, which it only reports as text."""

    def register(self, connection: duckdb.DuckDBPyConnection, name: str) -> None:
        """Makes it a table of the connection. Raises duckdb.Error."""
        if self.direct is None:
            connection.register(name, self)
        else:
            self.direct.create(connection, name)

    @cached_property
    def schema(self) -> pa.Schema:
        return _as_duckdb_reads(self.scan.schema)

    def rows(self) -> int | None:
        """At most so many rows, by the records of the files; None if they don't tell."""
        known = self.scan.most_rows if isinstance(self.scan, ArrowScan) else None
        return known if self._most is None or known is None else min(known, self._most)

    def stream(
        self,
        columns: Sequence[int] | None,
        filters: Sequence[Any],  # noqa: ARG002
    ) -> tuple[object, bool]:
        """The rows as a stream of Arrow, and whether it has these columns alone, in this order."""
        scan = self.scan
        if columns is None or not isinstance(scan, ArrowScan):
            return self.__arrow_c_stream__(), False
        wanted = [self.schema.names[index] for index in columns]
        narrowed = replace(
            scan,
            names=tuple(name for name in wanted if name != ROW_ID_COLUMN),
            row_id=ROW_ID_COLUMN in wanted,
        )
        if not wanted or narrowed.schema.names != wanted:
            return self.__arrow_c_stream__(), False
        return self._reader(narrowed).__arrow_c_stream__(), True

    def batches(self) -> pa.RecordBatchReader:
        return self._reader(self.scan)

    def _reader(self, scan: ArrowScan | ChangeScan) -> pa.RecordBatchReader:
        schema = _as_duckdb_reads(scan.schema)
        return pa.RecordBatchReader.from_batches(schema, self._read(scan, schema))

    def _read(self, scan: ArrowScan | ChangeScan, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        batches = scan.batches()
        if self._most is not None and isinstance(scan, ArrowScan):
            batches = scan.first_batches(self._most)
        try:
            for batch in batches:
                yield batch if batch.schema.equals(schema) else batch.cast(schema)
        except BaseException as error:
            self.failure = error
            raise

    def as_stream(self) -> QuerySource:
        """Gives the same rows through Arrow."""
        other = copy(self)
        other.direct = None
        return other

    def raise_failure(self) -> None:
        """Raises what went wrong while the stream was read, if anything."""
        failure, self.failure = self.failure, None
        cause = failure.__cause__ if isinstance(failure, CorruptFile) else None
        if isinstance(cause, FileNotFoundError) and self._still_open is not None:
            path = cause.filename or str(failure).partition(" was ")[0]
            try:
                self._still_open()
            except (SnapshotExpired, TxnAborted, NoSuchTxn) as over:
                raise SnapshotExpired(
                    f"{path} is gone: the read lease of this result has ended and the Cleaner"
                    " removed files that newer snapshots don't need; run the query again"
                ) from over
            raise CorruptFile(
                f"{path} is gone, though a commit recorded it and the snapshot of this result is"
                " held; restore it from a copy of the warehouse"
            ) from failure
        if isinstance(failure, AcidError):
            raise failure


def arrow_scan_of(read: TableRead) -> ArrowScan:
    """The scan of a source without a JVM.

    Its condition is applied as far as Arrow evaluates it exactly as Spark does.
    """
    scan = read.scan
    names = tuple(column.name for column in columns_of(read) if column.name != ROW_ID_COLUMN)
    predicate = None
    if read.where is not None:
        predicate = predicate_or_none(read.where, (*scan.columns, *scan.partition_columns))
    return ArrowScan(scan, names, predicate, read.row_id)


def _as_duckdb_reads(schema: pa.Schema) -> pa.Schema:
    return pa.schema(
        [
            pa.field(field.name, pa.timestamp("us")) if _in_zone(field.type) else field
            for field in schema
        ]
    )


def _in_zone(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.tz is not None


@contextmanager
def _of_own_files(any_read: bool, sql: str) -> Iterator[None]:
    """Raises UnreadFiles for an error that may come from files, if DuckDB itself reads `any`."""
    try:
        yield
    except duckdb.InterruptException:
        raise
    except duckdb.Error as error:
        if any_read and (isinstance(error, duckdb.IOException) or translated(error, sql) is None):
            raise UnreadFiles(str(error)) from error
        raise


@contextmanager
def reading(
    sources: Mapping[str, Callable[[], QuerySource]], sql: str = ""
) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection for a block that computes `sql`, with the sources as tables, each by its name.

    Raises what went wrong in a source, and DuckDB's errors as ours; UnreadFiles if it is unknown
    whether they came from a file that DuckDB itself read.
    """
    opened = {name: make() for name, make in sources.items()}
    scans = [source.direct for source in opened.values()]
    connection = connect(directories=directories_of(scans))
    try:
        try:
            with (
                stoppable(connection),
                raise_as_ours(sql),
                _of_own_files(any(scans), sql),
                leaving_broken(),
            ):
                for name, source in opened.items():
                    source.register(connection, name)
                yield connection
        except Exception:
            for source in opened.values():
                source.raise_failure()
            raise
    finally:
        connection.close()


ROWS_OF_A_BATCH = 65_536


def rows_of(connection: duckdb.DuckDBPyConnection, sql: str) -> pa.RecordBatchReader:
    """The rows of a SELECT, which may be read once, before the connection computes anything else.

    `connection.sql` would parse the text once more and bind it before, which takes a third of the
    time of a query of a few hundred lines.
    """
    return _seam.submit(connection, sql, None, "stream", ROWS_OF_A_BATCH).arrow_reader()


def table_of(connection: duckdb.DuckDBPyConnection, sql: str) -> pa.Table:
    """As `rows_of`, all rows."""
    return _seam.submit(connection, sql, None, "arrow").arrow_table()


def types_of(connection: duckdb.DuckDBPyConnection, sql: str) -> list[str]:
    """DuckDB's types of the columns of a SELECT, of which nothing is computed."""
    return [str(kind) for kind in _seam.bind(connection, sql).types]


def with_views(tables: Mapping[str, Scan]) -> duckdb.DuckDBPyConnection:
    """A database for people and BI tools: a schema for each database, a view for each table.

    `tables` go by `database.table`. A view reads its files when it is queried, the columns that
    the query needs, batch by batch. The caller closes the connection.
    """
    connection = not_yet_closed()
    for number, (name, scan) in enumerate(tables.items()):
        database, _, table = name.partition(".")
        source = f"acid_{number}"
        connection.register(source, QuerySource(TableRead(scan), keep=True))
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {identifier(database)}")
        connection.execute(
            f"CREATE VIEW {identifier(database)}.{identifier(table)} AS SELECT * FROM {source}"
        )
    return connection


POSITION = "__n"
"""The column with the number of a row in its table."""


def compute(
    sql: str,
    tables: Mapping[str, pa.Table | pa.RecordBatchReader | QuerySource],
    many: bool = False,
    apart: bool = False,
) -> pa.Table:
    """The result of a SELECT in DuckDB's SQL over these tables; in a private file if it has `many`
    rows. `apart`: see `connect`.

    DuckDB knows the number of rows only of a Table. To join two streams it builds a hash table of
    the second one, and the first one streams through.
    Raises WrongType, InvalidExpression, CorruptFile, TxnAborted, NeedsSpark.
    """
    try:
        return _compute(sql, tables, many, apart)
    except UnreadFiles:
        streams = {
            name: table.as_stream() if isinstance(table, QuerySource) else table
            for name, table in tables.items()
        }
        return _compute(sql, streams, many, apart)


def _compute(
    sql: str,
    tables: Mapping[str, pa.Table | pa.RecordBatchReader | QuerySource],
    many: bool,
    apart: bool,
) -> pa.Table:
    sources = [table for table in tables.values() if isinstance(table, QuerySource)]
    scans = [source.direct for source in sources]
    with (
        closing(connect(apart, directories_of(scans))) as connection,
        stoppable(connection),
        _ours(sql),
        _of_own_files(any(scans), sql),
        leaving_broken(),
    ):
        try:
            for name, table in tables.items():
                if isinstance(table, QuerySource):
                    table.register(connection, name)
                else:
                    whole = isinstance(table, pa.Table)
                    connection.register(name, without_zones(table) if whole else table)
            if not many:
                return table_of(connection, sql)
            reader = rows_of(connection, sql)
            parts = (pa.Table.from_batches([batch]) for batch in batches_of(reader))
            return table_of_parts(chain([reader.schema.empty_table()], parts))
        except duckdb.Error:
            for source in sources:
                source.raise_failure()
            raise


@contextmanager
def _ours(sql: str) -> Iterator[None]:
    """DuckDB's errors as Spark's would become. What DuckDB can't do, Spark has to."""
    try:
        yield
    except duckdb.InterruptException:
        raise
    except duckdb.Error as error:
        ours = translated(error, sql)
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


def require_values(constants: Iterable[str]) -> None:
    """Raises WrongType, InvalidExpression or NeedsSpark for SQL of a constant that has no value."""
    for sql in constants:
        compute(f"SELECT {sql}", {})


def _translated(text: str, scope: NameScope, in_order: bool = True) -> Typed:
    with in_proportion(text) as statement:
        value = translate_value(text, scope, in_order)
    require_values(constant.sql for constant in statement.constants)
    return value


def condition_sql(text: str, scope: NameScope) -> str:
    """DuckDB's SQL of a condition. Raises InvalidExpression, UnknownColumn, NeedsSpark, and
    WrongType; a constant without a value fails here, whether there are rows or not."""
    return as_condition(_translated(text, scope), text, null=True).sql


def join_sql(text: str, scope: NameScope) -> str:
    """As `condition_sql` for ON, whose conditions DuckDB may evaluate in any order."""
    return as_condition(_translated(text, scope, in_order=False), text).sql


# --- values of a column ---------------------------------------------------------------------------


def value_sql(text: str, column: Column, scope: NameScope, table: str, once: bool = True) -> str:
    """DuckDB's SQL of an expression as a value of the column, under the column's name.

    Raises WrongType if the type does not fit, UnknownColumn, InvalidExpression, NeedsSpark. The SQL
    fails with WrongType for a value that does not fit; a constant one fails here if it is computed
    `once`, as Spark does but for MERGE's INSERT. A text that is too long and a number beyond float
    fail in a row alone.
    """
    with in_proportion(text) as statement:
        value = translate_value(text, scope)
        stored = _stored_sql(value, text, column, table)
    if once and not statement.varying and may_fail(stored):
        require_values([stored])
    elif once:
        require_values(constant.sql for constant in statement.constants)
    if value.type == DOUBLE and column.type.kind == "float":
        reason = f"[CAST_OVERFLOW] {{}} of column {column.name!r} is beyond float"
        failure = wrong_type(reason, value.sql)
        beyond = f"isinf({stored}) AND NOT isinf({value.sql})"
        stored = f"CASE WHEN {beyond} THEN {failure} ELSE {stored} END"
    if column.type.kind in CHAR_TYPES:
        stored = _cut(stored, column, table)
    return f"{stored} AS {identifier(column.name)}"


def _stored_sql(value: Typed, text: str, column: Column, table: str) -> str:
    if column.type.nested:
        zones = any(kind.kind == LOCAL_ZONE for kind in column.type.walk())
        if zones or value.type != of_value(column.type):
            raise NeedsSpark(f"an expression for {column}")
        return value.sql
    if not _fits(value.type, column.type):
        raise WrongType(
            f"column {column.name!r} of {table} = {text}: {spark_name(value.type)} does not fit"
            f" {column.type}; cast it explicitly"
        )
    return cast(value, column.type).sql


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
