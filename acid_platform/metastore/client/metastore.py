"""The metastore as a client sees it: every call, by its name (P3, P11, P12).

Errors of the metastore arrive as the same classes. Each mutating call is done once, also when the
connection breaks or the process dies: see link.py.
"""

from __future__ import annotations

import getpass
import os
import socket
import weakref
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from types import TracebackType
from typing import Any, Self

from acid_platform.metastore.client.compaction import CompactionCalls, owner
from acid_platform.metastore.client.link import Link
from acid_platform.metastore.client.locks import LockCalls
from acid_platform.metastore.client.shows import ShowCalls
from acid_platform.metastore.client.tables import TableCalls
from acid_platform.metastore.client.target import find
from acid_platform.metastore.client.transaction import (
    CompactionTransaction,
    Heartbeats,
    Transaction,
)
from acid_platform.metastore.codec import encode
from acid_platform.metastore.places import Places, absolute
from acid_platform.metastore.records import (
    ClientInfo,
    CompactionTask,
    LockRequest,
    TableRecord,
)
from acid_platform.transactions import TxnType
from acid_platform.transactions.locks import LockType

Json = dict[str, Any]
Info = ClientInfo | Mapping[str, str]

__all__ = ["CompactionTransaction", "Metastore", "Transaction"]

_handles: weakref.WeakSet[Metastore]


