"""What `acid import` reads: tables of Iceberg, Delta, DuckDB and PostgreSQL, and folders of files.

The library that owns a format reads it, and lends batches of Arrow, so a source may be larger than
memory. These libraries are the extra `import` of the package.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, Self
from urllib.parse import urlsplit

import pyarrow as pa

from acid_platform.errors import AcidError, ImportRefused
from acid_platform.layout.types import Column
from acid_platform.storage.arrow_types import arrow_type
from acid_platform.storage.files import Files

_BATCH = 1 << 17
"""Rows of a batch, where a library asks."""
_READ_AHEAD = {"batch_readahead": 4, "fragment_readahead": 1}
"""How many batches and files Arrow reads before they are asked for."""


class ImportSource(ABC):
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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


# --- tables with snapshots ------------------------------------------------------------------------


class IcebergSource(ImportSource):
    """`IcebergSource("shop.customers")`: a table of a catalog that pyiceberg's own configuration
    describes, or the table of a metadata file, `lake/t/metadata/00002-….metadata.json`.

    `snapshot`: the id of another snapshot than the current one.
    """

    def __init__(
        self,
        table: str,
        catalog: str = "default",
        snapshot: int | None = None,
        columns: Sequence[str] | None = None,
    ) -> None:
        self.name = f"iceberg {table}"
        module = self._library("pyiceberg.table", "pyiceberg")
        catalogs = self._library("pyiceberg.catalog", "pyiceberg")
        self._table: Any = self._asked(
            lambda: (
                module.StaticTable.from_metadata(_uri(table))
                if "/" in table
                else catalogs.load_catalog(catalog).load_table(table)
            )
        )
        self.name = f"iceberg {self._table.location()}"
        self._columns = tuple(columns or ("*",))
        current = self._table.current_snapshot() if snapshot is None else None
        number = current.snapshot_id if current else snapshot
        if number is None:
            raise ImportRefused(f"{self.name} has no snapshot: it is empty")
        self._snapshot = self._found(number)
        self.snapshot = str(number)
        with suppress(KeyError, TypeError, ValueError):
            self.rows_known = int(self._snapshot.summary["total-records"])

    @property
    def schema(self) -> pa.Schema:
        return self._asked(lambda: self._scan().projection().as_arrow())

    def rows(self, _columns: Sequence[Column]) -> pa.RecordBatchReader:
        return self._asked(lambda: self._scan().to_arrow_batch_reader())

    def added(self, since: str) -> pa.RecordBatchReader:
        one, number = self._snapshot, int(since)
        while one.snapshot_id != number:
            operation = one.summary.operation.value if one.summary else "unknown"
            # `replace` writes files again and changes no row.
            if operation not in ("append", "replace"):
                raise self._not_only_added(since, f"its snapshot {one.snapshot_id} is {operation}")
            if one.parent_snapshot_id is None:
                raise self._not_only_added(since, f"{since} is no ancestor of {self.snapshot}")
            one = self._found(one.parent_snapshot_id)
        scan = self._asked(
            lambda: self._table.incremental_append_scan(
                from_snapshot_id_exclusive=number,
                to_snapshot_id_inclusive=self._snapshot.snapshot_id,
                selected_fields=self._columns,
            )
        )
        return self._asked(scan.to_arrow_batch_reader)

    def _scan(self) -> Any:
        return self._table.scan(
            snapshot_id=self._snapshot.snapshot_id, selected_fields=self._columns
        )

    def _found(self, number: int) -> Any:
        found = self._table.snapshot_by_id(number)
        if found is None:
            raise ImportRefused(
                f"{self.name} has no snapshot {number}, or no more; import the current one, with"
                " --overwrite (overwrite=True) if the table has rows"
            )
        return found


class DeltaSource(ImportSource):
    """`DeltaSource("lake/customers")`: a Delta table at a path or URI, as delta-rs opens it.

    `version`: another one than the newest.
    """

    def __init__(
        self, table: str, version: int | None = None, columns: Sequence[str] | None = None
    ) -> None:
        self.name = f"delta {table}"
        library = self._library("deltalake", "deltalake")
        self._open: Callable[..., Any] = library.DeltaTable
        self._place = table if "://" in table else os.path.abspath(os.path.expanduser(table))
        self._table: Any = self._asked(lambda: self._open(self._place, version=version))
        self.name = f"delta {self._table.table_uri.rstrip('/')}"
        self._columns = None if columns is None else list(columns)
        self._id = str(self._table.metadata().id)[:8]  # another one has other rows at its versions
        self.snapshot = f"{self._table.version()}@{self._id}"
        self._dataset: Any = self._asked(self._table.to_pyarrow_dataset)
        _chosen(self._dataset.schema, self._columns, self.name)
        with suppress(KeyError, TypeError):
            records = pa.table(self._table.get_add_actions()).column("num_records").to_pylist()
            self.rows_known = sum(records)

    @property
    def schema(self) -> pa.Schema:
        return _chosen(self._dataset.schema, self._columns, self.name)

    def rows(self, _columns: Sequence[Column]) -> pa.RecordBatchReader:
        return self._asked(lambda: _read(self._dataset, self._columns))

    def added(self, since: str) -> pa.RecordBatchReader:
        from pyarrow import dataset

        number, _, own = since.partition("@")
        first, last = int(number), int(self._table.version())
        if own != self._id:
            raise self._not_only_added(since, f"the table was made again with the id {self._id}")
        if first > last:
            raise self._not_only_added(since, f"version {first} is newer than {last}")
        commits = {int(one["version"]): one for one in self._asked(self._table.history)}
        fragments: list[Any] = []
        after = self._files(first)
        for version in range(first + 1, last + 1):
            before, after = after, self._files(version)
            operation = str(commits.get(version, {}).get("operation", "unknown"))
            if operation in _NO_ROW_CHANGED:
                continue
            # Deletion vectors, which change a file in place, are refused by `to_pyarrow_dataset`.
            if before.keys() - after.keys():
                raise self._not_only_added(since, f"its version {version} is {operation}")
            fragments += [after[path] for path in sorted(after.keys() - before.keys())]
        filesystem = fragments[0].filesystem if fragments else self._dataset.filesystem
        schema, stored = self._dataset.schema, self._dataset.format
        return self._asked(
            lambda: _read(
                dataset.FileSystemDataset(fragments, schema, stored, filesystem), self._columns
            )
        )

    def _files(self, version: int) -> dict[str, Any]:
        """The files of a version by their paths."""
        opened = self._asked(
            lambda: self._open(self._place, version=version).to_pyarrow_dataset(
                schema=self._dataset.schema
            )
        )
        return {fragment.path: fragment for fragment in opened.get_fragments()}


_NO_ROW_CHANGED = ("OPTIMIZE", "VACUUM START", "VACUUM END")
"""Operations of Delta that write or remove files, and change no row."""


# --- sources without snapshots --------------------------------------------------------------------


class FolderSource(ImportSource):
    """`FolderSource("in/orders", "parquet")`: the files of a directory at a path or URI, or one
    file, with the values of directories such as `day=2024-02-29` as columns. Hidden files are left
    out.

    `kind`: `parquet` or `csv`. Files of CSV begin with the names of their columns; an empty value
    without quotes is NULL. Their values are read as the types of the table, so it has to be there.
    """

    def __init__(
        self,
        folder: str,
        kind: str = "parquet",
        columns: Sequence[str] | None = None,
        delimiter: str = ",",
    ) -> None:
        from pyarrow import csv, dataset

        place = folder if "://" in folder else os.path.abspath(os.path.expanduser(folder))
        self.name = f"{kind} {place}"
        if kind not in ("parquet", "csv"):
            raise ImportRefused(f"{folder}: {kind!r} is no kind of files; say 'parquet' or 'csv'")
        self._csv = kind == "csv"
        self._columns = None if columns is None else list(columns)
        self._format: Any = dataset.ParquetFileFormat()
        if self._csv:
            nulls = csv.ConvertOptions(
                null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
            )
            parsed = csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
            self._format = dataset.CsvFileFormat(parsed, convert_options=nulls)
        files, self._path = Files.of(place)
        self._system = files.system
        found = self._asked(self._found)
        fragments = list(found.get_fragments())
        if not fragments:
            raise ImportRefused(f"{self.name} has no file; name the directory that has them")
        keys = {
            name
            for fragment in fragments
            for name in dataset.get_partition_keys(fragment.partition_expression)
        }
        schemas = self._asked(lambda: [one.physical_schema for one in fragments])
        if self._csv:  # the types of each file would be guesses
            schemas = [
                pa.schema([(name, pa.string()) for name in schema.names]) for schema in schemas
            ]
        schemas.append(pa.schema([field for field in found.schema if field.name in keys]))
        self._schema: pa.Schema = self._asked(lambda: pa.unify_schemas(schemas))
        _chosen(self._schema, self._columns, self.name)
        if not self._csv:
            self.rows_known = self._asked(found.count_rows)

    @property
    def schema(self) -> pa.Schema:
        if self._csv:
            raise ImportRefused(
                f"{self.name} does not say the types of its columns: create the table first, or say"
                ' --schema "id int, …"'
            )
        return _chosen(self._schema, self._columns, self.name)

    def rows(self, _columns: Sequence[Column]) -> pa.RecordBatchReader:
        schema = self._schema
        if self._csv:
            kinds = {column.name: arrow_type(column.type) for column in _columns}
            schema = pa.schema(
                [field.with_type(kinds.get(field.name.lower(), pa.string())) for field in schema]
            )
        return self._asked(lambda: _read(self._found(schema), self._columns))

    def _found(self, schema: pa.Schema | None = None) -> Any:
        from pyarrow import dataset

        return dataset.dataset(
            self._path,
            schema=schema,
            format=self._format,
            filesystem=self._system,
            partitioning="hive",
        )


class DuckDBSource(ImportSource):
    """`DuckDBSource("shop.duckdb", "customers")`: a table or view in a file of DuckDB."""

    def __init__(self, file: str, table: str, columns: Sequence[str] | None = None) -> None:
        import duckdb

        path = os.path.abspath(os.path.expanduser(file))
        self.name = f"duckdb {path} {table}"
        self._connection = self._asked(lambda: duckdb.connect(path, read_only=True))
        self._query = _select(table, columns)
        try:
            relation = self._relation()
            for column, kind in zip(relation.columns, relation.types, strict=True):
                if str(kind) == "BIT":  # lent as DuckDB's own bytes
                    raise ImportRefused(
                        f"{self.name}: column {column!r} is {kind}, which no table holds: name the"
                        " others by --columns, or cast it in a view"
                    )
            [[rows]] = self._asked(
                lambda: self._connection.execute(
                    f"SELECT count(*) FROM {_quoted(table)}"
                ).fetchall()
            )
            self.rows_known = int(rows)
        except BaseException:
            self.close()
            raise

    @property
    def schema(self) -> pa.Schema:
        return self._asked(lambda: self._relation().limit(0).to_arrow_table().schema)

    def rows(self, _columns: Sequence[Column]) -> pa.RecordBatchReader:
        return self._asked(lambda: self._relation().to_arrow_reader(_BATCH))

    def _relation(self) -> Any:
        return self._asked(lambda: self._connection.sql(self._query))


class PostgresSource(ImportSource):
    """`PostgresSource("postgresql://user@host/db", "public.orders")`: a table or view of
    PostgreSQL, at the snapshot of one SELECT.

    The password may stand in the URI, in PGPASSWORD or in `~/.pgpass`. A `numeric(p, s)` is a
    `decimal(p, s)`; one without digits has to be a decimal of a table that is there.
    """

    def __init__(self, uri: str, table: str, columns: Sequence[str] | None = None) -> None:
        parts = urlsplit(uri)
        if parts.scheme not in ("postgresql", "postgres"):
            raise ImportRefused("the source is no URI such as postgresql://user@host:5432/database")
        host = f"{parts.hostname or 'localhost'}:{parts.port or 5432}"
        self.name = f"postgres {host}{parts.path} {table}"
        library = self._library("adbc_driver_postgresql.dbapi", "adbc-driver-postgresql")
        # A transaction of its own would keep its locks after the SELECT.
        self._connection = self._asked(lambda: library.connect(uri, autocommit=True))
        self._cursor: Any = self._connection.cursor()
        self._query = _select(table, columns)
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
        if kind == "money" or _extension(field.type) == "arrow.opaque":
            raise ImportRefused(
                f"{self.name}: column {field.name!r} is {kind}, which no table holds: name the"
                " others by --columns, or cast it in a view"
            )
        return field


# --- parts ----------------------------------------------------------------------------------------


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type in which an extension is stored."""
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _extension(kind: pa.DataType) -> str:
    return str(kind.extension_name) if isinstance(kind, pa.BaseExtensionType) else ""


def _read(source: Any, columns: list[str] | None) -> pa.RecordBatchReader:
    """The rows of a dataset of Arrow."""
    scanner = source.scanner(columns=columns, batch_size=_BATCH, **_READ_AHEAD)
    return scanner.to_reader()


def _chosen(schema: pa.Schema, columns: list[str] | None, source: str) -> pa.Schema:
    """Raises ImportRefused for a column that is not there."""
    if columns is None:
        return schema
    if missing := [name for name in columns if name not in schema.names]:
        raise ImportRefused(
            f"{source} has no column {missing[0]!r}; it has {', '.join(schema.names)}"
        )
    return pa.schema([schema.field(name) for name in columns])


def _uri(path: str) -> str:
    return path if "://" in path else f"file://{os.path.abspath(os.path.expanduser(path))}"


def _select(table: str, columns: Sequence[str] | None) -> str:
    """A query of a table whose name may have a schema before it."""
    chosen = ", ".join(map(_one, columns)) if columns else "*"
    return f"SELECT {chosen} FROM {_quoted(table)}"


def _quoted(table: str) -> str:
    return ".".join(map(_one, table.split(".")))


def _one(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
