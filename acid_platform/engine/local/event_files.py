"""The files of a statement: its rows and delete events are put in order, for partitions and buckets
and in bounded memory, and become finished directories.

What does not fit into memory lies in a private file, sorted piece by piece (P59). So each bucket of
a partition gets one file, in the order in which its rows came, however many there are. The delete
events of a file are in the order of their keys. Rows of a bucket are numbered in the order of their
partitions' texts, then in the given order, as Spark's tasks number them. Nothing here reads a file
again: the writers check the order of the keys, count the rows and know the statistics.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import count, groupby, pairwise
from operator import itemgetter

import numpy as np
import pyarrow as pa

from acid_platform.base.first_use import ClosedAfter, LastingThreads, PerProcess, usable_cores
from acid_platform.engine.local import engine
from acid_platform.errors import InvalidDefinition, NeedsSpark, PublicationFailed
from acid_platform.formats.data_file import FileWriter, Keyed, KeyRun, StoredKeys
from acid_platform.formats.file_access import new_file, not_written
from acid_platform.layout.acid_keys import MAX_BUCKET, Bucket, ascend, bucket_numbers
from acid_platform.layout.bucketing import bucket_ids
from acid_platform.layout.file_entries import FileEntry, RecordedFiles
from acid_platform.scan.deletes import keep_written
from acid_platform.values.arrow_types import from_numpy, values_of
from acid_platform.values.partition_texts import RowPartitions, texts_in
from acid_platform.values.row_streams import SpilledBatches
from acid_platform.write.publishing import (
    ChangedRows,
    Staging,
    WriteTarget,
    WrittenDirectory,
    staging,
    together,
)
from acid_platform.write.task_files import file_name, file_rows, files_needed

_PIECE = 1 << 17
"""Keys to hand to a writer at a time; between pieces the statement may be stopped."""
_MOST_KEPT = 1 << 18
"""A statement keeps the keys that it deletes for the next one, unless they are more."""


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
    if why := not_written(target.format, target.compression):
        raise NeedsSpark(why)
    if not (target.format.keyed or target.format.has_codec):
        for column in target.columns:
            if any(kind.kind == "timestamp" for kind in column.type.walk()):
                raise NeedsSpark(f"{column} in a file of {target.format.name}")


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
        self._events: list[tuple[str, list[Sequence[np.ndarray]]]] = []
        """The keys in each file of delete events, by its final path, unless they are many."""
        self._keys = 0
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
        events = list[Sequence[np.ndarray]]()
        below = f"{partition}/{self._target.directory(deletes=True)}/{file.name}".lstrip("/")
        self._events.append((f"{self._target.location}/{below}", events))
        pieces = (
            batch.slice(start, _PIECE)
            for batch in batches
            for start in range(0, len(batch), _PIECE)
        )
        changed = together(self._put_deleted(file, pieces, events))
        self._changed.setdefault(partition, []).append(changed)

    def _put_deleted(
        self,
        file: _EventFile,
        pieces: Iterable[pa.RecordBatch],
        events: list[Sequence[np.ndarray]],
    ) -> Iterator[ChangedRows]:
        for batch in pieces:
            *ids, updated = map(values_of, batch.columns)
            self._keys += len(batch)
            if self._keys > _MOST_KEPT:
                self._events.clear()
            elif self._target.files.local:
                events.append(ids)
            file.put(Keyed(StoredKeys(*ids), self._target.write_id, None, updated=updated))
            yield ChangedRows.of(*ids)

    def keep_written(self) -> None:
        """Keeps the keys of the published delete events for the next read."""
        if self._keys <= _MOST_KEPT and self._target.files.local:
            for path, events in self._events:
                if events:
                    keys = list(map(np.concatenate, zip(*events, strict=True)))
                    keep_written(self._target.files, path, self._target.write_id, keys)

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
        published = staged.publish(built, empty)
        files.keep_written()
        return published


# --- threads --------------------------------------------------------------------------------------


_THREADS = PerProcess(lambda: LastingThreads(usable_cores(), "acid-encode"))


def encoding_threads() -> Executor | None:
    """The threads, one for each core; None with a single core, where they would only be changed
    between. All writers share them, so many statements don't take more cores than one."""
    return _THREADS.get() if usable_cores() > 1 else None


_SORTED_BYTES = 1 << 27
"""How many bytes of rows are sorted at a time."""
_FILE_BYTES = 1 << 30
"""About how many bytes of rows a file gets at most, if a table without buckets may have another."""
_PIECE_BYTES = 1 << 26
"""The most bytes of rows to hand to a writer at a time: a stripe, so that none is put together."""
_KEY_BYTES = 32
"""Bytes of a row's ACID columns."""


