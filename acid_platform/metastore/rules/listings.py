"""Operations that only read: declarations, SHOW listings, the queue, outcomes."""

from __future__ import annotations

from acid_platform.compaction.states import CompactionKind, CompactionState
from acid_platform.errors import CompactionRefused, NoSuchTable, NoSuchTxn
from acid_platform.metastore import operations as ops
from acid_platform.metastore.operations.base import Row
from acid_platform.metastore.records import (
    Holder,
    PartitionRecord,
    TableRecord,
    ViewRecord,
)
from acid_platform.metastore.rules.cleaning_survey import holder, survey
from acid_platform.metastore.rules.declared import seen_partitions, seen_table, seen_views
from acid_platform.metastore.rules.locking import first_block
from acid_platform.metastore.rules.state import LockEntry, State, Txn
from acid_platform.metastore.rules.turn import Turn, handles
from acid_platform.metastore.rules.txns import require_open
from acid_platform.metastore.tasks import CompactionTask, DropTask, QueuedTask
from acid_platform.transactions import TxnState

NONE = "None"
"""What SHOW COMPACTIONS prints for an empty field (C62)."""

_QUEUED = (CompactionState.INITIATED, CompactionState.WORKING)


@handles(ops.GetMoment)
def moment(turn: Turn, _operation: ops.GetMoment) -> int:
    return turn.state.next_moment


@handles(ops.GetTables)
def tables(turn: Turn, _operation: ops.GetTables) -> list[TableRecord]:
    return [table.record for table in turn.state.tables.values()]


@handles(ops.GetTable)
def table(turn: Turn, operation: ops.GetTable) -> TableRecord:
    """Raises NoSuchTable, TxnAborted, SnapshotExpired, NoSuchTxn."""
    return seen_table(turn.state, _reader(turn, operation.txn), operation.name)[1]


@handles(ops.GetPartitions)
def partitions(turn: Turn, operation: ops.GetPartitions) -> list[PartitionRecord]:
    """Raises NoSuchTable, TxnAborted, SnapshotExpired, NoSuchTxn."""
    txn = _reader(turn, operation.txn)
    table, _ = seen_table(turn.state, txn, operation.name)
    return seen_partitions(turn.state, txn, table)


def _reader(turn: Turn, txn_id: int) -> Txn | None:
    """Raises TxnAborted, SnapshotExpired, NoSuchTxn."""
    return require_open(turn, txn_id) if txn_id else None


@handles(ops.GetLastWriteId)
def last_write_id(turn: Turn, operation: ops.GetLastWriteId) -> int:
    """Raises NoSuchTable if no table, not even a dropped one, has this id."""
    table = turn.state.known_table(operation.table_id)
    if table is None:
        raise NoSuchTable(f"there is no table with the id {operation.table_id}; see tables()")
    return table.last_write_id


@handles(ops.GetDatabases)
def databases(turn: Turn, _operation: ops.GetDatabases) -> list[str]:
    return sorted(turn.state.databases)


@handles(ops.GetViews)
def views(turn: Turn, operation: ops.GetViews) -> list[ViewRecord]:
    """Raises TxnAborted, SnapshotExpired, NoSuchTxn."""
    return seen_views(turn.state, _reader(turn, operation.txn))


@handles(ops.GetSettings)
def settings(turn: Turn, _operation: ops.GetSettings) -> ops.SettingsNow:
    chosen = turn.state.settings
    return ops.SettingsNow(dict(chosen.items()), dict(chosen.overrides), chosen.heartbeat_interval)


@handles(ops.ShowTransactions)
def transactions(turn: Turn, _operation: ops.ShowTransactions) -> list[Row]:
    beats = turn.state.heartbeats
    return [
        {
            "txnid": txn.txn_id,
            "state": txn.state.name,
            "startedtime": txn.started,
            "lastheartbeattime": turn.wall(beats[txn.txn_id]) if txn.is_open else txn.ended,
            "user": txn.info.user,
            "host": txn.info.host,
            "type": txn.kind.name,
            "agent": txn.info.agent,
            "run_id": txn.info.run_id,
            "description": txn.info.description,
            "reason": txn.reason,
            "tables": sorted(txn.needs) if not txn.all_tables else ["*"],
        }
        for txn in turn.state.txns.values()
    ]


@handles(ops.ShowLocks)
def locks(turn: Turn, _operation: ops.ShowLocks) -> list[Row]:
    return [row for entry in turn.state.locks.values() for row in _lock_rows(turn, entry)]


def _lock_states(state: State, entry: LockEntry) -> list[ops.LockState]:
    """Each lock of a request, with what it waits for."""
    blocked = None if entry.acquired else first_block(state, entry)
    txn = state.txns.get(entry.txn_id)
    return [
        ops.LockState(
            id=entry.ext,
            database=component.db,
            table=component.table,
            partition=component.partition,
            lock=component.lock,
            acquired=entry.acquired,
            txn=entry.txn_id,
            user=txn.info.user if txn else "",
            host=txn.info.host if txn else "",
            blocked_by=blocked.reason if blocked else "",
        )
        for component in entry.components
    ]


