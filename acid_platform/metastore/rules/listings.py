"""Operations that only read: declarations, SHOW listings, the queue, outcomes."""

from __future__ import annotations

from acid_platform.compaction.states import CompactionKind, CompactionState
from acid_platform.errors import CompactionRefused, NoSuchTable, NoSuchTxn
from acid_platform.metastore.operations.base import Row
from acid_platform.metastore.operations.compaction import (
    Cleanings,
    GetCleanings,
    GetMoment,
    GetPastCompactions,
    GetQueue,
)
from acid_platform.metastore.operations.shows import (
    ShowCompaction,
    ShowCompactions,
    ShowLocks,
    ShownCompaction,
    ShowTransactions,
)
from acid_platform.metastore.operations.tables import (
    GetDatabases,
    GetLastWriteId,
    GetPartitions,
    GetSettings,
    GetTable,
    GetTables,
    GetViews,
    SettingsNow,
)
from acid_platform.metastore.operations.transactions import (
    GetLocks,
    GetOpenTxns,
    GetTxnOutcome,
    GetTxnStates,
    TxnOutcome,
)
from acid_platform.metastore.records import (
    Holder,
    LockState,
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


@handles(GetMoment)
def moment(turn: Turn, _operation: GetMoment) -> int:
    return turn.state.next_moment


@handles(GetTables)
def tables(turn: Turn, _operation: GetTables) -> list[TableRecord]:
    return [table.record for table in turn.state.tables.values()]


@handles(GetTable)
def table(turn: Turn, operation: GetTable) -> TableRecord:
    """Raises NoSuchTable, TxnAborted, SnapshotExpired, NoSuchTxn."""
    return seen_table(turn.state, _reader(turn, operation.txn), operation.name)[1]


@handles(GetPartitions)
def partitions(turn: Turn, operation: GetPartitions) -> list[PartitionRecord]:
    """Raises NoSuchTable, TxnAborted, SnapshotExpired, NoSuchTxn."""
    txn = _reader(turn, operation.txn)
    table, _ = seen_table(turn.state, txn, operation.name)
    return seen_partitions(turn.state, txn, table)


def _reader(turn: Turn, txn_id: int) -> Txn | None:
    """Raises TxnAborted, SnapshotExpired, NoSuchTxn."""
    return require_open(turn, txn_id) if txn_id else None


@handles(GetLastWriteId)
def last_write_id(turn: Turn, operation: GetLastWriteId) -> int:
    """Raises NoSuchTable if no table, not even a dropped one, has this id."""
    table = turn.state.known_table(operation.table_id)
    if table is None:
        raise NoSuchTable(f"there is no table with the id {operation.table_id}; see tables()")
    return table.last_write_id


@handles(GetDatabases)
def databases(turn: Turn, _operation: GetDatabases) -> list[str]:
    return sorted(turn.state.databases)


@handles(GetViews)
def views(turn: Turn, operation: GetViews) -> list[ViewRecord]:
    """Raises TxnAborted, SnapshotExpired, NoSuchTxn."""
    return seen_views(turn.state, _reader(turn, operation.txn))


@handles(GetSettings)
def settings(turn: Turn, _operation: GetSettings) -> SettingsNow:
    chosen = turn.state.settings
    return SettingsNow(dict(chosen.items()), dict(chosen.overrides), chosen.heartbeat_interval)


@handles(ShowTransactions)
def transactions(turn: Turn, _operation: ShowTransactions) -> list[Row]:
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


@handles(ShowLocks)
def locks(turn: Turn, _operation: ShowLocks) -> list[Row]:
    return [row for entry in turn.state.locks.values() for row in _lock_rows(turn, entry)]


def _lock_states(state: State, entry: LockEntry) -> list[LockState]:
    """Each lock of a request, with what it waits for."""
    blocked = None if entry.acquired else first_block(state, entry)
    txn = state.txns.get(entry.txn_id)
    return [
        LockState(
            entry.ext,
            component.db,
            component.table,
            component.partition,
            component.lock,
            entry.acquired,
            entry.txn_id,
            txn.info.user if txn else "",
            txn.info.host if txn else "",
            blocked.reason if blocked else "",
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


@handles(ShowCompactions)
def compactions(turn: Turn, _operation: ShowCompactions) -> list[Row]:
    every = (*turn.state.queue.values(), *turn.state.past_tasks())
    return [_show(row, turn.now) for row in sorted(every, key=lambda row: row.id)]


@handles(ShowCompaction)
def compaction(turn: Turn, operation: ShowCompaction) -> ShownCompaction:
    """Raises CompactionRefused for an unknown id."""
    for row in (*turn.state.queue.values(), *turn.state.past_tasks()):
        if row.id == operation.id:
            return ShownCompaction(_show(row, turn.now), row.state not in _QUEUED)
    raise CompactionRefused(f"there is no compaction {operation.id}; see SHOW COMPACTIONS")


@handles(GetQueue)
def queue(turn: Turn, _operation: GetQueue) -> list[CompactionTask]:
    """The queue by id, which is the order in which Workers take its rows (C26)."""
    return sorted(turn.state.compactions(), key=lambda row: row.id)


@handles(GetPastCompactions)
def past_compactions(turn: Turn, _operation: GetPastCompactions) -> list[QueuedTask]:
    return sorted(turn.state.past_tasks(), key=lambda row: row.id)


@handles(GetOpenTxns)
def open_txns(turn: Turn, _operation: GetOpenTxns) -> list[Holder]:
    return [holder(txn) for txn in turn.state.open_txns()]


@handles(GetLocks)
def lock_states(turn: Turn, _operation: GetLocks) -> list[LockState]:
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
        drop.state,
        drop.enqueued,
        drop.txn_id,
        drop.next_txn_id,
        drop.highest_write_id,
        drop.commit_time,
        error=drop.error,
        kind=CompactionKind.MAJOR,
    )


@handles(GetCleanings)
def cleaning(turn: Turn, _operation: GetCleanings) -> Cleanings:
    return Cleanings(*survey(turn))


@handles(GetTxnStates)
def txn_states(turn: Turn, operation: GetTxnStates) -> dict[int, str]:
    return {txn_id: _state_of(turn, txn_id) for txn_id in operation.txns}


def _state_of(turn: Turn, txn_id: int) -> str:
    txn = turn.state.txns.get(txn_id)
    record = txn or turn.ended(txn_id)
    return record.state.value if record else "u"


@handles(GetTxnOutcome)
def outcome_of_txn(turn: Turn, operation: GetTxnOutcome) -> TxnOutcome:
    """Raises NoSuchTxn if that is not known."""
    txn = turn.state.txns.get(operation.txn)
    if txn is not None and txn.is_open:
        return TxnOutcome("o", 0, "")
    past = turn.ended(operation.txn)
    if past is not None:
        return TxnOutcome(past.state.value, past.commit_id, past.reason)
    if txn is not None:
        return TxnOutcome(TxnState.ABORTED.value, 0, txn.reason)
    raise NoSuchTxn(
        f"transaction {operation.txn} is unknown here: never opened, or ended before the retention"
        " (acid.outcome.retention)"
    )
