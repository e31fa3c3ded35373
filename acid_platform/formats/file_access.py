"""Each data file is opened, begun and recorded here: nobody else asks which format it has."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import replace

import pyarrow as pa
from pyarrow import csv

from acid_platform.errors import CompactionRefused, UnsupportedLayout
from acid_platform.formats import orc
from acid_platform.formats.data_file import DataFile, DataSource, FilePath, FileWriter
from acid_platform.formats.keyed_parquet import (
    KeyedParquet,
    open_parquet_rows,
)
from acid_platform.formats.keyed_parquet_writer import KeyedParquetWriter
from acid_platform.formats.orc import (
    BATCH_ROWS,
    WRITTEN_CODECS,
    AcidWriter,
    OrcWriter,
    finish_plain_file,
    is_acid,
    open_orc,
    open_strange_orc,
    orc_fields,
    orc_schema,
    reading,
    require_codec,
    written_codec,
)
from acid_platform.formats.parquet import ParquetWriter
from acid_platform.layout.file_entries import FileEntry, Footer, is_positional
from acid_platform.layout.formats import ACID_FORMAT, FileFormat
from acid_platform.layout.types import Column, HiveType
from acid_platform.storage.files import Files
from acid_platform.values.arrow_types import has_leaf, is_decimal
from acid_platform.values.stored_values import as_declared

__all__ = [
    "BATCH_ROWS",
    "WRITTEN_FORMATS",
    "columns_with_ids",
    "complete_foreign_file",
    "count_rows",
    "format_of",
    "has_fine_text",
    "matching_parts",
    "new_file",
    "not_written",
    "open_file",
    "reading",
    "recorded_file",
    "refuse_finer",
    "require_exact_decimals",
    "require_written",
    "stored_types",
    "to_be_stored",
    "type_text",
    "without_ids_inside",
    "written_codec",
]

WRITTEN_FORMATS = ("orc", "parquet")
"""The formats that are opened and written without Spark."""
_BLOCK = 1 << 20
_TIME_IN_TEXT = re.compile(rb":\d\d\.\d{6}\d*[1-9]")
_OVERLAP = 64


def open_file(files: Files, source: DataSource, strange: bool = False) -> DataFile:
    """The file of a source. `strange`: another program wrote it, and it was not recorded yet.

    Raises CorruptFile if it is none of its format, UnsupportedLayout for a type that Arrow does not
    read and for another format, FileNotFoundError, StoreRefused, StoreUnavailable.
    """
    path, stored = source.path, source.format
    if stored is None:
        stored = format_of(files, path) or ("orc" if strange else None)
    if stored == "parquet":
        return open_parquet_rows(files, path, source.keyed)
    if stored != "orc":
        raise UnsupportedLayout(
            f"{path} is neither ORC nor Parquet, the only formats that to_arrow reads; use read()"
        )
    file = (open_strange_orc if strange else open_orc)(files, path, source.length)
    file.keyed = source.keyed
    return file


def format_of(files: Files, path: str) -> str | None:
    """The format of a file by its first bytes; None if it is neither ORC nor Parquet. Use it inside
    of `reading`."""
    with files.system.open_input_stream(path) as stream:
        return {b"ORC": "orc", b"PAR": "parquet"}.get(bytes(stream.read(3)))


def stored_types(files: Files, path: str) -> tuple[bool, tuple[tuple[str, HiveType], ...]]:
    """Whether a file stores keys, and the names and declared types of its columns of values.

    Raises CorruptFile, and UnsupportedLayout for a Parquet file that does not tell them.
    """
    with reading(path):
        if format_of(files, path) == "parquet":
            return True, tuple((each.name, each.type) for each in columns_with_ids(files, path))
    fields = orc_fields(files, path)
    keyed = is_acid([name for name, _ in fields])
    return keyed, fields[5][1].children if keyed else fields


def columns_with_ids(files: Files, path: str) -> tuple[Column, ...]:
    """The columns of a Parquet file of rows with keys, as its table declared them. Raises
    CorruptFile, UnsupportedLayout."""
    return _keyed_parquet(files, path).declared


def without_ids_inside(files: Files, path: str) -> frozenset[int]:
    """The columns of such a file with fields inside that have no ids. Raises the same."""
    return _keyed_parquet(files, path).without_ids_inside


def _keyed_parquet(files: Files, path: str) -> KeyedParquet:
    with reading(path):
        file = open_parquet_rows(files, path, keyed=True)
    assert isinstance(file, KeyedParquet)
    return file


def type_text(files: Files, source: DataSource) -> str:
    """The types of an ORC file in its own notation; empty for a format whose files always have the
    types that the table declares. Raises CorruptFile."""
    return orc_schema(files, source.path, source.length) if source.format == "orc" else ""


def matching_parts(stored: HiveType, declared: HiveType) -> Iterator[tuple[HiveType, HiveType]]:
    """Both types, and the types inside of them that describe the same values."""
    yield stored, declared
    if stored.kind != declared.kind:
        return
    if stored.kind == "struct":
        own = dict(stored.children)
        pairs = [(own[name], kind) for name, kind in declared.children if name in own]
    else:
        children = zip(stored.children, declared.children, strict=False)
        pairs = [(child, other) for (_, child), (_, other) in children]
    for part, other in pairs:
        yield from matching_parts(part, other)


def require_exact_decimals(files: Files, path: str, columns: Sequence[Column]) -> bool:
    """Whether the file has decimals without a scale, as Hive 0.11 wrote them (P64).

    ORC's library for Java, and so Spark, rounds such values. All of them are read here: raises
    UnsupportedLayout for one that decimal(38,10), or the type of its column, does not hold.
    """
    with reading(path):
        file = open_file(files, FilePath(path))
        if not file.has_old_decimals:
            return False
        names = [name for name in file.names if has_leaf(file.type_of(name), is_decimal)]
        placed = {}
        if is_positional(file.names):
            placed = dict(zip(file.names, columns, strict=False))
        declared = {column.name: column for column in columns}
        for piece in range(len(file.piece_rows)):
            arrays = file.decode(piece, names)
            for name in names:
                column = placed.get(name) or declared.get(name.lower())
                if column is not None:
                    as_declared(arrays[name], column.type, f"{path}, column {column.name}")
    return True


def new_file(
    files: Files,
    path: str,
    columns: Sequence[Column],
    stored: FileFormat,
    compression: str,
    deletes: bool = False,
    always: bool = False,
    pool: Executor | None = None,
    by_columns: bool = False,
) -> FileWriter:
    """A new file of a table's format.

    `deletes`: of delete events. `always`: also without rows, with a codec that can be written then.
    The threads of `pool` encode. `by_columns`: the rows are in the order of columns, with keys in
    any order (Parquet alone). Raises UnsupportedLayout for a codec and a format that can't be
    written.
    """
    if stored.name == "orc":
        codec = written_codec(compression) if always else compression
        if stored.keyed:
            return AcidWriter(files, path, columns, codec, deletes, always=always, pool=pool)
        return OrcWriter(files, path, columns, codec, always=always, pool=pool)
    if stored.name == "parquet":
        if stored.keyed:
            return KeyedParquetWriter(files, path, columns, deletes, always, pool, by_columns)
        return ParquetWriter(files, path, columns, always, pool)
    keys = "with the keys of rows" if stored.keyed else "without Spark"
    raise UnsupportedLayout(f"{path}: {stored.name} files can't be written {keys}")


def not_written(stored: FileFormat, compression: str) -> str | None:
    """Why files of this format and codec are not written without Spark; None if they are."""
    if stored.name not in WRITTEN_FORMATS:
        return f"its files are {stored.name}"
    if stored.has_codec and compression not in WRITTEN_CODECS:
        return f"its codec is {compression}"
    return None


def require_written(stored: FileFormat, compression: str, path: str) -> None:
    """Raises UnsupportedLayout for a codec that can't be written here."""
    if stored.has_codec:
        require_codec(compression, path)