class PlacedRows(ClosedAfter):
    """Takes rows with their partitions and buckets, then writes them; `with` removes what it kept.

    `buckets`, int64 (n,), are None for a table without buckets. Raises PublicationFailed, and what
    EventFiles raises.
    """

    def __init__(self, files: EventFiles) -> None:
        self._files = files
        self._held: list[tuple[pa.Table, RowPartitions, np.ndarray | None]] = []
        self._bytes = 0
        self._spilled: SpilledBatches | None = None
        self._numbers: dict[tuple[int, str], list[int]] = {}
        """The batches in the file, by bucket and partition."""

    def add(self, rows: pa.Table, places: RowPartitions, buckets: np.ndarray | None) -> None:
        self._held.append((rows, places, buckets))
        self._bytes += rows.nbytes
        if self._bytes >= _SORTED_BYTES:
            self._spill()

    def write(self) -> None:
        """Writes all rows."""
        next_ids: dict[int, int] = {}
        for bucket, partition, batches in self._runs():
            numbered: Iterable[tuple[int, pa.RecordBatch]] = ((bucket, each) for each in batches)
            if bucket == _NO_BUCKET:
                numbered = in_files(batches, None)
            for number, pieces in groupby(numbered, key=itemgetter(0)):
                first = next_ids.get(number, 0)
                rows = self._files.insert_run(
                    (piece for _, piece in pieces), partition, number, first
                )
                next_ids[number] = first + rows

    def _runs(self) -> Iterator[tuple[int, str, Iterator[pa.RecordBatch]]]:
        """The rows of each bucket and partition, in the order of files."""
        if self._spilled is None:
            if self._held:
                for bucket, partition, run in self._sorted():
                    yield bucket, partition, _pieces(run)
            return
        self._spill()
        for bucket, partition in sorted(self._numbers, key=lambda key: (key[0], texts_in(key[1]))):
            yield bucket, partition, self._batches(self._numbers[bucket, partition])

    def _batches(self, numbers: Sequence[int]) -> Iterator[pa.RecordBatch]:
        return map(self._read, numbers)

    def _read(self, number: int) -> pa.RecordBatch:
        assert self._spilled is not None
        engine.check()
        return self._spilled.read(number)

    def _sorted(self) -> Iterator[tuple[int, str, pa.Table]]:
        """The rows that are held, by bucket and partition; without buckets, numbers of files stand
        for them."""
        tables, places, buckets = zip(*self._held, strict=True)
        self._held, self._bytes = [], 0
        rows = pa.concat_tables(tables)
        if self._spilled is not None:
            numbers = [np.full(len(table), _NO_BUCKET) for table in tables]
        else:
            numbers = np.split(
                _file_numbers(len(rows)), np.cumsum([len(table) for table in tables])
            )
        given = [
            number if own is None else own for number, own in zip(numbers, buckets, strict=False)
        ]
        return _sorted_runs(rows, RowPartitions.joined(places), np.concatenate(given))

    def _spill(self) -> None:
        """Puts the rows that are held into the file, sorted."""
        if not self._held:
            return
        if self._spilled is None:
            self._spilled = SpilledBatches(self._held[0][0].schema)
        for bucket, partition, run in self._sorted():
            numbers = self._numbers.setdefault((bucket, partition), [])
            numbers += map(self._spilled.add, _pieces(run.combine_chunks()))

    def close(self) -> None:
        if self._spilled is not None:
            self._spilled.close()


