"""What a reader asks for in one message: all that its snapshot sees of some tables, or whether a
snapshot that it holds is still the newest."""

from __future__ import annotations

from acid_platform.metastore.operations.transactions import (
    Describe,
    GetManifest,
    IsNewest,
    SeenTable,
)
from acid_platform.metastore.rules.declared import (
    directories,
    seen_partitions,
    seen_table,
    seen_views,
)
from acid_platform.metastore.rules.offered_files import manifest
from acid_platform.metastore.rules.snapshots import snapshot, txn_list, write_ids
from acid_platform.metastore.rules.state import State, TableState, Txn
from acid_platform.metastore.rules.timers import touch
from acid_platform.metastore.rules.turn import Turn, handles
from acid_platform.metastore.rules.txns import require_open
from acid_platform.transactions import TxnType, ValidTxnList

MOST_DIRECTORIES = 2000
"""To compare for `IsNewest`, since other requests wait meanwhile."""


@handles(Describe)
def describe(turn: Turn, operation: Describe) -> dict[str, SeenTable]:
    """Raises what GetManifest raises."""
    txn = require_open(turn, operation.txn)
    described = {}
    for name in operation.tables:
        table, record = seen_table(turn.state, txn, name)
        partitioned = bool(record.partition_columns)
        listed = [] if partitioned else manifest(turn, GetManifest(txn.txn_id, name, (None,)))[0]
        partitions = seen_partitions(turn.state, txn, table) if partitioned else []
        described[name] = SeenTable(record, partitions, listed)
    return described


@handles(IsNewest)
def is_newest(turn: Turn, operation: IsNewest) -> bool:
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
