"""What `acid import` reads: the rows of somebody else, in batches of Arrow; here tables of DuckDB,
and tables and views of PostgreSQL. `lake_sources` and `folder_source` have the other kinds.

The library that owns a format reads it, and a source may be larger than memory. These libraries are
the extra `import` of the package. A source may name only files below its own place (P67): it is a
stranger's. By a path in it that leads elsewhere, or a link, other files of whoever imports it would
become rows of a table that more people read."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa

from acid_platform.base.file_bounds import BATCH_BYTES, LARGEST_DATABASE
from acid_platform.base.first_use import ClosedAfter
from acid_platform.base.paths import is_uri, local_path, parts_of_url, user_path
from acid_platform.errors import AcidError, ImportRefused
from acid_platform.layout.types import Column

BATCH = 1 << 17
"""Rows of a batch, where a library asks."""


class ImportSource(ClosedAfter, ABC):
    """Rows that somebody else keeps. Making one looks at the source, but reads no row; `with` ends
    its connection.

    `columns`: which of its columns to read (None: all). A library's own error is raised as
    ImportRefused, which names the source.
    """

    name: str
    """The kind and the place, without credentials: under it a table remembers what it has got."""
    snapshot: str | None = None
    """What the source calls the snapshot that is read; None if it has no snapshots."""
    rows_known: int | None = None
    """How many rows it has, if it knows without reading them; for showing progress."""

    _connection: Any = None

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns, as a table is made for them. Those of `rows` may have other types."""

    @abstractmethod
    def rows(self, _columns: Sequence[Column]) -> pa.RecordBatchReader:
        """All rows of the snapshot, for a table that has these columns."""

    def added(self, since: str) -> pa.RecordBatchReader:
        """The rows that were added after an earlier snapshot.

        Raises ImportRefused, naming the commit, unless all commits since then only added rows.
        """
        raise NotImplementedError(f"{self.name} has no snapshots, not even {since}")

    def close(self) -> None:
        """Ends the connection, if the source has one."""
        if self._connection is not None:
            self._connection.close()

    def batches(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        """What the reader reads. Raises ImportRefused for an error of the source."""
        with reader:
            while (batch := self._asked(lambda: next(reader, None))) is not None:
                yield batch

    def _asked(self, what: Callable[[], Any]) -> Any:
        """The library's answer. Raises ImportRefused for its errors, which have no common class."""
        try:
            return what()
        except AcidError:
            raise
        except Exception as error:
            text = " ".join(str(error).split())
            raise ImportRefused(
                f"{self.name} can't be read: {type(error).__name__}: {text}; nothing was imported"
            ) from error

    def _library(self, module: str, package: str) -> Any:
        try:
            return import_module(module)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != module.partition(".")[0]:
                raise
            raise ImportRefused(
                f"{self.name} is read by the package {package}, which is not installed: pip install"
                " 'acid-platform[import]'"
            ) from error

    def _not_only_added(self, since: str, why: str) -> ImportRefused:
        return ImportRefused(
            f"{self.name}: {why}, so the rows of {self.snapshot} are not those of {since} and some"
            " more; to replace all rows of the table by those of the source, say --overwrite"
            " (overwrite=True)"
        )


def chosen_fields(schema: pa.Schema, columns: list[str] | None, source: str) -> pa.Schema:
    """Raises ImportRefused for a column that is not there."""
    if columns is None:
        return schema
    if missing := [name for name in columns if name not in schema.names]:
        raise ImportRefused(
            f"{source} has no column {missing[0]!r}; it has {', '.join(schema.names)}"
        )
    return pa.schema([schema.field(name) for name in columns])


_SAME = {"s3a": "s3", "s3n": "s3", "abfss": "abfs", "gcs": "gs"}
"""Schemes by which the same store is reached."""

_DIRECTORY = os.O_DIRECTORY | getattr(os, "O_PATH", os.O_RDONLY)
"""Opens a directory, on Linux also one whose names may not be listed."""


@dataclass(frozen=True, slots=True)
class OwnFiles:
    """The files below some places, each a path or a URI."""

    source: str
    places: tuple[str, ...]

    def require(self, file: str) -> None:
        """Raises ImportRefused for a file elsewhere."""
        found = _resolved(file)
        roots = [_resolved(root).rstrip("/") for root in self.places]
        if ".." in found.split("/") or not any(found.startswith(f"{root}/") for root in roots):
            raise ImportRefused(
                f"{self.source} names {file}, which is not below {' or '.join(self.places)}: a"
                " source may not have other files of yours imported; if they belong to it, allow"
                " their place by --files-in PLACE (files_in=[…]). Nothing was imported"
            )

    @contextmanager
    def opened(self, file: str) -> Iterator[str]:
        """A path of the open file, one of the local file system, which leads to it whatever others
        do with its name meanwhile. Raises ImportRefused for a file elsewhere, OSError."""
        self.require(file)
        parts = os.path.realpath(file).strip("/").split("/")
        held = os.open("/", _DIRECTORY)
        try:
            for number, part in enumerate(parts, 1):
                # A link is an error here: it was made after `realpath` had followed all of them.
                last = os.O_RDONLY | os.O_NONBLOCK  # a pipe that nobody writes
                flags = last if number == len(parts) else _DIRECTORY
                inner = os.open(part, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=held)
                os.close(held)
                held = inner
            yield f"/dev/fd/{held}"
        finally:
            os.close(held)

    def require_all(self, files: Iterable[str]) -> None:
        for file in files:
            self.require(file)


def _resolved(location: str) -> str:
    """A local path without links and `..`, or a URI."""
    if not is_uri(location):
        return os.path.realpath(local_path(location))
    scheme, _, rest = location.partition("://")
    return f"{_SAME.get(scheme.lower(), scheme.lower())}://{rest}"


class DuckDBSource(ImportSource):
    """`DuckDBSource("shop.duckdb", "customers")`: a table in a file of DuckDB, with its schema if
    that is not `main`. A view is refused, since it may read other files."""

    def __init__(self, file: str, table: str, columns: Sequence[str] | None = None) -> None:
        from acid_platform.base import databases

        path = user_path(file)
        self.name = f"duckdb {path} {table}"
        limit = f"{LARGEST_DATABASE >> 20}MiB"
        self._connection = self._asked(
            lambda: databases.in_memory({_FILE: Path(path)}, memory_limit=limit)
        )
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
        names = [path for path in stored if _same(path, wanted)] or [
            path for path in stored if _same(path, ("main", table))
        ]
        if not names:
            known = ", ".join(".".join(path) for path in sorted(stored)[:10]) or "none"
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
        self._query = _select(".".join(map(_one, table.split("."))), columns)
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


def _same(name: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether two names are the same to DuckDB."""
    return [part.lower() for part in name] == [part.lower() for part in other]


def _select(table: str, columns: Sequence[str] | None) -> str:
    """A query of a table whose name is quoted."""
    chosen = ", ".join(map(_one, columns)) if columns else "*"
    return f"SELECT {chosen} FROM {table}"


def _one(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
