"""The files that a snapshot may read: what commits recorded, not what is in a directory (P26).

A reader gets every recorded directory of its entities, and its lists select those that it sees. It
gets them only while its transaction is open: until it ends, the Cleaner removes nothing that its
snapshot needs.
"""

from __future__ import annotations

from collections.abc import Sequence

from acid_platform.metastore.operations.tables import GetRecorded
from acid_platform.metastore.operations.transactions import GetManifest
from acid_platform.metastore.records import RecordedDirectory
from acid_platform.metastore.rules.declared import directories, seen_table
from acid_platform.metastore.rules.lock_requests import check_files
from acid_platform.metastore.rules.timers import touch
from acid_platform.metastore.rules.turn import Turn, handles
from acid_platform.metastore.rules.txns import require_open
from acid_platform.transactions import TxnType


@handles(GetManifest)
def manifest(turn: Turn, operation: GetManifest) -> list[list[RecordedDirectory]]:
    """Raises SnapshotExpired, TxnAborted or NoSuchTxn, since files may be gone then, and
    NoSuchTable."""
    txn = require_open(turn, operation.txn)
    table, _ = seen_table(turn.state, txn, operation.table)
    check_files(txn, table)
    if txn.kind is TxnType.READ_ONLY:
        touch(turn.state.reads, txn.txn_id, turn.steady)
    return _recorded(turn, table.record.table_id, operation.partitions)


@handles(GetRecorded)
def recorded_now(turn: Turn, operation: GetRecorded) -> list[list[RecordedDirectory]]:
    """Raises NoSuchTable."""
    table_id = operation.table_id or turn.state.table(operation.table).record.table_id
    return _recorded(turn, table_id, operation.partitions)


def _recorded(
    turn: Turn, table_id: int, partitions: Sequence[str | None]
) -> list[list[RecordedDirectory]]:
    state = turn.state
    lacking = [
        partition
        for partition in partitions
        if directories(state, (table_id, partition)).keys()
        - state.contents.get((table_id, partition), {}).keys()
    ]
    saved = turn.past.recorded(table_id, lacking) if lacking else {}
    return [
        [
            RecordedDirectory(directory, fresh.get(name) or saved[partition, name])
            for name, directory in directories(state, (table_id, partition)).items()
        ]
        for partition in partitions
        for fresh in (state.contents.get((table_id, partition), {}),)
    ]
