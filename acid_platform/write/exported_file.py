"""One file of INSERT OVERWRITE DIRECTORY, which belongs to no table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from acid_platform.layout.formats import FileFormat
from acid_platform.layout.types import Column
from acid_platform.orc import OrcWriter, to_be_stored
from acid_platform.storage.arrow_types import arrow_type
from acid_platform.storage.files import Files
from acid_platform.write.parquet_writer import ParquetWriter
from acid_platform.write.text_writer import TextWriter


def write_exported(
    location: str,
    name: str,
    columns: Sequence[Column],
    stored: FileFormat,
    batches: Iterable[pa.RecordBatch],
) -> int:
    """Writes the batches into a file of a directory, or none if there are no rows; returns their
    number. Raises InvalidExpression for a text that can't be written."""
    files, path = Files.of(location)
    writer: OrcWriter | ParquetWriter | TextWriter
    match stored.name:
        case "orc":
            writer = OrcWriter(files, f"{path}/{name}", columns, "zlib")
        case "parquet":
            writer = ParquetWriter(files, f"{path}/{name}", columns)
        case _:
            writer = TextWriter(files, f"{path}/{name}", columns, stored)
    try:
        for batch in batches:
            values = [
                value.cast(arrow_type(column.type))
                for value, column in zip(batch.columns, columns, strict=True)
            ]
            if stored.name == "orc":
                values = [*map(to_be_stored, values)]
            names = [column.name for column in columns]
            writer.write(pa.RecordBatch.from_arrays(values, names=names))
        return writer.close()
    except BaseException:
        writer.give_up()
        raise
