"""The metastore without its process: a state machine with a clock that tests advance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from acid_platform import errors
from acid_platform.metastore.messages import converters, decode, encode, read_operation
from acid_platform.metastore.operations.compaction import CleaningTask, CompactionTask, EntityState
from acid_platform.metastore.records import LockRequest, RowReport, WriteReport
from acid_platform.metastore.rules.machine import Handled, Machine
from acid_platform.metastore.rules.turn import Recorded
from acid_platform.scan.selection import shadows
from acid_platform.transactions import (
    CompactorWriteIdList,
    RowOperation,
    TxnType,
    ValidTxnList,
    ValidWriteIdList,
)
from acid_platform.transactions.concurrency import LockType
from tests.clocks import ManualClock
from tests.contents import counts

R, W = LockType.SHARED_READ, LockType.SHARED_WRITE
X, E = LockType.EXCL_WRITE, LockType.EXCLUSIVE
INSERT, UPDATE, DELETE = RowOperation.INSERT, RowOperation.UPDATE, RowOperation.DELETE
OVERWRITE = RowOperation.OVERWRITE
SELECT = RowOperation.SELECT


class Txn:
    """What a client knows about its transaction."""

    def __init__(self, value: dict[str, Any]) -> None:
        self.id: int = value["txn"]
        self.valid_txns = ValidTxnList.parse(value["valid_txns"])
        self.write_ids: dict[str, int] = value["write_ids"]
        self.stale: bool = value["stale"]


class Waits(Exception):
    """The request is parked."""


READ_TASK: Callable[[Any], CleaningTask] = converters(CleaningTask)[1]


class World:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.machine = Machine()
        self.machine.wake(self.clock.moment())
        self.events: list[Recorded] = []
        self.answers: dict[str, dict[str, Any]] = {}
        self.requests = 0

    @property
    def state(self) -> Any:
        return self.machine.state

    def take(self, handled: Handled) -> None:
        self.events += handled.events
        for reply in handled.replies:
            self.answers[reply.request_id] = {**reply.value}

    def send(self, op: str, **args: Any) -> str:
        """Sends a request and returns its id; its answer, unless it waits, is in `answers`."""
        self.requests += 1
        request_id = f"request-{self.requests}"
        self.take(self.handle(op, args, request_id))
        return request_id

    def handle(self, op: str, args: dict[str, Any], request_id: str) -> Handled:
        if isinstance(args.get("table"), dict):
            args = {**args, "table": {"table_id": 0, **args["table"]}}
        return self.machine.handle(read_operation(op, args), request_id, self.clock.moment())

    def answer(self, request_id: str) -> dict[str, Any]:
        if request_id not in self.answers:
            raise Waits(request_id)
        reply = self.answers[request_id]
        if "error" in reply:
            name, text = reply["error"]
            raise getattr(errors, name)(text)
        value: dict[str, Any] = reply["value"]
        return value

    def call(self, op: str, **args: Any) -> dict[str, Any]:
        return self.answer(self.send(op, **args))

    def tick(self, milliseconds: int = 0) -> None:
        self.clock.advance(milliseconds)
        self.take(self.machine.tick(self.clock.moment()))

    def set(self, name: str, value: str) -> None:
        self.call("set", name=name, value=value)

    # --- tables -----------------------------------------------------------------------------

    def create(self, name: str = "t", partitioned: bool = False, **more: Any) -> int:
        table = {
            "name": name,
            "location": f"/w/{name}",
            "columns": [["id", "int"]],
            "partition_columns": [["p", "int"]] if partitioned else [],
            **more,
        }
        answer = self.call("create_table", table=table, if_not_exists=False)
        number: int = answer["table"]["table_id"]
        return number

    # --- transactions -----------------------------------------------------------------------

    def begin_request(
        self,
        *locks: LockRequest,
        kind: TxnType = TxnType.DEFAULT,
        wait: float = 60,
        zero_wait: bool | None = None,
        tables: Sequence[str] | None = (),
        user: str = "",
        describe: bool = False,
        branch: str = "",
    ) -> str:
        return self.send(
            "begin",
            kind=kind.value,
            locks=[encode(lock) for lock in locks],
            wait=wait,
            zero_wait=zero_wait,
            info={"user": user},
            tables=None if tables is None else list(tables),
            describe=describe,
            branch=branch,
        )

    def allocate(self, txn: int, table: str) -> int:
        """The write id of a transaction, the same each time."""
        ((_, write_id),) = self.call("allocate_many", table=table, txns=[txn])["write_ids"]
        return int(write_id)

    def begin(self, *locks: LockRequest, **more: Any) -> Txn:
        return Txn(self.answer(self.begin_request(*locks, **more)))

    def read(self, tables: Sequence[str] | None = ()) -> Txn:
        return self.begin(kind=TxnType.READ_ONLY, tables=tables)

    def write(
        self,
        table: str = "t",
        operation: RowOperation = INSERT,
        partition: str | None = None,
        lock: LockType = W,
        **more: Any,
    ) -> Txn:
        return self.begin(LockRequest(table, lock, operation, partition), **more)

    def lock_request(
        self, txn: Txn, *locks: LockRequest, wait: float = 60, zero_wait: bool | None = False
    ) -> str:
        return self.send(
            "lock",
            txn=txn.id,
            locks=[encode(lock) for lock in locks],
            wait=wait,
            zero_wait=zero_wait,
        )

    def lock(self, txn: Txn, *locks: LockRequest, **more: Any) -> dict[str, Any]:
        return self.answer(self.lock_request(txn, *locks, **more))

    def commit(
        self, txn: Txn, *writes: WriteReport, changed: Sequence[RowReport] = ()
    ) -> dict[str, Any]:
        return self.call(
            "commit",
            txn=txn.id,
            writes=[encode(write) for write in writes],
            changed=[encode(report) for report in changed],
        )

    def abort(self, txn: Txn) -> None:
        self.call("abort", txn=txn.id, reason="test")

    def insert(self, table: str = "t", partition: str | None = None, rows: int = 1) -> Txn:
        """Commits an insert with one delta."""
        txn = self.write(table, INSERT, partition)
        self.commit(txn, self.report(txn, table, partition, rows=rows))
        return txn

    def overwrite(self, table: str = "t", partition: str | None = None) -> Txn:
        txn = self.write(table, UPDATE, partition, X)
        write_id = txn.write_ids[f"default.{table}"]
        self.commit(
            txn, WriteReport(table, partition, UPDATE, f"base_{write_id:07d}", counts(1, 10), True)
        )
        return txn

    def report(
        self,
        txn: Txn,
        table: str = "t",
        partition: str | None = None,
        operation: RowOperation = INSERT,
        statement: int = 0,
        rows: int = 1,
        overwrite: bool = False,
    ) -> WriteReport:
        write_id = txn.write_ids[f"default.{table}"]
        prefix = "delete_delta" if operation is DELETE else "delta"
        name = f"{prefix}_{write_id:07d}_{write_id:07d}_{statement:04d}"
        return WriteReport(table, partition, operation, name, counts(rows, 10 * rows), overwrite)

    def sees(self, txn: Txn, table: str = "t") -> ValidWriteIdList:
        answer = self.call("valid_write_ids", txn=txn.id, table=table)
        return ValidWriteIdList.parse(answer["list"])

    def snapshot_text(self) -> str:
        """What a new reader would see of `t`."""
        txn = self.read()
        text = str(self.sees(txn))
        self.commit(txn)
        return text

    # --- compaction -------------------------------------------------------------------------

    def request(self, kind: str = "major", table: str = "t", partition: str | None = None) -> int:
        answer = self.call(
            "request_compaction",
            table=table,
            partition=partition,
            kind=kind,
            properties={},
            initiator="host-1",
        )
        number: int = answer["id"]
        return number

    def take_task(self, worker: str = "host-2") -> CompactionTask | None:
        task = self.call("take_compaction", worker=worker)["task"]
        return None if task is None else decode(CompactionTask, task)

    def owner(self, task: CompactionTask) -> dict[str, Any]:
        return {"id": task.id, "worker": task.worker, "attempt": task.attempt}

    def begin_compaction(self, task: CompactionTask) -> tuple[int, CompactorWriteIdList]:
        answer = self.call("begin_compaction", **self.owner(task), info={})
        merge = ValidWriteIdList.parse(answer["compactor_list"]).for_compactor()
        return answer["txn"], merge

    def commit_compaction(self, task: CompactionTask, txn: int, *names: str) -> None:
        writes = [
            encode(
                WriteReport(task.table, task.partition, RowOperation.COMPACT, name, counts(1, 10))
            )
            for name in names
        ]
        self.call("commit_compaction", **self.owner(task), txn=txn, writes=writes)

    def compact(self, kind: str = "major", partition: str | None = None) -> CompactionTask:
        """Runs a major compaction of `t` until it is ready for cleaning."""
        self.request(kind, partition=partition)
        task = self.take_task()
        assert task is not None
        txn, merge = self.begin_compaction(task)
        self.commit_compaction(task, txn, f"base_{merge.high_watermark:07d}_v{txn:07d}")
        done: CompactionTask = self.state.queue[task.id]
        return done

    def compact_away_aborts(self, partition: str) -> None:
        """Cleans the files of an abort, covers it with a base in this partition, and purges it."""
        self.set("hive.compactor.aborted.txn.time.threshold", "0h")
        self.clock.advance(1)
        self.clean(self.ready()[0])
        self.compact(partition=partition)
        self.tick(61_000)

    def rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.call("compactions")["rows"]
        return rows

    def states(self) -> list[str]:
        return [row["state"] for row in self.rows()]

    # --- cleaning ---------------------------------------------------------------------------

    def ready(self) -> list[Any]:
        """The cleanings that may run, each a CleaningTask."""
        return [READ_TASK(task) for task in self.call("cleaning")["ready"]]

    def blocked(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.call("cleaning")["blocked"]
        return rows

    def cleaning(self, op: str, task: CleaningTask, **more: Any) -> dict[str, Any]:
        if op == "mark_cleaned" and "gone" not in more:
            known = self.state.directories.get((task.table_id, task.partition), {}).values()
            # Readers see a compaction's directory from its transaction on.
            seen = [
                directory
                for directory in known
                if directory.high <= task.highest_write_id
                and task.valid_txns.is_valid(directory.txn)
            ]
            more["gone"] = [
                directory.name
                for directory in known
                if any(shadows(other.acid_name, directory.acid_name) for other in seen)
            ]
        return self.call(
            op,
            id=task.id,
            table=task.table,
            table_id=task.table_id,
            partition=task.partition,
            highest_write_id=task.highest_write_id,
            **more,
        )

    def clean(self, task: CleaningTask, removed: list[int] | None = None) -> None:
        self.cleaning("start_cleaning", task)
        self.cleaning("mark_cleaned", task, removed=removed, valid_txns=str(task.valid_txns))

    def entity(self, partition: str | None = None) -> EntityState:
        found = [decode(EntityState, entity) for entity in self.call("entities")["entities"]]
        return next(entity for entity in found if entity.partition == partition)
