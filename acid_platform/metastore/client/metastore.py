"""The metastore as a client sees it: a method for every operation (P3, P11, P12).

The metastore's errors arrive as the same classes. Each call that changes something takes effect
once, even if the connection breaks or the process dies: see link.py.
"""

from __future__ import annotations

import atexit
import getpass
import os
import socket
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from functools import cache
from types import TracebackType
from typing import Self, TypeVar

from acid_platform.metastore.client.compaction import CompactionCalls
from acid_platform.metastore.client.foreign_transactions import ForeignTransactionCalls
from acid_platform.metastore.client.heartbeats import Heartbeats
from acid_platform.metastore.client.history import HistoryCalls
from acid_platform.metastore.client.link import Link
from acid_platform.metastore.client.locks import LockCalls
from acid_platform.metastore.client.shows import ShowCalls
from acid_platform.metastore.client.tables import TableCalls
from acid_platform.metastore.client.target import find
from acid_platform.metastore.client.transaction import (
    CompactionTransaction,
    Transaction,
)
from acid_platform.metastore.codec import encode
from acid_platform.metastore.operations import Operation, Row
from acid_platform.metastore.operations.compaction import (
    BeginCompaction,
)
from acid_platform.metastore.operations.replication import ForgetStandby, Promote
from acid_platform.metastore.operations.shows import (
    GetOutcome,
    Stop,
)
from acid_platform.metastore.operations.tables import (
    GetIdentity,
    GetSettings,
    Identify,
    IdentityPlaced,
    Relocate,
    SetValue,
    TakeOver,
)
from acid_platform.metastore.operations.transactions import (
    AbortMany,
    Begin,
    Drop,
    GetGranted,
    GetTxnOutcome,
    GetTxnStates,
    Heartbeat,
    OpenBatch,
)
from acid_platform.metastore.places import Places, absolute
from acid_platform.metastore.records import (
    ClientInfo,
    CompactionTask,
    LockRequest,
    TableRecord,
)
from acid_platform.transactions import TxnType
from acid_platform.transactions.locks import LockType

A = TypeVar("A")
Info = ClientInfo | Mapping[str, str]

__all__ = ["CompactionTransaction", "Metastore", "Transaction"]

_handles: weakref.WeakSet[Metastore]