class Metastore(TableCalls, CompactionCalls, LockCalls, ShowCalls):
    """A client of one metastore; safe to use from several threads and after a fork."""

    def __init__(self, link: Link, root: str = "") -> None:
        """`root`: path or URI of the warehouse; without it locations stay as the metastore has
        them, relative to a root that it does not know (P31)."""
        self._link = link
        self.places = Places(root)
        self._beats = Heartbeats(link)
        answer = self._call("settings")
        self._beats.interval = answer["heartbeat"] / 1000
        self._beats.threads = int(answer["settings"]["hive.txn.heartbeat.threadpool.size"])
        _handles.add(self)

    @classmethod
    def connect(
        cls,
        directory: str | os.PathLike[str],
        autostart: bool = True,
        settings: Mapping[str, str] | None = None,
        root: str = "",
    ) -> Self:
        """Joins the metastore of the directory, or starts it; `settings` are set if they differ.

        `root`: see `__init__`. Whether it is the metastore's own is tables.joining's to find out.
        `tcp://host:port` is joined with the key of ACID_METASTORE_KEY or ACID_METASTORE_KEY_FILE,
        and never started. Raises MetastoreUnavailable, MetastoreIncompatible, MetastoreRefused,
        SettingRefused.
        """
        handle = cls(Link(find(directory, autostart=autostart)), root)
        for name, value in (settings or {}).items():
            if handle.settings().get(name) != value:
                handle.set(name, value)
        return handle

    def close(self) -> None:
        """Ends the heartbeats and the connection of this thread; open transactions time out."""
        self._beats.close()
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

    def _call(self, op: str, **args: Any) -> Json:
        return self._link.call(op, **args)

    def forked(self) -> None:
        """In the child of a fork: the parent's transactions are not kept alive from here."""
        self._beats.reset()

    def set(self, name: str, value: str) -> None:
        """A setting, kept over restarts. Raises SettingRefused.

        Another `hive.txn.timeout` counts for the heartbeats of this handle at once; other handles
        learn it by the next answer about one of their transactions, and until then the metastore
        waits for them as long as before (P29).
        """
        self._beats.learn(self._call("set", name=name, value=value)["heartbeat"])

    # --- dropping: a transaction with an exclusive lock --------------------------------------

    def drop_table(self, name: str, wait: float = 60.0, info: Info | None = None) -> TableRecord:
        """Waits for an EXCLUSIVE lock; the Cleaner removes the files later (P22, C41)."""
        return self._drop(name, None, wait, info)

    def drop_partition(
        self, name: str, partition: str, wait: float = 60.0, info: Info | None = None
    ) -> TableRecord:
        """As `drop_table`; created again, it sees only later write ids (P22)."""
        return self._drop(name, partition, wait, info)

    def _drop(
        self, name: str, partition: str | None, wait: float, info: Info | None
    ) -> TableRecord:
        record = self.table(name)
        lock = LockRequest(name, LockType.EXCLUSIVE, partition=partition)
        with self.begin(locks=[lock], wait=wait, info=info) as txn:
            self._call("drop", txn=txn.id, name=name, partition=partition)
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

        Waits up to `wait` seconds; then LockTimeout, and the transaction is aborted. `zero_wait`
        None follows Hive: a blocked read is refused at once (LockNotAcquired, L10). Also raises
        TooManyOpenTxns, NoSuchTable, NoSuchPartition.
        """
        chosen = TxnType.READ_ONLY if read_only else kind
        answer = self._call(
            "begin",
            kind=chosen.value,
            locks=[encode(one) for one in locks],
            wait=wait,
            zero_wait=zero_wait,
            info=_info(info),
            tables=[],
        )
        return Transaction(self._link, self._beats, chosen, answer, self.places)

    def open_snapshot(
        self, tables: Sequence[str] | None = None, info: Info | None = None
    ) -> Transaction:
        """A read lease: a journaled READ_ONLY transaction for these tables, None for all (P12)."""
        answer = self._call(
            "begin",
            kind=TxnType.READ_ONLY.value,
            locks=[],
            wait=0,
            zero_wait=None,
            info=_info(info),
            tables=None if tables is None else list(tables),
        )
        return Transaction(self._link, self._beats, TxnType.READ_ONLY, answer, self.places)

    def open_transactions(self, count: int, info: Info | None = None) -> list[Transaction]:
        """Several at once; at most `hive.txn.max.open.batch` are opened (T1)."""
        ids = self._call("open_batch", count=count, kind=TxnType.DEFAULT.value, info=_info(info))[
            "txns"
        ]
        return [
            Transaction(
                self._link,
                self._beats,
                TxnType.DEFAULT,
                self._call("granted", txn=one),
                self.places,
            )
            for one in ids
        ]

    def abort_transactions(self, ids: Sequence[int], reason: str = "") -> str:
        """Aborts those that are open, and answers `aborted k of n` (T12)."""
        answer = self._call("abort_many", txns=list(ids), reason=reason)
        message: str = answer["message"]
        return message

    def heartbeat(self, ids: Sequence[int]) -> tuple[list[int], list[int]]:
        """Aborted and unknown ids; the others were refreshed. Never raises for an id (T8)."""
        answer = self._call("heartbeat", txns=list(ids))
        return answer["aborted"], answer["unknown"]

    def outcome(self, txn_id: int | None = None, request_id: str | None = None) -> Json:
        """What became of a transaction (`state` o, c or a) or of a request (P3).

        Raises NoSuchTxn when nothing is known, which never means "not committed".
        """
        if txn_id is not None:
            return self._call("outcome_of_txn", txn=txn_id)
        return self._call("outcome", request_id=request_id)

    def txn_states(self, ids: Iterable[int]) -> dict[int, str]:
        """o, c, a, or u for unknown; of the owners of `_tmp_` directories (P19)."""
        states = self._call("txn_states", txns=list(ids))["states"]
        return {int(key): value for key, value in states.items()}

    # --- whose the files are (P31) ----------------------------------------------------------

    def identity(self) -> tuple[str | None, bool]:
        """The warehouse's identity, and whether its root carries it. Locations of an older version
        below this client's root become relative."""
        known = self._call("identity", roots=self.places.spellings)
        if known["id"] and known["inside"]:
            self._call("relocate", roots=self.places.spellings)
        return known["id"], known["placed"]

    def identify(self, proposed: str) -> tuple[str, bool]:
        """As `identity`; a metastore that has none takes the proposed one."""
        known = self._call("identify", id=proposed, roots=self.places.spellings)
        return known["id"], known["placed"]

    def identity_placed(self, identity: str) -> None:
        """The root carries it from now on."""
        self._call("placed", id=identity)

    def take_over(self, name: str | None = None) -> list[str]:
        """Lets a foreign table, or all of them, be written again: which. Raises NoSuchTable."""
        taken: list[str] = self._call("take_over", name=name)["tables"]
        return taken

    def relocate(self, root: str) -> list[str]:
        """What is recorded below an earlier `root` is in this warehouse: answers the locations."""
        moved: list[str] = self._call("relocate", roots=[absolute(root)])["moved"]
        return moved

    # --- compaction, stop -------------------------------------------------------------------

    def begin_compaction(
        self, task: CompactionTask, worker: str, info: Info | None = None
    ) -> CompactionTransaction:
        """The COMPACTION transaction, with `compactor_list` (S16), its lock and `task` (C28).

        `valid_txns` has the transaction itself as open. Raises CompactionLost, LockNotAcquired:
        the Worker then calls `fail_compaction`.
        """
        answer = self._call("begin_compaction", **owner(task, worker), info=_info(info))
        return CompactionTransaction(self._link, self._beats, answer, self.places)

    def stop(self) -> int:
        """Stops the metastore process, waits for its end and returns its process id.

        Raises MetastoreUnavailable if it still runs after a while.
        """
        pid: int = self._call("stop")["pid"]
        self._link.await_end(pid)
        return pid


def _info(info: Info | None) -> Json:
    """Who we are; what the caller says goes before what the machine says."""
    given = encode(info) if isinstance(info, ClientInfo) else dict(info or {})
    return {**_myself(), **{key: value for key, value in given.items() if value}}


@cache
def _myself() -> Json:
    return {"user": getpass.getuser(), "host": socket.gethostname()}


_handles = weakref.WeakSet()


def _after_fork() -> None:
    for handle in list(_handles):
        handle.forked()


os.register_at_fork(after_in_child=_after_fork)
