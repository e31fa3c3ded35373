"""A table as the source of a stream: its commits, in their order (P39, P42).

An offset is a moment of the metastore: everything up to it was read. What lies between two offsets
never changes, whatever was compacted since, or it is gone and the stream stops with an error. While
the query runs, a lease keeps what it has not read yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypedDict

import pyarrow as pa
import pyarrow.compute as pc

from acid_platform.base.clock import elapsed_seconds
from acid_platform.errors import (
    AcidError,
    NoSuchTxn,
    NotEnoughHistory,
    SnapshotExpired,
    StreamRefused,
)
from acid_platform.layout.formats import FileFormat
from acid_platform.layout.types import Column
from acid_platform.metastore.client.open_transaction import OpenTransaction
from acid_platform.metastore.pasts import AsOf, Pin
from acid_platform.metastore.records import TableChanges
from acid_platform.scan.change_scan import (
    CHANGE_TYPE,
    DELETE,
    INSERT,
    ChangeReader,
    ChangeScan,
    FileChanges,
    LiveRows,
    RemovedRows,
    Stamp,
)
from acid_platform.scan.scans import partition_scalars
from acid_platform.spark_source.batch_read import files_of_snapshot, in_groups, typed
from acid_platform.spark_source.options import Options, opened
from acid_platform.storage.files import Files
from acid_platform.tables.open_changes import open_changes
from acid_platform.tables.record_layout import columns_of_record, table_layout
from acid_platform.values.arrow_numpy import scalar_of

_RENEW_SECONDS = 60.0
"""How long an idle stream keeps what its last lease needs."""


NOTHING = -1
"""The moment of an offset before any row."""


class Offset(TypedDict):
    """Up to where a stream has read, as its checkpoint stores it.

    `moment` NOTHING: the first batch has all rows of its snapshot. `table_id` tells a table
    from another of the same name. `write_id` is the last commit's, for people.
    """

    moment: int
    table_id: int
    write_id: int


def offset_of(stored: Mapping[str, Any]) -> Offset:
    """An offset as Spark's checkpoint tells it. Raises StreamRefused."""
    try:
        moment, table_id, write_id = (int(stored[name]) for name in Offset.__annotations__)
        return Offset(moment=moment, table_id=table_id, write_id=write_id)
    except (KeyError, TypeError, ValueError) as error:
        raise StreamRefused(
            f"the checkpoint has the offset {dict(stored)}, which is none of this data source:"
            " start the query with a new checkpointLocation"
        ) from error


def columns_of(options: Options) -> tuple[Column, ...]:
    """All columns of the table as it is now. Raises NoSuchTable."""
    record = opened(options.place).metastore.table(options.table)
    columns, partition_columns = columns_of_record(record)
    return (*columns, *partition_columns)


@dataclass(frozen=True, slots=True)
class ChangePart:
    """What one task reads of a batch; a plain value."""

    table: str
    location: str
    columns: tuple[Column, ...]
    partition_columns: tuple[Column, ...]
    stamps: tuple[Stamp, ...]
    names: tuple[str, ...]
    format: FileFormat
    pieces: tuple[tuple[FileChanges, tuple[str | None, ...]], ...]
    """Files, and the values of their partitions as directory names spell them."""
    only_inserts: bool


