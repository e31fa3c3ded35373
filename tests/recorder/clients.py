"""Clients of several kinds, each a way to run the steps of one transaction.

A row that is there twice is read as an element that nobody has written, so that the judge names it.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import Empty, Queue
from typing import Any, Protocol

import dagster as dg
import dagster._core.storage.event_log

from acid_platform import AcidError, NotEnoughHistory, SnapshotExpired, TxnAborted, Warehouse
from acid_platform.handles.read_verbs import Snapshot
from acid_platform.handles.transaction import Transaction
from acid_platform.orchestration import SparkResource, WarehouseResource, acid_asset
from tests.acid_files import AcidTable, arrow_scan
from tests.gateway.clients import (
    INSERT,
    SELECT,
    SHARED_READ,
    Statement,
    insert_events,
    m,
    place_of,
    valid_txns,
    write_ids_of,
)
from tests.judge.recorded import Step, Version
from tests.recorder.workload import PARTITIONS

_NOBODYS = -1
"""An element, or the value of a register, that nobody has written."""
_ANEW = 8
"""One of so many INSERTs into `j.files` writes the table anew."""


class Client(Protocol):
    """One transaction at a time. Without `begin`, each step is a statement of its own."""

    checks: bool
    """Whether it makes sure of what it reads at once. If not, a read counts once its transaction is
    committed."""

    def begin(self) -> None: ...
    def read(self, step: Step) -> Version: ...
    def write(self, step: Step) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...


def version_of(step: Step, values: Sequence[Any]) -> Version:
    """What the values of the rows of a key are."""
    if step.do == "list":
        return tuple(int(one) for text in values for one in text.split(",") if one)
    if step.do == "set":
        return frozenset([*values, *([_NOBODYS] if len(set(values)) < len(values) else [])])
    if len(values) > 1:
        return _NOBODYS
    return values[0] if values else None


def cell_of(step: Step) -> tuple[str, str, int]:
    """Table, column and k."""
    table, _, k = step.key.partition("/")
    column = {"lists": "elements", "parts": "elements", "sets": "e", "files": "e"}.get(table, "v")
    return f"j.{table}", column, int(k)


def _where(table: str, k: int) -> str:
    return f"k = {k}" + (f" AND p = {k % PARTITIONS}" if table == "j.parts" else "")


def _change(step: Step) -> tuple[str, str]:
    """The column that an UPDATE sets, and its new value in SQL."""
    if step.do == "append":
        return "elements", f"concat(elements, ',{step.value}')"
    return "v", f"CAST({step.value} AS bigint)"


class PythonClient:
    """The handles of Python."""

    checks = True

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse
        self._txn: Transaction | None = None

    def begin(self) -> None:
        self._txn = self._warehouse.transaction()

    def _table(self, name: str) -> Any:
        return self._txn.table(name) if self._txn else self._warehouse.table(name)

    def read(self, step: Step) -> Version:
        table, column, k = cell_of(step)
        rows = self._table(table).to_arrow(columns=[column], where=_where(table, k))
        return version_of(step, rows.column(0).to_pylist())

    def write(self, step: Step) -> None:
        table, column, k = cell_of(step)
        handle = self._table(table)
        if table == "j.whole":
            handle.overwrite([{"k": k, column: step.value}])
        elif step.do == "add":
            handle.insert([{"k": k, column: step.value}])
        else:
            handle.update(dict([_change(step)]), _where(table, k))

    def commit(self) -> None:
        if self._txn:
            self._txn.commit()
            self._txn = None

    def abort(self) -> None:
        txn, self._txn = self._txn, None
        if txn:
            txn.abort()


class SqlClient:
    """Hive's SQL."""

    checks = True

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse
        self._writes = 0

    def begin(self) -> None:
        self._warehouse.sql("START TRANSACTION")

    def read(self, step: Step) -> Version:
        table, column, k = cell_of(step)
        answer: Any = self._warehouse.sql(f"SELECT {column} FROM {table} WHERE {_where(table, k)}")
        return version_of(step, answer.to_arrow().column(0).to_pylist())

    def write(self, step: Step) -> None:
        self._writes += 1
        self._warehouse.sql(self._statement(step))

    def _statement(self, step: Step) -> str:
        table, _, k = cell_of(step)
        if table == "j.whole":
            return f"INSERT OVERWRITE TABLE {table} VALUES ({k}, {step.value})"
        if table == "j.files" and self._writes % _ANEW == 0:
            one = f"SELECT {k} AS k, CAST({step.value} AS bigint) AS e"
            rows = f"SELECT k, e FROM {table} UNION ALL {one}"
            return f"INSERT OVERWRITE TABLE {table} {rows}"
        if step.do == "add":
            return f"INSERT INTO {table} VALUES ({k}, {step.value})"
        column, value = _change(step)
        if step.do == "write" and self._writes % 2:
            return (
                f"MERGE INTO {table} t USING (SELECT {k} AS k, {value} AS v) s ON t.k = s.k"
                " WHEN MATCHED THEN UPDATE SET v = s.v"
            )
        return f"UPDATE {table} SET {column} = {value} WHERE {_where(table, k)}"

    def commit(self) -> None:
        self._warehouse.sql("COMMIT")

    def abort(self) -> None:
        if self._warehouse.session.in_transaction:  # an error may have rolled it back
            self._warehouse.sql("ROLLBACK")


