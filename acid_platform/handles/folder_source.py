"""Folders of Parquet and CSV files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from acid_platform.base.paths import user_path
from acid_platform.errors import ImportRefused
from acid_platform.handles.csv_files import PARSED, CsvFormat, parsed
from acid_platform.handles.import_sources import (
    ImportSource,
    chosen_fields,
    rows_of_dataset,
)
from acid_platform.handles.own_files import OwnFiles
from acid_platform.layout.types import Column
from acid_platform.storage.arrow_types import arrow_type
from acid_platform.storage.files import Files

_WHOLE = re.compile(r"0|-?[1-9]\d*", re.ASCII)


class FolderSource(ImportSource):
    """`FolderSource("in/orders", "parquet")`: the files of a directory at a path or URI, or one
    file, with the values of directories such as `day=2024-02-29` as columns. Hidden files are left
    out.

    `kind`: `parquet` or `csv`. Files of CSV begin with the names of their columns; an empty value
    without quotes is NULL. Their values are read as the types of the table, so it has to be there.
    So is the text of a directory; for a new table it is an `int` if all are whole numbers.
    `encoding` is one that Python knows, such as `latin-1`. `files_in`: places besides the folder to
    which links in it may lead.
    """

    def __init__(
        self,
        folder: str,
        kind: str = "parquet",
        columns: Sequence[str] | None = None,
        delimiter: str = ",",
        encoding: str = "UTF-8",
        files_in: Sequence[str] = (),
    ) -> None:
        from pyarrow import dataset

        place = user_path(folder)
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
            delimiter = "\t" if delimiter == r"\t" else delimiter
            if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n':
                raise ImportRefused(
                    f"{delimiter!r} is no delimiter; say one letter of ASCII, such as ';' or '\\t'"
                )
            self._csv = CsvFormat(delimiter, encoding)
        files, self._path = self._asked(lambda: Files.of(place))
        self._system = files.system
        found = self._asked(self._found)
        fragments = list(found.get_fragments())
        if not fragments:
            raise ImportRefused(f"{self.name} has no file; name the directory that has them")
        if files.local and found.files != [self._path]:
            OwnFiles(self.name, (self._path, *files_in)).require_all(found.files)
        values = [dataset.get_partition_keys(one.partition_expression) for one in fragments]
        named = dict.fromkeys(name for path in found.files for name in _keys_in(path))
        self._keys = [name for name in named if any(name in one for one in values)]
        self._files: list[_CsvFile] = []
        if self._csv is None:
            schemas = self._asked(lambda: [one.physical_schema for one in fragments])
            self.rows_known = self._asked(found.count_rows)
        else:
            self._files = [
                _CsvFile(one.path, self._names(self._csv, one.path), keys)
                for one, keys in zip(fragments, values, strict=True)
            ]
            schemas = [
                pa.schema([(name, pa.string()) for name in file.names]) for file in self._files
            ]
        guesses = [(key, _guess({one.get(key) for one in values})) for key in self._keys]
        schemas.append(pa.schema(guesses))
        self._schema: pa.Schema = self._asked(lambda: pa.unify_schemas(schemas))
        chosen_fields(self._schema, self._columns, self.name)
        for file in self._files:
            if lacking := [name for name in self._columns or () if not file.has(name)]:
                raise ImportRefused(
                    f"{file.path} lacks {', '.join(map(repr, lacking))} of the columns to import:"
                    f" its first line has {', '.join(map(repr, file.names))[:200]}; move the file"
                    " away, or give it a line with the names of its columns"
                )

    @property
    def schema(self) -> pa.Schema:
        if self._csv:
            raise ImportRefused(
                f"{self.name} does not say the types of its columns: create the table first, or say"
                ' --schema "id int, …"'
            )
        return chosen_fields(self._schema, self._columns, self.name)

    def rows(self, _columns: Sequence[Column]) -> pa.RecordBatchReader:
        kinds = {column.name: column.type for column in _columns}
        fields = []
        for field in chosen_fields(self._schema, self._columns, self.name):
            hive = kinds.get(field.name.lower())
            if field.name in self._keys:
                number = hive is not None and hive.kind in PARSED
                field = field.with_type(arrow_type(hive) if number else pa.string())
            elif self._csv and hive is not None:
                field = field.with_type(arrow_type(hive))
            fields.append(field)
        target = pa.schema(fields)
        if self._csv is not None:
            return pa.RecordBatchReader.from_batches(target, self._csv_rows(self._csv, target))
        texts = [
            field.with_type(pa.string()) if field.name in self._keys else field
            for field in self._schema
        ]
        reader = self._asked(lambda: rows_of_dataset(self._found(pa.schema(texts)), self._columns))
        if reader.schema == target:
            return reader
        return pa.RecordBatchReader.from_batches(
            target, (parsed(batch, target) for batch in reader)
        )

    def _csv_rows(self, form: CsvFormat, target: pa.Schema) -> Iterator[pa.RecordBatch]:
        for file in self._files:
            types = {
                field.name: field.type
                for field in target
                if field.name in file.names and field.name not in file.keys
            }
            with self._reading(file.path) as stream:
                for batch in form.batches(stream, types or {file.names[0]: pa.string()}):
                    columns = [
                        batch.column(field.name)
                        if field.name in types
                        else file.values(field, batch.num_rows)
                        for field in target
                    ]
                    yield parsed(pa.RecordBatch.from_arrays(columns, target.names), target)

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
            if isinstance(error, UnicodeError):
                text += "; if it is CSV, say its encoding (--encoding latin-1)"
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

        empty = pa.schema([])
        names = dict.fromkeys(name for path in opened(empty, None).files for name in _keys_in(path))
        texts = pa.schema([(name, pa.string()) for name in names])
        keys = dataset.partitioning(texts, flavor="hive")
        return opened(schema if self._csv is None else empty, keys)


@dataclass(frozen=True, slots=True)
class _CsvFile:
    path: str
    names: Sequence[str]
    keys: Mapping[str, str | None]
    """The values of its directories."""

    def has(self, name: str) -> bool:
        return name in self.names or name in self.keys

    def values(self, field: pa.Field, rows: int) -> pa.Array:
        """The text of its directory for a column that is not in the file, or NULL."""
        if field.name in self.keys:
            return pa.repeat(pa.scalar(self.keys[field.name], pa.string()), rows)
        return pa.nulls(rows, field.type)


def _keys_in(path: str) -> list[str]:
    """The names of directories such as `day=2024-02-29`."""
    parts = path.split("/")[:-1]
    return [unquote(part.partition("=")[0]) for part in parts if "=" in part]


def _guess(texts: set[str | None]) -> pa.DataType:
    """The type of a column for the texts of directories: `int` if no text loses a letter by it."""
    whole = all(text is None or _WHOLE.fullmatch(text) for text in texts) and texts != {None}
    fits = whole and all(-(2**31) <= int(text) < 2**31 for text in texts if text is not None)
    return pa.int32() if fits else pa.string()
