"""Reads of a table by the data source: a snapshot, and a stream of its commits (P12, P39, P42).

The process that plans the read of a snapshot opens its files and loads the deleted keys, under a
lease that the keeper holds. A task opens files by their names, which never hold other bytes: what
it finds is of the snapshot, and a file that is gone raises SnapshotExpired.

The offset of a stream is a moment of the metastore: everything up to it was read. What lies between
two offsets never changes, whatever was compacted since, or it is gone and the stream stops with an
error. While the query runs, a lease keeps what it has not read yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, TypedDict, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from acid_platform.base.clock import elapsed_seconds, wall_ms
from acid_platform.base.location import Location
from acid_platform.errors import (
    AcidError,
    CorruptFile,
    NoSuchTxn,
    NotEnoughHistory,
    SnapshotExpired,
    StreamRefused,
    TxnAborted,
)
from acid_platform.layout.formats import FileFormat
from acid_platform.layout.types import Column, require_columns
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
from acid_platform.scan.deletes import NO_DELETES
from acid_platform.scan.open import chosen_partitions, open_scan
from acid_platform.scan.result_columns import Predicate
from acid_platform.scan.scans import ArrowScan, EntityScan, Scan, partition_scalars
from acid_platform.scan.source_files import SourceFile
from acid_platform.spark_source import keeper
from acid_platform.spark_source.options import Options, opened
from acid_platform.storage.files import Files
from acid_platform.tables.open_changes import open_changes
from acid_platform.tables.record_layout import (
    columns_of_record,
    past_layout,
    recorded_listings,
    table_layout,
)
from acid_platform.transactions import ValidWriteIdList
from acid_platform.values.arrow_types import scalar_of

PART_BYTES = 64 << 20
"""About how many bytes of files a task reads."""
_OPEN_BYTES = 1 << 20
"""What opening a file costs, in bytes read."""


@dataclass(frozen=True, slots=True)
class ScanPart:
    """What one task reads; a plain value."""

    table: str
    location: str
    columns: tuple[Column, ...]
    partition_columns: tuple[Column, ...]
    entities: tuple[EntityScan, ...]
    write_ids: ValidWriteIdList
    names: tuple[str, ...]
    where: str | None
    format: FileFormat


# --- a snapshot, beside the driver ----------------------------------------------------------------


def take(options: Options) -> tuple[int, tuple[Column, ...]]:
    """Takes the snapshot of a read: the id of its lease, which the keeper holds, and the columns.

    Raises NoSuchTable, NoSuchPast, NotEnoughHistory.
    """
    warehouse = opened(options.place)
    lease = warehouse.metastore.open_snapshot([options.table], warehouse.info())
    try:
        if options.as_of is None:
            record = lease.table(options.table)
            lease.valid_write_ids(options.table)
        else:
            record = lease.past(options.table, options.as_of).table
        keeper.hold(options.place, keeper.HeldTransaction(lease.id, True, since=wall_ms()))
    except BaseException:
        with suppress(AcidError):
            lease.commit()
        raise
    lease.forget()  # from here on the keeper sends its heartbeats
    columns, partition_columns = columns_of_record(record)
    return lease.id, (*columns, *partition_columns)


def release(location: Location, lease: int) -> None:
    """Ends a lease that nobody reads with."""
    keeper.let_go(location, lease)
    with suppress(AcidError):
        opened(location).metastore.resume(lease, read_only=True).commit()


def parts(options: Options, names: Sequence[str], lease: int | None) -> list[ScanPart]:
    """What the tasks read, at the snapshot of the lease, or at a new one.

    Raises SnapshotExpired, NotEnoughHistory, UnknownColumn, InvalidExpression, UnsupportedStatement
    (a condition that only Spark can evaluate), CorruptFile.
    """
    if lease is None:
        lease, _ = take(options)
    with _resumed(options, lease) as held, held.checked():
        scan = _scan(options, held)
    columns = (*scan.columns, *scan.partition_columns)
    column_names = tuple(name.lower() for name in names)
    require_columns(column_names, columns, options.table)
    _predicate(options.where, columns, options.table)  # a mistake is told before tasks start
    return [
        ScanPart(
            options.table,
            scan.files.uri(scan.location),
            scan.columns,
            scan.partition_columns,
            tuple(entities),
            scan.write_ids,
            column_names,
            options.where,
            scan.format,
        )
        for entities in _grouped(scan)
    ]


@contextmanager
def _resumed(options: Options, lease: int) -> Iterator[OpenTransaction]:
    try:
        held = opened(options.place).metastore.resume(lease, read_only=True)
    except (NoSuchTxn, SnapshotExpired, TxnAborted):
        raise SnapshotExpired(
            f"the snapshot of this frame of {options.table} has ended, since it was not read for"
            " acid.read.lease.max or its application has ended; call load() again"
        ) from None  # Spark prints the first of a chain of errors
    try:
        yield held
    finally:
        held.forget()


def _scan(options: Options, lease: OpenTransaction) -> Scan:
    if options.as_of is not None:
        past = lease.past(options.table, options.as_of)
        layout = past_layout(past)
        lists = past.pin.write_ids, past.pin.txns
    else:
        layout = table_layout(lease.table(options.table), lease)
        lists = lease.valid_write_ids(options.table), lease.valid_txns
    listings = recorded_listings(layout, lease, chosen_partitions(layout, options.where))
    return open_scan(layout, listings, *lists, options.where)


def _grouped(scan: Scan) -> Iterator[list[EntityScan]]:
    """The files of the scan in groups of about PART_BYTES."""

    def alone(entity: EntityScan, source: SourceFile) -> EntityScan:
        touched = entity.deletes.may_touch(source.low, source.high, source.number)
        sources = replace(entity.sources, inserts=(source,), deletes=())
        keys = entity.deletes if touched else NO_DELETES
        return EntityScan(sources, keys, entity.partition, entity.values)

    return in_groups(
        (alone(entity, source), source)
        for entity in scan.entities
        for source in entity.sources.inserts
    )


_Item = TypeVar("_Item")


def in_groups(items: Iterable[tuple[_Item, SourceFile]]) -> Iterator[list[_Item]]:
    """The items in groups, which are not empty; the files of one have about PART_BYTES together."""
    group: list[_Item] = []
    size = 0
    for item, source in items:
        cost = source.size + _OPEN_BYTES
        if group and size + cost > PART_BYTES:
            yield group
            group, size = [], 0
        group.append(item)
        size += cost
    if group:
        yield group


def _predicate(where: str | None, columns: Sequence[Column], table: str) -> Predicate | None:
    if where is None:
        return None
    from acid_platform.predicates.arrow_predicates import arrow_predicate

    return arrow_predicate(where, columns, table)


# --- a snapshot, in a task ------------------------------------------------------------------------


def batches(part: ScanPart, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a part, with the types of `schema`. Raises SnapshotExpired, CorruptFile."""
    files, _ = Files.of(part.location)
    scan = Scan(
        files,
        part.location,
        part.columns,
        part.partition_columns,
        part.entities,
        part.write_ids,
        part.format,
    )
    predicate = _predicate(part.where, (*part.columns, *part.partition_columns), part.table)
    with files_of_snapshot(part.table):
        for batch in ArrowScan(scan, part.names, predicate).batches(threads=2):
            if batch.num_rows:
                yield typed(batch, schema)


