"""The metastore as a client sees it: every call, by its name (api.md, P3, P11, P12).

Errors of the metastore arrive as the same classes. Each mutating call is done once, also when the
connection breaks or the process dies: see rpc.py.
"""

from __future__ import annotations

import getpass
import os
import socket
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from acid_platform.config import Settings
from acid_platform.metastore.codec import decode, encode
from acid_platform.metastore.endpoint import Home
from acid_platform.metastore.records import (
    BlockedCleaning,
    CleaningTask,
    ClientInfo,
    CompactionTask,
    EntityState,
    LockRequest,
    PartitionRecord,
    TableRecord,
    WriteReport,
)
from acid_platform.metastore.rpc import Link
from acid_platform.metastore.transaction import CompactionTransaction, Heartbeats, Transaction
from acid_platform.transactions import TxnType
from acid_platform.transactions.locks import LockType

Json = dict[str, Any]
Info = ClientInfo | Mapping[str, str]

__all__ = ["CompactionTransaction", "Metastore", "Transaction"]

_WAIT = "hive.compactor.wait.timeout"

_handles: weakref.WeakSet[Metastore]


class Metastore:
    """A client of one metastore; safe to use from several threads and after a fork."""

    def __init__(self, link: Link) -> None:
        self._link = link
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
    ) -> Self:
        """Joins the metastore of the directory, or starts it; `settings` are set if they differ.

        Raises MetastoreUnavailable, MetastoreIncompatible, SettingRefused.
        """
        handle = cls(Link(Home(Path(directory).resolve()), autostart=autostart))
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
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _call(self, op: str, **args: Any) -> Json:
        return self._link.call(op, **args)

    def forked(self) -> None:
        """In the child of a fork: the parent's transactions are not kept alive from here."""
        self._beats.reset()

    # --- databases, tables, settings --------------------------------------------------------

    def create_database(self, name: str, if_not_exists: bool = False) -> None:
        self._call("create_database", name=name, if_not_exists=if_not_exists)

    def databases(self) -> list[str]:
        found: list[str] = self._call("databases")["databases"]
        return found

    def drop_database(self, name: str) -> None:
        """Raises InvalidDefinition while it holds tables."""
        self._call("drop_database", name=name)

    def create_table(
        self,
        name: str,
        location: str,
        columns: Sequence[tuple[str, str]],
        partition_columns: Sequence[tuple[str, str]] = (),
        properties: Mapping[str, str] | None = None,
        bucket_columns: Sequence[str] = (),
        bucket_count: int = 0,
        if_not_exists: bool = False,
    ) -> TableRecord:
        """Raises TableExists, InvalidDefinition."""
        table = _declared(
            name, location, columns, partition_columns, properties, bucket_columns, bucket_count
        )
        answer = self._call("create_table", table=table, if_not_exists=if_not_exists)
        return decode(TableRecord, answer["table"])

    def adopt_table(
        self,
        name: str,
        location: str,
        columns: Sequence[tuple[str, str]],
        partition_columns: Sequence[tuple[str, str]] = (),
        properties: Mapping[str, str] | None = None,
        bucket_columns: Sequence[str] = (),
        bucket_count: int = 0,
        *,
        write_id: int = 0,
        txn_id: int = 0,
        aborted: Iterable[int] = (),
        partitions: Iterable[str] = (),
        directories: Sequence[WriteReport] = (),
    ) -> TableRecord:
        """A table whose files are there: counters start above `write_id` and `txn_id` (P24).

        `aborted` are the write ids that count as aborted. A directory named "" reports original
        files. Raises TableExists, InvalidDefinition.
        """
        table = _declared(
            name, location, columns, partition_columns, properties, bucket_columns, bucket_count
        )
        answer = self._call(
            "adopt_table", table=table, write_id=write_id, txn_id=txn_id, aborted=sorted(aborted),
            partitions=list(partitions), directories=[encode(one) for one in directories],
        )
        return decode(TableRecord, answer["table"])

    def table(self, name: str) -> TableRecord:
        """Raises NoSuchTable."""
        return decode(TableRecord, self._call("table", name=name)["table"])

    def tables(self) -> list[TableRecord]:
        return [decode(TableRecord, one) for one in self._call("tables")["tables"]]

    def alter_table(
        self,
        name: str,
        columns: Sequence[tuple[str, str]] | None = None,
        properties: Mapping[str, str | None] | None = None,
        rename: str | None = None,
    ) -> TableRecord:
        """New columns, merged properties (None removes one), a new name; the location stays."""
        answer = self._call(
            "alter_table", name=name, columns=columns and [list(one) for one in columns],
            properties=None if properties is None else dict(properties), rename=rename,
        )
        return decode(TableRecord, answer["table"])

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

    def partitions(self, name: str) -> list[str]:
        return [one.name for one in self.partition_records(name)]

    def partition_records(self, name: str) -> list[PartitionRecord]:
        """With the floor of each (P22)."""
        found = self._call("partitions", name=name)["partitions"]
        return [decode(PartitionRecord, one) for one in found]

    def add_partitions(self, name: str, partitions: Sequence[str]) -> list[str]:
        """Registers them and answers which were new. Raises NoSuchPartition."""
        added: list[str] = self._call(
            "add_partitions", name=name, partitions=list(partitions)
        )["added"]
        return added

    def settings(self) -> dict[str, str]:
        """Every setting with its value as text."""
        found: dict[str, str] = self._call("settings")["settings"]
        return found

    def set(self, name: str, value: str) -> None:
        """Kept over restarts. Raises SettingRefused."""
        self._call("set", name=name, value=value)

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
            "begin", kind=chosen.value, locks=[encode(one) for one in locks], wait=wait,
            zero_wait=zero_wait, info=_info(info), tables=[],
        )
        return Transaction(self._link, self._beats, chosen, answer)

    def open_snapshot(
        self, tables: Sequence[str] | None = None, info: Info | None = None
    ) -> Transaction:
        """A read lease: a journaled READ_ONLY transaction for these tables, None for all (P12)."""
        answer = self._call(
            "begin", kind=TxnType.READ_ONLY.value, locks=[], wait=0, zero_wait=None,
            info=_info(info), tables=None if tables is None else list(tables),
        )
        return Transaction(self._link, self._beats, TxnType.READ_ONLY, answer)

    def open_transactions(self, count: int, info: Info | None = None) -> list[Transaction]:
        """Several at once; at most `hive.txn.max.open.batch` are opened (T1)."""
        ids = self._call(
            "open_batch", count=count, kind=TxnType.DEFAULT.value, info=_info(info)
        )["txns"]
        return [
            Transaction(self._link, self._beats, TxnType.DEFAULT, self._call("granted", txn=one))
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

    # --- compaction -------------------------------------------------------------------------

    def entities(self) -> list[EntityState]:
        """What the Initiator decides about (C1 to C20)."""
        return [decode(EntityState, one) for one in self._call("entities")["entities"]]

    def request_compaction(
        self,
        table: str,
        partition: str | None,
        kind: str,
        properties: Mapping[str, str] | None = None,
        initiator: str = "",
    ) -> int:
        """Enqueues (C24). Raises AlreadyScheduled naming the row, CompactionRefused."""
        answer = self._call(
            "request_compaction", table=table, partition=partition, kind=kind,
            properties=dict(properties or {}), initiator=initiator,
        )
        number: int = answer["id"]
        return number

    def record_not_initiated(self, table: str, partition: str | None, reason: str) -> None:
        self._call("record_not_initiated", table=table, partition=partition, reason=reason)

    def take_compaction(self, worker: str, table: str | None = None) -> CompactionTask | None:
        """The next task (of a table), now `working` and owned by this worker and attempt (C26)."""
        task = self._call("take_compaction", worker=worker, table=table)["task"]
        return None if task is None else decode(CompactionTask, task)

    def begin_compaction(
        self, task: CompactionTask, worker: str, info: Info | None = None
    ) -> CompactionTransaction:
        """The COMPACTION transaction, with `compactor_list` (S16), its lock and `task` (C28).

        `valid_txns` has the transaction itself as open. Raises CompactionLost, LockNotAcquired:
        the Worker then calls `fail_compaction`.
        """
        answer = self._call("begin_compaction", **_owner(task, worker), info=_info(info))
        return CompactionTransaction(self._link, self._beats, answer)

    def commit_compaction(
        self, task: CompactionTask, txn: Transaction, reports: Sequence[WriteReport]
    ) -> None:
        """Publishes, commits and makes the row ready for cleaning, all at once (C30, P21).

        Raises CompactionLost or TxnAborted: drop the output then.
        """
        try:
            self._call(
                "commit_compaction", **_owner(task), txn=txn.id,
                writes=[encode(one) for one in reports],
            )
        finally:
            txn.forget()

    def compaction_nothing_to_do(
        self, task: CompactionTask, txn: Transaction, to_cleaning: bool, reason: str
    ) -> None:
        """Ready for cleaning, or refused; the transaction commits (C29)."""
        self._call(
            "compaction_nothing_to_do", **_owner(task), txn=txn.id, to_cleaning=to_cleaning,
            reason=reason,
        )
        txn.forget()

    def fail_compaction(self, task: CompactionTask, txn: Transaction | None, error: str) -> None:
        """Failed, and the transaction aborted (C32). Raises CompactionLost."""
        if txn is not None:
            txn.forget()
        self._call("fail_compaction", **_owner(task), txn=txn.id if txn else None, error=error)

    def abort_compactions(self, ids: Sequence[int]) -> dict[int, str]:
        """A message for each id; only initiated rows are aborted (C60)."""
        messages = self._call("abort_compactions", ids=list(ids))["messages"]
        return {int(key): text for key, text in messages.items()}

    def revoke_workers(self, host: str | None = None) -> list[int]:
        """Working rows of the host, or (None) those that timed out, are initiated again (C25)."""
        ids: list[int] = self._call("revoke_workers", host=host)["ids"]
        return ids

    def compaction_done(self, compaction: int) -> bool:
        """Whether it is neither initiated nor working any more. Raises CompactionRefused."""
        done: bool = self._call("compaction", id=compaction)["done"]
        return done

    def wait_compaction(self, compaction: int, timeout: float | None = None) -> Json:
        """Its SHOW COMPACTIONS row, once it is neither initiated nor working, or after `timeout`
        seconds (`hive.compactor.wait.timeout`); a timeout cancels nothing (C59)."""
        if timeout is None:
            timeout = Settings.of(self._call("settings")["set"]).integer(_WAIT) / 1000
        deadline, pause = time.monotonic() + timeout, 0.02
        while True:
            answer = self._call("compaction", id=compaction)
            if answer["done"] or time.monotonic() >= deadline:
                row: Json = answer["row"]
                return row
            time.sleep(min(pause, max(0.0, deadline - time.monotonic())))
            pause = min(2 * pause, 0.5)

    # --- cleaning ---------------------------------------------------------------------------

    def ready_to_clean(self) -> list[CleaningTask]:
        """What may be cleaned now (C37 to C55)."""
        return [decode(CleaningTask, one) for one in self._call("cleaning")["ready"]]

    def cleaning_blocked(self) -> list[BlockedCleaning]:
        """What has to wait, with the reason and the transactions it waits for."""
        return [decode(BlockedCleaning, one) for one in self._call("cleaning")["blocked"]]

    def start_cleaning(self, task: CleaningTask) -> CleaningTask:
        """Takes it, with fresh lists. Raises CompactionLost if it may not run now (P21)."""
        answer = self._call("start_cleaning", **_cleaned(task))
        return decode(CleaningTask, answer["task"])

    def mark_cleaned(
        self, task: CleaningTask, removed_write_ids: Iterable[int] | None = None
    ) -> None:
        """Done (C49). None: nothing aborted is left at or below the task's watermark; else only
        these aborted write ids are gone (C53). Raises CompactionLost."""
        removed = None if removed_write_ids is None else sorted(removed_write_ids)
        self._call("mark_cleaned", **_cleaned(task), removed=removed)

    def cleaning_failed(self, task: CleaningTask, error: str) -> None:
        """Tried again later, at most `hive.compactor.cleaner.retry.maxattempts` times (C48, P25).
        """
        self._call("cleaning_failed", **_cleaned(task), error=error)

    def cleaning_again(self, task: CleaningTask) -> None:
        """Something obsolete is still there: the next cycle looks again (C47)."""
        self._call("cleaning_again", **_cleaned(task))

    def refuse_cleaning(self, task: CleaningTask, reason: str) -> None:
        """NO_CLEANUP: the row ends as refused, the files stay (C44)."""
        self._call("refuse_cleaning", **_cleaned(task), reason=reason)

    # --- shows ------------------------------------------------------------------------------

    def transactions(self) -> list[Json]:
        """SHOW TRANSACTIONS."""
        return self._rows("transactions")

    def locks(self) -> list[Json]:
        """SHOW LOCKS."""
        return self._rows("locks")

    def compactions(self) -> list[Json]:
        """SHOW COMPACTIONS: the queue and the history (C61)."""
        return self._rows("compactions")

    def history(self, table: str) -> list[Json]:
        """Committed directories of the table, oldest first; fields as in HistoryRow."""
        return self._rows("history", name=table)

    def _rows(self, op: str, **args: Any) -> list[Json]:
        rows: list[Json] = self._call(op, **args)["rows"]
        return rows

    def status(self) -> Json:
        """Process, epoch and counters of the metastore."""
        return self._call("status")

    def query(self, sql: str) -> tuple[list[str], list[list[Any]]]:
        """Columns and rows of one SELECT over the metastore's own tables."""
        answer = self._call("query", sql=sql)
        return answer["columns"], answer["rows"]

    def stop(self) -> int:
        """Stops the metastore process cleanly and answers its process id."""
        pid: int = self._call("stop")["pid"]
        self._link.close()
        return pid


def _declared(
    name: str,
    location: str,
    columns: Sequence[tuple[str, str]],
    partition_columns: Sequence[tuple[str, str]],
    properties: Mapping[str, str] | None,
    bucket_columns: Sequence[str],
    bucket_count: int,
) -> Json:
    return encode(TableRecord(
        0, name, location, tuple(columns), tuple(partition_columns), dict(properties or {}),
        tuple(bucket_columns), bucket_count,
    ))


def _info(info: Info | None) -> Json:
    """Who we are; what the caller says goes before what the machine says."""
    given = encode(info) if isinstance(info, ClientInfo) else dict(info or {})
    known = {"user": getpass.getuser(), "host": socket.gethostname()}
    return {**known, **{key: value for key, value in given.items() if value}}


def _owner(task: CompactionTask, worker: str | None = None) -> Json:
    return {"id": task.id, "worker": worker or task.worker, "attempt": task.attempt}


def _cleaned(task: CleaningTask) -> Json:
    return {
        "id": task.id, "table": task.table, "table_id": task.table_id,
        "partition": task.partition, "highest_write_id": task.highest_write_id,
    }


_handles = weakref.WeakSet()


def _after_fork() -> None:
    for handle in list(_handles):
        handle.forked()


os.register_at_fork(after_in_child=_after_fork)
