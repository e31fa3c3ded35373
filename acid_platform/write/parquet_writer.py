"""Writing Parquet files of insert-only tables: the types that Spark and Hive write there."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyarrow import parquet

from acid_platform.layout.types import Column
from acid_platform.storage.arrow_types import arrow_schema
from acid_platform.storage.files import Files

ROW_GROUP_BYTES = 64 << 20
"""Size of the Arrow arrays in memory at which a row group is written."""


class ParquetWriter:
    """Writes one file; without rows no file is written.

    Batches have the columns' types (`arrow_type`), in order. The file is complete once `close` has
    returned.
    """

    def __init__(self, files: Files, path: str, columns: Sequence[Column]) -> None:
        self.rows = 0
        self._files, self._path = files, path
        self._schema = arrow_schema(columns)
        self._stream: pa.NativeFile | None = None
        self._writer: parquet.ParquetWriter | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Append a batch."""
        if not batch.num_rows:
            return
        self._waiting.append(batch)
        self._bytes += batch.nbytes
        self.rows += batch.num_rows
        if self._bytes >= ROW_GROUP_BYTES:
            self._write_group()

    def close(self) -> int:
        """Finish the file; returns its row count."""
        self._write_group()
        if self._writer is not None and self._stream is not None:
            self._writer.close()
            self._stream.close()
        return self.rows

    def give_up(self) -> None:
        """Close the incomplete file."""
        if self._stream is not None:
            self._stream.close()

    def _write_group(self) -> None:
        if not self._waiting:
            return
        if self._writer is None:
            self._stream = self._files.system.open_output_stream(self._path)
            self._writer = parquet.ParquetWriter(
                self._stream, self._schema, store_schema=False, store_decimal_as_integer=True
            )
        group = pa.Table.from_batches(self._waiting, self._schema)
        self._waiting, self._bytes = [], 0
        self._writer.write_table(group, row_group_size=group.num_rows)