class SnapshotClient:
    """A held snapshot, which only reads."""

    checks = True

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse
        self._snapshot: Snapshot | None = None

    def begin(self) -> None:
        self._snapshot = self._warehouse.snapshot()

    def read(self, step: Step) -> Version:
        assert self._snapshot is not None
        table, column, k = cell_of(step)
        rows = self._snapshot.table(table).to_arrow(columns=[column], where=_where(table, k))
        return version_of(step, rows.column(0).to_pylist())

    def write(self, step: Step) -> None:
        raise AssertionError(step)

    def commit(self) -> None:
        self.abort()

    def abort(self) -> None:
        snapshot, self._snapshot = self._snapshot, None
        if snapshot:
            snapshot.close()


def version_of_copy(step: Step, copy: Mapping[tuple[int, Any], int]) -> Version:
    """What the rows of a key are, by how often a consumer has each after inserts and deletes."""
    k = cell_of(step)[2]
    rows = {row: count for row, count in copy.items() if row[0] == k and count}
    if all(count == 1 for count in rows.values()):
        return version_of(step, [value for _, value in rows])
    # A row that is there twice, or that was deleted without ever having been inserted.
    if step.do == "list":
        return (_NOBODYS,)
    return frozenset([_NOBODYS]) if step.do == "set" else _NOBODYS


_SIGNS = {"insert": 1, "update_postimage": 1, "delete": -1, "update_preimage": -1}


def copy_after(
    changes: Iterable[Any], column: str, copy: Mapping[tuple[int, Any], int] | None = None
) -> Counter[tuple[int, Any]]:
    """The rows of a copy, by k and value, after rows of the change feed."""
    after = Counter(copy)
    for row in changes:
        after[row["k"], row[column]] += _SIGNS[row["_change_type"]]
    return after


def _new_consumer() -> str:
    """A name that no other process has either."""
    return f"copy-{os.getpid()}-{time.monotonic_ns()}"


class ChangesClient:
    """A consumer of the change feed: what it reads is its copy of a table, which each transaction
    brings up to date by what has changed since the one before. It only reads."""

    checks = True

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse
        self._txn: Transaction | None = None
        self._consumer = _new_consumer()
        self._copies: dict[str, Counter[tuple[int, Any]]] = {}
        """The rows of each table as of the last committed transaction, by k and value."""
        self._current: dict[str, Counter[tuple[int, Any]]] = {}
        """The same as of this transaction."""

    def begin(self) -> None:
        self._txn, self._current = self._warehouse.transaction(), {}

    def read(self, step: Step) -> Version:
        table, column, _ = cell_of(step)
        if table not in self._current:
            self._current[table] = self._brought_up_to_date(table, column)
        return version_of_copy(step, self._current[table])

    def _brought_up_to_date(self, table: str, column: str) -> Counter[tuple[int, Any]]:
        assert self._txn is not None
        try:
            changes = self._txn.table(table).changes_arrow(consumer=self._consumer).read_all()
        except NotEnoughHistory as error:  # it was stopped for too long
            raise SnapshotExpired(str(error)) from error
        return copy_after(changes.to_pylist(), column, self._copies.get(table))

    def write(self, step: Step) -> None:
        raise AssertionError(step)

    def commit(self) -> None:
        assert self._txn is not None
        self._txn.commit()
        self._copies |= self._current
        self._txn = None

    def abort(self) -> None:
        """Whether the cursor has moved may be unknown: another consumer begins with all rows."""
        self._consumer = _new_consumer()
        self._copies = {}
        txn, self._txn = self._txn, None
        if txn:
            txn.abort()


