"""A read of a table through the data source: its snapshot, and what a task reads (P12, P42).

The process that plans the read opens the files of the snapshot and loads the deleted keys, under a
lease that the keeper holds. A task opens files by their names, which never hold other bytes: what
it finds is of the snapshot, and a file that is gone raises SnapshotExpired.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TypeVar

import pyarrow as pa

from acid_platform.base.clock import wall_ms
from acid_platform.base.location import Location
from acid_platform.errors import AcidError, CorruptFile, NoSuchTxn, SnapshotExpired, TxnAborted
from acid_platform.layout.formats import FileFormat
from acid_platform.layout.types import Column, require_columns
from acid_platform.metastore.client.open_transaction import OpenTransaction
from acid_platform.scan.decode import Predicate
from acid_platform.scan.deletes import NO_DELETES
from acid_platform.scan.open import open_scan
from acid_platform.scan.scans import ArrowScan, EntityScan, Scan
from acid_platform.scan.source_files import SourceFile
from acid_platform.spark_source import keeper
from acid_platform.spark_source.options import Options, opened
from acid_platform.storage.files import Files
from acid_platform.tables.record_layout import columns_of_record, table_layout
from acid_platform.transactions import ValidWriteIdList

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


# --- beside the driver ----------------------------------------------------------------------------


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


def release(place: Location, lease: int) -> None:
    """Ends a lease that nobody reads with."""
    keeper.let_go(place, lease)
    with suppress(AcidError):
        opened(place).metastore.resume(lease, read_only=True).commit()


def parts(options: Options, names: Sequence[str], lease: int | None) -> list[ScanPart]:
    """What the tasks read, at the snapshot of the lease, or at a new one.

    Raises SnapshotExpired, UnknownColumn, InvalidExpression, UnsupportedStatement (a condition that
    only Spark can evaluate), CorruptFile.
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
        layout = table_layout(past.table, lease, past.partitions)
        return open_scan(layout, past.pin.write_ids, past.pin.txns, options.where)
    layout = table_layout(lease.table(options.table), lease)
    write_ids = lease.valid_write_ids(options.table)
    return open_scan(layout, write_ids, lease.valid_txns, options.where)


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


# --- in a task ------------------------------------------------------------------------------------


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
