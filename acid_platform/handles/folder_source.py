"""Folders of Parquet, CSV and JSON files (P66)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyarrow.parquet import ParquetFile

from acid_platform.base.file_bounds import BATCH_BYTES, BATCH_VALUES, MOST_COLUMNS
from acid_platform.base.paths import user_path
from acid_platform.errors import ImportRefused, InvalidDefinition, WrongType
from acid_platform.formats.parquet_files import (
    batches_of,
    has_fine_times,
    noted_schema,
    open_parquet,
)
from acid_platform.handles.csv_files import (
    PARSED,
    CsvFormat,
    NoValue,
    TypeOfTexts,
    columns_of,
    parsed,
    type_of,
)
from acid_platform.handles.import_sources import ImportSource, OwnFiles, chosen_fields
from acid_platform.layout.names import is_hidden, partition_segment
from acid_platform.layout.types import Column, HiveType
from acid_platform.scan import text_values
from acid_platform.scan.text_lines import fitting, require_few
from acid_platform.storage.files import Files
from acid_platform.values.arrow_types import (
    arrow_schema,
    arrow_type,
    bytes_as_text,
    has_text_as_bytes,
    hive_type,
)

_WHOLE = re.compile(r"0|-?[1-9]\d*", re.ASCII)
_KINDS = ("parquet", "csv", "json")


@dataclass(frozen=True, slots=True)
class _File:
    path: str
    keys: Mapping[str, str | None]
    """The values of its directories."""
    schema: pa.Schema
    """Its own columns; texts in CSV, none in JSON."""
    written: Mapping[str, str]
    """How the first row of CSV writes their names."""


class FolderSource(ImportSource):
    """`FolderSource("in/orders", "parquet")`: the files of a directory at a path or URI, or one
    file, with the values of directories such as `day=2024-02-29` as columns. Hidden files are left
    out.

    `kind`: `parquet`, `csv` or `json`. Files of CSV begin with the names of their columns; an empty
    value without quotes is NULL. Files of JSON have an object a line, or one array of objects.
    Values are read as the types of the table; for a new one, as types that hold all of them as they
    are written, or as strings by `all_strings`. The text of a directory is an `int` in a new table
    if all are whole numbers. `encoding` is one that Python knows, such as `latin-1`;
    `decimal_comma`: numbers of CSV are written as `1,5`. `files_in`: places besides the folder to
    which links in it may lead.
    """

    def __init__(
        self,
        folder: str,
        kind: str = "parquet",
        columns: Sequence[str] | None = None,
        delimiter: str = ",",
        encoding: str = "UTF-8",
        decimal_comma: bool = False,
        all_strings: bool = False,
        files_in: Sequence[str] = (),
    ) -> None:
        location = user_path(folder)
        self.name = f"{kind} {location}"
        if kind not in _KINDS:
            raise ImportRefused(f"{folder}: {kind!r} is no kind of files; say {', '.join(_KINDS)}")
        self._kind, self._all_strings = kind, all_strings
        self._columns = None if columns is None else list(columns)
        self._csv = _csv_format(delimiter, encoding, decimal_comma)
        files, root = self._asked(lambda: Files.of(location))
        self._system = files.system
        found = self._asked(lambda: list(_files_below(files, root)))
        if not found:
            raise ImportRefused(f"{self.name} has no file; name the directory that has them")
        paths = [path for path, _ in found]
        self._own = None
        if files.local and paths != [root]:
            self._own = OwnFiles(self.name, (root, *files_in))
            self._own.require_all(paths)
        self._files = [self._looked_at(path, keys) for path, keys in found]
        self._keys = list(dict.fromkeys(name for _, keys in found for name in keys))
        guesses = [(key, _guess({entry.get(key) for _, entry in found})) for key in self._keys]
        schemas = [_without(file.schema, self._keys) for file in self._files]
        self._unified: pa.Schema = self._asked(
            lambda: pa.unify_schemas([*schemas, pa.schema(guesses)])
        )
        if kind != "json":
            chosen_fields(self._unified, self._columns, self.name)
            for file in self._files:
                has = {*file.schema.names, *file.keys}
                if lacking := [name for name in self._columns or () if name not in has]:
                    raise ImportRefused(
                        f"{file.path} lacks {', '.join(map(repr, lacking))} of the columns to"
                        f" import: it has {', '.join(map(repr, file.schema.names))[:200]}; move the"
                        " file away, or write it with the names of its columns"
                    )

    @property
    def schema(self) -> pa.Schema:
        return chosen_fields(self._all_fields(), self._columns, self.name)

    def _all_fields(self) -> pa.Schema:
        """All columns, as a table is made for them."""
        if self._kind == "parquet":
            return self._unified
        keys = [self._unified.field(name) for name in self._keys]
        inside = {name: kind for name, kind in self._inferred.items() if name not in self._keys}
        return pa.schema([*arrow_schema(columns_of(inside)), *keys])

    @cached_property
    def _inferred(self) -> dict[str, HiveType | None]:
        """The types of the columns in files of text, from all values."""
        if self._kind == "json":
            kinds: dict[str, HiveType | None] = {}
            for file in self._files:
                with self._reading(file) as stream:
                    for line, row, _ in text_values.rows(stream):
                        self._add_types(kinds, row, line)
            return kinds
        columns = {name: TypeOfTexts() for name in self._unified.names if name not in self._keys}
        if not self._all_strings:
            for file in self._files:
                texts = dict.fromkeys((n for n in file.schema.names if n in columns), pa.string())
                for batch in self._csv_batches(file, texts):
                    for name in texts:
                        columns[name].add(self._csv.with_points(batch.column(name)))
        return {name: column.type for name, column in columns.items()}

    def _add_types(self, kinds: dict[str, HiveType | None], row: dict[str, Any], line: int) -> None:
        for name, value in row.items():
            key = name.lower()
            try:
                kind = HiveType("string") if self._all_strings else type_of(value, kinds.get(key))
            except (ValueError, InvalidDefinition) as error:
                raise NoValue(0, f"line {line}: {name!r}: {error}") from error
            kinds[key] = kind
            if len(kinds) > MOST_COLUMNS:
                raise NoValue(
                    0, f"line {line}: the objects up to here have more than {MOST_COLUMNS:,} names"
                )

    def rows(self, _columns: Sequence[Column]) -> pa.RecordBatchReader:
        declared = {column.name: column.type for column in _columns}
        source = self._unified if self._kind != "json" else self._all_fields()
        fields = []
        for field in chosen_fields(source, self._columns, self.name):
            hive = declared.get(field.name.lower())
            if field.name in self._keys:
                number = hive is not None and hive.kind in PARSED
                field = field.with_type(arrow_type(hive) if number else pa.string())
            elif hive is not None and (
                self._kind != "parquet" or has_text_as_bytes(field.type, hive)
            ):
                field = field.with_type(arrow_type(hive))
            fields.append(field)
        target = pa.schema(fields)
        return pa.RecordBatchReader.from_batches(target, self._batches(target, declared))

    def _batches(
        self, target: pa.Schema, declared: Mapping[str, HiveType]
    ) -> Iterator[pa.RecordBatch]:
        for file in self._files:
            read = {"parquet": self._of_parquet, "csv": self._of_csv, "json": self._of_json}
            for batch in read[self._kind](file, target, declared):
                with self._refusing(file):
                    yield self._with_keys(file, batch, target)

    def _with_keys(self, file: _File, batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
        """The columns of the result. Raises ValueError for a directory that says otherwise than a
        row of its file."""
        columns = []
        for field in target:
            own = batch.column(field.name) if field.name in batch.schema.names else None
            if field.name in file.keys:
                text = pa.scalar(file.keys[field.name], pa.string())
                said = parsed(
                    pa.RecordBatch.from_arrays([pa.repeat(text, batch.num_rows)], [field.name]),
                    pa.schema([field]),
                ).column(0)
                if own is not None and not own.equals(said):
                    raise _elsewhere(field.name, text.as_py())
                columns.append(said)
            elif own is None:
                columns.append(pa.nulls(batch.num_rows, field.type))
            else:
                columns.append(own if own.type == field.type else own.cast(field.type))
        return pa.RecordBatch.from_arrays(columns, schema=target)

    # --- files ---------------------------------------------------------------------------------

    def _of_parquet(
        self, file: _File, target: pa.Schema, declared: Mapping[str, HiveType]
    ) -> Iterator[pa.RecordBatch]:
        names = [name for name in target.names if name in file.schema.names]
        with self._reading(file) as stream:
            opened = open_parquet(stream, file.path)
            for batch in _texts_of_bytes(opened, file.path, names, declared):
                for index, name in enumerate(names):
                    if name in file.keys:
                        key = batch.column(name).cast(target.field(name).type)
                        batch = batch.set_column(index, name, key)
                yield batch

    def _of_csv(
        self, file: _File, target: pa.Schema, _: Mapping[str, HiveType]
    ) -> Iterator[pa.RecordBatch]:
        types = {field.name: field.type for field in target if field.name in file.schema.names}
        yield from self._csv_batches(file, types or {file.schema.names[0]: pa.string()})

    def _csv_batches(
        self, file: _File, types: Mapping[str, pa.DataType]
    ) -> Iterator[pa.RecordBatch]:
        with self._reading(file) as stream:
            yield from self._csv.batches(stream, types, file.written)

    def _of_json(
        self, file: _File, target: pa.Schema, declared: Mapping[str, HiveType]
    ) -> Iterator[pa.RecordBatch]:
        own = [field for field in target if field.name not in self._keys]
        kinds = {field.name: declared.get(field.name) or hive_type(field.type) for field in own}

        def fitted(line: int, row: dict[str, Any], size: int) -> dict[str, object]:
            values = {name.lower(): value for name, value in row.items()}
            if len(values) < len(row):
                raise ValueError(f"line {line}: two names differ in their case only")
            for name, text in file.keys.items():
                if str(values.get(name, text)) != text:
                    raise _elsewhere(name, text)
            if self._all_strings:
                values = {name: _as_string(value) for name, value in values.items()}
            try:
                require_few(row, size, [*kinds.values()])
                return {name: fitting(values.get(name), kind, name) for name, kind in kinds.items()}
            except ValueError as error:
                raise ValueError(f"line {line}: {error}") from error

        # Where only keys of directories are asked for, a column of nothing counts the rows.
        schema, held = pa.schema(own or [("", pa.null())]), list[dict[str, object]]()
        with self._reading(file) as stream:
            letters, most = 0, _objects_at_once(schema)
            for line, row, size in text_values.rows(stream):
                held.append(fitted(line, row, size))
                letters += size
                if len(held) >= most or letters > BATCH_BYTES:
                    yield pa.RecordBatch.from_pylist(held, schema)
                    held, letters = [], 0
            yield pa.RecordBatch.from_pylist(held, schema)

    def _looked_at(self, path: str, keys: Mapping[str, str | None]) -> _File:
        bare = _File(path, keys, pa.schema([]), {})
        if self._kind == "json":
            return bare
        with self._reading(bare) as stream:
            if self._kind == "csv":
                written = self._csv.names(stream)
                return _File(path, keys, pa.schema(dict.fromkeys(written, pa.string())), written)
            opened = open_parquet(stream, path)
            self.rows_known = (self.rows_known or 0) + int(opened.metadata.num_rows)
            return _File(path, keys, _of_notes(opened.schema_arrow, noted_schema(stream, path)), {})

    @contextmanager
    def _reading(self, file: _File) -> Iterator[Any]:
        """The bytes of a file. Raises ImportRefused, also for what is done with them."""
        with self._refusing(file), self._opened(file.path) as stream:
            yield stream

    @contextmanager
    def _opened(self, path: str) -> Iterator[Any]:
        """Raises ImportRefused also for a file that is not one of the folder's, by a link that was
        made after it had been found."""

        def stream(file: str) -> Any:
            if self._kind == "parquet":
                return self._system.open_input_file(file)
            return self._system.open_input_stream(file, compression=_compression(path))

        held = self._own.opened(path) if self._own else nullcontext(path)
        with held as held_file, self._asked(lambda: stream(held_file)) as opened:
            yield opened

    @contextmanager
    def _refusing(self, file: _File) -> Iterator[None]:
        try:
            yield
        except (ValueError, pa.ArrowException, OSError) as error:
            text = " ".join(str(error).split())
            if isinstance(error, NoValue) and self._kind == "csv":
                with self._opened(file.path) as again:
                    text = f"{self._csv.place_of(again, error.row)}: {text}"
            if isinstance(error, UnicodeError):
                text += "; if it is CSV, say its encoding (--encoding latin-1)"
            raise ImportRefused(
                f"{self.name} can't be read: {file.path}: {text}; nothing was imported"
            ) from error


_JSON_ROWS = 10_000


def _objects_at_once(schema: pa.Schema) -> int:
    values = sum(map(_values_of, schema.types))
    return max(1, min(_JSON_ROWS, BATCH_VALUES // max(1, values)))


def _values_of(kind: pa.DataType) -> int:
    """The values of a row in a column of this type, without those of longer arrays."""
    return sum(_values_of(kind.field(index).type) for index in range(kind.num_fields)) or 1


def _compression(path: str) -> str | None:
    """As Arrow finds it, by the end of the name."""
    try:
        return str(pa.Codec.detect(path).name)
    except (TypeError, ValueError):
        return None


def _elsewhere(column: str, text: str | None) -> ValueError:
    return ValueError(
        f"its directory says {column}={text}, and a row of it has another {column}; move the file"
        " to the directory of its rows"
    )


def _csv_format(delimiter: str, encoding: str, decimal_comma: bool) -> CsvFormat:
    try:
        "".encode(encoding)
    except LookupError as error:
        raise ImportRefused(f"{encoding!r} is no encoding; say latin-1 or UTF-8") from error
    delimiter = "\t" if delimiter == r"\t" else delimiter
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n':
        raise ImportRefused(
            f"{delimiter!r} is no delimiter; say one letter of ASCII, such as ';' or '\\t'"
        )
    return CsvFormat(delimiter, encoding, decimal_comma)


def _files_below(files: Files, root: str) -> Iterator[tuple[str, dict[str, str | None]]]:
    """The files that are not hidden, sorted, with the values of their directories."""
    if not files.is_directory(root):
        if not files.exists(root):
            raise FileNotFoundError(f"there is no {root}")
        yield root, _keys_of(root.split("/")[:-1])
        return
    for info in sorted(files.below_strange(root), key=lambda info: str(info.path)):
        parts = info.path.removeprefix(root).strip("/").split("/")
        if info.is_file and not any(map(is_hidden, parts)):
            yield info.path, _keys_of(parts[:-1])


def _keys_of(directories: Sequence[str]) -> dict[str, str | None]:
    found = (partition_segment(name) for name in directories)
    return dict(pair for pair in found if pair is not None)


def _texts_of_bytes(
    file: ParquetFile, path: str, names: Sequence[str], declared: Mapping[str, HiveType]
) -> Iterator[pa.RecordBatch]:
    """These columns, with the bytes of columns that are declared as texts taken for texts. Raises
    WrongType for a time with nanoseconds."""
    if has_fine_times(file.reader_stream, path, names):
        raise WrongType(
            f"{path} holds timestamps with nanoseconds, and a table's have microseconds; round them"
            " where they are written"
        )
    for batch in batches_of(file, names):
        for index, name in enumerate(names):
            hive = declared.get(name.lower())
            if hive is not None and has_text_as_bytes(batch.column(name).type, hive):
                texts = bytes_as_text(batch.column(name))
                texts.validate(full=True)
                batch = batch.set_column(index, name, texts)
        yield batch


def parquet_rows(stream: Any, path: str, columns: Sequence[Column]) -> pa.Table:
    """All rows of a file, by the types that Parquet says, for a table with these columns (P64).

    Raises InvalidDefinition for a column of a type that no table has, CorruptFile, and Arrow's
    errors.
    """
    file = open_parquet(stream, path)
    stored = file.schema_arrow
    for field in _of_notes(stored, noted_schema(stream, path)):
        hive_type(field.type)
    kinds = {column.name: column.type for column in columns}
    batches = list(_texts_of_bytes(file, path, stored.names, kinds))
    return pa.Table.from_batches(batches, None if batches else stored)


def _without(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    return pa.schema([field.remove_metadata() for field in schema if field.name not in names])


def _of_notes(stored: pa.Schema, noted: pa.Schema) -> pa.Schema:
    """The stored types; of a column whose numbers mean nothing without Arrow's note, as those of a
    duration, the noted one, which no table has."""
    return pa.schema(
        [
            own if _has_hive_type(note.type) else note
            for own, note in zip(stored, noted, strict=True)
        ]
    )


def _has_hive_type(kind: pa.DataType) -> bool:
    try:
        hive_type(kind)
    except InvalidDefinition:
        return False
    return True


def _as_string(value: Any) -> object:
    import json
    from decimal import Decimal

    if value is None or isinstance(value, str | Decimal):
        return None if value is None else str(value)
    return json.dumps(value, ensure_ascii=False, default=str)


def _guess(texts: set[str | None]) -> pa.DataType:
    """The type of a column for the texts of directories: `int` if no text loses a letter by it."""
    whole = all(text is None or _WHOLE.fullmatch(text) for text in texts) and texts != {None}
    fits = whole and all(-(2**31) <= int(text) < 2**31 for text in texts if text is not None)
    return pa.int32() if fits else pa.string()
