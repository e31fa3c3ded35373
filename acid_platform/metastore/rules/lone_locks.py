"""Locks without a transaction: taken, kept alive and released by their ids (T16).

Such a lock (transaction id 0) is held until it is released, or until it has had no heartbeat for
the timeout. It competes with all others, even those of its own client (L5).
"""

from __future__ import annotations

from acid_platform.errors import InvalidDefinition, LockNotAcquired, LockTimeout, NoSuchLock
from acid_platform.metastore import operations as ops
from acid_platform.metastore.rules.endings import Aborted
from acid_platform.metastore.rules.locking import LockRemoved, end_wait, enqueue
from acid_platform.metastore.rules.state import Txn
from acid_platform.metastore.rules.timers import dead, patience, touch
from acid_platform.metastore.rules.turn import Turn, handles


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
