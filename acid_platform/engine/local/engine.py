"""The local engine, and the statements that run in it, so that a lost transaction stops them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING

from acid_platform.base.interrupts import COMPUTING, Interruptible
from acid_platform.engine.interface import EngineName, Fixed, Result, Sources, Where
from acid_platform.engine.merge_clauses import MergeClause, MergeCounts, SourceKeys
from acid_platform.errors import TxnAborted
from acid_platform.scan.scans import Scan
from acid_platform.values.rows import Rows
from acid_platform.write.publishing import WriteTarget, WrittenDirectory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class LocalEngine:
    """Runs statements in this process. `session` starts Spark for results that are asked for as a
    Spark DataFrame.

    What a statement needs is imported by the first of its kind: DuckDB and the parser take long.
    """

    name: EngineName = "local"

    def __init__(self, session: Callable[[], SparkSession]) -> None:
        self._session = session
        self._statements = Statements()

    def statement(self, txn: int) -> AbstractContextManager[object]:
        return self._statements.running(txn)

    def cancel(self, txn: int) -> None:
        self._statements.cancel(txn)

    def query(self, text: str, sources: Sources, reason: str, named: bool = True) -> Result:
        from acid_platform.engine.local.run_query import query

        return query(text, sources, self._session, reason, named)

    def insert(self, rows: Rows, target: WriteTarget, fixed: Fixed) -> list[WrittenDirectory]:
        from acid_platform.engine.local.dml import write_rows

        return write_rows(rows, target, fixed)

    def overwrite(
        self, rows: Rows, target: WriteTarget, fixed: Fixed, empty: Sequence[str]
    ) -> list[WrittenDirectory]:
        from acid_platform.engine.local.dml import write_rows

        return write_rows(rows, target, fixed, True, empty)

    def update(
        self, scan: Scan, target: WriteTarget, assignments: Mapping[str, str], where: Where
    ) -> list[WrittenDirectory]:
        from acid_platform.engine.local.dml import update_rows

        return update_rows(scan, target, assignments, where)

    def delete(self, scan: Scan, target: WriteTarget, where: Where) -> list[WrittenDirectory]:
        from acid_platform.engine.local.dml import delete_rows

        return delete_rows(scan, target, where)

    def merge(
        self,
        scan: Scan,
        target: WriteTarget,
        source: Rows,
        on: str,
        clauses: Sequence[MergeClause],
        aliases: tuple[str, str],
        keys: SourceKeys | None = None,
    ) -> tuple[list[WrittenDirectory], MergeCounts]:
        from acid_platform.engine.local.merge import LocalMerge

        merge = LocalMerge(scan, target, source, on, clauses, aliases)
        if keys is not None:
            keys.take(merge.source)
        return merge.run()


_AGAIN = 0.05
"""Seconds between two interruptions of DuckDB, until it has stopped."""


class RunningStatement:
    """A running statement. `check` is called between batches, and raises once it was stopped."""

    def __init__(self, txn: int) -> None:
        self._txn = txn
        self._guard = threading.Lock()
        self._stopped = False
        self._computing: list[Interruptible] = []

    def check(self) -> None:
        """Raises TxnAborted if the statement was stopped."""
        if self._stopped:
            raise TxnAborted(f"transaction {self._txn} has ended while its statement ran")

    def stop(self) -> None:
        """Makes `check` raise, and interrupts what DuckDB computes."""
        self._stopped = True
        if self._computing:
            threading.Thread(target=self._interrupt, daemon=True).start()

    def _interrupt(self) -> None:
        """DuckDB forgets an interruption that comes just before it begins with a query."""
        while True:
            with self._guard:
                if not self._computing:
                    return
                for connection in self._computing:
                    connection.interrupt()
            time.sleep(_AGAIN)

    @contextmanager
    def computing(self, connection: Interruptible) -> Iterator[None]:
        """A block in which `stop` interrupts the connection; then it raises TxnAborted."""
        with self._guard:
            self._computing.append(connection)
        try:
            self.check()  # after the connection was added: either this sees a stop, or `stop` it
            yield
        except Exception:
            self.check()  # the interruption is only how it was stopped
            raise
        finally:
            with self._guard:
                self._computing.remove(connection)


_CURRENT: ContextVar[RunningStatement | None] = ContextVar("statement", default=None)
"""The statement that this thread runs, if any."""


def check() -> None:
    """Raises TxnAborted if the statement that this thread runs was stopped."""
    if (statement := _CURRENT.get()) is not None:
        statement.check()


@contextmanager
def stoppable(connection: Interruptible) -> Iterator[None]:
    """A block in which a stop of the statement that this thread runs interrupts the connection, and
    a signal that `heeding_signals` sees."""
    statement = _CURRENT.get()
    COMPUTING.append(connection)
    try:
        with nullcontext() if statement is None else statement.computing(connection):
            yield
    finally:
        COMPUTING.remove(connection)


class Statements:
    """The running statements by transaction. Thread-safe."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._running: dict[int, RunningStatement] = {}

    @contextmanager
    def running(self, txn: int) -> Iterator[None]:
        """A block that runs a statement of the transaction, and that `cancel` stops."""
        statement = RunningStatement(txn)
        with self._guard:
            self._running[txn] = statement
        before = _CURRENT.set(statement)
        try:
            yield
        finally:
            _CURRENT.reset(before)
            with self._guard:
                self._running.pop(txn, None)

    def cancel(self, txn: int) -> None:
        """Stops the transaction's statement, if one is running."""
        with self._guard:
            statement = self._running.get(txn)
        if statement is not None:
            statement.stop()
