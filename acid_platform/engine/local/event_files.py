"""The files of a statement: rows and delete events become finished directories.

Rows of a bucket are numbered in the order of their partitions' texts, then in the given order, as
Spark's tasks number them. Nothing here reads a file again: the writers check the order of the
keys, count the rows and know the statistics.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from acid_platform.base.first_use import LastingThreads, PerProcess, usable_cores
from acid_platform.engine.local import engine
from acid_platform.errors import InvalidDefinition, NeedsSpark, PublicationFailed
from acid_platform.formats.data_file import FileWriter, Keyed, KeyRun, StoredKeys
from acid_platform.formats.file_access import WRITTEN_CODECS, WRITTEN_FORMATS, new_file
from acid_platform.layout.acid_keys import MAX_BUCKET, Bucket, bucket_numbers
from acid_platform.layout.file_entries import FileEntry, RecordedFiles
from acid_platform.values.arrow_types import values_of
from acid_platform.values.partition_texts import RowPartitions
from acid_platform.write.publishing import (
    ChangedRows,
    Staging,
    WriteTarget,
    WrittenDirectory,
    staging,
    together,
)
from acid_platform.write.task_files import file_name

_PIECE = 1 << 17
"""Keys to hand to a writer at a time; between pieces the statement may be stopped."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Row keys (write id, bucket property, rowId) and the place of each, as arrays (n,)."""

    write_ids: np.ndarray
    buckets: np.ndarray
    row_ids: np.ndarray
    places: RowPartitions

    def __len__(self) -> int:
        return len(self.write_ids)

    def order(self) -> np.ndarray:
        """The places of the keys in their order, whatever their partitions."""
        return np.lexsort((self.row_ids, self.buckets, self.write_ids))

    def take(self, chosen: np.ndarray) -> Keys:
        """Some of the keys."""
        return Keys(
            self.write_ids[chosen],
            self.buckets[chosen],
            self.row_ids[chosen],
            self.places.take(chosen),
        )

    @property
    def numbers(self) -> np.ndarray:
        """The bucket number of each row, decoded from either codec version, int64 (n,)."""
        return bucket_numbers(self.buckets)


def require_writable(target: WriteTarget) -> None:
    """Raises NeedsSpark for files that only Spark can write."""
    stored = target.format.name
    if stored not in WRITTEN_FORMATS:
        raise NeedsSpark(f"files of the format {stored}")
    if stored != "parquet" and target.compression not in WRITTEN_CODECS:
        raise NeedsSpark(f"the codec {target.compression}")
    if stored == "parquet" and not target.format.keyed:
        for column in target.columns:
            if any(kind.kind == "timestamp" for kind in column.type.walk()):
                raise NeedsSpark(f"{column} in a Parquet file")


@dataclass(slots=True)
class _EventFile:
    """A file that is being written."""

    writer: FileWriter
    name: str
    partition: str
    deletes: bool
    rows: int = 0
    """The rows that its writer was given."""

    def put(self, rows: Keyed) -> None:
        engine.check()
        self.writer.put(rows)
        self.rows += len(rows)


