"""A database of DuckDB for one user: the tables of one snapshot by their names, and what
PostgreSQL's catalog shows of those that the user may read. Statements change nothing in it."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any
from zlib import crc32

import duckdb
import pyarrow as pa
from duckdb import _seam

from acid_platform.base.databases import close_off, not_yet_closed
from acid_platform.engine.interface import TableRead
from acid_platform.engine.local.computation import QuerySource
from acid_platform.engine.local.translation.duckdb_sql import identifier, translated
from acid_platform.errors import (
    AcidError,
    InvalidExpression,
    NoSuchTable,
    ReadOnlyTxn,
    UnknownColumn,
    UnsupportedStatement,
)
from acid_platform.layout.types import HiveType, parse_type
from acid_platform.scan.scans import Scan

_READ_ONLY = (
    "this port is read-only, and takes one SELECT at a time: write with this platform (acid sql,"
    " assets), or with Trino and Hive through acid gateway"
)
_QUERIES = ("(", "DESCRIBE", "EXPLAIN", "FROM", "SELECT", "SHOW", "TABLE", "VALUES", "WITH")
_FIRST_OID = 16_384
"""PostgreSQL's own things have lower numbers."""
_TYPES = {
    "boolean": (16, "bool", "boolean"),
    "tinyint": (21, "int2", "smallint"),
    "smallint": (21, "int2", "smallint"),
    "int": (23, "int4", "integer"),
    "bigint": (20, "int8", "bigint"),
    "float": (700, "float4", "real"),
    "double": (701, "float8", "double precision"),
    "decimal": (1700, "numeric", "numeric"),
    "string": (25, "text", "text"),
    "varchar": (1043, "varchar", "character varying"),
    "char": (1042, "bpchar", "character"),
    "binary": (17, "bytea", "bytea"),
    "date": (1082, "date", "date"),
    "timestamp": (1114, "timestamp", "timestamp without time zone"),
    "timestamp with local time zone": (1114, "timestamp", "timestamp without time zone"),
}
_NESTED = (114, "json", "json")


@dataclass(frozen=True, slots=True)
class ShownTable:
    """A table as the catalog shows it."""

    name: str
    """`database.table`."""
    columns: tuple[tuple[str, str, str], ...]
    """Name, Hive type and comment."""
    comment: str