def _lock_rows(turn: Turn, entry: LockEntry) -> list[Row]:
    """Rows of SHOW LOCKS: one for each lock, with Hive's columns."""
    state = turn.state
    txn = state.txns.get(entry.txn_id)
    beats = state.heartbeats if entry.txn_id else state.lock_beats
    beat = beats.get(entry.txn_id or entry.ext)
    return [
        {
            "lockid": f"{entry.ext}.{number}",
            "database": lock.database,
            "table": lock.table,
            "partition": lock.partition,
            "lock_state": "ACQUIRED" if lock.acquired else "WAITING",
            "blocked_by": lock.blocked_by or None,
            "lock_type": lock.lock.name,
            "transaction_id": entry.txn_id,
            "last_heartbeat": None if beat is None else turn.wall(beat),
            "acquired_at": entry.acquired_at or None,
            "user": lock.user,
            "hostname": lock.host,
            "agent_info": txn.info.agent if txn else "",
        }
        for number, lock in enumerate(_lock_states(state, entry), 1)
    ]


@handles(ops.ShowCompactions)
def compactions(turn: Turn, _operation: ops.ShowCompactions) -> list[Row]:
    every = (*turn.state.queue.values(), *turn.state.past_tasks())
    return [_show(row, turn.now) for row in sorted(every, key=lambda row: row.id)]


@handles(ops.ShowCompaction)
def compaction(turn: Turn, operation: ops.ShowCompaction) -> ops.ShownCompaction:
    """Raises CompactionRefused for an unknown id."""
    for row in (*turn.state.queue.values(), *turn.state.past_tasks()):
        if row.id == operation.id:
            return ops.ShownCompaction(_show(row, turn.now), row.state not in _QUEUED)
    raise CompactionRefused(f"there is no compaction {operation.id}; see SHOW COMPACTIONS")


@handles(ops.GetQueue)
def queue(turn: Turn, _operation: ops.GetQueue) -> list[CompactionTask]:
    """The queue by id, which is the order in which Workers take its rows (C26)."""
    return sorted(turn.state.compactions(), key=lambda row: row.id)


@handles(ops.GetPastCompactions)
def past_compactions(turn: Turn, _operation: ops.GetPastCompactions) -> list[QueuedTask]:
    return sorted(turn.state.past_tasks(), key=lambda row: row.id)


@handles(ops.GetOpenTxns)
def open_txns(turn: Turn, _operation: ops.GetOpenTxns) -> list[Holder]:
    return [holder(txn) for txn in turn.state.open_txns()]


@handles(ops.GetLocks)
def lock_states(turn: Turn, _operation: ops.GetLocks) -> list[ops.LockState]:
    return [
        state for entry in turn.state.locks.values() for state in _lock_states(turn.state, entry)
    ]


def _show(task: QueuedTask, now: int) -> Row:
    """The 4.x columns (C61)."""
    row = task if isinstance(task, CompactionTask) else _as_compaction(task)
    db, _, name = row.table.partition(".")
    work_end = row.commit_time or row.ended or now
    initiator_host, _, initiator = row.initiator.rpartition("-")
    host, _, worker = row.worker.rpartition("-")
    shown = {
        "compactionid": row.id,
        "dbname": db,
        "tabname": name,
        "partname": row.partition,
        "type": row.kind.name,
        "state": row.state.text,
        "workerhost": host,
        "workerid": worker,
        "enqueuetime": row.enqueued,
        "starttime": row.started,
        "duration": work_end - row.started if row.started else 0,
        "hadoopjobid": row.job,
        "errormessage": row.error,
        "initiatorhost": initiator_host,
        "initiatorid": initiator,
        "poolname": "",
        "txnid": row.txn_id,
        "nexttxnid": row.next_txn_id,
        "committime": row.commit_time,
        "highestwriteid": row.highest_write_id,
    }
    return {key: value or NONE for key, value in shown.items()}


def _as_compaction(drop: DropTask) -> CompactionTask:
    """A drop as SHOW COMPACTIONS shows it."""
    return CompactionTask.of(
        drop,
        state=drop.state,
        enqueued=drop.enqueued,
        txn_id=drop.txn_id,
        next_txn_id=drop.next_txn_id,
        highest_write_id=drop.highest_write_id,
        commit_time=drop.commit_time,
        error=drop.error,
        kind=CompactionKind.MAJOR,
    )


@handles(ops.GetCleanings)
def cleaning(turn: Turn, operation: ops.GetCleanings) -> ops.Cleanings:
    return ops.Cleanings(*survey(turn, every=operation.every))


@handles(ops.GetTxnStates)
def txn_states(turn: Turn, operation: ops.GetTxnStates) -> dict[int, str]:
    return {txn_id: _state_of(turn, txn_id) for txn_id in operation.txns}


def _state_of(turn: Turn, txn_id: int) -> str:
    txn = turn.state.txns.get(txn_id)
    record = txn or turn.ended(txn_id)
    return record.state.value if record else "u"


@handles(ops.GetTxnOutcome)
def outcome_of_txn(turn: Turn, operation: ops.GetTxnOutcome) -> ops.TxnOutcome:
    """Raises NoSuchTxn if that is not known."""
    txn = turn.state.txns.get(operation.txn)
    if txn is not None and txn.is_open:
        return ops.TxnOutcome("o", 0, "")
    past = turn.ended(operation.txn)
    if past is not None:
        return ops.TxnOutcome(past.state.value, past.commit_id, past.reason)
    if txn is not None:
        return ops.TxnOutcome(TxnState.ABORTED.value, 0, txn.reason)
    raise NoSuchTxn(
        f"transaction {operation.txn} is unknown here: never opened, or ended before the retention"
        " (acid.outcome.retention)"
    )