def to_be_stored(array: pa.Array, stored: FileFormat) -> pa.Array:
    """The array with its dates and timestamps as a file of the format stores them."""
    return orc.to_be_stored(array) if stored.lacks_times else array


def complete_foreign_file(
    files: Files, path: str, columns: Sequence[Column], stored: FileFormat
) -> None:
    """Declares the column types in a file of an insert-only table that Spark wrote, if its format
    has a place for them. Raises CorruptFile."""
    if stored.name == "orc":
        finish_plain_file(files, path, columns)


def recorded_file(
    files: Files,
    path: str,
    name: str,
    stored: FileFormat = ACID_FORMAT,
    deletes: bool = False,
    rows: int | None = None,
    length: int | None = None,
    exact: bool = False,
) -> FileEntry:
    """The record of the file at `path` under the relative path `name`; reads its footer (P26).

    `deletes`: the file holds delete events, whose columns have no values. `rows` is the row count
    if the format can't be counted here; `length` is the committed length of a streaming writer's
    file; `exact`: see Footer. Raises CorruptFile, UnsupportedLayout.
    """
    with reading(path):
        size = int(files.system.get_file_info(path).size)
        if length == 0:
            return FileEntry(name, size, Footer(0, True), 0)
        if not stored.keyed and stored.name != "orc":
            counted = count_rows(files, path, stored) if rows is None else rows
            known = stored.name if stored.name in WRITTEN_FORMATS else None
            return FileEntry(name, size, Footer(counted, False, format=known, exact=exact))
        known = None if stored.keyed else stored.name  # files of one table may have several formats
        file = open_file(files, FilePath(path, known, length), strange=True)
        footer = replace(file.summary, exact=exact)
        if deletes or footer.positional:
            return FileEntry(name, size, footer, length)
        return FileEntry(name, size, footer, length, file.ranges, file.key_ranges)