class EventFiles:
    """Writes the files of one statement; `give_up` after a failure."""

    def __init__(self, staged: Staging, overwrite: bool) -> None:
        self._target, self._staged, self._overwrite = staged.target, staged, overwrite
        self._directories: dict[tuple[bool, str], tuple[str, list[FileEntry]]] = {}
        """The path and files of each, by whether it holds delete events, and partition."""
        self._changed: dict[str, list[ChangedRows]] = {}
        """The rows of delete events, by partition."""
        self._open: deque[_EventFile] = deque()
        """At most two: threads encode the last rows of one while the next is begun."""

    # --- rows ----------------------------------------------------------------------------------

    def insert_run(
        self, batches: Iterable[pa.RecordBatch], partition: str, bucket: int, first: int = 0
    ) -> int:
        """Writes one file: rows of one partition and bucket, numbered from `first`; returns how
        many there are."""
        file, target = self._begin(partition, bucket, deletes=False), self._target
        bucket_property = Bucket(bucket, target.statement).property
        for batch in batches:
            run = KeyRun(target.write_id, bucket_property, first + file.rows)
            keys = run if target.format.keyed else None
            file.put(Keyed(keys, target.write_id, batch))
        return file.rows

    # --- delete events -------------------------------------------------------------------------

    def delete_run(self, batches: Iterable[pa.RecordBatch], partition: str, bucket: int) -> None:
        """Writes one file of delete events: batches of write ids, bucket properties, rowIds, and
        whether the statement updates the row, whose keys ascend."""
        file = self._begin(partition, bucket, deletes=True)

        def put(batch: pa.RecordBatch) -> ChangedRows:
            *ids, updated = map(values_of, batch.columns)
            file.put(Keyed(StoredKeys(*ids), self._target.write_id, None, updated=updated))
            return ChangedRows.of(*ids)

        pieces = (
            batch.slice(start, _PIECE)
            for batch in batches
            for start in range(0, len(batch), _PIECE)
        )
        self._changed.setdefault(partition, []).append(together(map(put, pieces)))

    # --- files and directories -----------------------------------------------------------------

    def _begin(self, partition: str, bucket: int, deletes: bool) -> _EventFile:
        """A new file."""
        target = self._target
        while len(self._open) > 1:
            self._finish()
        if bucket > MAX_BUCKET:
            raise InvalidDefinition(
                f"{target.table} would need more than {MAX_BUCKET + 1} files; write fewer rows"
            )
        if (deletes, partition) not in self._directories:
            name = target.directory(deletes, self._overwrite)
            self._directories[deletes, partition] = self._staged.ready(partition, name), []
        directory, _ = self._directories[deletes, partition]
        name = file_name(bucket, target.format)
        path = f"{directory}/{name}"
        writer = new_file(
            target.files,
            path,
            target.columns,
            target.format,
            target.compression,
            deletes,
            pool=encoding_threads(),
        )
        self._open.append(_EventFile(writer, name, partition, deletes))
        return self._open[-1]

    def _finish(self) -> None:
        """Finishes the first open file and records it."""
        file, target = self._open[0], self._target
        writer = file.writer
        writer.close()
        self._open.popleft()
        if writer.rows != file.rows:
            raise PublicationFailed(
                f"{target.location}/{file.partition}: {file.rows} events were given, its file holds"
                f" {writer.rows}; nothing was published, run the statement again"
            )
        if writer.rows:
            _, entries = self._directories[file.deletes, file.partition]
            entries.append(writer.record(file.name))

    def give_up(self) -> None:
        """Closes incomplete files."""
        for file in self._open:
            with suppress(OSError):
                file.writer.give_up()

    def finished(self) -> list[WrittenDirectory]:
        """The directories that wait to be published."""
        while self._open:
            self._finish()
        built = []
        for (deletes, partition), (ready, entries) in sorted(
            self._directories.items(), key=lambda item: (not item[0][0], item[0][1])
        ):
            if not entries:
                self._staged.drop(ready)
                continue
            if self._target.format.keyed:
                self._staged.mark_version(ready)
            contents = RecordedFiles(tuple(entries))
            changed = ChangedRows.union(self._changed[partition]) if deletes else None
            directory = self._target.directory(deletes, self._overwrite)
            built.append(WrittenDirectory(partition, directory, deletes, contents, changed))
        return built


@contextmanager
def finished(writer: FileWriter) -> Iterator[None]:
    """Finishes the file after the block, or gives it up if the block fails."""
    try:
        yield
        writer.close()
    except BaseException:
        writer.give_up()
        raise


def publish_events(
    target: WriteTarget,
    write: Callable[[EventFiles], None],
    overwrite: bool = False,
    empty: Sequence[str] = (),
) -> list[WrittenDirectory]:
    """Runs `write` in a new staging directory and publishes what it has written.

    Raises PublicationFailed, CorruptFile, TxnAborted, and what `write` raises; then nothing was
    published.
    """
    with staging(target) as staged:
        files = EventFiles(staged, overwrite)
        try:
            write(files)
            built = files.finished()
        except BaseException:
            files.give_up()
            raise
        engine.check()
        return staged.publish(built, empty)


# --- threads --------------------------------------------------------------------------------------


_THREADS = PerProcess(lambda: LastingThreads(usable_cores(), "acid-encode"))


def encoding_threads() -> Executor | None:
    """The threads, one for each core; None with a single core, where they would only be changed
    between. All writers share them, so many statements don't take more cores than one."""
    return _THREADS.get() if usable_cores() > 1 else None
