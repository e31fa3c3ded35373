"""The metastore as a client sees it: `call` does every operation, and some have a method too.

The metastore's errors arrive as the same classes. Each call that changes something takes effect
once, even if the connection breaks or the process dies: see link.py.
"""

from __future__ import annotations

import getpass
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Self, TypeVar

from acid_platform.base.config import PATHS, Settings
from acid_platform.base.first_use import ClosedAfter
from acid_platform.base.paths import user_path
from acid_platform.layout.types import Constraint
from acid_platform.metastore import operations as ops
from acid_platform.metastore.branches import refuse_on_branch, require_on_branch
from acid_platform.metastore.client.link import Link
from acid_platform.metastore.client.open_transaction import (
    CompactionTransaction,
    Heartbeats,
    OpenTransaction,
)
from acid_platform.metastore.client.target import find
from acid_platform.metastore.messages import MetastoreOperation, Row, Values, encode
from acid_platform.metastore.operations.listings import history_entries
from acid_platform.metastore.places import Places, placed
from acid_platform.metastore.records import ClientInfo, LockRequest, TableRecord, ViewRecord
from acid_platform.transactions import TxnType
from acid_platform.transactions.concurrency import LockType

if TYPE_CHECKING:
    from acid_platform.metastore.operations.compaction import (
        CompactionTask,
        EntityCounters,
        EntityState,
    )

A = TypeVar("A")

__all__ = ["CompactionTransaction", "Metastore", "OpenTransaction"]


