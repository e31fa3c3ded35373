"""A transaction as its user holds it: several statements, several tables, one commit.

`autocommit` is that of a single statement, which begins again if its snapshot is outdated.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from itertools import count
from typing import TYPE_CHECKING, TypeVar

from acid_platform.errors import (
    AcidError,
    InvalidDefinition,
    LockTimeout,
    RowsTaken,
    SnapshotOutdated,
    WriteConflict,
)
from acid_platform.handles.read_verbs import Reads
from acid_platform.handles.row_statements import RowStatement
from acid_platform.handles.snapshot_views import SnapshotView
from acid_platform.handles.transaction_work import TransactionWork, lock_request
from acid_platform.handles.write_verbs import Writes
from acid_platform.metastore.client.open_transaction import UNDECIDED
from acid_platform.metastore.records import LockRequest, TableRecord, WriteReport
from acid_platform.transactions.concurrency import LockType, Statement
from acid_platform.values.arrow_types import declared_text
from acid_platform.values.coercion import Coerced

if TYPE_CHECKING:
    import pyarrow as pa

    from acid_platform.handles.warehouse import Warehouse
    from acid_platform.sql import Answer, SqlSession

_Result = TypeVar("_Result")


class Transaction(TransactionWork):
    """One ACID transaction. Use as a context manager: commits at the end, aborts on any exception.

    All statements see one snapshot, taken when the transaction began, plus its own writes (S4).
    First committer wins: `commit` raises WriteConflict when another transaction changed one of the
    same partitions meanwhile (T31, T33); then everything was rolled back. To an overwrite or a
    truncation inserts are changes as well, and it may raise WriteConflict at once (P30).
    """

    lent = False
    """Whether it is in the hands of code that may use it, but not end it."""
    _given_up = False
    """Whether the code that uses it has aborted it."""
    _session: SqlSession | None = None
    """The session of `sql`, from its first statement on."""

    @property
    def write_ids(self) -> dict[str, int]:
        """The write id of each table that was written so far."""
        return dict(self.begun.write_ids)

    @property
    def reports(self) -> tuple[WriteReport, ...]:
        """A report for each directory that this transaction has published (P8)."""
        return tuple(self.view.reports)

    @property
    def engines(self) -> tuple[tuple[str, str], ...]:
        """For each statement that wrote: `spark` or `local`, and why this engine was chosen."""
        return tuple((choice.engine.name, choice.reason) for choice in self.choices)

    def row_counts(self, table: str) -> dict[str, int]:
        """Rows that a table's statements inserted, updated, deleted or wrote by overwriting."""
        return {word: rows for word, rows in self.counted.get(table, {}).items() if rows}

    def coerced(self, table: str) -> dict[str, Coerced]:
        """What `coerce=True` has changed in rows for a table, by column: `amount`, `s.a`."""
        return dict(self.conversions.get(table, {}))

    def table(self, name: str) -> TransactionTable:
        """The table as the transaction's snapshot sees it, whatever others declare later (P28).

        Changing a table that others have altered, dropped or made again raises DeclarationChanged.
        Raises NoSuchTable.
        """
        return TransactionTable(self, self.view.table(name).name)

    def sql(
        self,
        statement: str,
        parameters: Mapping[str, object] | None = None,
        engine: str | None = None,
    ) -> Answer:
        """Runs SQL inside of this transaction, which it neither begins nor ends.

        Reads see the transaction's snapshot and its own writes. As Warehouse.sql otherwise; USE
        lasts as long as this object. Raises UnsupportedStatement for COMMIT, ROLLBACK, and what
        can't be part of a transaction, such as CREATE TABLE.
        """
        if self._session is None:
            self._session = self.warehouse.session_within(self)
        return self._session.run(statement, engine, parameters)

    def writing(self) -> AbstractContextManager[None]:
        """A block that runs a statement which writes: what it reads, it looks for (P51)."""
        return self.view.noting(self.looked_for.condition)

    def run(self, statement: RowStatement[_Result], checked: TableRecord | None = None) -> _Result:
        """Runs a statement that changes rows; returns and raises what it says. `checked`: the
        declaration for which it is known to be right."""
        record = self.view.table(statement.table)
        if record != checked:
            statement.check(record)
        return statement.run(self, record)

    def learn_settings(self) -> None:
        """Takes over the settings in force now, with which its next statement runs."""
        self.begun.settings = self.warehouse.metastore.in_force

    def heartbeat(self) -> None:
        """Raises TxnAborted when the transaction was aborted."""
        self.begun.heartbeat()

    def when_lost(self, callback: Callable[[str], None]) -> None:
        """Calls `callback` with the reason if the metastore aborts it (P4), in another thread."""
        self.begun.when_lost(callback)

    def commit(self) -> None:
        """Raises WriteConflict, TxnAborted, OutcomeUnknown, the errors that make a commit
        impossible, and DeclarationChanged if others changed a table that it wrote, or added a
        column of the same name with another type (P28).

        A refused commit rolls everything back: the transaction has ended and holds no lock. Only
        after MetastoreUnavailable and MetastoreWriteFailed nothing was decided, and it is still
        open: commit again, or abort.
        """
        self._refuse_if_lent("commit")
        try:
            super().commit()
        except UNDECIDED:
            raise
        except AcidError as refused:
            if not self.begun.ended:
                with suppress(AcidError):
                    self._abort(f"{type(refused).__name__}: {refused}"[:500])
                refused.add_note(f"transaction {self.id} was rolled back")
            raise

    def abort(self, reason: str = "") -> None:
        """Aborts it: nothing becomes visible, and the Cleaner removes its files. A block that it
        belongs to then ends without a commit."""
        self._refuse_if_lent("abort")
        self._abort(reason)
        self._given_up = True

    def _abort(self, reason: str) -> None:
        self.stop()
        self.begun.abort(reason)

    def _refuse_if_lent(self, what: str) -> None:
        """Raises InvalidDefinition."""
        if self.lent:
            raise InvalidDefinition(
                f"transaction {self.id} is ended by the code that began it, after the checks: don't"
                f" {what} it; write with txn.table(…) or txn.sql(…), and raise an error to abort it"
            )

    def __enter__(self) -> Transaction:
        self._refuse_if_lent("enter")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        self.lent = False
        try:
            if error is None and not self._given_up:
                self.commit()
        except AcidError as refused:
            error = refused
            raise
        finally:
            if error is not None and not self.begun.ended:
                self._abort(f"{type(error).__name__}: {error}"[:500])