class GivenUp(Exception):
    """The body of an asset ends without a commit."""


class DagsterClient(PythonClient):
    """The body of an asset that takes the transaction of its materialization, each in a run."""

    def __init__(self, warehouse: Warehouse) -> None:
        super().__init__(warehouse)
        self._instance = dg.DagsterInstance.ephemeral()
        self._thread = ThreadPoolExecutor(1)
        self._run: Future[None] | None = None
        self._lent: Queue[Transaction]
        self._commits: Queue[bool]

    def begin(self) -> None:
        self._lent, self._commits = Queue(), Queue()
        self._run = self._thread.submit(self._materialize)
        while True:
            try:
                self._txn = self._lent.get(timeout=0.05)
                return
            except Empty:
                if self._run.done():
                    self._run.result()
                    raise AssertionError("the run ended without a transaction") from None

    def _materialize(self) -> None:
        @acid_asset(table="j.lists", retry_policy=None)
        def recorded(txn: Transaction) -> None:
            self._lent.put(txn)
            if not self._commits.get():
                raise GivenUp

        resource = WarehouseResource(path=self._warehouse.path, engine="local")
        dg.materialize(
            [recorded],
            instance=self._instance,
            resources={"warehouse": resource, "spark": SparkResource()},
            run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
        )

    def commit(self) -> None:
        assert self._run is not None
        self._txn = None
        self._commits.put(True)
        self._run.result()

    def abort(self) -> None:
        self._txn = None
        run, self._run = self._run, None
        if run and not run.done():
            self._commits.put(False)
            run.exception()


class ThriftClient:
    """What Trino and Hive do: the gateway's protocol, directories that it lists and files that it
    writes itself. It works on `j.sets` alone, and reads before it writes.

    Its transaction may be reaped while it reads, and the files of its snapshot removed. Who gets
    no error then learns of it from the commit. With a `nap`, every third read sleeps for so many
    seconds before it lists the files, and reads count nevertheless.
    """

    def __init__(self, client: Any, nap: float = 0.0) -> None:
        self.checks = nap > 0
        self._nap = nap
        self._reads = 0
        self._client = client
        self._statement: Statement | None = None
        self._txns: Any = None
        self._rows: list[tuple[int, int]] = []

    def begin(self) -> None:
        self._statement = Statement(self._client)
        self._txns = valid_txns(self._client.get_open_txns(), self._statement.id)
        self._rows = []

    def read(self, step: Step) -> Version:
        table, column, k = cell_of(step)
        assert self._statement is not None and not self._rows
        self._statement.lock(table, SELECT, SHARED_READ)
        request = m.GetValidWriteIdsRequest(fullTableNames=[table], validTxnList=str(self._txns))
        (listed,) = self._client.get_valid_write_ids(request).tblValidWriteIds
        self._reads += 1
        if self._nap and self._reads % 3 == 0:
            time.sleep(self._nap)
        layout = self._files().layout
        try:
            scan = arrow_scan(layout, write_ids_of(listed), self._txns, [column], f"k = {k}")
            rows = scan.table()
        except AcidError as error:
            alive = self._statement.heartbeat()
            if alive.aborted or alive.nosuch:
                raise TxnAborted("the files of its snapshot may be gone") from error
            raise
        return version_of(step, rows.column(0).to_pylist())

    def _files(self) -> AcidTable:
        return AcidTable(Path(place_of(self._client, "j.sets")), "k int, e bigint")

    def write(self, step: Step) -> None:
        self._rows.append((cell_of(step)[2], step.value))

    def commit(self) -> None:
        assert self._statement is not None
        if self._rows:
            self._statement.lock("j.sets", INSERT)
            write_id = self._statement.allocate("j.sets")
            self._statement.heartbeat()
            events: Any = insert_events(write_id, self._rows)  # type: ignore[arg-type]
            self._files().inserts(f"d{write_id}", [*events])
        self._statement.commit()

    def abort(self) -> None:
        statement, self._statement = self._statement, None
        if statement:
            statement.abort()
