"""Rows in files of no table, which LOAD DATA inserts."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pyarrow as pa

from acid_platform.base.paths import user_path
from acid_platform.engine.interface import Result, TableRead
from acid_platform.errors import InvalidDefinition, UnsupportedStatement, WrongType
from acid_platform.formats.data_file import FilePath
from acid_platform.formats.file_access import (
    open_file,
    reading,
    require_exact_decimals,
    stored_types,
)
from acid_platform.formats.parquet_files import open_parquet
from acid_platform.handles.warehouse import Warehouse
from acid_platform.layout.formats import FileFormat
from acid_platform.layout.names import is_hidden
from acid_platform.layout.types import Column
from acid_platform.scan.scans import EntityScan, Scan
from acid_platform.scan.source_files import EntitySources, RowIdentity, SourceFile
from acid_platform.storage.files import Files
from acid_platform.transactions import ValidWriteIdList
from acid_platform.values.arrow_types import declared_columns, has_text_as_bytes

_FILES = "acid_files"
"""The name of the files in the query that reads them."""
_MAGIC = {b"ORC": "orc", b"PAR": "parquet"}
"""By the first bytes of a file."""


def rows_of_files(warehouse: Warehouse, source: str, target: Sequence[Column]) -> Result:
    """The rows of the file at a path or URI, or of all files of a directory.

    Hidden and empty files are left out. All have the same format and columns; columns without
    names, as Hive 1 wrote them, get those of `target`, the table's columns, in order. Raises
    InvalidDefinition if there is no file, CorruptFile, WrongType for files whose columns differ,
    UnsupportedLayout, UnsupportedStatement for other formats and files of a transactional table.
    """
    files, found = _files_at(source)
    shapes = {path: _shape(files, path, target) for path, _ in found}
    (first, (format_name, columns)), *others = shapes.items()
    for path, shape in others:
        if shape != (format_name, columns):
            raise WrongType(f"{path} has other columns or another format than {first}")
    # Arrow reads Parquet for both engines: Spark's own reader refuses what Polars and Arrow write.
    by_arrow = format_name != "orc"
    identity = RowIdentity.NONE if by_arrow else RowIdentity.RUN
    sources = tuple(
        SourceFile(path, identity, size, "", 0, 0, format=format_name, by_arrow=by_arrow)
        for path, size in found
    )
    entity = EntityScan(EntitySources("", sources, ()), paths=tuple(shapes))
    scan = Scan(
        files=files,
        location=os.path.dirname(first),
        columns=columns,
        partition_columns=(),
        entities=(entity,),
        write_ids=ValidWriteIdList.of(source, 0),
        format=FileFormat(format_name),
    )
    own = tuple(column.name for column in columns)
    rows = warehouse.engines.select(
        f"SELECT * FROM {_FILES}", {_FILES: TableRead(scan, own)}, warehouse.metastore.in_force
    )
    names = [column.name for column in target]
    unnamed = all(name.startswith("_col") for name in own)
    if unnamed and len(own) != len(names):
        raise WrongType(
            f"{first} has {len(own)} columns without names, and {len(names)} are needed:"
            f" {', '.join(names)}"
        )
    return rows.renamed(names) if unnamed else rows


def _files_at(source: str) -> tuple[Files, list[tuple[str, int]]]:
    """The paths and sizes, sorted. Raises InvalidDefinition."""
    files, path = Files.of(user_path(source))
    if not files.is_directory(path):
        if not files.exists(path):
            raise InvalidDefinition(f"there is no file {source}")
        return files, [(path, int(files.system.get_file_info(path).size))]
    children = [each for each in files.children(path) if not is_hidden(each.base_name)]
    for child in children:
        if not child.is_file:
            raise InvalidDefinition(f"{child.path} is a directory; load each by itself")
    found = sorted((child.path, int(child.size)) for child in children if child.size)
    if not found:
        raise InvalidDefinition(f"there is no file in {source}")
    return files, found


def _shape(files: Files, path: str, target: Sequence[Column]) -> tuple[str, tuple[Column, ...]]:
    """The format and columns of a file. Raises CorruptFile, UnsupportedStatement, WrongType."""
    with files.system.open_input_stream(path) as stream:
        magic = bytes(stream.read(3))
    name = _MAGIC.get(magic)
    if name is None:
        raise UnsupportedStatement(
            f"{path} is neither an ORC nor a Parquet file; text is read by CREATE EXTERNAL TABLE …"
            " LOCATION, and INSERT … SELECT from it"
        )
    if name == "parquet":
        with reading(path), files.open(path) as stream:
            return name, _columns_of_parquet(open_parquet(stream, path).schema_arrow, path, target)
    open_file(files, FilePath(path), strange=True)  # before its types are read by another library
    require_exact_decimals(files, path, ())
    keyed, fields = stored_types(files, path)
    if keyed:
        raise UnsupportedStatement(
            f"{path} is a file of a transactional table; make its directory a table by `acid adopt`"
        )
    return name, tuple(Column(field.lower(), kind) for field, kind in fields)


def _columns_of_parquet(
    schema: pa.Schema, path: str, target: Sequence[Column]
) -> tuple[Column, ...]:
    """The columns as they are read: what has no type but NULL, and bytes that are not said to be a
    text, are as the table declares them. Raises WrongType."""
    declared = {column.name: column for column in target}
    columns = []
    for field in schema:
        own = declared.get(field.name.lower())
        if own and (pa.types.is_null(field.type) or has_text_as_bytes(field.type, own.type)):
            columns.append(own)
            continue
        try:
            columns += declared_columns(pa.schema([field]))
        except InvalidDefinition as error:
            raise WrongType(f"{path}: {error}") from error
    return tuple(columns)
