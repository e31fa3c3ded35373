"""Rows in files of no table: what LOAD DATA inserts, and INSERT OVERWRITE DIRECTORY makes.

A directory that is written again is one that an earlier statement wrote, and nobody else: it has a
file that lists what was written. What is in any other directory stays.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Sequence
from contextlib import suppress

import pyarrow as pa

from acid_platform.base.paths import user_path
from acid_platform.engine.reads import TableRead
from acid_platform.engine.results import Result
from acid_platform.errors import InvalidDefinition, UnsupportedStatement, WrongType
from acid_platform.formats.orc import open_strange_orc, orc_fields, reading
from acid_platform.formats.parquet import open_parquet
from acid_platform.handles.warehouse import Warehouse
from acid_platform.layout.formats import FileFormat
from acid_platform.layout.names import is_hidden
from acid_platform.layout.schema import is_acid
from acid_platform.layout.types import Column
from acid_platform.scan.declared_types import require_exact_decimals
from acid_platform.scan.scans import EntityScan, Scan
from acid_platform.scan.source_files import EntitySources, SourceFile, SourceKind
from acid_platform.storage.files import Files
from acid_platform.tables.external_tables import readable_place
from acid_platform.transactions import ValidWriteIdList
from acid_platform.values.arrow_types import declared_columns, has_text_as_bytes
from acid_platform.write.exported_file import write_exported

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
    kind = SourceKind.RAW if format_name == "orc" else SourceKind.EXTERNAL
    sources = tuple(SourceFile(path, kind, size, "", 0, 0) for path, size in found)
    entity = EntityScan(EntitySources("", sources, ()), paths=tuple(shapes))
    scan = Scan(
        files,
        os.path.dirname(first),
        columns,
        (),
        (entity,),
        ValidWriteIdList.of(source, 0),
        FileFormat(format_name),
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
    open_strange_orc(files, path)  # before pyorc sees it
    require_exact_decimals(files, path, ())
    fields = orc_fields(files, path)
    if is_acid([field for field, _ in fields]):
        raise UnsupportedStatement(
            f"{path} is a file of a transactional table; make its directory a table by `acid adopt`"
        )
    return name, tuple(Column(field.lower(), kind) for field, kind in fields)


LIST = "_acid_exported"
"""The file with the names of the others. Hive and Spark read no file whose name begins so."""
_STAGED = "_acid_staged_"


def export_rows(warehouse: Warehouse, result: Result, directory: str, stored: FileFormat) -> int:
    """Writes the rows in place of those that an earlier export wrote there; returns their number.

    A reader may see none or a part of them meanwhile, as in Hive. Raises InvalidDefinition for a
    directory with other files, or one that a table uses; UnsupportedStatement for columns of one
    name; InvalidExpression for a text that can't be written.
    """
    where = readable_place(warehouse.metastore, "INSERT OVERWRITE DIRECTORY", directory)
    files, path = Files.of(where)
    before = _exported(files, path)
    columns = result.declared()
    if len({column.name for column in columns}) < len(columns):
        raise UnsupportedStatement(
            "INSERT OVERWRITE DIRECTORY: two columns of the query have one name; rename one with AS"
        )
    files.make_directory(path)
    prefix = f"{_STAGED}{uuid.uuid4().hex}_"
    staged = {}
    try:
        if result.engine == "spark":
            from acid_platform.engine.spark.task_writing import export_in_tasks

            staged = export_in_tasks(result.to_spark(), where, prefix, columns, stored)
        elif rows := write_exported(where, f"{prefix}0", columns, stored, result.batches()):
            staged = {f"{prefix}0": rows}
        names = {name: f"{number:06}_0" for number, name in enumerate(staged)}
        _put_list(files, path, {*before, *names.values()})
        for name in before:
            files.delete_file(f"{path}/{name}")
        for name, final in names.items():
            files.rename(f"{path}/{name}", f"{path}/{final}")
        _put_list(files, path, {*names.values()})
    finally:
        for info in files.children(path):
            if info.base_name.startswith(prefix):
                files.delete_file(info.path)
    return sum(staged.values())


def _exported(files: Files, path: str) -> list[str]:
    """The files that an earlier export wrote, which may go. Raises InvalidDefinition for others."""
    there = {info.base_name: info for info in files.children(path)}
    listed: list[str] = []
    if LIST in there:
        with suppress(ValueError, TypeError):  # a file of somebody else, which lists none of ours
            listed = [str(name) for name in json.loads(files.read(f"{path}/{LIST}"))]
    for name, info in sorted(there.items()):
        if (name not in (*listed, LIST) and not name.startswith(_STAGED)) or not info.is_file:
            raise InvalidDefinition(
                f"INSERT OVERWRITE DIRECTORY: {path} holds {name}, which no such statement wrote;"
                " name an empty directory, or move it away"
            )
    return [name for name in listed if name in there]


def _put_list(files: Files, path: str, names: set[str]) -> None:
    files.write(f"{path}/{LIST}", json.dumps(sorted(names)).encode())


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
