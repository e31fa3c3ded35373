"""Tables of DuckDB, and tables and views of PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from acid_platform.base.file_bounds import BATCH_BYTES
from acid_platform.base.paths import parts_of_url, user_path
from acid_platform.errors import ImportRefused
from acid_platform.handles.import_sources import BATCH, ImportSource
from acid_platform.layout.types import Column


class DuckDBSource(ImportSource):
    """`DuckDBSource("shop.duckdb", "customers")`: a table in a file of DuckDB, with its schema if
    that is not `main`. A view is refused, since it may read other files."""

    def __init__(self, file: str, table: str, columns: Sequence[str] | None = None) -> None:
        from acid_platform.base import databases

        path = user_path(file)
        self.name = f"duckdb {path} {table}"
        self._connection = self._asked(lambda: databases.in_memory({_FILE: Path(path)}))
        try:
            stored = self._asked(lambda: databases.stored_tables(self._connection, _FILE))
            full = self._stored(stored, table, columns)
            self._query = _select(full, columns)
            relation = self._relation()
            for column, kind in zip(relation.columns, relation.types, strict=True):
                if str(kind) == "BIT":  # lent as DuckDB's own bytes
                    raise _no_column(self, column, kind)
            [[rows]] = self._asked(
                lambda: self._connection.execute(f"SELECT count(*) FROM {full}").fetchall()
            )
            self.rows_known = int(rows)
        except BaseException:
            self.close()
            raise

    @property
    def schema(self) -> pa.Schema:
        return self._asked(lambda: self._relation().limit(0).to_arrow_table().schema)

    def rows(self, _columns: Sequence[Column]) -> pa.RecordBatchReader:
        return self._asked(lambda: self._relation().to_arrow_reader(_ROWS))

    def batches(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        """As of each source: with many rows, or not many bytes (P65)."""
        held, rows, size = list[pa.RecordBatch](), 0, 0
        for batch in super().batches(reader):
            held.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows >= BATCH or size >= BATCH_BYTES:
                yield pa.concat_batches(held)
                held, rows, size = [], 0, 0
        if held:
            yield pa.concat_batches(held)

    def _stored(self, stored: Mapping[Any, Any], table: str, columns: Any) -> str:
        """The table's full name. Raises ImportRefused for a view, and for a column that is
        computed."""
        wanted = ("main", table) if "." not in table else tuple(table.split(".", 1))
        names = [one for one in stored if _same(one, wanted)] or [
            one for one in stored if _same(one, ("main", table))
        ]
        if not names:
            known = ", ".join(".".join(one) for one in sorted(stored)[:10]) or "none"
            raise ImportRefused(
                f"{self.name} is no table of the file: its tables are {known}. A view is not read,"
                " as it may name other files: write its rows into a table there (CREATE TABLE … AS)"
            )
        chosen = None if columns is None else {column.lower() for column in columns}
        for column in stored[names[0]]:
            if column.generated and (chosen is None or column.name.lower() in chosen):
                raise ImportRefused(
                    f"{self.name}: column {column.name!r} is computed by the expression"
                    f" {column.default}, which is not run: name the others by --columns"
                )
        return ".".join(map(_one, (_FILE, *names[0])))

    def _relation(self) -> Any:
        return self._asked(lambda: self._connection.sql(self._query))


class PostgresSource(ImportSource):
    """`PostgresSource("postgresql://user@host/db", "public.orders")`: a table or view of
    PostgreSQL, at the snapshot of one SELECT.

    The password may stand in the URI, in PGPASSWORD or in `~/.pgpass`. A `numeric(p, s)` is a
    `decimal(p, s)`; one without digits has to be a decimal of a table that is there.
    """

    def __init__(self, uri: str, table: str, columns: Sequence[str] | None = None) -> None:
        parts = parts_of_url(uri)
        if parts.scheme not in ("postgresql", "postgres"):
            raise ImportRefused("the source is no URI such as postgresql://user@host:5432/database")
        host = f"{parts.hostname or 'localhost'}:{parts.port or 5432}"
        self.name = f"postgres {host}{parts.path} {table}"
        library = self._library("adbc_driver_postgresql.dbapi", "adbc-driver-postgresql")
        # A transaction of its own would keep its locks after the SELECT.
        self._connection = self._asked(lambda: library.connect(uri, autocommit=True))
        self._cursor: Any = self._connection.cursor()
        self._query = _select(_quoted(table), columns)
        try:
            self._fields = self._asked(self._read(f"{self._query} LIMIT 0").read_all).schema
            for field in self._fields:
                self._declared(field)
        except BaseException:
            self.close()
            raise

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([self._declared(field) for field in self._fields])

    def rows(self, _columns: Sequence[Column]) -> pa.RecordBatchReader:
        reader = self._read(self._query)
        target = pa.schema([self._declared(field) for field in reader.schema])

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in reader:
                arrays = [
                    array if array.type == field.type else array.storage.cast(_plain(field.type))
                    for array, field in zip(batch.columns, target, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=plain)

        plain = pa.schema([field.with_type(_plain(field.type)) for field in target])
        return pa.RecordBatchReader.from_batches(plain, batches())

    def _read(self, query: str) -> pa.RecordBatchReader:
        """One query at a time: a connection sends the rows of one."""
        self._cursor.close()
        self._cursor = self._connection.cursor()
        self._asked(lambda: self._cursor.execute(query))
        return self._asked(self._cursor.fetch_record_batch)

    def _declared(self, field: pa.Field) -> pa.Field:
        """The field, with a numeric as the decimal that it is. Raises ImportRefused."""
        metadata = field.metadata or {}
        kind = metadata.get(b"POSTGRESQL:type", b"").decode()
        if kind == "numeric":
            size = int(metadata.get(b"POSTGRESQL:typmod", b"-1")) - 4
            digits, scale = size >> 16 & 0xFFFF, size & 0x7FF
            if size >= 0 and digits <= 38 and scale <= digits:
                return field.with_type(pa.decimal128(digits, scale))
            return field
        if kind == "money" or getattr(field.type, "extension_name", "") == "arrow.opaque":
            raise _no_column(self, field.name, kind)
        return field


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type in which an extension is stored."""
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _no_column(source: ImportSource, column: str, kind: object) -> ImportRefused:
    return ImportRefused(
        f"{source.name}: column {column!r} is {kind}, which no table holds: name the others by"
        " --columns, or cast it in a view"
    )


_ROWS = 256
"""Rows that are asked of DuckDB at a time, each of which may have megabytes."""


_FILE = "source"
"""The name under which a file of DuckDB is attached."""


def _same(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether two names are the same to DuckDB."""
    return [part.lower() for part in one] == [part.lower() for part in other]


def _select(table: str, columns: Sequence[str] | None) -> str:
    """A query of a table whose name is quoted."""
    chosen = ", ".join(map(_one, columns)) if columns else "*"
    return f"SELECT {chosen} FROM {table}"


def _quoted(table: str) -> str:
    return ".".join(map(_one, table.split(".")))


def _one(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
