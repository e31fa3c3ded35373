"""Batches of rows in a private file, because there are too many for memory (P59)."""

from __future__ import annotations

import os
import types
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pyarrow as pa
from pyarrow import ipc

from acid_platform.base.private_places import scratch_directory
from acid_platform.errors import PublicationFailed


class SpilledBatches:
    """Takes batches with one schema, then gives them in any order; `with` removes the file.

    Raises PublicationFailed if the directory for temporary files can't take them.
    """

    def __init__(self, schema: pa.Schema) -> None:
        with _asking():
            self._directory = scratch_directory("rows")
            self._path = os.path.join(self._directory.name, "rows.arrow")
            self._sink = pa.OSFile(self._path, "wb")
            self._writer = ipc.new_file(self._sink, schema)
        self._reader: ipc.RecordBatchFileReader | None = None
        self._count = 0

    def add(self, batch: pa.RecordBatch) -> int:
        """Returns the number by which `read` gives the batch."""
        with _asking():
            self._writer.write_batch(batch)
        self._count += 1
        return self._count - 1

    def read(self, number: int) -> pa.RecordBatch:
        """A batch that was added. After the first call no other can be added."""
        if self._reader is None:
            with _asking():
                self._finish()
            self._reader = ipc.open_file(pa.OSFile(self._path))
        return self._reader.get_batch(number)

    def table(self) -> pa.Table:
        """All batches. The table reads the file as memory that the system may take back."""
        with _asking():
            self._finish()
        return ipc.open_file(pa.memory_map(self._path)).read_all()

    def _finish(self) -> None:
        if not self._sink.closed:
            try:
                self._writer.close()
            finally:
                self._sink.close()

    def __enter__(self) -> SpilledBatches:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        with suppress(OSError):  # of a full disk, which a batch has told
            self._finish()
        self._reader = None
        self._directory.cleanup()


@contextmanager
def _asking() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise PublicationFailed(
            f"rows that don't fit into memory can't be kept on disk: {error}; free space, or"
            " let TMPDIR name a larger directory, and run the statement again"
        ) from error