class PlacedDeletes(PlacedRows):
    """As PlacedRows for delete events: takes keys of rows, each once, in any order."""

    def add_keys(self, keys: Keys, updated: np.ndarray) -> None:
        """`updated`, a mask (n,): the keys of rows that the statement updates."""
        columns = (keys.write_ids, keys.buckets, keys.row_ids, updated)
        rows = pa.table([from_numpy(np.ascontiguousarray(each)) for each in columns], _EVENT)
        self.add(rows, keys.places, keys.numbers)

    def write(self) -> None:
        """Writes all events."""
        for bucket, partition, batches in self._runs():
            self._files.delete_run(batches, partition, bucket)

    def _sorted(self) -> Iterator[tuple[int, str, pa.Table]]:
        for bucket, partition, run in super()._sorted():
            yield bucket, partition, _by_key(run)

    def _batches(self, numbers: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """Each is in the order of its keys; what is read of several of them is put in order up to
        the first key of the next."""
        firsts = {number: _key(self._read(number), 0) for number in numbers}
        rest: list[pa.RecordBatch] = []
        for number in sorted(numbers, key=firsts.__getitem__):
            ends = [
                bisect_left(range(len(batch)), firsts[number], key=partial(_key, batch))
                for batch in rest
            ]
            yield from _in_order(batch.slice(0, end) for batch, end in zip(rest, ends, strict=True))
            rest = [batch.slice(end) for batch, end in zip(rest, ends, strict=True)]
            rest = [*filter(len, rest), self._read(number)]
        yield from _in_order(rest)


_EVENT = ["write_id", "bucket", "row_id", "updated"]
_NO_BUCKET = -1


def _by_key(events: pa.Table) -> pa.Table:
    """Delete events in the order of their keys."""
    ids = [values_of(column) for column in events.columns[:3]]
    return events if ascend(*ids) else events.take(from_numpy(np.lexsort(ids[::-1])))


def _key(events: pa.RecordBatch, row: int) -> tuple[int, ...]:
    return tuple(column[row].as_py() for column in events.columns[:3])


def _in_order(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The delete events of batches in the order of their keys."""
    filled = [batch for batch in batches if len(batch)]
    return _pieces(_by_key(pa.Table.from_batches(filled))) if filled else iter(())


def _pieces(run: pa.Table) -> Iterator[pa.RecordBatch]:
    """The rows in batches that a writer takes at a time."""
    pieces = -(-(run.nbytes + _KEY_BYTES * len(run)) // _PIECE_BYTES)
    return iter(run.to_batches(-(-len(run) // pieces)))


def _sorted_runs(
    rows: pa.Table, places: RowPartitions, buckets: np.ndarray
) -> Iterator[tuple[int, str, pa.Table]]:
    """The rows of each bucket and partition, in the order of files, with both."""
    partition, bucket = places.index, buckets
    bounds = _bounds(partition, bucket)
    if not _pairs_ascend(bucket[bounds[:-1]], partition[bounds[:-1]]):
        order = np.lexsort((partition, bucket))
        partition, bucket = partition[order], bucket[order]
        bounds, numbers = _bounds(partition, bucket), from_numpy(order)
        for number, field in enumerate(rows.schema):  # one by one: the others are there only once
            values = rows.column(number).combine_chunks().take(numbers)
            rows = rows.set_column(number, field, values)
    for start, end in pairwise(bounds.tolist()):
        yield int(bucket[start]), places.names[partition[start]], rows.slice(start, end - start)


def _bounds(places: np.ndarray, buckets: np.ndarray) -> np.ndarray:
    """Where the rows of each partition and bucket that lie together begin, and the end."""
    changes = (places[1:] != places[:-1]) | (buckets[1:] != buckets[:-1])
    first = np.zeros(min(len(places), 1), np.int64)
    return np.concatenate((first, np.flatnonzero(changes) + 1, [len(places)]))


def _pairs_ascend(first: np.ndarray, second: np.ndarray) -> bool:
    """Whether the pairs (first, second) ascend."""
    above, equal = first[1:] > first[:-1], first[1:] == first[:-1]
    return bool((above | (equal & (second[1:] > second[:-1]))).all())


def buckets_of(values: pa.Table, target: WriteTarget) -> np.ndarray | None:
    """The bucket number of each row by Hive's hash, int64 (n,); None for a table without buckets.

    Raises InvalidDefinition for a bucket column that can't be hashed.
    """
    if target.buckets is None:
        return None
    kinds = {column.name: column.type for column in target.columns}
    names = target.buckets.columns
    return bucket_ids(
        [values.column(name).combine_chunks() for name in names],
        [kinds[name] for name in names],
        target.buckets.count,
        target.buckets.version,
    ).astype(np.int64)


def _file_numbers(rows: int) -> np.ndarray:
    """The number of the file of each row, int64 (n,)."""
    sizes = list(_sizes(rows))
    return np.repeat(np.arange(len(sizes)), sizes)


def _sizes(rows: int | None) -> Iterator[int]:
    """How many rows each file of a table without buckets gets, of so many rows; None: of an unknown
    number."""
    if rows is None:
        return map(file_rows, count())
    files = files_needed(rows)
    ends = [-(-number * rows // files) for number in range(files + 1)]
    return (end - start for start, end in pairwise(ends))


def in_files(
    batches: Iterable[pa.RecordBatch], rows: int | None
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The batches, divided where a file ends, each with the number of its file; `rows`: how many
    they have together, if that is known."""
    sizes = _sizes(rows)
    number, left, room = 0, next(sizes), _FILE_BYTES
    for batch in batches:
        while batch.num_rows:
            if not left or (rows is None and room <= 0):
                number, left, room = number + 1, next(sizes), _FILE_BYTES
            piece = batch.slice(0, left)
            yield number, piece
            left, room = left - len(piece), room - piece.nbytes
            batch = batch.slice(len(piece))
