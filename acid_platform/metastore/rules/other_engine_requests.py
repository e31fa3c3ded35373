"""Transactions that another engine drives through the gateway: its lock requests are polled, its
snapshots are lists, and nobody reports its writes (P34).

A lock without a transaction (transaction id 0) is taken, kept alive and released by its id. It is
held until it is released, or until it has had no heartbeat for the timeout. It competes with all
others, even those of its own client (L5, T16).
"""

from __future__ import annotations

from dataclasses import replace

from acid_platform.errors import (
    InvalidDefinition,
    LockNotAcquired,
    LockTimeout,
    NoSuchLock,
    SnapshotExpired,
)
from acid_platform.metastore import operations as ops
from acid_platform.metastore.rules import locking, write_set
from acid_platform.metastore.rules.locking import LockRemoved, end_wait, enqueue
from acid_platform.metastore.rules.snapshots import txn_list, write_ids
from acid_platform.metastore.rules.state import State, TableState, Txn
from acid_platform.metastore.rules.timers import dead, patience, touch
from acid_platform.metastore.rules.turn import Event, Parked, Turn, handles
from acid_platform.metastore.rules.txns import require_open
from acid_platform.metastore.rules.write_set import Aborted
from acid_platform.transactions import RowOperation, ValidTxnList, ValidWriteIdList

_WAIT = 24 * 3600.0
"""Seconds. A request ends much earlier if its transaction, or the request itself, gets no heartbeat
for `hive.txn.timeout`."""


@handles(ops.RequestLock)
def request_lock(turn: Turn, operation: ops.RequestLock) -> ops.LockProgress:
    """Raises what `locking.enqueue` raises; LockNotAcquired only for a blocked read with
    `zero_wait`."""
    asker = Txn.nobody(turn.now)
    if operation.txn:
        asker = require_open(turn, operation.txn)
        if operation.finishes and not asker.unfinished:
            turn.record(FinishAwaited(asker.txn_id, True))
            asker = turn.state.txns[asker.txn_id]
    # This request is answered now, so what waits needs a name of its own.
    waiting = replace(turn, request_id=f"{turn.request_id}/lock")
    try:
        locking.enqueue(
            waiting,
            asker,
            operation.locks,
            _WAIT,
            operation.zero_wait,
            begun=False,
            other_engine=True,
        )
    except Parked:
        return ops.LockProgress(turn.state.next_lock - 1, False)
    return ops.LockProgress(turn.state.next_lock - 1, True)


@handles(ops.FinishWrite)
def finish_write(turn: Turn, operation: ops.FinishWrite) -> bool:
    """The transaction with this write id may commit its files then (P47). Raises NoSuchTable."""
    by_txn = turn.state.table(operation.table).by_txn
    for txn in turn.state.txns.values():
        if operation.txns is not None and txn.txn_id not in operation.txns:
            continue
        if txn.unfinished and txn.is_open and by_txn.get(txn.txn_id) == operation.write_id:
            turn.record(FinishAwaited(txn.txn_id, False))
            return True
    return False


@handles(ops.CheckLock)
def check_lock(turn: Turn, operation: ops.CheckLock) -> ops.LockProgress:
    """Raises NoSuchLock for a request that ended: withdrawn, refused, or with its transaction."""
    entry = turn.state.locks.get(operation.ext)
    if entry is None:
        raise NoSuchLock(f"lock {operation.ext} is not held and does not wait; lock again")
    beats = turn.state.heartbeats if entry.txn_id else turn.state.lock_beats
    touch(beats, entry.txn_id or entry.ext, turn.steady)
    return ops.LockProgress(entry.ext, entry.acquired)


@handles(ops.GetTxnList)
def txn_list_now(turn: Turn, _operation: ops.GetTxnList) -> ValidTxnList:
    return txn_list(turn.state)


@handles(ops.GetWriteIdsUnder)
def write_ids_under(turn: Turn, operation: ops.GetWriteIdsUnder) -> list[ValidWriteIdList]:
    """Raises NoSuchTable, and SnapshotExpired for a list so old that the write ids of its open
    transactions may be forgotten: they would count as committed (P5).

    Hive asks with the list of a transaction that it has just given up, see `conflict`.
    """
    state, txns = turn.state, operation.valid_txns
    if txns.open and txns.min_open < state.forgotten:
        raise SnapshotExpired(
            f"the transaction list {str(txns)[:80]} is too old: transaction {txns.min_open}, which"
            " is open in it, ended before every open snapshot; lock the tables and ask for a new"
            " list"
        )
    listed = [(state.table(name), write_ids(state.table(name), txns)) for name in operation.tables]
    if not operation.no_floors:
        return [ids for _, ids in listed]
    return [_without_dropped(state, table, ids) for table, ids in listed]