class Metastore(
    TableCalls, CompactionCalls, LockCalls, ShowCalls, HistoryCalls, ForeignTransactionCalls
):
    """A client of one metastore. It may be used from several threads, and after a fork."""

    def __init__(self, link: Link, root: str = "") -> None:
        """`root`: path or URI of the warehouse. Without it, locations stay as the metastore stores
        them: relative to a root that it does not know (P31)."""
        self._link = link
        self.places = Places(root)
        self._beats = Heartbeats(link)
        now = self._call(GetSettings())
        self._beats.interval = now.heartbeat / 1000
        self._beats.threads = int(now.settings["hive.txn.heartbeat.threadpool.size"])
        _handles.add(self)

    @classmethod
    def connect(
        cls,
        directory: str | os.PathLike[str],
        autostart: bool = True,
        settings: Mapping[str, str] | None = None,
        root: str = "",
    ) -> Self:
        """Connects to the metastore of the directory, or starts it; changes `settings` that differ.

        `root`: see `__init__`. Whether it belongs to this metastore is checked by tables.joining.
        `tcp://host:port` is a service: the client needs the key in ACID_METASTORE_KEY or
        ACID_METASTORE_KEY_FILE, and never starts it. Raises MetastoreUnavailable,
        MetastoreIncompatible, MetastoreRefused, SettingRefused.
        """
        handle = cls(Link(find(directory, autostart=autostart)), root)
        for name, value in (settings or {}).items():
            if handle.settings().get(name) != value:
                handle.set(name, value)
        return handle

    def close(self) -> None:
        """Ends the heartbeats and this thread's connection; open transactions time out."""
        self._beats.close()
        self._link.close()

    def disconnect(self) -> None:
        """Closes this thread's connection; the next call of the thread opens another."""
        self._link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _call(self, operation: Operation[A]) -> A:
        return self._link.call(operation)

    def forked(self) -> None:
        """To be called in the child after a fork: it does not keep the parent's
        transactions alive."""
        self._beats.reset()

    def ends(self) -> None:
        """To be called when the process ends: no thread of this handle outlives it."""
        self._beats.end(patience=0.2)

    def set(self, name: str, value: str) -> None:
        """Changes a setting; it survives a restart. Raises SettingRefused.

        A new `hive.txn.timeout` applies to the heartbeats of this handle at once. Other handles
        learn it from the next answer about one of their transactions; until then the metastore
        grants them the old timeout (P29).
        """
        self._beats.learn(self._call(SetValue(name, value)))

    # --- dropping: a transaction with an exclusive lock --------------------------------------

    def drop_table(self, name: str, wait: float = 60.0, info: Info | None = None) -> TableRecord:
        """Drops a table under an EXCLUSIVE lock; the Cleaner removes the files later (P22, C41)."""
        return self._drop(name, None, wait, info)

    def drop_partition(
        self, name: str, partition: str, wait: float = 60.0, info: Info | None = None
    ) -> TableRecord:
        """Like `drop_table`. If the partition is created again, it sees only later
        write ids (P22)."""
        return self._drop(name, partition, wait, info)

    def _drop(
        self, name: str, partition: str | None, wait: float, info: Info | None
    ) -> TableRecord:
        record = self.table(name)
        lock = LockRequest(name, LockType.EXCLUSIVE, partition=partition)
        with self.begin(locks=[lock], wait=wait, info=info) as txn:
            self._call(Drop(txn.id, name, partition))
            txn.forget()
        return record

    # --- transactions -----------------------------------------------------------------------

    def begin(
        self,
        kind: TxnType = TxnType.DEFAULT,
        locks: Sequence[LockRequest] = (),
        wait: float = 60.0,
        zero_wait: bool | None = None,
        info: Info | None = None,
        read_only: bool = False,
    ) -> Transaction:
        """Opens, locks, allocates write ids and takes the snapshot in one message (P6, S4).

        Waits up to `wait` seconds, then raises LockTimeout and aborts the transaction. `zero_wait`
        None follows Hive: a blocked read is refused at once (LockNotAcquired, L10). Also raises
        TooManyOpenTxns, NoSuchTable, NoSuchPartition.
        """
        chosen = TxnType.READ_ONLY if read_only else kind
        granted = self._call(
            Begin(chosen.value, tuple(locks), wait, zero_wait, _info(info), tables=())
        )
        return Transaction(self._link, self._beats, chosen, granted, self.places)

    def open_snapshot(
        self, tables: Sequence[str] | None = None, info: Info | None = None
    ) -> Transaction:
        """Opens a read lease: a journaled READ_ONLY transaction for these tables, None for all
        (P12)."""
        kind = TxnType.READ_ONLY
        asked = None if tables is None else tuple(tables)
        granted = self._call(Begin(kind.value, (), 0, None, _info(info), asked))
        return Transaction(self._link, self._beats, kind, granted, self.places)

    def open_transactions(self, count: int, info: Info | None = None) -> list[Transaction]:
        """Opens several transactions at once, at most `hive.txn.max.open.batch` (T1)."""
        kind = TxnType.DEFAULT
        return [
            Transaction(self._link, self._beats, kind, self._call(GetGranted(txn_id)), self.places)
            for txn_id in self._call(OpenBatch(count, kind.value, _info(info)))
        ]

    def resume(self, txn_id: int, read_only: bool = False) -> Transaction:
        """An open transaction that another process has begun; this one keeps it alive from now on.

        `read_only`: it is a read lease. Raises NoSuchTxn, TxnAborted, SnapshotExpired.
        """
        granted = self._call(GetGranted(txn_id))
        kind = TxnType.READ_ONLY if read_only else TxnType.DEFAULT
        return Transaction(self._link, self._beats, kind, granted, self.places)

    def abort_transactions(self, ids: Sequence[int], reason: str = "") -> str:
        """Aborts those that are open, and returns `aborted k of n` (T12)."""
        return self._call(AbortMany(tuple(ids), reason)).message

    def heartbeat(self, ids: Sequence[int]) -> tuple[list[int], list[int]]:
        """Keeps the transactions alive; returns the ids that are aborted and those that are
        unknown.

        Never raises because of an id (T8).
        """
        alive = self._call(Heartbeat(tuple(ids)))
        return alive.aborted, alive.unknown

    def outcome(self, txn_id: int | None = None, request_id: str | None = None) -> Row:
        """How a transaction ended (`state` o, c or a), or the answer to a request (P3).

        Raises NoSuchTxn if nothing is known, which never means "not committed".
        """
        if txn_id is not None:
            return encode(self._call(GetTxnOutcome(txn_id)))
        return encode(self._call(GetOutcome(request_id or "")))

    def txn_states(self, ids: Iterable[int]) -> dict[int, str]:
        """The state of each transaction: o, c, a, or u for unknown (P19 asks for owners of
        `_tmp_`)."""
        return self._call(GetTxnStates(tuple(ids)))

    # --- whose the files are (P31) ----------------------------------------------------------

    def identity(self) -> tuple[str | None, bool]:
        """The warehouse's identity, and whether its root carries it.

        Locations of an older version below this client's root become relative.
        """
        known = self._call(GetIdentity(self.places.spellings))
        if known.id and known.inside:
            self._call(Relocate(self.places.spellings))
        return known.id, known.placed

    def identify(self, proposed: str) -> tuple[str, bool]:
        """Like `identity`, but a metastore without an identity takes the proposed one."""
        known = self._call(Identify(proposed, self.places.spellings))
        return known.id or proposed, known.placed

    def identity_placed(self, identity: str) -> None:
        """Reports that the root carries the identity now."""
        self._call(IdentityPlaced(identity))

    def take_over(self, name: str | None = None) -> list[str]:
        """Makes a foreign table, or all of them, writable again and returns which. Raises
        NoSuchTable."""
        return self._call(TakeOver(name))

    def relocate(self, root: str) -> list[str]:
        """Makes locations below `root`, an earlier root, part of this warehouse, and
        returns them."""
        return self._call(Relocate((absolute(root),)))

    # --- compaction, standby, stop ----------------------------------------------------------

    def begin_compaction(
        self, task: CompactionTask, worker: str, info: Info | None = None
    ) -> CompactionTransaction:
        """Opens the COMPACTION transaction, with `compactor_list` (S16), its lock and `task` (C28).

        `valid_txns` lists the transaction itself as open. Raises CompactionLost and
        LockNotAcquired; the Worker then calls `fail_compaction`, which puts the task back.
        """
        begun = self._call(BeginCompaction(task.id, worker, task.attempt, _info(info)))
        return CompactionTransaction(self._link, self._beats, begun, self.places)

    def promote(self, incomplete: bool = False) -> int:
        """Makes this standby the primary and returns its term.

        `incomplete`: although it may lack commits that were acknowledged. Raises StandbyRefused.
        """
        return self._call(Promote(incomplete))

    def forget_standby(self) -> str:
        """Lets this primary go on without its standby, which must have ended for good.

        Returns the standby's id. Raises StandbyRefused.
        """
        return self._call(ForgetStandby())

    def stop(self) -> int:
        """Stops the metastore process, waits for its end and returns its process id.

        Raises MetastoreUnavailable if it still runs after a while.
        """
        pid = self._call(Stop())
        self._link.await_end(pid)
        return pid


def _info(info: Info | None) -> ClientInfo:
    """Who opens a transaction; what the caller passes takes precedence over the
    machine's values."""
    given = encode(info) if isinstance(info, ClientInfo) else dict(info or {})
    known = {key: str(value) for key, value in given.items() if value and key in _INFO}
    return replace(_myself(), **known)


_INFO = tuple(field.name for field in fields(ClientInfo))


@cache
def _myself() -> ClientInfo:
    return ClientInfo(getpass.getuser(), socket.gethostname())


_handles = weakref.WeakSet()


def _after_fork() -> None:
    for handle in list(_handles):
        handle.forked()


os.register_at_fork(after_in_child=_after_fork)


@atexit.register
def _at_exit() -> None:
    """Ends the threads of heartbeats: one that lives when Python ends keeps what it can reach."""
    for handle in list(_handles):
        handle.ends()
