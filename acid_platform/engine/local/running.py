"""The statements that run in this process, so that a lost transaction stops them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Protocol

from acid_platform.errors import TxnAborted

_AGAIN = 0.05
"""Seconds between two interruptions of DuckDB, until it has stopped."""


class Interruptible(Protocol):
    """A DuckDB connection, as far as it is needed here."""

    def interrupt(self) -> None: ...


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


def stoppable(connection: Interruptible) -> AbstractContextManager[None]:
    """A block in which a stop of the statement that this thread runs interrupts the connection."""
    statement = _CURRENT.get()
    return nullcontext() if statement is None else statement.computing(connection)


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
