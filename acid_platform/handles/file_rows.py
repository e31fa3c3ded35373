"""The rows of ORC and Parquet files that belong to no table, as LOAD DATA inserts them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from acid_platform.engine.reads import TableRead
from acid_platform.errors import CorruptFile, InvalidDefinition, UnsupportedStatement, WrongType
from acid_platform.layout.formats import FileFormat
from acid_platform.layout.names import is_hidden
from acid_platform.layout.schema import is_acid
from acid_platform.layout.types import Column, parse_type
from acid_platform.orc import orc_schema
from acid_platform.scan.scans import EntityScan, Scan
from acid_platform.scan.source_files import EntitySources, SourceFile, SourceKind
from acid_platform.storage.arrow_types import declared_columns
from acid_platform.storage.files import Files
from acid_platform.transactions import ValidWriteIdList

if TYPE_CHECKING:
    from acid_platform.engine.results import Result
    from acid_platform.handles.warehouse import Warehouse

_FILES = "acid_files"
"""The name of the files in the query that reads them."""
_MAGIC = {b"ORC": "orc", b"PAR": "parquet"}
"""By the first bytes of a file."""


def rows_of_files(warehouse: Warehouse, source: str, names: Sequence[str]) -> Result:
    """The rows of the file at a path or URI, or of all files of a directory.

    Hidden and empty files are left out. All have the same format and columns; columns without
    names, as Hive 1 wrote them, get the `names` of the table, in order. Raises InvalidDefinition if
    there is no file, CorruptFile, WrongType for files whose columns differ, UnsupportedStatement
    for other formats and for files of a transactional table.
    """
    files, found = _files_at(source)
    shapes = {path: _shape(files, path) for path, _ in found}
    (first, (format_name, columns)), *others = shapes.items()
    for path, shape in others:
        if shape != (format_name, columns):
            raise WrongType(f"{path} has other columns or another format than {first}")
    # Spark's own reader of PLAIN files can't read times before 1970 that ORC's C++ library wrote.
    kind = SourceKind.RAW if format_name == "orc" else SourceKind.PLAIN
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
    unnamed = all(name.startswith("_col") for name in own)
    if unnamed and len(own) != len(names):
        raise WrongType(
            f"{first} has {len(own)} columns without names, and {len(names)} are needed:"
            f" {', '.join(names)}"
        )
    return rows.renamed(list(names)) if unnamed else rows


def _files_at(source: str) -> tuple[Files, list[tuple[str, int]]]:
    """The paths and sizes, sorted. Raises InvalidDefinition."""
    if "://" not in source:
        source = os.path.abspath(os.path.expanduser(source))
    files, path = Files.of(source)
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


def _shape(files: Files, path: str) -> tuple[str, tuple[Column, ...]]:
    """The format and columns of a file. Raises CorruptFile, UnsupportedStatement."""
    with files.system.open_input_stream(path) as stream:
        magic = bytes(stream.read(3))
    name = _MAGIC.get(magic)
    if name is None:
        raise UnsupportedStatement(
            f"{path} is neither an ORC nor a Parquet file; text is read by CREATE EXTERNAL TABLE …"
            " LOCATION, and INSERT … SELECT from it"
        )
    if name == "parquet":
        import pyarrow as pa
        from pyarrow import parquet

        try:
            with files.open(path) as stream:
                return name, declared_columns(parquet.read_schema(stream))
        except pa.ArrowInvalid as error:
            raise CorruptFile(f"{path} can't be read as Parquet: {error}") from error
    fields = parse_type(orc_schema(files, path)).children
    if is_acid([field for field, _ in fields]):
        raise UnsupportedStatement(
            f"{path} is a file of a transactional table; make its directory a table by `acid adopt`"
        )
    return name, tuple(Column(field.lower(), kind) for field, kind in fields)