def count_rows(files: Files, path: str, stored: FileFormat) -> int:
    """The row count of a file of rows without keys, from the footer or by counting lines.

    Raises CorruptFile, and UnsupportedLayout for a file of rows with keys, and for avro, which only
    Spark can count.
    """
    if stored.name in WRITTEN_FORMATS:
        with reading(path):
            return open_file(files, FilePath(path, stored.name, keyed=False), strange=True).rows
    with reading(path), files.open(path) as stream:
        match stored.name:
            case "json" | "text":
                blocks = iter(lambda: stream.read(_BLOCK), b"")
                return sum(block.count(b"\n") for block in blocks)
            case "csv":
                return _csv_rows(stream, stored)
    raise UnsupportedLayout(f"{path}: only Spark can count the rows of {stored.name} files")


def _csv_rows(stream: pa.NativeFile, stored: FileFormat) -> int:
    """Parses the file, since quoted values may contain line breaks."""
    if stream.size() == 0:
        return 0
    reader = csv.open_csv(
        stream,
        csv.ReadOptions(autogenerate_column_names=True),
        csv.ParseOptions(delimiter=stored.options["delimiter"], newlines_in_values=True),
    )
    return sum(batch.num_rows for batch in reader)


def refuse_finer(
    files: Files, path: str, stored: str | None = ACID_FORMAT.name, length: int | None = None
) -> None:
    """Raises CompactionRefused if the file has timestamps with nanoseconds, which Hive writes and
    Spark cuts: a compaction must not change a value. Also raises CorruptFile.

    `stored` names the format; None: the first bytes tell. In text formats, any text that looks like
    such a timestamp counts. `length` is the committed length of the file.
    """
    if stored is None or stored in WRITTEN_FORMATS:
        with reading(path):
            finer = open_file(files, FilePath(path, stored, length)).has_fine_times()
    else:  # Avro's own precision is microseconds
        finer = stored != "avro" and has_fine_text(files, path)
    if finer:
        raise CompactionRefused(
            f"{path} holds timestamps with nanoseconds, which this compaction"
            " would truncate to microseconds; compact the table with Hive"
        )


def has_fine_text(files: Files, path: str) -> bool:
    """Whether any text of the file looks like a time with nanoseconds."""
    with files.system.open_input_stream(path) as stream:
        end = b""
        for block in iter(lambda: stream.read(_BLOCK), b""):
            if _TIME_IN_TEXT.search(end + block):
                return True
            end = block[-_OVERLAP:]
    return False