class Metastore(ClosedAfter):
    """A client of one metastore. It may be used from several threads, and after a fork."""

    def __init__(self, link: Link, root: str = "") -> None:
        """`root`: path or URI of the warehouse. Without it, locations stay as the metastore stores
        them: relative to a root that it does not know (P31)."""
        self._link = link
        self.places = Places(root)
        self.branch = ""
        """The branch on which transactions begin here (P80)."""
        self.beats = Heartbeats(link)
        now = self.call(ops.GetSettings())
        self.lock_settings = Settings.of(now.set).lock_settings
        """As the newest transaction of this handle knows them."""
        self.beats.interval = now.heartbeat / 1000
        self.beats.threads = int(now.settings["hive.txn.heartbeat.threadpool.size"])

    @classmethod
    def connect(
        cls,
        directory: str | os.PathLike[str],
        autostart: bool = True,
        root: str = "",
    ) -> Self:
        """Connects to the metastore of the directory, or starts it.

        `root`: see `__init__`. Whether it belongs to this metastore is checked by tables.joining.
        `tcp://host:port` is a service: the client needs the key in ACID_METASTORE_KEY or
        ACID_METASTORE_KEY_FILE, and never starts it. Raises MetastoreUnavailable,
        MetastoreIncompatible, MetastoreRefused.
        """
        return cls(Link(find(directory, autostart=autostart)), root)

    def call(self, operation: MetastoreOperation[A]) -> A:
        """Does an operation (acid_platform.metastore.operations) and returns its answer, in which
        locations are whole paths or URIs.

        Raises the error that the metastore answered, MetastoreUnavailable, OutcomeUnknown,
        MetastoreWriteFailed, and Terminal for a message that is too large. InvalidDefinition for
        what is not done on a branch.
        """
        if self.branch:
            require_on_branch(operation, self.branch)
        answer = self._link.call(operation)
        if self.places.root:
            answer = placed(self.places, answer)
        return answer

    # --- the handle ---------------------------------------------------------------------------

    def close(self) -> None:
        """Ends the heartbeats and this thread's connection; open transactions time out."""
        self.beats.close()
        self._link.close()

    def disconnect(self) -> None:
        """Closes this thread's connection; the next call of the thread opens another."""
        self._link.close()

    # --- settings -----------------------------------------------------------------------------

    def set(self, name: str, value: str) -> None:
        """Changes a setting; it survives a restart. A path gets absolute here (P70), since the
        process has another current directory. Raises SettingRefused.

        A new `hive.txn.timeout` applies to the heartbeats of this handle at once. Other handles
        learn it from the next answer about one of their transactions; until then the metastore
        grants them the old timeout (P29).
        """
        if name in PATHS and value.strip():
            value = ",".join(user_path(part.strip()) for part in value.split(","))
        self.beats.learn(self.call(ops.ChangeSetting(name, value)))
        self.lock_settings = self.in_force.lock_settings

    def settings(self) -> dict[str, str]:
        """Every setting with its value as text."""
        return self.call(ops.GetSettings()).settings

    @property
    def in_force(self) -> Settings:
        """Every setting with its value, now; a transaction brings those of its beginning."""
        return Settings.of(self.call(ops.GetSettings()).set)

    # --- declarations -------------------------------------------------------------------------

    def databases(self) -> list[str]:
        return self.call(ops.GetDatabases(self.branch))

    def create_database(
        self,
        name: str,
        if_not_exists: bool = False,
        comment: str = "",
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Raises TableExists, InvalidDefinition."""
        self.call(ops.DeclareDatabase(name, if_not_exists, comment, dict(properties or {})))

    def tables(self) -> list[TableRecord]:
        """On a branch those that it shows."""
        return self.call(ops.GetTables(self.branch))

    def table(self, name: str) -> TableRecord:
        """Raises NoSuchTable."""
        return self.call(ops.GetTable(name, branch=self.branch))

    def views(self) -> list[ViewRecord]:
        """On a branch those that it shows."""
        return self.call(ops.GetViews(branch=self.branch))

    def partitions(self, name: str) -> list[str]:
        """The names of the registered partitions. Raises NoSuchTable."""
        found = self.call(ops.GetPartitions(name, branch=self.branch))
        return [partition.name for partition in found]

    def alter_table(
        self,
        name: str,
        columns: Sequence[tuple[str, str]] | None = None,
        properties: Mapping[str, str | None] | None = None,
        rename: str | None = None,
        read: TableRecord | None = None,
        comments: Mapping[str, str] | None = None,
        constraints: Sequence[Constraint] | None = None,
    ) -> TableRecord:
        """Changes columns, properties (merged; None removes one), the name, the comments of all
        columns, or all constraints; the location stays.

        `read` is the declaration that the change is based on: DeclarationChanged is raised if it
        has changed (P28). Also raises NoSuchTable, TableExists, InvalidDefinition.
        """
        change = ops.AlterTable(
            name,
            columns=None if columns is None else tuple(columns),
            properties=None if properties is None else dict(properties),
            rename=rename,
            read=None if read is None else (read.table_id, read.version),
            comments=None if comments is None else dict(comments),
            constraints=None if constraints is None else tuple(constraints),
        )
        return self.call(change)

    def drop(
        self,
        name: str,
        partition: str | None = None,
        wait: float = 60.0,
        unwritten: bool = False,
        purge: bool = False,
    ) -> None:
        """Drops a table or a partition under an EXCLUSIVE lock; the Cleaner removes the files later
        (C41). A partition that is made again sees only later write ids (P22).

        `unwritten`: only a table into which nobody has committed anything, on no branch either.
        `purge`: it can't come back. Raises InvalidDefinition on a branch, unless `unwritten`.
        """
        if self.branch and not unwritten:
            refuse_on_branch("drop", self.branch)
        self.call(ops.GetTable(name))
        lock = LockRequest(name, LockType.EXCLUSIVE, partition=partition)
        with self.begin(locks=[lock], wait=wait, branch="") as txn:
            if unwritten and (
                self.call(ops.GetHistory(name))
                or any(name in row.write_ids for row in self.call(ops.GetBranches(judged=False)))
            ):
                return
            self._link.call(ops.Drop(txn.id, name, partition, purge or unwritten))
            txn.forget()

    # --- transactions -------------------------------------------------------------------------

    def begin(
        self,
        locks: Sequence[LockRequest] = (),
        wait: float = 60.0,
        info: ClientInfo | None = None,
        describe: bool = False,
        reads: Sequence[str] = (),
        branch: str | None = None,
    ) -> OpenTransaction:
        """Opens, locks, allocates write ids and takes the snapshot in one message (P6, S4).

        `describe`: what the snapshot sees of the locked tables and of those that it `reads` comes
        with it, unless it waited: then `table`, `partition_records` and `manifest` answer without
        a message. `branch`: None is that of this client.

        Waits up to `wait` seconds, then raises LockTimeout and aborts the transaction. As in Hive,
        a blocked read is refused at once (LockNotAcquired, L10). Also raises TooManyOpenTxns,
        NoSuchTable, NoSuchPartition.
        """
        kind = TxnType.DEFAULT
        begin = ops.Begin(
            kind=kind.value,
            locks=tuple(locks),
            wait=wait,
            zero_wait=None,
            info=client_info(info),
            tables=tuple(reads),
            describe=describe,
            branch=self.branch if branch is None else branch,
        )
        return OpenTransaction(self, kind, self.call(begin))

    def open_snapshot(
        self,
        tables: Sequence[str] | None = None,
        info: ClientInfo | None = None,
        describe: bool = False,
        branch: str | None = None,
    ) -> OpenTransaction:
        """Opens a read lease: a journaled READ_ONLY transaction for these tables, None for all
        (P12). `describe`: as of `begin`. `branch`: None is that of this client."""
        kind, asked = TxnType.READ_ONLY, None if tables is None else tuple(tables)
        begin = ops.Begin(
            kind=kind.value,
            locks=(),
            wait=0,
            zero_wait=None,
            info=client_info(info),
            tables=asked,
            describe=describe,
            branch=self.branch if branch is None else branch,
        )
        return OpenTransaction(self, kind, self.call(begin))

    def resume(self, txn_id: int, read_only: bool = False) -> OpenTransaction:
        """An open transaction that another process has begun; this one keeps it alive from now on.

        `read_only`: it is a read lease. Raises NoSuchTxn, TxnAborted, SnapshotExpired.
        """
        kind = TxnType.READ_ONLY if read_only else TxnType.DEFAULT
        return OpenTransaction(self, kind, self.call(ops.GetGranted(txn_id)))

    def outcome(self, txn_id: int) -> Row:
        """How a transaction ended: its `state` is o, c or a (P3).

        Raises NoSuchTxn if nothing is known, which never means "not committed".
        """
        return encode(self.call(ops.GetTxnOutcome(txn_id)))

    # --- compactions --------------------------------------------------------------------------

    def entities(self, table: str | None = None) -> list[EntityState]:
        """Every entity (of this table, if given) with each directory that was reported (P8)."""
        return self.call(ops.GetEntities(table))

    def candidates(self, since: int = 0) -> Iterator[EntityCounters]:
        """The entities that the Initiator decides about, `hive.compactor.fetch.size` per call (C1,
        C3).

        `since` is the moment when an earlier cycle began; 0 asks for all entities.
        """
        after: tuple[int, str] | None = None
        while True:
            page = self.call(ops.GetCandidates(since, after))
            yield from page.candidates
            after = page.after
            if after is None:
                return

    def request_compaction(
        self,
        table: str,
        partition: str | None,
        kind: str,
        properties: Mapping[str, str] | None = None,
        initiator: str = "",
    ) -> int:
        """Adds a compaction to the queue and returns its id (C24).

        Raises AlreadyScheduled, which names the queued row, and CompactionRefused.
        """
        return self.call(
            ops.RequestCompaction(table, partition, kind, dict(properties or {}), initiator)
        )

    def begin_compaction(
        self, task: CompactionTask, worker: str, info: ClientInfo | None = None
    ) -> CompactionTransaction:
        """Opens the COMPACTION transaction, with `compactor_list` (S16), its lock and `task` (C28).

        `valid_txns` lists the transaction itself as open. Raises CompactionLost and
        LockNotAcquired; the Worker then puts the task back by FailCompaction.
        """
        begin = ops.BeginCompaction(task.id, worker, task.attempt, client_info(info))
        return CompactionTransaction(self, self.call(begin))

    def wait_compaction(self, compaction: int, timeout: float | None = None) -> Row:
        """Waits until the compaction is no longer initiated or working, at most `timeout` seconds
        (`hive.compactor.wait.timeout`), and returns its row of SHOW COMPACTIONS.

        A timeout cancels nothing (C59).
        """
        if timeout is None:
            timeout = self.in_force.integer("hive.compactor.wait.timeout") / 1000
        deadline, pause = time.monotonic() + timeout, 0.02
        while True:
            shown = self.call(ops.ShowCompaction(compaction))
            if shown.ended or time.monotonic() >= deadline:
                return shown.row
            time.sleep(min(pause, max(0.0, deadline - time.monotonic())))
            pause = min(2 * pause, 0.5)

    # --- for people ---------------------------------------------------------------------------

    def transactions(self) -> list[Row]:
        """SHOW TRANSACTIONS."""
        return self.call(ops.ShowTransactions())

    def locks(self) -> list[Row]:
        """SHOW LOCKS."""
        return self.call(ops.ShowLocks())

    def compactions(self) -> list[Row]:
        """SHOW COMPACTIONS: the queue and the history (C61)."""
        return self.call(ops.ShowCompactions())

    def history(self, table: str) -> list[Row]:
        """The committed directories of the table, oldest first, with the fields of HistoryRow."""
        return history_entries(self.call(ops.GetHistory(table, self.branch)))

    def status(self) -> Row:
        """Process, epoch and counters of the metastore."""
        return self.call(ops.GetStatus())

    def query(self, sql: str) -> tuple[list[str], Values]:
        """Columns and rows of one SELECT over the metastore's own tables."""
        result = self.call(ops.RunQuery(sql))
        return result.columns, result.rows

    def stop(self) -> int:
        """Stops the metastore process, waits for its end and returns its process id.

        Raises MetastoreUnavailable if it still runs after a while.
        """
        pid = self.call(ops.Stop())
        self._link.await_end(pid)
        return pid


def client_info(info: ClientInfo | None = None) -> ClientInfo:
    """Who opens a transaction; what the caller passes takes precedence over the
    machine's values."""
    return replace(_myself(), **encode(info)) if info else _myself()


@cache
def _myself() -> ClientInfo:
    return ClientInfo(getpass.getuser(), socket.gethostname())
