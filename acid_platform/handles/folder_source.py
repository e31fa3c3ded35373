"""Folders of Parquet and CSV files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from acid_platform.errors import ImportRefused
from acid_platform.handles.csv_files import PARSED, CsvFormat
from acid_platform.handles.import_sources import (
    ImportSource,
    absolute,
    chosen_fields,
    rows_of_dataset,
)
from acid_platform.layout.types import Column, HiveType
from acid_platform.storage.arrow_types import arrow_type
from acid_platform.storage.files import Files


class FolderSource(ImportSource):
    """`FolderSource("in/orders", "parquet")`: the files of a directory at a path or URI, or one
    file, with the values of directories such as `day=2024-02-29` as columns. Hidden files are left
    out.

    `kind`: `parquet` or `csv`. Files of CSV begin with the names of their columns; an empty value
    without quotes is NULL. Their values are read as the types of the table, so it has to be there.
    `encoding` is one that Python knows, such as `latin-1`.
    """

    def __init__(
        self,
        folder: str,
        kind: str = "parquet",
        columns: Sequence[str] | None = None,
        delimiter: str = ",",
        encoding: str = "UTF-8",
    ) -> None:
        from pyarrow import dataset

        place = absolute(folder)
        self.name = f"{kind} {place}"
        if kind not in ("parquet", "csv"):
            raise ImportRefused(f"{folder}: {kind!r} is no kind of files; say 'parquet' or 'csv'")
        self._columns = None if columns is None else list(columns)
        self._csv: CsvFormat | None = None
        if kind == "csv":
            try:
                "".encode(encoding)
            except LookupError as error:
                raise ImportRefused(f"{encoding!r} is no encoding; say latin-1 or UTF-8") from error
            self._csv = CsvFormat(delimiter, encoding)
        files, self._path = Files.of(place)
        self._system = files.system
        found = self._asked(self._found)
        fragments = list(found.get_fragments())
        if not fragments:
            raise ImportRefused(f"{self.name} has no file; name the directory that has them")
        values = [dataset.get_partition_keys(one.partition_expression) for one in fragments]
        self._keys = sorted({key for one in values for key in one})
        if self._csv is None:
            schemas = self._asked(lambda: [one.physical_schema for one in fragments])
            self.rows_known = self._asked(found.count_rows)
            schemas.append(pa.schema([field for field in found.schema if field.name in self._keys]))
        else:
            self._files = [
                _CsvFile(one.path, self._names(self._csv, one.path), keys)
                for one, keys in zip(fragments, values, strict=True)
            ]
            schemas = [
                pa.schema([(name, pa.string()) for name in (*file.names, *file.keys)])
                for file in self._files
            ]
        self._schema: pa.Schema = self._asked(lambda: pa.unify_schemas(schemas))
        chosen_fields(self._schema, self._columns, self.name)

    @property
    def schema(self) -> pa.Schema:
        if self._csv:
            raise ImportRefused(
                f"{self.name} does not say the types of its columns: create the table first, or say"
                ' --schema "id int, …"'
            )
        return chosen_fields(self._schema, self._columns, self.name)

    def rows(self, _columns: Sequence[Column]) -> pa.RecordBatchReader:
        if self._csv is None:
            found = self._asked(lambda: self._found(self._schema))
            return self._asked(lambda: rows_of_dataset(found, self._columns))
        kinds = {column.name: column.type for column in _columns}
        target = pa.schema(
            [
                field.with_type(_read_type(kinds[name], field.name in self._keys))
                if (name := field.name.lower()) in kinds
                else field
                for field in chosen_fields(self._schema, self._columns, self.name)
            ]
        )
        return pa.RecordBatchReader.from_batches(target, self._csv_rows(self._csv, target))

    def _csv_rows(self, form: CsvFormat, target: pa.Schema) -> Iterator[pa.RecordBatch]:
        for file in self._files:
            types = {
                field.name: field.type
                for field in target
                if field.name in file.names and field.name not in file.keys
            }
            with self._reading(file.path) as stream:
                for batch in form.batches(stream, types or {file.names[0]: pa.string()}):
                    yield pa.RecordBatch.from_arrays(
                        [
                            batch.column(field.name)
                            if field.name in types
                            else pa.repeat(file.keys.get(field.name), batch.num_rows)
                            .cast(pa.string())
                            .cast(field.type)
                            for field in target
                        ],
                        schema=target,
                    )

    def _names(self, form: CsvFormat, path: str) -> list[str]:
        with self._reading(path) as stream:
            return form.names(stream)

    @contextmanager
    def _reading(self, path: str) -> Iterator[Any]:
        """The bytes of a file. Raises ImportRefused, also for what is done with them."""
        try:
            with self._asked(lambda: self._system.open_input_stream(path)) as stream:
                yield stream
        except ValueError as error:  # Arrow's, too
            text = " ".join(str(error).split())
            raise ImportRefused(
                f"{self.name} can't be read: {path}: {text}; nothing was imported"
            ) from error

    def _found(self, schema: pa.Schema | None = None) -> Any:
        from pyarrow import dataset

        def opened(schema: pa.Schema | None, partitioning: Any) -> Any:
            return dataset.dataset(
                self._path,
                schema=schema,
                format="parquet",
                filesystem=self._system,
                partitioning=partitioning,
            )

        if self._csv is None:
            return opened(schema, "hive")
        empty = pa.schema([])
        names = {name for path in opened(empty, None).files for name in _keys_in(path)}
        texts = pa.schema([(name, pa.string()) for name in sorted(names)])
        return opened(empty, dataset.partitioning(texts, flavor="hive"))


@dataclass(frozen=True, slots=True)
class _CsvFile:
    path: str
    names: Sequence[str]
    keys: Mapping[str, str | None]
    """The values of its directories."""


def _keys_in(path: str) -> list[str]:
    """The names of directories such as `day=2024-02-29`."""
    parts = path.split("/")[:-1]
    return [unquote(part.partition("=")[0]) for part in parts if "=" in part]


def _read_type(hive: HiveType, key: bool) -> pa.DataType:
    """As what a text of a column is read; the text of a directory as a number, or as it is."""
    return arrow_type(hive) if not key or hive.kind in PARSED else pa.string()
