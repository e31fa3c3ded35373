"""The calls of a client about locks without a transaction, and write ids of several at once."""

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
    """Part of `Metastore`."""

    def lock_alone(self, locks: Sequence[LockRequest], wait: float = 60.0) -> int:
        """Locks that no transaction holds, all or none, within `wait` seconds; the lock's id.

        Held until `unlock`, or until `heartbeat_lock` was not called for `hive.txn.timeout`: the
        caller has to call it (T16, L12). Raises LockTimeout, NoSuchTable, and ReadOnlyTxn for a
        lock that would write.
        """
        return self._call(LockAlone(tuple(locks), wait)).ext

    def heartbeat_lock(self, lock_id: int) -> None:
        """Keeps it for another timeout. Raises NoSuchLock once it is gone (L12)."""
        self._call(HeartbeatLock(lock_id))

    def unlock(self, lock_id: int) -> None:
        """Gives up a lock without a transaction, or a request that waits; none is no error.

        Raises InvalidDefinition for what a transaction holds (L15).
        """
        self._call(Unlock(lock_id))

    def lock_states(self) -> list[LockState]:
        """Locks that are held or waited for, in the order of the requests."""
        return self._call(GetLocks())

    def open_txns(self) -> list[Holder]:
        """The open transactions, and whose they are."""
        return self._call(GetOpenTxns())

    def allocate_many(self, table: str, txns: Sequence[int]) -> dict[int, int]:
        """Write ids of one table, ascending with the ids of the transactions (T17 to T19).

        All get new ones, or have them already. Raises TxnAborted, NoSuchTxn, ReadOnlyTxn,
        InvalidDefinition; then none is allocated.
        """
        return dict(self._call(AllocateMany(table, tuple(txns))))
