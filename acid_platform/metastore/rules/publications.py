"""The publication of a compaction: while its output comes into place, no other engine reads (P46).

Other engines see a compacted directory as soon as it is there: Trino ignores the `_v…` of its name.
So a Worker asks for the publication first. That is a lock of its own kind, PUBLICATION: it waits
for the locks that other engines hold on the entity, and they wait for it. Our own readers read what
commits recorded, and have nothing to do with it.

A commit ends the publication. If the compaction is aborted instead, part of its output may be in
place, so the lock stays until somebody has removed it: the Worker itself, or the Cleaner.
"""

from __future__ import annotations

from acid_platform.errors import CompactionLost, InvalidDefinition
from acid_platform.metastore import operations as ops
from acid_platform.metastore.rules import locking
from acid_platform.metastore.rules.compactions import owned
from acid_platform.metastore.rules.locking import LockRemoved
from acid_platform.metastore.rules.state import LockEntry
from acid_platform.metastore.rules.turn import Turn, handles
from acid_platform.metastore.rules.txns import require_open
from acid_platform.metastore.tasks import CompactionTask, Unpublication
from acid_platform.transactions import RowOperation
from acid_platform.transactions.locks import LockComponent, LockType


@handles(ops.RequestPublication)
def publish(turn: Turn, operation: ops.RequestPublication) -> ops.Ticket:
    """Raises Parked while other engines hold locks on the entity, LockTimeout if it may not wait,
    CompactionLost (P21) and TxnAborted."""
    row = owned(turn.state, operation)
    txn = require_open(turn, operation.txn)
    if row.txn_id != txn.txn_id:
        raise CompactionLost(f"compaction {row.id} runs in transaction {row.txn_id} now")
    locking.stand_in_line(turn, _entry(turn, row, operation), ())
    return ops.Ticket(txn.txn_id, turn.state.next_lock - 1)


def _entry(turn: Turn, row: CompactionTask, operation: ops.RequestPublication) -> LockEntry:
    name = turn.state.name_of(row.table_id)
    database, _, table = name.partition(".")
    component = LockComponent(
        database,
        table,
        row.partition,
        LockType.PUBLICATION,
        RowOperation.COMPACT,
        directories=operation.directories,
    )
    return LockEntry(
        ext=turn.state.next_lock,
        txn_id=operation.txn,
        acquired=False,
        components=(component,),
        touches=(),
        request_id=turn.request_id,
        begun=False,
        requested=turn.now,
        deadline=turn.now + round(operation.wait * 1000),
        tables={name: row.table_id},
    )


@handles(ops.EndPublication)
def ended(turn: Turn, operation: ops.EndPublication) -> None:
    """A publication that has ended already is no error. Raises InvalidDefinition for another lock,
    and for the publication of a compaction that goes on."""
    entry = turn.state.locks.get(operation.ext)
    if entry is None:
        return
    txn = turn.state.txns.get(entry.txn_id)
    if not entry.publishes or (txn is not None and txn.is_open):
        raise InvalidDefinition(
            f"lock {entry.ext} of transaction {entry.txn_id} is no publication of an aborted"
            " compaction; nothing was changed"
        )
    turn.record(LockRemoved(ext=entry.ext))


@handles(ops.GetUnpublished)
def unpublished(turn: Turn, _operation: ops.GetUnpublished) -> list[Unpublication]:
    """Its removal waits for nobody: no reader of ours needs it. A name that a commit recorded
    belongs to another compaction of a table with the layout hive3."""
    state = turn.state
    tasks = []
    for entry in state.locks.values():
        txn = state.txns.get(entry.txn_id)
        if not entry.publishes or not entry.acquired or (txn is not None and txn.is_open):
            continue
        (component,) = entry.components
        (table_id,) = entry.tables.values()
        table, partition = state.tables[table_id].record, component.partition
        recorded = state.directories.get((table_id, partition), {})
        if not table.foreign:
            tasks.append(
                Unpublication(
                    table.name,
                    table_id,
                    partition,
                    table.place_of(partition),
                    entry.txn_id,
                    tuple(name for name in component.directories if name not in recorded),
                    entry.ext,
                )
            )
    return tasks