def _without_dropped(state: State, table: TableState, listed: ValidWriteIdList) -> ValidWriteIdList:
    """The list without the write ids of a table that was dropped from the same place (P22).

    They count as aborted while its files are there: other engines read what they find, and know no
    floor.
    """
    floor, location = table.record.floor, table.record.location
    if not floor or not any(
        drop.partition is None and drop.location == location for drop in state.drops()
    ):
        return listed
    aborted = {*range(1, floor + 1), *listed.aborted}
    return ValidWriteIdList.of(listed.table, listed.high_watermark, listed.open, aborted)


@handles(ops.GetTouched)
def touched(turn: Turn, operation: ops.GetTouched) -> list[ops.TouchedTable]:
    """Raises TxnAborted, SnapshotExpired, NoSuchTxn."""
    state, txn = turn.state, require_open(turn, operation.txn)
    components = state.components.get(txn.txn_id, ())
    read = _locked_for_reading(state, txn)
    written = (component.table_id for component in components)
    table_ids = dict.fromkeys((*written, *txn.wrote, *read))
    return [
        ops.TouchedTable(
            state.name_of(table_id),
            state.tables[table_id].by_txn.get(txn.txn_id, 0),
            tuple(
                ops.TouchedEntity(component.partition, component.dynamic, component.operation)
                for component in components
                if component.table_id == table_id
            ),
            txn.unfinished,
            tuple(read.get(table_id, ())),
        )
        for table_id in table_ids
        if table_id in state.tables
    ]


def _locked_for_reading(state: State, txn: Txn) -> dict[int, dict[str | None, None]]:
    """The partitions of each table, or the table (None), for which it has locks of a SELECT."""
    found: dict[int, dict[str | None, None]] = {}
    for entry in (state.locks[ext] for ext in state.locks_by_txn.get(txn.txn_id, ())):
        for component in entry.components if entry.acquired else ():
            table_id = entry.tables.get(f"{component.db}.{component.table}")
            if table_id is not None and component.operation is RowOperation.SELECT:
                found.setdefault(table_id, {})[component.partition] = None
    return found


@handles(ops.GetConflict)
def conflict(turn: Turn, operation: ops.GetConflict) -> str:
    """What was committed since the transaction was opened decides (T40).

    Raises TxnAborted, SnapshotExpired, NoSuchTxn.
    """
    state, txn = turn.state, require_open(turn, operation.txn)
    reason = write_set.conflict(state, txn, state.components.get(txn.txn_id, ()))
    return write_set.describe(state, *reason) if reason else ""


class FinishAwaited(Event, kind="finish_awaited"):
    """Whether a transaction waits for its engine to say that all files are written (P47)."""

    txn: int
    unfinished: bool

    def apply(self, state: State, _at: int) -> None:
        state.txns[self.txn] = replace(state.txns[self.txn], unfinished=self.unfinished)


@handles(ops.LockAlone)
def lock_alone(turn: Turn, operation: ops.LockAlone) -> ops.Ticket:
    """Waits like any request, but a read is not refused at once (L10). The answer's `ext` is for
    HeartbeatLock and Unlock. Raises what `enqueue` raises."""
    enqueue(turn, Txn.nobody(turn.now), operation.locks, operation.wait, False, begun=False)
    return ops.Ticket(0, turn.state.next_lock - 1)


@handles(ops.HeartbeatLock)
def heartbeat_lock(turn: Turn, operation: ops.HeartbeatLock) -> None:
    """Raises NoSuchLock."""
    entry = turn.state.locks.get(operation.ext)
    if entry is None or entry.txn_id:
        raise NoSuchLock(f"there is no lock {operation.ext} without a transaction; lock again")
    touch(turn.state.lock_beats, entry.ext, turn.steady)


@handles(ops.Unlock)
def unlock(turn: Turn, operation: ops.Unlock) -> None:
    """An unknown id is no error. Raises InvalidDefinition for a lock that a transaction holds: it
    ends with the transaction."""
    entry = turn.state.locks.get(operation.ext)
    if entry is None:
        return
    if entry.txn_id and entry.acquired:
        raise InvalidDefinition(
            f"unlock of lock {entry.ext} is not permitted: transaction {entry.txn_id} holds it"
            " until it ends; commit or abort"
        )
    if entry.acquired:
        turn.record(LockRemoved(ext=entry.ext))
    else:
        end_wait(turn, entry, LockNotAcquired(f"lock request {entry.ext} was withdrawn"))
        if entry.begun:
            turn.record(Aborted(txn=entry.txn_id, reason="its lock request was withdrawn"))


def expire_alone(turn: Turn) -> None:
    """Removes locks without a transaction that had no heartbeat for the timeout (T16)."""
    for ext in dead(turn.state, turn.state.lock_beats):
        entry = turn.state.locks[ext]
        timeout = patience(turn.state, turn.state.lock_beats[ext])
        if entry.acquired:
            turn.record(LockRemoved(ext=ext))
        else:
            error = LockTimeout(f"lock {ext} had no heartbeat for {timeout / 1000:g} s")
            end_wait(turn, entry, error)