class TransactionTable(Reads, Writes):
    """A table inside a transaction: reads see the transaction's snapshot and its own writes."""

    def __init__(self, txn: TransactionWork, name: str) -> None:
        super().__init__(txn.warehouse, name)
        self._txn = txn

    @property
    def record(self) -> TableRecord:
        return self._txn.view.table(self.name)

    def _lasting_view(self) -> AbstractContextManager[SnapshotView]:
        return nullcontext(self._txn.view)  # its scans and changes are checked

    def _brief_view(self) -> AbstractContextManager[SnapshotView]:
        return self._txn.view.checked()

    def _run(self, statement: RowStatement[_Result], engine: str | None) -> _Result:
        with self._warehouse.using(engine):
            record = self.record
            statement.check(record)
            return statement.run(self._txn, record)

    def _note(self, counts: Mapping[str, Coerced]) -> None:
        own = self._txn.conversions.setdefault(self.name, {})
        for column, coerced in counts.items():
            own[column] = own.get(column, Coerced()) + coerced
        super()._note(counts)

    def add_columns(self, columns: str | pa.Schema) -> None:
        self._txn.add_columns(self.name, declared_text(columns))


def locks_at_begin(
    warehouse: Warehouse, statements: Iterable[tuple[TableRecord, Statement | None]]
) -> list[LockRequest]:
    """The locks with which a transaction of these statements can begin, each with its table; none
    if the lock of one of them is known only while it runs, which may be the first.

    Not a SHARED_READ, which would not wait at the beginning of a transaction (L10).
    """
    settings = warehouse.metastore.lock_settings
    locks = list[LockRequest]()
    for record, lock in statements:
        if lock is None:
            return []
        locks.append(lock_request(record, lock, settings))
    return [*dict.fromkeys(lock for lock in locks if lock.lock is not LockType.SHARED_READ)]


def autocommit(
    warehouse: Warehouse,
    table: str,
    statement: Callable[[Transaction], _Result],
    locks: Sequence[LockRequest] = (),
    reads: Sequence[str] = (),
) -> _Result:
    """Runs a statement that writes `table` as a transaction; repeats it if its snapshot is outdated
    (T40).

    From the second attempt on it gets its locks before its snapshot, so the snapshot misses no
    commit that the locks prevent: an overwrite succeeds although others insert all the time (P30).
    `locks`: with which the first attempt begins; `reads`: see Warehouse.transaction. Raises
    LockTimeout if another writer committed during each attempt, WriteConflict if it can't be
    repeated, since its rows came as a stream, and before `statement` runs NoSuchTable for a name
    of `reads` that is no table.
    """
    for attempt in count(1):
        txn = warehouse.transaction(restart_if_stale=True, locks=locks, reads=reads)
        try:
            with txn:
                return statement(txn)
        except SnapshotOutdated:
            locks = txn.locks
        except RowsTaken as taken:
            if attempt == 1:
                raise
            raise WriteConflict(
                f"{table}: another writer committed during the statement, and its rows came as a"
                " stream, which can't be read again: run it again with a new one"
            ) from taken
        if attempt >= txn.view.in_force.integer("hive.txn.max.retrysnapshot.count"):
            break
    raise LockTimeout(f"{table}: another writer committed during each attempt; try again")
