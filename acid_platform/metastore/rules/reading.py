"""What a reader asks for: the tables and files that its snapshot sees, and whether a snapshot that
it holds is still the newest.

A snapshot may read the files that commits recorded, not what is in a directory (P26). A reader gets
every recorded directory of its entities, and its lists select those that it sees. It gets them only
while its transaction is open: until it ends, the Cleaner removes nothing that its snapshot needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from acid_platform.metastore import operations as ops
from acid_platform.metastore.records import RecordedDirectory
from acid_platform.metastore.rules.declared import (
    directories,
    seen_partitions,
    seen_table,
    seen_views,
)
from acid_platform.metastore.rules.locking import check_files
from acid_platform.metastore.rules.snapshots import snapshot, txn_list, write_ids
from acid_platform.metastore.rules.state import State, TableState, Txn
from acid_platform.metastore.rules.timers import touch
from acid_platform.metastore.rules.turn import Past, Turn, handles
from acid_platform.metastore.rules.txns import granted, renew_lease, require_open
from acid_platform.transactions import TxnType, ValidTxnList

MOST_DIRECTORIES = 2000
"""To compare for `IsNewest`, since other requests wait meanwhile."""


def begun(state: State, past: Past, ticket: ops.BeginTicket) -> ops.Granted:
    """What the client of `begin` receives: as `granted`, and a description of the tables.

    Raises what `granted` and GetManifest raise.
    """
    answer = granted(state, past, ticket)
    return replace(
        answer, seen=tuple(_description(state, past, ticket, name) for name in ticket.described)
    )


def _description(state: State, past: Past, ticket: ops.BeginTicket, name: str) -> ops.SeenTable:
    txn = state.txns[ticket.txn]
    table, record = seen_table(state, txn, name)
    if not ticket.with_files:
        return ops.SeenTable(record)
    check_files(txn, table)
    if record.partition_columns:
        return ops.SeenTable(record, seen_partitions(state, txn, table))
    return ops.SeenTable(record, None, _recorded(state, past, record.table_id, (None,))[0])


@handles(ops.IsNewest)
def is_newest(turn: Turn, operation: ops.IsNewest) -> bool:
    """Compares declarations, partitions, rows and directories. The lease may then serve another
    read (P11), and is renewed as by a read (P12). Raises SnapshotExpired, TxnAborted, NoSuchTxn."""
    txn = require_open(turn, operation.txn)
    state = turn.state
    then = snapshot(state, txn)
    if then is None or txn.kind is not TxnType.READ_ONLY:
        return False
    now = txn_list(state)
    if seen_views(state, txn) != seen_views(state, None):
        return False
    if not all(_same(state, txn, then, now, name) for name in operation.tables):
        return False
    touch(state.heartbeats, txn.txn_id, turn.steady)
    touch(state.reads, txn.txn_id, turn.steady)
    return True


def _same(state: State, txn: Txn, then: ValidTxnList, now: ValidTxnList, name: str) -> bool:
    bearer = state.names.get(name)
    if bearer is None or txn.needs.get(name) != bearer:
        return False
    table, record = seen_table(state, txn, name)
    return (
        table.record.table_id == bearer
        and record == table.record
        and write_ids(table, then) == write_ids(table, now)
        and seen_partitions(state, txn, table) == seen_partitions(state, None, table)
        and _same_directories(state, then, table)
    )


def _same_directories(state: State, then: ValidTxnList, table: TableState) -> bool:
    """Whether every transaction that made a directory had committed before the snapshot. Its rows
    may be the same as those of others: a compaction's are."""
    unseen, counted = set(then.open), 0
    for entity in table.entities():
        recorded = directories(state, entity)
        counted += len(recorded)
        if counted > MOST_DIRECTORIES:
            return False
        for directory in recorded.values():
            if directory.txn > then.high_watermark or directory.txn in unseen:
                return False
    return True


@handles(ops.GetManifest)
def manifest(turn: Turn, operation: ops.GetManifest) -> list[list[RecordedDirectory]]:
    """Raises SnapshotExpired, TxnAborted or NoSuchTxn, since files may be gone then, and
    NoSuchTable."""
    txn = require_open(turn, operation.txn)
    table, _ = seen_table(turn.state, txn, operation.table)
    check_files(txn, table)
    renew_lease(turn, txn)
    return _recorded(turn.state, turn.past, table.record.table_id, operation.partitions)


@handles(ops.GetRecorded)
def recorded_now(turn: Turn, operation: ops.GetRecorded) -> list[list[RecordedDirectory]]:
    """Raises NoSuchTable."""
    table_id = operation.table_id or turn.state.table(operation.table).record.table_id
    return _recorded(turn.state, turn.past, table_id, operation.partitions)


def _recorded(
    state: State, past: Past, table_id: int, partitions: Sequence[str | None]
) -> list[list[RecordedDirectory]]:
    lacking = [
        partition
        for partition in partitions
        if directories(state, (table_id, partition)).keys()
        - state.contents.get((table_id, partition), {}).keys()
    ]
    saved = past.recorded(table_id, lacking) if lacking else {}
    return [
        [
            RecordedDirectory(directory, fresh.get(name) or saved[partition, name])
            for name, directory in directories(state, (table_id, partition)).items()
        ]
        for partition in partitions
        for fresh in (state.contents.get((table_id, partition), {}),)
    ]
