"""The empty data file of an emptied entity, for engines that find directories by their files (P32).

Trino ignores a base without a data file and would show the rows that the base replaced.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyarrow import parquet

from acid_platform.layout.formats import ORC, FileFormat
from acid_platform.layout.names import BucketFile
from acid_platform.layout.recorded_files import NOTHING, RecordedFiles
from acid_platform.layout.types import Column
from acid_platform.orc import AcidWriter, OrcWriter, written_codec
from acid_platform.storage.arrow_types import arrow_schema
from acid_platform.storage.files import Files
from acid_platform.write.file_records import recorded_file
from acid_platform.write.task_files import plain_name


def write_empty_file(
    files: Files,
    directory: str,
    columns: Sequence[Column],
    compression: str,
    plain: FileFormat | None,
) -> RecordedFiles:
    """Write a data file without rows into `directory`; returns its record.

    `plain` is the format of an insert-only table, None for full ACID. Text, csv, json and avro get
    no file: without rows it would have no bytes, or need a writer of its own.
    """
    name = str(BucketFile(0)) if plain is None else plain_name(0)
    path = f"{directory}/{name}"
    match plain.name if plain else "acid":
        case "acid":
            AcidWriter(files, path, columns, written_codec(compression), always=True).close()
        case "orc":
            OrcWriter(files, path, columns, written_codec(compression), always=True).close()
        case "parquet":
            fields = arrow_schema(columns)
            with files.system.open_output_stream(path) as stream:
                parquet.write_table(fields.empty_table(), stream)
        case _:
            return NOTHING
    return RecordedFiles((recorded_file(files, path, name, plain or ORC),))