class ReadingDatabase:
    """Used in one thread at a time, but for `interrupt`."""

    def __init__(self, user: str, memory_mb: int) -> None:
        """`memory_mb`: what statements may take in MiB; nothing is spilled to disk, where others
        could read it."""
        self._user, self._tables = user, tuple[ShownTable, ...]()
        self._connection = connection = not_yet_closed(
            memory_limit=f"{memory_mb}MB", temp_directory="", threads=2
        )
        for statement in (
            "SET TimeZone = 'UTC'",
            "ATTACH ':memory:' AS acid",
            "ATTACH ':memory:' AS acid_catalog",
            "CREATE SCHEMA acid_catalog.pg",
            "CREATE SCHEMA acid_catalog.information",
            'CREATE SCHEMA acid."default"',
            "USE acid_catalog.pg",
        ):
            connection.execute(statement)
        close_off(connection)
        self._schemas = {"default", "main"}
        self._sources: dict[str, QuerySource] = {}
        self._views: list[str] = []
        self._path = ""
        self._rows: Any = None
        """Those that are computed; a connection has one such reader at a time."""
        self.show((), {})
        connection.execute(_catalog())
        self.look_in(["default"])
        self._closing = threading.Lock()
        self._closed = False

    def close(self) -> None:
        with self._closing:
            self._closed = True
            self._connection.close()

    def interrupt(self) -> None:
        with self._closing:
            if not self._closed:
                self._connection.interrupt()

    # --- what there is --------------------------------------------------------------------------

    def show(self, tables: Iterable[ShownTable], settings: Mapping[str, str]) -> None:
        """From now on the catalog has these tables and settings."""
        shown = (*tables,)
        if shown != self._tables or not settings:
            self._tables = shown
            for name, content in _catalog_tables(shown).items():
                self._connection.register(name, content)
        rows = [(name, value, self._user or "acid") for name, value in settings.items()]
        names = ("name", "setting", "who")
        self._connection.register("acid_settings", _arrow(rows, names, ()))

    def look_in(self, schemas: Sequence[str]) -> None:
        """Names without a schema are looked for in these, as far as they are there."""
        found = [f"acid.{identifier(name)}" for name in schemas if name in self._schemas]
        path = ",".join([*found, "acid_catalog.pg"]).replace("'", "''")
        shown = ", ".join(
            "'" + name.replace("'", "''") + "'" for name in schemas if "$" not in name
        )
        if path + shown != self._path:
            self._connection.execute(f"SET search_path = '{path}'")
            macro = "acid_catalog.pg.current_schemas(implicit)"
            self._connection.execute(f"CREATE OR REPLACE MACRO {macro} AS [{shown}]::VARCHAR[]")
            self._path = path + shown

    def add(self, name: str, scan: Scan) -> None:
        """The rows of a table, by its name, until `clear`."""
        database, _, table = name.partition(".")
        if database not in self._schemas:
            self._connection.execute(f"CREATE SCHEMA acid.{identifier(database)}")
            self._schemas.add(database)
        source, view = (
            f"acid_{len(self._sources)}",
            f"acid.{identifier(database)}.{identifier(table)}",
        )
        self._sources[source] = QuerySource(TableRead(scan), keep=True)
        self._connection.register(source, self._sources[source])
        self._connection.execute(f"CREATE VIEW {view} AS SELECT * FROM {source}")
        self._views.append(view)

    def clear(self) -> None:
        """Forgets all rows."""
        self._free()
        for view in self._views:
            self._connection.execute(f"DROP VIEW {view}")
        for source in self._sources:
            self._connection.unregister(source)
        self._views, self._sources = [], {}

    def _free(self) -> None:
        """Ends rows that were not read to their end."""
        rows, self._rows = self._rows, None
        if rows is not None:
            rows.close()

    # --- statements -----------------------------------------------------------------------------

    def describe(self, query: str) -> tuple[list[tuple[str, str]], list[str]]:
        """The columns of a query with their types, and the types of $1, $2 and so on.

        Raises ReadOnlyTxn for what is no query, InvalidExpression, NoSuchTable,
        UnknownColumn."""
        self._free()
        with self._ours():
            found = _query_of(query, self._connection)
            bound = _seam.bind(self._connection, found)
            if bound.writes:
                raise ReadOnlyTxn(_READ_ONLY)
            kinds = dict(bound.parameters)
            if {*kinds} != {str(spot + 1) for spot in range(len(kinds))}:
                raise InvalidExpression("parameters are $1, $2 and so on")
            parameters = [str(kinds[str(spot + 1)]) for spot in range(len(kinds))]
            columns = zip(bound.names, map(str, bound.types), strict=True)
            return [*columns], parameters

    def run(
        self, query: str, selected: str, values: Sequence[tuple[Any, str]], rows: int
    ) -> Iterator[list[list[Any]]]:
        """The rows of `selected`, by columns, `rows` of them at a time; of EXPLAIN its own.

        A value with a type is a text that is cast to it. Raises AcidError."""
        self._free()
        explained = query[:7].lower() == "explain"
        with self._ours():
            given = [
                self._connection.execute(f"SELECT CAST($1 AS {kind})", [value]).fetchall()[0][0]
                if kind
                else value
                for value, kind in values
            ]
            text = query if explained else selected
            self._rows = _seam.submit(self._connection, text, given, "stream", rows).arrow_reader()
        return self._parts(self._rows, rows)

    def _parts(self, reader: pa.RecordBatchReader, rows: int) -> Iterator[list[list[Any]]]:
        while self._rows is reader:
            with self._ours():
                try:
                    batch = reader.read_next_batch()
                except StopIteration:
                    self._free()
                    return
            for start in range(0, batch.num_rows, rows):
                yield [column.to_pylist() for column in batch.slice(start, rows).columns]

    @contextmanager
    def _ours(self) -> Iterator[None]:
        """DuckDB's errors as ours."""
        try:
            yield
        except (duckdb.Error, pa.ArrowException, OSError, RuntimeError) as error:
            for source in self._sources.values():
                source.raise_failure()
            raise _as_ours(error) from error


