"""Whether what a serializable transaction has read is still so when it commits (P52).

Commits are in the order in which their transactions could have run one after the other: each
one that is serializable has read what all commits before it left. A transaction that writes nothing
reads what the commits before its snapshot left, and needs no check.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from acid_platform.errors import NoSuchTable
from acid_platform.layout.file_entries import RecordedFiles
from acid_platform.layout.types import Column, parse_type
from acid_platform.metastore.records import EntityDirectory, RegionReport, TableRecord
from acid_platform.metastore.rules.declared import seen_table
from acid_platform.metastore.rules.snapshots import snapshot
from acid_platform.metastore.rules.state import Entity, State, TableState, Txn
from acid_platform.metastore.rules.turn import Past
from acid_platform.scan.row_regions import region_of_files, region_of_partition
from acid_platform.transactions import ValidTxnList
from acid_platform.transactions.conflicts import CHANGED, Changed
from acid_platform.transactions.regions import Region


def unseen_change(
    state: State, past: Past, txn: Txn, read: Sequence[RegionReport]
) -> tuple[Entity, str] | None:
    """The first entity in which others have changed what the transaction read, after its snapshot,
    and why; or None. Raises MalformedRows."""
    own = snapshot(state, txn)
    if own is None:
        return None
    for report in read:
        region = report.region.checked()
        try:
            table, record = seen_table(state, txn, report.table)
        except NoSuchTable:
            continue  # it was never there for the transaction
        table_id = table.record.table_id
        if table.dropped or record != table.record:
            return (table_id, None), f"it was read by transaction {txn.txn_id}, and altered since"
        for entity, who in _changes(state, past, txn, own, table, region):
            return entity, (
                f"transaction {txn.txn_id} read rows ({region}) among which transaction {who} has"
                " changed some since"
            )
    return None


def _changes(
    state: State, past: Past, txn: Txn, own: ValidTxnList, table: TableState, region: Region
) -> Iterator[tuple[Entity, int]]:
    """The entities with rows of the region that others have changed, and who did."""
    columns, keys = _columns(table.record)
    table_id = table.record.table_id
    for dropped in table.dropped_partitions:
        if dropped.dropped > txn.taken and region.meets(region_of_partition(dropped.name, keys)):
            yield (table_id, dropped.name), 0
    for entity in table.entities():
        if state.changed.get(entity, 0) <= txn.taken and txn.taken >= state.awake:
            continue  # nobody has written there since
        unseen = [
            one
            for one in state.directories.get(entity, {}).values()
            if not own.is_valid(one.txn) and one.txn != txn.txn_id
        ]
        if not unseen or not region.meets(region_of_partition(entity[1], keys)):
            continue
        for one in unseen:
            counts = CHANGED[one.base, one.deletes, one.compacted]
            if counts is Changed.ITS_ROWS and region.columns:
                files = region_of_files(_files(state, past, entity, one), columns, region.columns)
                counts = Changed.ANY_ROW if region.meets(files) else Changed.NOTHING
            if counts is not Changed.NOTHING:
                yield entity, one.txn


def _columns(record: TableRecord) -> tuple[list[Column], list[Column]]:
    own, keys = (
        [Column(name, parse_type(kind)) for name, kind in columns]
        for columns in (record.columns, record.partition_columns)
    )
    return own, keys


def _files(state: State, past: Past, entity: Entity, one: EntityDirectory) -> RecordedFiles:
    table_id, partition = entity
    text = state.contents.get(entity, {}).get(one.name)
    if text is None:
        text = past.recorded(table_id, [partition])[partition, one.name]
    return RecordedFiles.parse(text)
