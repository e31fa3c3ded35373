"""The gateway's calls for transactions that another engine drives (P34)."""

from __future__ import annotations

from collections.abc import Sequence

from acid_platform.metastore.client.link import Caller
from acid_platform.metastore.operations.foreign_transactions import (
    CheckLock,
    FinishWrite,
    GetConflict,
    GetTouched,
    GetTxnList,
    GetWriteIdsUnder,
    LockProgress,
    RequestLock,
)
from acid_platform.metastore.operations.transactions import (
    Abort,
    Commit,
    Drop,
    GetTxnOutcome,
    HeartbeatOne,
    OpenBatch,
    TxnOutcome,
)
from acid_platform.metastore.records import ClientInfo, LockRequest, TouchedTable, WriteReport
from acid_platform.transactions import TxnType, ValidTxnList, ValidWriteIdList


class ForeignTransactionCalls(Caller):
    """The part of `Metastore` for transactions without a handle: their owner sends the
    heartbeats."""

    def open_ids(self, count: int, kind: TxnType, info: ClientInfo) -> list[int]:
        """Opens transactions and returns their ids; nobody here keeps them alive.

        Raises TooManyOpenTxns, InvalidDefinition.
        """
        return self._call(OpenBatch(count, kind.value, info))

    def keep_alive(self, txn: int) -> None:
        """Raises TxnAborted, SnapshotExpired (a lease) or NoSuchTxn if it is not open (T7)."""
        self._call(HeartbeatOne(txn, True))

    def commit_id(self, txn: int, writes: Sequence[WriteReport]) -> None:
        """Commits; raises what `Transaction.commit` raises. A second commit is no error (T10)."""
        self._call(Commit(txn, tuple(writes)))

    def abort_id(self, txn: int, reason: str) -> None:
        """Aborts; an aborted transaction is no error, a committed one raises NoSuchTxn (T12)."""
        self._call(Abort(txn, reason))

    def drop_in(self, txn: int, table: str, partition: str | None) -> None:
        """Drops in a transaction that holds the EXCLUSIVE lock, and commits it (P22)."""
        self._call(Drop(txn, table, partition))

    def outcome_of(self, txn: int) -> TxnOutcome:
        """How a transaction ended, if it has (P3). Raises NoSuchTxn."""
        return self._call(GetTxnOutcome(txn))

    def request_lock(
        self,
        txn: int,
        locks: Sequence[LockRequest],
        zero_wait: bool = False,
        finishes: bool = False,
    ) -> LockProgress:
        """Asks for locks and returns at once; a request that waits goes on waiting.

        `txn` 0: no transaction holds them. `finishes`: `finish_write` will be called when all
        files are written. Raises what `Transaction.lock` raises but LockTimeout.
        """
        return self._call(RequestLock(txn, tuple(locks), zero_wait, finishes))

    def finish_write(self, table: str, write_id: int, txns: Sequence[int] | None = None) -> bool:
        """Records that all files of this write id are written; False if it was not awaited.

        `txns`: only if one of these transactions has it. Raises NoSuchTable.
        """
        return self._call(FinishWrite(table, write_id, None if txns is None else tuple(txns)))

    def check_lock(self, ext: int) -> LockProgress:
        """How a lock request stands; keeps it alive. Raises NoSuchLock."""
        return self._call(CheckLock(ext))

    def conflict_of(self, txn: int) -> str:
        """Why the transaction can no longer commit what its locks say that it writes, or "".

        Raises TxnAborted, SnapshotExpired, NoSuchTxn.
        """
        return self._call(GetConflict(txn))

    def txn_list(self) -> ValidTxnList:
        """The transactions as a snapshot of this moment sees them; it keeps no file."""
        return self._call(GetTxnList())

    def write_ids_under(
        self, tables: Sequence[str], valid_txns: ValidTxnList, no_floors: bool = False
    ) -> list[ValidWriteIdList]:
        """What a snapshot with this list sees of each table. Raises NoSuchTable,
        SnapshotExpired.

        `no_floors`: whoever reads by it reads every directory that is there (P22).
        """
        return self._call(GetWriteIdsUnder(tuple(tables), valid_txns, no_floors))

    def touched(self, txn: int) -> list[TouchedTable]:
        """Where an open transaction has a write id or a lock of a write."""
        return self._call(GetTouched(txn))
