"""Folders of Parquet and CSV files."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from acid_platform.errors import ImportRefused
from acid_platform.handles.import_sources import (
    ImportSource,
    absolute,
    chosen_fields,
    rows_of_dataset,
)
from acid_platform.layout.types import Column
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
        from pyarrow import csv, dataset

        place = absolute(folder)
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
            try:
                codecs.lookup(encoding)
            except LookupError as error:
                raise ImportRefused(f"{encoding!r} is no encoding; say latin-1 or UTF-8") from error
            written = csv.ReadOptions(encoding=encoding)
            self._format = dataset.CsvFileFormat(
                parsed, convert_options=nulls, read_options=written
            )
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
        chosen_fields(self._schema, self._columns, self.name)
        if not self._csv:
            self.rows_known = self._asked(found.count_rows)

    @property
    def schema(self) -> pa.Schema:
        if self._csv:
            raise ImportRefused(
                f"{self.name} does not say the types of its columns: create the table first, or say"
                ' --schema "id int, …"'
            )
        return chosen_fields(self._schema, self._columns, self.name)

    def rows(self, _columns: Sequence[Column]) -> pa.RecordBatchReader:
        schema = self._schema
        if self._csv:
            kinds = {column.name: arrow_type(column.type) for column in _columns}
            schema = pa.schema(
                [field.with_type(kinds.get(field.name.lower(), pa.string())) for field in schema]
            )
        return self._asked(lambda: rows_of_dataset(self._found(schema), self._columns))

    def _found(self, schema: pa.Schema | None = None) -> Any:
        from pyarrow import dataset

        return dataset.dataset(
            self._path,
            schema=schema,
            format=self._format,
            filesystem=self._system,
            partitioning="hive",
        )