class TableStream:
    """The stream of one table, in the process that Spark keeps for a query's source."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._lease: OpenTransaction | None = None
        self._leased_at = 0.0
        self._idle_at: int | None = None
        """The moment after which the lease has seen no commit."""
        self._last: Offset | None = None
        """Where a query with the trigger availableNow ends."""
        self._reached: Offset | None = None
        """Where the next batch begins; None in the process of a query that goes on, at first."""

    # --- offsets -------------------------------------------------------------------------------

    def first(self) -> Offset:
        """Where a new query begins. Raises NoSuchTable, NoSuchPast, NotEnoughHistory."""
        options, lease = self._options, self._fresh()
        if not options.starts_now and options.start is None:
            self._hold(lease)
            table_id = lease.table(options.table).table_id
            self._reached = Offset(moment=NOTHING, table_id=table_id, write_id=0)
        else:
            changes = lease.changes(options.table, options.start)
            self._hold(lease)
            self._reached = _offset(changes, changes.before or changes.after)
        return self._reached

    def latest(self, start: Offset, most_commits: int | None = None) -> Offset:
        """The end of the next batch, at most so many commits after `start`; `start` if there is
        nothing new.

        Raises NotEnoughHistory, StreamRefused.
        """
        if self._last is not None and start["moment"] >= self._last["moment"]:
            return start
        if self._idle(start):
            return start
        changes = self._changes(start, self._last)
        if start["moment"] == NOTHING:
            return _offset(changes, changes.after)
        commits = [commit for commit in changes.commits if commit.write_id]
        if not commits:
            self._idle_at = start["moment"]
            return start
        if most_commits is None or most_commits >= len(commits):
            return _offset(changes, changes.after)
        last = commits[most_commits - 1]
        return Offset(
            moment=last.moment, table_id=start["table_id"], write_id=max(last.write_id, 0)
        )

    def newest(self) -> Offset:
        """The end of the next batch where Spark does not tell its start: as `latest` of the offset
        that this stream has reached, or of now for a query that goes on."""
        if self._reached is not None:
            self._reached = self.latest(self._reached)
        else:
            lease = self._fresh()
            changes = lease.changes(self._options.table)
            self._hold(lease)
            self._reached = _offset(changes, changes.after)
        return self._reached

    def end_here(self) -> None:
        """The query ends when it has read what is committed now."""
        lease = self._fresh()
        changes = lease.changes(self._options.table)
        self._hold(lease)
        self._last = _offset(changes, changes.after)

    def _idle(self, start: Offset) -> bool:
        """Whether the last lease tells, without a new one, that nothing was committed since.

        An old lease is replaced: it would keep the files of long ago.
        """
        if self._lease is None or self._idle_at != start["moment"] or self._last is not None:
            return False
        if elapsed_seconds() - self._leased_at > _RENEW_SECONDS:
            return False
        try:
            return self._lease.is_newest((self._options.table,))
        except (NoSuchTxn, SnapshotExpired):
            return False

    # --- batches -------------------------------------------------------------------------------

    def parts(self, start: Offset, end: Offset, names: Sequence[str]) -> list[ChangePart]:
        """What the tasks of the batch between two offsets read; the same each time.

        Raises NotEnoughHistory, StreamRefused, CorruptFile, UnknownColumn.
        """
        changes = self._changes(start, end)
        self._reached = end
        assert self._lease is not None
        with self._lease.checked():
            layout = table_layout(changes.table, self._lease, changes.entities)
            scan = open_changes(layout, changes)
        asked = [name.lower() for name in names]
        only_inserts = not self._options.changes
        scan = scan.wanting([*asked, CHANGE_TYPE] if only_inserts else asked)
        return list(_grouped(scan, only_inserts))

    def _changes(self, start: Offset, end: Offset | None) -> TableChanges:
        """What the changes are read from, which a new lease keeps from now on."""
        options, moment, lease = self._options, start["moment"], self._fresh()
        since = None if moment == NOTHING else AsOf(moment=moment)
        until = AsOf(moment=end["moment"]) if end else None
        try:
            changes = lease.changes(options.table, since, until)
        except NotEnoughHistory as error:
            raise NotEnoughHistory(
                f"the stream of {options.table} can't go on after write id {start['write_id']}:"
                f" {error}. To begin again with all rows of now, start the query with a new"
                " checkpointLocation and an empty sink; with the option since, it begins later"
            ) from None  # Spark prints the first of a chain of errors
        finally:
            self._hold(lease)
        if changes.table.table_id != start["table_id"]:
            raise StreamRefused(
                f"{options.table} was dropped and made again since the checkpoint was written:"
                " start the query with a new checkpointLocation"
            )
        return changes

    # --- lease ---------------------------------------------------------------------------------

    def _fresh(self) -> OpenTransaction:
        warehouse = opened(self._options.place)
        return warehouse.metastore.open_snapshot([self._options.table], warehouse.info())

    def _hold(self, lease: OpenTransaction) -> None:
        """Holds the lease instead of the one before it, which has kept the files until now."""
        before, self._lease = self._lease, lease
        self._leased_at, self._idle_at = elapsed_seconds(), None
        _end(before)

    def stop(self) -> None:
        """Ends the lease."""
        before, self._lease = self._lease, None
        _end(before)


def _end(lease: OpenTransaction | None) -> None:
    if lease is not None:
        with suppress(AcidError):
            lease.commit()


def _offset(changes: TableChanges, pin: Pin) -> Offset:
    return Offset(
        moment=pin.moment,
        table_id=changes.table.table_id,
        write_id=max(pin.write_ids.high_watermark, 0),
    )


def _grouped(scan: ChangeScan, only_inserts: bool) -> Iterator[ChangePart]:
    """The files of the changes in groups of about PART_BYTES."""
    reader = scan.reader
    pieces = (
        ((part, entity.values), part.source)
        for entity in scan.entities
        for part in entity.parts
        if not (only_inserts and _removes(part))
    )
    for group in in_groups(pieces):
        yield ChangePart(
            scan.table,
            reader.files.uri(group[0][0].source.path),
            reader.columns,
            reader.partition_columns,
            reader.stamps,
            reader.names,
            reader.format,
            tuple(group),
            only_inserts,
        )


def _removes(part: FileChanges) -> bool:
    return isinstance(part, RemovedRows) or (isinstance(part, LiveRows) and part.type == DELETE)


# --- in a task ------------------------------------------------------------------------------------


def change_batches(part: ChangePart, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a part, with the types of `schema`. Raises SnapshotExpired, CorruptFile."""
    files, _ = Files.of(part.location)
    reader = ChangeReader(
        files, part.columns, part.partition_columns, part.stamps, part.names, part.format
    )
    with files_of_snapshot(part.table):
        for piece, texts in part.pieces:
            values = partition_scalars(part.partition_columns, texts)
            for work in reader.work(piece, values):
                for batch in work():
                    rows = _inserted(batch) if part.only_inserts else batch
                    if rows.num_rows:
                        yield typed(rows, schema)


def _inserted(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The inserted rows, without the column that says so, which is the last one."""
    *columns, change_types = batch.columns
    rows = pa.RecordBatch.from_arrays(columns, names=batch.schema.names[:-1])
    return rows.filter(pc.equal(change_types, scalar_of(INSERT, pa.string())))
