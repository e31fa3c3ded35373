"""Files of rows: what a manifest says of one, and which ones readers of Iceberg and DuckLake would
misread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from acid_platform.errors import UnsupportedLayout
from acid_platform.formats.file_access import columns_with_ids, reading, without_ids_inside
from acid_platform.formats.parquet import column_ranges
from acid_platform.formats.parquet_files import open_parquet
from acid_platform.iceberg.columns import Json, Plain, simple_type, statistics
from acid_platform.layout.types import Column
from acid_platform.scan.scans import Scan
from acid_platform.scan.source_files import RowIdentity, SourceFile
from acid_platform.values.arrow_types import arrow_type

_ANEW = "a major compaction writes it anew, once there is another delta"


def path_of(scan: Scan, source: SourceFile) -> str:
    """The path of a file of rows as readers get it: a plain one on this machine, or a URI."""
    return source.path if scan.files.local else scan.files.uri(source.path)


def file_entry(
    path: str, source: SourceFile, columns: Sequence[Column], partition: Sequence[Plain]
) -> Json:
    """Iceberg's `data_file`; `path`: as readers get it."""
    rows = source.rows or 0
    return {
        "file_path": path,
        "partition": list(partition),
        "record_count": rows,
        "file_size_in_bytes": source.size,
        **statistics(rows, columns, source.ranges),
    }


def counted(scan: Scan, source: SourceFile, table: str) -> SourceFile:
    """The file with its number of rows.

    Raises UnsupportedLayout for one whose rows readers of Iceberg would not find as the table has
    them: of another format, or with columns of types that they do not convert.
    """
    keyed = scan.format.keyed
    kept = RowIdentity.STORED if keyed else RowIdentity.NONE
    if (
        source.identity is not kept
        or source.format != "parquet"
        or source.length is not None
        or (keyed and not (source.exact and source.rows is not None))
    ):
        raise UnsupportedLayout(
            f"{table}: {source.path} was not written as this platform writes Parquet, and readers"
            f" of other formats may see other values in it; {_ANEW}"
        )
    if not keyed:
        return _plain_file(scan, source, table)
    if not source.as_declared:
        _require_convertible(scan, source, table)
    if any(column.type.nested for column in scan.columns):
        _require_ids_inside(scan, source, table)
    return source


def _require_convertible(scan: Scan, source: SourceFile, table: str) -> None:
    """Looks at the footer of a file that may have columns of other types."""
    types = {column.id: column for column in columns_with_ids(scan.files, source.path)}
    for column in scan.columns:
        stored = types.get(column.id, column).type
        if stored != column.type and (
            "char" in (stored.kind, column.type.kind)
            or stored.nested
            or not _promoted(simple_type(stored), simple_type(column.type))
        ):
            raise _other_type(table, source, column, stored)


def _require_ids_inside(scan: Scan, source: SourceFile, table: str) -> None:
    lacking = without_ids_inside(scan.files, source.path)
    for column in scan.columns:
        if column.id in lacking:
            raise UnsupportedLayout(
                f"{table}: {source.path} has no ids of the fields inside of column {column}, by"
                f" which readers of other formats know them; {_ANEW}"
            )


def _other_type(table: str, source: SourceFile, column: Column, stored: object) -> Exception:
    return UnsupportedLayout(
        f"{table}: {source.path} has column {column.name} as {stored}, which readers of"
        f" Iceberg don't convert into {column.type}; {_ANEW}"
    )


def _promoted(old: str, new: str) -> bool:
    """Whether Iceberg's readers convert values of the first type into the second."""
    if old.startswith("decimal(") and new.startswith("decimal("):
        (digits, places), (more, same) = (map(int, each[8:-1].split(",")) for each in (old, new))
        return places == same and digits <= more
    return old == new or (old, new) in (("int", "long"), ("float", "double"))


def _plain_file(scan: Scan, source: SourceFile, table: str) -> SourceFile:
    """A file without keys, whose footer tells the rest: Parquet's types have to be those of the
    table's columns, and decimals to have their digits."""
    with reading(source.path):
        file = open_parquet(scan.files.open(source.path), source.path)
    metadata, stored = file.metadata, file.schema_arrow
    old_times = any(
        metadata.schema.column(n).physical_type == "INT96" for n in range(metadata.num_columns)
    )
    names = [column.name for column in scan.columns if column.name in stored.names]
    for name in stored.names:
        if name.lower() != name and name.lower() in {column.name for column in scan.columns}:
            raise UnsupportedLayout(
                f"{table}: {source.path} has a column {name}, and readers of other formats don't"
                f" agree whether that is {name.lower()}; {_ANEW}"
            )
    known = replace(source, rows=metadata.num_rows, ranges=column_ranges(metadata, names))
    for column in scan.columns:
        if column.name not in names:
            continue
        kind = stored.field(column.name).type
        has_decimals = any(part.kind == "decimal" for part in column.type.walk())
        if old_times or _alike(kind) != _alike(arrow_type(column.type)):
            raise _other_type(table, source, column, "INT96" if old_times else kind)
        if has_decimals and not known.is_sure(column) and metadata.num_rows:
            raise _other_type(table, source, column, "a decimal with other digits")
    return known


def _alike(kind: pa.DataType) -> str:
    """The type without the names that lists and maps give to their parts."""
    if pa.types.is_map(kind):
        return f"map<{_alike(kind.key_type)}, {_alike(kind.item_type)}>"
    if pa.types.is_list(kind):
        return f"list<{_alike(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return "struct<" + ", ".join(f"{each.name}: {_alike(each.type)}" for each in kind) + ">"
    return str(kind)