@contextmanager
def files_of_snapshot(table: str) -> Iterator[None]:
    """Raises SnapshotExpired instead of CorruptFile for a file that is gone."""
    try:
        yield
    except CorruptFile as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        raise SnapshotExpired(
            f"{error}: the snapshot of this read of {table} has ended, and the Cleaner removed"
            " files that newer ones don't need; call load() again"
        ) from None


def typed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with exactly the types of `schema`: nested types may name their parts otherwise."""
    arrays = [
        column if column.type.equals(field.type) else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    if not arrays:
        return batch
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


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
        self._reached = self.latest(self._reached) if self._reached else self._now()
        return self._reached

    def end_here(self) -> None:
        """The query ends when it has read what is committed now."""
        self._last = self._now()

    def _now(self) -> Offset:
        lease = self._fresh()
        changes = lease.changes(self._options.table)
        self._hold(lease)
        return _offset(changes, changes.after)

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
            scan = open_changes(changes, self._lease)
        asked = [name.lower() for name in names]
        only_inserts = not self._options.changes
        scan = scan.wanting([*asked, CHANGE_TYPE] if only_inserts else asked)
        return list(_grouped_changes(scan, only_inserts))

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

    def _hold(self, lease: OpenTransaction | None) -> None:
        """Holds the lease instead of the one before it, which has kept the files until now."""
        before, self._lease = self._lease, lease
        self._leased_at, self._idle_at = elapsed_seconds(), None
        if before is not None:
            with suppress(AcidError):
                before.commit()

    def stop(self) -> None:
        """Ends the lease."""
        self._hold(None)


def _offset(changes: TableChanges, pin: Pin) -> Offset:
    return Offset(
        moment=pin.moment,
        table_id=changes.table.table_id,
        write_id=max(pin.write_ids.high_watermark, 0),
    )


def _grouped_changes(scan: ChangeScan, only_inserts: bool) -> Iterator[ChangePart]:
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


# --- a stream, in a task --------------------------------------------------------------------------


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
