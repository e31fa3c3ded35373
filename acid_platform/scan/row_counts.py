"""Counting the rows of a file of an insert-only table."""

from __future__ import annotations

import pyarrow as pa
from pyarrow import csv

from acid_platform.errors import UnsupportedLayout
from acid_platform.formats.orc import open_strange_orc, reading
from acid_platform.formats.parquet import open_parquet, row_group_sizes
from acid_platform.layout.formats import FileFormat
from acid_platform.storage.files import Files

_BLOCK = 1 << 20


def count_rows(files: Files, path: str, stored: FileFormat) -> int:
    """The row count, from the footer or by counting lines.

    Raises CorruptFile, and UnsupportedLayout for avro, which only Spark can count.
    """
    if stored.name == "orc":
        return int(open_strange_orc(files, path).nrows)
    with reading(path), files.open(path) as stream:
        match stored.name:
            case "parquet":
                return sum(row_group_sizes(open_parquet(stream, path), path))
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