def _as_ours(error: BaseException) -> AcidError:
    lines = str(error).partition("\n\nLINE")[0].strip()
    if (known := translated(error)) is not None:
        return known
    if isinstance(error, duckdb.CatalogException) and "Table with name" in lines:
        return NoSuchTable(lines)
    if isinstance(error, duckdb.BinderException) and "olumn" in lines:
        return UnknownColumn(lines)
    return InvalidExpression(lines)


def _query_of(text: str, connection: duckdb.DuckDBPyConnection) -> str:
    """The text of the one query in it. Raises ReadOnlyTxn, UnsupportedStatement, duckdb.Error."""
    try:
        statements = connection.extract_statements(text)
    except duckdb.ParserException as error:
        first = text.split(None, 1)[0].upper() if text.split() else ""
        if first in (
            "SELECT",
            "WITH",
            "FROM",
            "VALUES",
            "TABLE",
            "EXPLAIN",
            "SHOW",
            "DESCRIBE",
            "(",
        ):
            raise
        raise ReadOnlyTxn(f"{first}: {_READ_ONLY}") from error
    if len(statements) != 1 or statements[0].type.name not in ("SELECT", "EXPLAIN"):
        kinds = ", ".join(statement.type.name for statement in statements)
        raise ReadOnlyTxn(f"{kinds}: {_READ_ONLY}")
    if statements[0].type.name == "EXPLAIN" and "analyze" in text[:40].lower():
        raise UnsupportedStatement("EXPLAIN ANALYZE computes the rows: use EXPLAIN")
    return text


@cache
def _catalog() -> str:
    return files("acid_platform.engine.local").joinpath("postgres_catalog.sql").read_text("utf-8")


def _arrow(rows: Sequence[Sequence[Any]], names: Sequence[str], numbers: Sequence[str]) -> pa.Table:
    kinds = [pa.int64() if name in numbers else pa.string() for name in names]
    columns = zip(*rows, strict=True) if rows else [()] * len(names)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    return pa.Table.from_arrays(arrays, names=[*names])


def _catalog_tables(shown: Sequence[ShownTable]) -> dict[str, pa.Table]:
    databases = sorted({"default", *(table.name.partition(".")[0] for table in shown)})
    taken: dict[int, str] = {}
    for name in (*databases, *sorted(table.name for table in shown)):
        number = _FIRST_OID + crc32(name.encode()) % (2**31 - 2 * _FIRST_OID)
        while number in taken:
            number += 1
        taken[number] = name
    oids = {name: number for number, name in taken.items()}
    tables, columns = [], []
    for table in shown:
        database, _, short = table.name.partition(".")
        oid = oids[table.name]
        tables.append((oid, oids[database], database, short, table.comment))
        for spot, (name, kind, comment) in enumerate(table.columns, 1):
            hive = parse_type(kind)
            number, theirs, standard = (
                _NESTED if hive.nested else _TYPES.get(hive.kind, _TYPES["string"])
            )
            columns.append((oid, spot, name, number, _modifier(hive), theirs, standard, comment))
    return {
        "acid_schemas": _arrow(
            [(oids[name], name) for name in databases], ("oid", "name"), ("oid",)
        ),
        "acid_tables": _arrow(
            tables, ("oid", "nspoid", "database", "name", "comment"), ("oid", "nspoid")
        ),
        "acid_columns": _arrow(
            columns,
            ("relid", "num", "name", "typid", "typmod", "type", "sqltype", "comment"),
            ("relid", "num", "typid", "typmod"),
        ),
    }


def _modifier(kind: HiveType) -> int:
    if kind.kind == "decimal":
        precision, scale = kind.sizes
        return (precision << 16 | scale) + 4
    return kind.sizes[0] + 4 if kind.kind in ("char", "varchar") else -1
