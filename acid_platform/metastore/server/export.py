"""All rows of the metastore file at one moment, read in parts while the server goes on working.

A second cursor of the only connection holds a read transaction: DuckDB shows it the same rows until
its end, whatever is journaled and folded in the meantime.
"""

from __future__ import annotations

import base64
import secrets
from typing import TYPE_CHECKING

from acid_platform.metastore.server import metastore_schema as schema

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

ROWS = 50_000
"""Rows per message: few enough that other requests don't wait."""


class Export:
    """A running backup. `token` identifies it, so that no other backup is continued in
    its place."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection) -> None:
        self.token = secrets.token_hex(8)
        self._cursor = cursor
        self._table: str | None = None
        self._reader: pa.RecordBatchReader | None = None
        self._number = 0
        cursor.execute("BEGIN TRANSACTION READ ONLY")
        self.meta: dict[str, str] = dict(cursor.execute("SELECT key, value FROM meta").fetchall())
        # Everything is folded, so whoever opens the backup needs no log.
        self.meta.pop(schema.LOG)
        self.rows = {name: self._count(name) for name in schema.EVERY}

    def part(self, table: str, number: int) -> str | None:
        """The rows from number x 50,000 on, as Arrow IPC in base64; None after the last part.

        Raises KeyError for an unknown table, ValueError for a part that is out of order.
        """
        import pyarrow as pa

        self.rows[table]
        if number == 0:
            self._reader = self._cursor.sql(f'FROM "{table}"').to_arrow_reader(ROWS)
            self._table, self._number = table, 0
        if (table, number) != (self._table, self._number) or self._reader is None:
            raise ValueError(f"part {number} of {table} is out of order")
        self._number += 1
        try:
            batch = self._reader.read_next_batch()
        except StopIteration:
            self._reader = None
            return None
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.ipc.new_stream(sink, batch.schema, options=options) as stream:
            stream.write_batch(batch)
        return base64.b64encode(sink.getvalue()).decode()

    def close(self) -> None:
        self._reader = None
        self._cursor.close()

    def _count(self, name: str) -> int:
        ((count,),) = self._cursor.execute(f'SELECT count(*) FROM "{name}"').fetchall()
        return int(count)
