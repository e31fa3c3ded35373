"""Operations that only read: what a snapshot sees, and listings for people and services.

A snapshot may read the files that commits recorded, not what is in a directory (P26). A reader gets
every recorded directory of its entities, and its lists select those that it sees. It gets them only
while its transaction is open: until it ends, the Cleaner removes nothing that its snapshot needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from acid_platform.compaction.states import CompactionKind, CompactionState
from acid_platform.errors import CompactionRefused, NoSuchTable, NoSuchTxn
from acid_platform.layout.names import table_name
from acid_platform.metastore import operations as ops
from acid_platform.metastore.messages import Row
from acid_platform.metastore.operations.compaction import CompactionTask, DropTask, QueuedTask
from acid_platform.metastore.records import (
    DatabaseRecord,
    Holder,
    PartitionRecord,
    RecordedDirectory,
    TableRecord,
    ViewRecord,
)
from acid_platform.metastore.rules.branch_commits import newest_on
from acid_platform.metastore.rules.cleaning import held_by, survey
from acid_platform.metastore.rules.declared import (
    commits_on,
    directories,
    joined_commit,
    placed_on_branch,
    seen_partitions,
    seen_table,
    seen_tables,
    seen_views,
)
from acid_platform.metastore.rules.locking import check_files, first_block
from acid_platform.metastore.rules.snapshots import snapshot, txn_list, write_ids
from acid_platform.metastore.rules.state import LockEntry, State, TableState, Txn
from acid_platform.metastore.rules.table_declarations import database
from acid_platform.metastore.rules.timers import touch
from acid_platform.metastore.rules.turn import Past, Turn, handles
from acid_platform.metastore.rules.txns import granted, renew_lease, require_open
from acid_platform.transactions import TxnState, TxnType, ValidTxnList

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
    return ops.SeenTable(record, None, _recorded(state, past, record.table_id, (None,), txn)[0])


@handles(ops.IsNewest)
def is_newest(turn: Turn, operation: ops.IsNewest) -> bool:
    """Compares declarations, partitions, rows and directories. The lease may then serve another
    read (P11), and is renewed as by a read (P12). Raises SnapshotExpired, TxnAborted, NoSuchTxn."""
    txn = require_open(turn, operation.txn)
    state = turn.state
    then = snapshot(state, txn)
    if then is None or txn.kind is not TxnType.READ_ONLY:
        return False
    if txn.branch:
        mine = commits_on(state, txn.branch)
        if any(commit.txn not in txn.sees for commit in mine):
            return False
    else:
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
    return _recorded(turn.state, turn.past, table.record.table_id, operation.partitions, txn)


@handles(ops.GetRecorded)
def recorded_now(turn: Turn, operation: ops.GetRecorded) -> list[list[RecordedDirectory]]:
    """Raises NoSuchTable."""
    table_id = operation.table_id or turn.state.table(operation.table).record.table_id
    return _recorded(turn.state, turn.past, table_id, operation.partitions)


def _recorded(
    state: State,
    past: Past,
    table_id: int,
    partitions: Sequence[str | None],
    txn: Txn | None = None,
) -> list[list[RecordedDirectory]]:
    """With what `txn` sees of its branch."""
    lacking = [
        partition
        for partition in partitions
        if directories(state, (table_id, partition)).keys()
        - state.contents.get((table_id, partition), {}).keys()
    ]
    saved = past.recorded(table_id, lacking) if lacking else {}
    own = [*placed_on_branch(state, txn, table_id)]
    return [
        [
            *(
                RecordedDirectory(directory, fresh.get(name) or saved[partition, name])
                for name, directory in directories(state, (table_id, partition)).items()
            ),
            *(placed.recorded for placed in own if placed.partition == partition),
        ]
        for partition in partitions
        for fresh in (state.contents.get((table_id, partition), {}),)
    ]


NONE = "None"
"""What SHOW COMPACTIONS prints for an empty field (C62)."""

_QUEUED = (CompactionState.INITIATED, CompactionState.WORKING)


@handles(ops.GetMoment)
def moment(turn: Turn, _operation: ops.GetMoment) -> int:
    return turn.state.next_moment


@handles(ops.GetTables)
def tables(turn: Turn, operation: ops.GetTables) -> list[TableRecord]:
    """Raises NoSuchBranch."""
    state = turn.state
    if not operation.branch:
        return [table.record for table in state.tables.values()]
    return seen_tables(state, newest_on(state, operation.branch))


@handles(ops.GetTablesNear)
def tables_near(turn: Turn, operation: ops.GetTablesNear) -> list[TableRecord]:
    state = turn.state
    named = state.names.get(table_name(operation.name))
    near = {*state.occupied.near(operation.location), *state.occupied.outside()}
    found = sorted(near if named is None else {named, *near})
    return [state.tables[table_id].record for table_id in found]


@handles(ops.GetTable)
def table(turn: Turn, operation: ops.GetTable) -> TableRecord:
    """Raises NoSuchTable, TxnAborted, SnapshotExpired, NoSuchTxn."""
    return seen_table(turn.state, _reader(turn, operation), operation.name)[1]


@handles(ops.GetPartitions)
def partitions(turn: Turn, operation: ops.GetPartitions) -> list[PartitionRecord]:
    """Raises NoSuchTable, TxnAborted, SnapshotExpired, NoSuchTxn."""
    txn = _reader(turn, operation)
    table, _ = seen_table(turn.state, txn, operation.name)
    return seen_partitions(turn.state, txn, table)


def _reader(turn: Turn, operation: ops.GetTable | ops.GetPartitions | ops.GetViews) -> Txn | None:
    """Raises NoSuchBranch, TxnAborted, SnapshotExpired, NoSuchTxn."""
    if operation.branch:
        return newest_on(turn.state, operation.branch)
    return require_open(turn, operation.txn) if operation.txn else None


@handles(ops.GetLastWriteId)
def last_write_id(turn: Turn, operation: ops.GetLastWriteId) -> int:
    """Raises NoSuchTable if no table, not even a dropped one, has this id."""
    table = turn.state.known_table(operation.table_id)
    if table is None:
        raise NoSuchTable(f"there is no table with the id {operation.table_id}; see tables()")
    return table.last_write_id


@handles(ops.GetDatabases)
def databases(turn: Turn, operation: ops.GetDatabases) -> list[str]:
    """Raises NoSuchBranch."""
    state, there = turn.state, set(turn.state.databases)
    if operation.branch:
        txn = newest_on(state, operation.branch)
        shown = [record.name for record in seen_tables(state, txn)]
        shown += [view.name for view in seen_views(state, txn)]
        there |= {name.partition(".")[0] for name in shown}
    return sorted(there)


@handles(ops.GetDatabase)
def get_database(turn: Turn, operation: ops.GetDatabase) -> DatabaseRecord:
    """Raises NoSuchTable."""
    return database(turn.state, operation.name)


@handles(ops.GetViews)
def views(turn: Turn, operation: ops.GetViews) -> list[ViewRecord]:
    """Raises NoSuchBranch, TxnAborted, SnapshotExpired, NoSuchTxn."""
    return seen_views(turn.state, _reader(turn, operation))


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
            "lastheartbeattime": turn.wall(beats[txn.txn_id]) if txn.txn_id in beats else txn.ended,
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
    return held_by(turn.state, turn.state.open_txns())


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
    joined = joined_commit(turn.state, operation.txn)
    if joined is not None:
        return ops.TxnOutcome("c", joined.commit_id, "")
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
