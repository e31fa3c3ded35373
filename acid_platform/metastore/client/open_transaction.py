"""An open transaction in the client (P12), and the heartbeats that keep it alive (T8, T9, P7)."""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from acid_platform.base.config import Settings
from acid_platform.errors import (
    AcidError,
    CorruptFile,
    MetastoreUnavailable,
    MetastoreWriteFailed,
    NoSuchTxn,
    SnapshotExpired,
    StoreRefused,
    StoreUnavailable,
    Terminal,
    TxnAborted,
)
from acid_platform.layout.names import table_name
from acid_platform.metastore import operations as ops
from acid_platform.metastore.pasts import AsOf
from acid_platform.metastore.records import (
    LockRequest,
    PartitionRecord,
    PastTable,
    RecordedDirectory,
    TableChanges,
    TableRecord,
    ViewRecord,
    WriteReport,
)
from acid_platform.transactions import (
    CompactorWriteIdList,
    RowOperation,
    TxnType,
    ValidTxnList,
    ValidWriteIdList,
)
from acid_platform.transactions.concurrency import LockType

if TYPE_CHECKING:
    from acid_platform.metastore.client.link import Link
    from acid_platform.metastore.client.metastore import Metastore


class Heartbeats:
    """It runs at most `hive.txn.heartbeat.threadpool.size` threads, each for its share of the
    transactions, and starts them with the first transaction. A transaction that nobody references
    gets no heartbeat.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self.interval = 150.0
        """Seconds between heartbeats, as each answer about a transaction reports it."""
        self.threads = 5
        self.reset()
        _every.add(self)

    def reset(self) -> None:
        """Forgets all transactions; needed after a fork, where they belong to the parent."""
        self._guard = threading.Condition()
        """Guards the attributes below; notified when the interval changes, and at the end."""
        self._shares: dict[int, weakref.WeakValueDictionary[int, OpenTransaction]] = {}
        self._threads: list[threading.Thread] = []
        self._closed = False

    def learn(self, milliseconds: int) -> None:
        """Changes the interval, for heartbeats that are already being waited for too (P29)."""
        if self.interval != milliseconds / 1000:
            with self._guard:
                self.interval = milliseconds / 1000
                self._guard.notify_all()

    def add(self, txn: OpenTransaction) -> None:
        slot = txn.id % self.threads
        with self._guard:
            share = self._shares.get(slot)
            if share is None:
                share = self._shares[slot] = weakref.WeakValueDictionary()
                thread = threading.Thread(
                    target=self._beat, args=(slot,), daemon=True, name=f"heartbeat-{slot}"
                )
                self._threads.append(thread)
                thread.start()
            share[txn.id] = txn

    def remove(self, txn: OpenTransaction) -> None:
        with self._guard:
            for share in self._shares.values():
                share.pop(txn.id, None)

    def keeps(self, txn: int) -> bool:
        with self._guard:
            return any(txn in share for share in self._shares.values())

    def close(self) -> None:
        with self._guard:
            self._closed = True
            self._guard.notify_all()

    def _due(self, last: float) -> bool:
        """Waits until an interval has passed since the last heartbeat; returns False at the end."""
        with self._guard:
            while not self._closed:
                left = last + self.interval - time.monotonic()
                if left <= 0:
                    return True
                self._guard.wait(left)
        return False

    def _beat(self, slot: int) -> None:
        last = time.monotonic()
        while self._due(last):
            last = time.monotonic()
            try:
                self._beat_once(slot)
            except AcidError:
                # The next heartbeat tries again; nothing is lost before the timeout has passed.
                continue
        self._link.close()

    def _beat_once(self, slot: int) -> None:
        # No reference outlives this call: a transaction that nobody else references may end.
        with self._guard:
            open_now = dict(self._shares[slot])
        if not open_now:
            return
        alive = self._link.call(ops.Heartbeat(tuple(open_now)))
        self.learn(alive.interval)
        for txn_id in (*alive.aborted, *alive.unknown):
            if not open_now[txn_id].ended:
                reason = f"transaction {txn_id} is no longer open in the metastore"
                open_now[txn_id].found_lost(reason)


_every: weakref.WeakSet[Heartbeats] = weakref.WeakSet()


def _after_fork() -> None:
    for beats in list(_every):
        beats.reset()


os.register_at_fork(after_in_child=_after_fork)


@atexit.register
def _at_exit() -> None:
    """Ends the threads: one that lives when Python ends keeps what it can reach."""
    for beats in list(_every):
        beats.close()
        for thread in beats._threads:
            thread.join(0.2)


UNDECIDED = (MetastoreUnavailable, MetastoreWriteFailed)
"""Errors that leave a transaction open: its commit was not decided."""


class OpenTransaction:
    """An open transaction. As a context manager it commits at the end, or aborts on an exception.

    `valid_txns` is its snapshot, which never changes (S4). `write_ids` are its write ids by table.
    `settings` are those in force when it began, or when it got its last lock.
    `stale`: something that conflicts was committed between its opening and its locks, so a single
    statement should begin again (T40). `lost_overwrite` says why an overwrite of what it locked
    last can't commit any more, else it is empty (P30).
    """

    def __init__(self, metastore: Metastore, kind: TxnType, granted: ops.Granted) -> None:
        self._metastore = metastore
        self.id = granted.txn
        self.kind = kind
        self.write_ids: dict[str, int] = {}
        self.stale = False
        self.lost_overwrite = ""
        self.ended = False
        self.lost: str | None = None
        """Why the metastore aborted it, once a heartbeat has reported that."""
        self._lists: dict[str, ValidWriteIdList] = {}
        self._described = {table.record.name: table for table in granted.seen}
        """What its snapshot sees of the tables that it began with: that never changes."""
        self._callbacks: list[Callable[[str], None]] = []
        self.valid_txns: ValidTxnList = granted.valid_txns
        self._learn(granted)
        metastore.beats.add(self)

    def _learn(self, granted: ops.Granted) -> None:
        self.write_ids.update(granted.write_ids)
        self.stale = self.stale or granted.stale
        self.lost_overwrite = granted.lost_overwrite
        self.settings = Settings.of(granted.set)
        self._metastore.lock_settings = self.settings.lock_settings
        for name, listed in granted.lists.items():
            self._lists.setdefault(name, listed)
        self._metastore.beats.learn(granted.interval)

    def lock(
        self,
        requests: Sequence[LockRequest] | str,
        lock: LockType | str = LockType.SHARED_READ,
        *,
        operation: RowOperation | None = None,
        partition: str | None = None,
        wait: float = 60.0,
        zero_wait: bool | None = False,
    ) -> Self:
        """Acquires all of the locks, or raises LockTimeout after `wait` seconds.

        `lock("db.t", "SHARED_WRITE", partition=None)` requests a single lock. Without an operation
        the strictest that the lock allows is assumed (T27). `zero_wait=None` follows Hive: a
        blocked read is refused at once (L10). Also raises TxnAborted, SnapshotExpired, NoSuchTable.
        """
        if isinstance(requests, str):
            kind = LockType.parse(lock) if isinstance(lock, str) else lock
            requests = [LockRequest(requests, kind, operation, partition)]
        self._learn(self._metastore.call(ops.Lock(self.id, tuple(requests), wait, zero_wait)))
        return self

    def valid_write_ids(self, table: str) -> ValidWriteIdList:
        """The write ids of the table that it sees: the same list all its life, with its own as
        valid.

        From the first call on, the Cleaner keeps the table's files. Raises SnapshotExpired.
        """
        name = table_name(table)
        if name not in self._lists:
            self._lists[name] = self._metastore.call(ops.GetValidWriteIds(self.id, name))
        own = self.write_ids.get(name)
        return self._lists[name] if own is None else self._lists[name].seeing(own)

    def is_newest(self, tables: Sequence[str]) -> bool:
        """Whether a new snapshot would see the same of the tables; renews the read lease then.

        Raises SnapshotExpired, NoSuchTxn.
        """
        return self._metastore.call(
            ops.IsNewest(self.id, tuple(table_name(name) for name in tables))
        )

    def table(self, name: str) -> TableRecord:
        """The declaration that its snapshot sees, whatever others have changed since (P28).

        Raises NoSuchTable, SnapshotExpired, TxnAborted.
        """
        seen = self._described.get(table_name(name))
        return seen.record if seen else self._metastore.call(ops.GetTable(name, self.id))

    @property
    def described(self) -> Collection[str]:
        """The full names of the tables that its beginning described, none of which is a view."""
        return self._described.keys()

    def partition_records(self, name: str) -> list[PartitionRecord]:
        """The partitions that its snapshot sees, with their floors (P22, P28)."""
        seen = self._described.get(table_name(name))
        if seen is not None and seen.partitions is not None:
            return seen.partitions
        return self._metastore.call(ops.GetPartitions(name, self.id))

    def partitions(self, name: str) -> list[str]:
        return [partition.name for partition in self.partition_records(name)]

    def views(self) -> list[ViewRecord]:
        """The views that its snapshot sees (P28)."""
        return self._metastore.call(ops.GetViews(self.id))

    def manifest(
        self, table: str, partitions: Sequence[str | None]
    ) -> list[list[RecordedDirectory]]:
        """The recorded directories of each partition (None: the unpartitioned table); the snapshot
        sees only some of them (P26).

        Answered only while the transaction is open; until then the Cleaner keeps what its snapshot
        needs (P29). Raises SnapshotExpired, TxnAborted, NoSuchTxn, NoSuchTable.
        """
        seen = self._described.get(table_name(table))
        if seen is not None and seen.directories is not None and list(partitions) == [None]:
            return [seen.directories]
        return self._metastore.call(ops.GetManifest(self.id, table_name(table), tuple(partitions)))

    def past(self, table: str, as_of: AsOf) -> PastTable:
        """The table as it was; until this transaction ends, the Cleaner keeps the files of then.

        Raises NoSuchPast, NotEnoughHistory, NoSuchTable, SnapshotExpired, TxnAborted.
        """
        return self._metastore.call(ops.GetPast(self.id, table_name(table), as_of))

    def changes(
        self, table: str, since: AsOf | None = None, until: AsOf | None = None
    ) -> TableChanges:
        """What the table's changes are read from, up to this snapshot or `until` (P39).

        Without `since`, all rows are new. Until this transaction ends, the Cleaner keeps the files.
        Raises NoSuchPast, NotEnoughHistory, InvalidDefinition, NoSuchTable, SnapshotExpired,
        TxnAborted.
        """
        return self._metastore.call(ops.GetChanges(self.id, table_name(table), since, until))

    def heartbeat(self, read: bool = False) -> None:
        """Raises TxnAborted, SnapshotExpired or NoSuchTxn if it is no longer open (T7, P4).

        `read` says that the snapshot is being read, which renews the read lease (P12).
        """
        self._metastore.beats.learn(self._metastore.call(ops.HeartbeatOne(self.id, read)))

    def check(self) -> None:
        """Raises SnapshotExpired (for a read lease) or TxnAborted unless the transaction is open
        now.

        If it is open, no file of its snapshot has been removed so far: everything read from them is
        complete (P29). A process that was suspended for longer than `hive.txn.timeout` learns it
        here.
        """
        try:
            self.heartbeat(read=True)
        except NoSuchTxn as error:
            if self.kind is not TxnType.READ_ONLY:
                raise
            raise SnapshotExpired(
                f"read lease {self.id} is over: its block has ended, or it is long past; take a new"
                " snapshot, or call read() again"
            ) from error

    @contextmanager
    def checked(self, again: bool = True) -> Iterator[None]:
        """A block that resolves or reads files of the snapshot, followed by `check` if `again`.

        If the block fails because the transaction has ended, SnapshotExpired or TxnAborted is
        raised instead: files that the snapshot needs may be gone by then. A file counts as damaged
        (CorruptFile) only if the transaction is known to be open; otherwise NoSuchTxn or
        MetastoreUnavailable is raised. An error of the object store stays what it is: such a
        statement may end its transaction itself, since it can't remove its files.
        """
        try:
            yield
        except (StoreRefused, StoreUnavailable):
            raise
        except Exception as error:
            try:
                self.check()
            except (SnapshotExpired, TxnAborted) as over:
                raise over from error
            except (NoSuchTxn, MetastoreUnavailable) as unknown:
                if isinstance(error, CorruptFile):
                    raise unknown from error
            raise
        if again:
            self.check()

    def commit(self, contents: ops.CommitContents | None = None) -> None:
        """Commits, or raises WriteConflict, TxnAborted, OutcomeUnknown (T10, T31, P2, P6, P30).

        WriteConflict also if another run has moved one of its cursors (P39), if another transaction
        and this one have each inserted what the other looked for (P51), or if others have changed
        what it read (P52); DeclarationChanged if others added its columns with another type (P28),
        or altered a table that it has written again; BatchCommitted and StreamRefused for a batch
        (P42).

        A refused commit ends the transaction, whatever the error: it is aborted and holds no lock.
        Only MetastoreUnavailable and MetastoreWriteFailed leave it open, since nothing was decided:
        commit again, or abort.
        """
        try:
            self._metastore.call(ops.CommitTxn(self.id, contents or ops.NOTHING_TO_COMMIT))
        except UNDECIDED:
            raise
        except AcidError as refused:
            if type(refused) is Terminal:
                self._abort_after(refused)  # not sent: the message is too large
            self.forget()
            raise
        self.forget()

    def abort(self, reason: str = "") -> None:
        """Aborts it. An aborted transaction is no error; raises NoSuchTxn if it was committed
        (T12)."""
        self.forget()
        self._metastore.call(ops.AbortTxn(self.id, reason))

    def forget(self) -> None:
        """Stops the heartbeats without ending the transaction in the metastore."""
        self.ended = True
        self._metastore.beats.remove(self)

    def when_lost(self, callback: Callable[[str], None]) -> None:
        """Calls `callback` with the reason, in another thread, if the metastore aborts it (P4)."""
        self._callbacks.append(callback)

    def found_lost(self, reason: str) -> None:
        self.lost = reason
        self.forget()
        for callback in self._callbacks:
            callback(reason)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if self.ended:
            return
        if error is None:
            try:
                self.commit()
            except AcidError as refused:
                self._abort_after(refused)
                raise
        else:
            self._abort_after(error)

    def _abort_after(self, error: BaseException) -> None:
        if self.ended:
            return
        try:
            self.abort(f"{type(error).__name__}: {error}")
        except AcidError as second:
            error.add_note(f"aborting transaction {self.id} failed too: {second}")

    def __repr__(self) -> str:
        return f"<Transaction {self.id} {self.kind.name}{' ended' if self.ended else ''}>"


class CompactionTransaction(OpenTransaction):
    """The transaction of a compaction task (C28). `valid_txns` lists itself as open."""

    def __init__(self, metastore: Metastore, begun: ops.CompactionGranted) -> None:
        self.task = begun.task
        self.compactor_list: CompactorWriteIdList = begun.compactor_list
        super().__init__(metastore, TxnType.COMPACTION, begun.granted)

    def commit_compaction(self, reports: Sequence[WriteReport]) -> None:
        """Commits the outputs and makes the task ready for cleaning, at once (C30, P21).

        Raises CompactionLost or TxnAborted: drop the output then.
        """
        try:
            self._metastore.call(ops.CommitCompaction.of(self.task, self.id, tuple(reports)))
        finally:
            self.forget()
