"""The client's calls for locks without a transaction, and for write ids of several transactions."""

from __future__ import annotations

from collections.abc import Sequence

from acid_platform.metastore.client.link import Caller
from acid_platform.metastore.operations.transactions import (
    AllocateMany,
    GetLocks,
    GetOpenTxns,
    HeartbeatLock,
    LockAlone,
    Unlock,
)
from acid_platform.metastore.records import Holder, LockRequest, LockState


class LockCalls(Caller):
    """The part of `Metastore` for locks."""

    def lock_alone(self, locks: Sequence[LockRequest], wait: float = 60.0) -> int:
        """Takes locks that no transaction holds, all or none, within `wait` seconds.

        Returns the lock's id. The lock is held until `unlock`, or until `hive.txn.timeout` has
        passed since the last `heartbeat_lock`, which the caller has to call (T16, L12). Raises
        LockTimeout, NoSuchTable, and ReadOnlyTxn for a lock of a write.
        """
        return self._call(LockAlone(tuple(locks), wait)).ext

    def heartbeat_lock(self, lock_id: int) -> None:
        """Keeps the lock for another timeout. Raises NoSuchLock once it is gone (L12)."""
        self._call(HeartbeatLock(lock_id))

    def unlock(self, lock_id: int) -> None:
        """Releases a lock without a transaction, or withdraws a waiting request.

        An unknown id is no error. Raises InvalidDefinition for a lock that a transaction holds
        (L15).
        """
        self._call(Unlock(lock_id))

    def lock_states(self) -> list[LockState]:
        """The locks that are held or waiting, in the order of their requests."""
        return self._call(GetLocks())

    def open_txns(self) -> list[Holder]:
        """The open transactions and their owners."""
        return self._call(GetOpenTxns())

    def allocate_many(self, table: str, txns: Sequence[int]) -> dict[int, int]:
        """Allocates write ids of one table, in the order of the transactions' ids (T17 to T19).

        Either all transactions get new write ids, or all have one already. Raises TxnAborted,
        NoSuchTxn, ReadOnlyTxn or InvalidDefinition; then none is allocated.
        """
        return dict(self._call(AllocateMany(table, tuple(txns))))
