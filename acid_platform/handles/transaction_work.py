"""What the statements of a transaction share: locks, write targets, and what was written.

The commit names the rows that they changed (P38).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, TypeVar

from acid_platform.base.config import LockSettings
from acid_platform.base.logs import ENGINE, statement_span
from acid_platform.engine.choice import Choice
from acid_platform.engine.interface import Engine, one_moment
from acid_platform.errors import (
    OverwriteThenWrite,
    PublicationFailed,
    SnapshotOutdated,
    WriteConflict,
)
from acid_platform.handles.looked_for import LookedFor, RowReports, no_keys
from acid_platform.handles.snapshot_views import TransactionView
from acid_platform.layout.formats import compression
from acid_platform.layout.table_properties import ISOLATION
from acid_platform.metastore.client import lineage_events
from acid_platform.metastore.operations.transactions import CommitContents
from acid_platform.metastore.pasts import SinkBatch
from acid_platform.metastore.records import LockRequest, RewrittenTable, TableRecord, WriteReport
from acid_platform.scan.open import TableLayout
from acid_platform.tables.declaration import widened
from acid_platform.tables.record_layout import distributed
from acid_platform.tables.table_constraints import row_checks
from acid_platform.transactions import Isolation, RowOperation
from acid_platform.transactions.concurrency import Statement, lock_of
from acid_platform.transactions.row_sets import KeyHashes
from acid_platform.values.coercion import Coerced
from acid_platform.values.rows import Rows
from acid_platform.write.publishing import WriteTarget, WrittenDirectory

if TYPE_CHECKING:
    from acid_platform.handles.warehouse import Warehouse
    from acid_platform.metastore.client.metastore import OpenTransaction


def lock_request(
    record: TableRecord, statement: Statement, settings: LockSettings, partition: str | None = None
) -> LockRequest:
    """The lock of a statement that writes a table, or one partition of it (T34)."""
    lock, operation = lock_of(statement, settings)
    dynamic = record.partitioned and partition is None
    return LockRequest(record.name, lock, operation, partition, dynamic)


_Result = TypeVar("_Result")


class TransactionWork:
    """A transaction between its statements; `begun` is the metastore's transaction.

    `isolation`: a table that it reads or writes may ask for more (P52).
    `restart_if_stale`: it has one statement, which begins again with SnapshotOutdated if the
    snapshot misses a commit. `held`: the locks with which it began.
    """

    def __init__(
        self,
        warehouse: Warehouse,
        begun: OpenTransaction,
        restart_if_stale: bool = False,
        held: Sequence[LockRequest] = (),
        isolation: Isolation = "snapshot",
    ) -> None:
        self.warehouse, self.begun = warehouse, begun
        self.view = TransactionView(begun)
        self._isolation = isolation
        self.counted: dict[str, Counter[str]] = {}
        self.conversions: dict[str, dict[str, Coerced]] = {}
        """What conversions of rows have changed, by table and column."""
        self.choices: list[Choice] = []
        """The engine of each statement, and why it was chosen."""
        self.sinks: list[SinkBatch] = []
        """The batches of streaming queries that it writes (P42)."""
        self._added_columns: dict[str, list[tuple[str, str]]] = {}
        self._rewritten: list[RewrittenTable] = []
        self._restart_if_stale = restart_if_stale
        self.locks = list(held)
        """The locks that it has requested."""
        self._foreseen = restart_if_stale and bool(held)
        """Whether its statement, which has not asked for a lock yet, should find it among these."""
        self._lock_settings = begun.settings.lock_settings
        self._changed = RowReports(begun.settings)
        self.looked_for = LookedFor(begun.settings)
        self.derived = lineage_events.Derivation()
        """Where its rows come from, as far as its statements tell."""
        self.view.note = self.looked_for.read
        self._number = 0
        self._overwritten: set[tuple[str, str]] = set()
        self._chosen: Choice | None = None
        """The engine of the statement whose directories are reported next."""

    @property
    def id(self) -> int:
        return int(self.begun.id)

    def add_columns(self, name: str, columns: str) -> None:
        """Others see the columns after the commit. Raises UnknownColumn for one that exists."""
        record = self.view.table(name)
        wide = widened(record, columns)
        new = wide.columns[len(record.columns) :]
        self._added_columns.setdefault(record.name, []).extend(new)
        self.view.declare(wide)

    def redeclare(
        self,
        before: TableRecord,
        after: TableRecord,
        names: Sequence[tuple[str, str]] = (),
        rows: bool = False,
    ) -> None:
        """The commit declares the table so, for the files that were reported, which are all.
        `names`: the old and the new name of each column that stays; `rows`: they have other rows,
        too."""
        self._rewritten.append(
            RewrittenTable(
                before.name,
                before.version,
                after.columns,
                after.comments,
                dict(after.properties),
                rows,
                tuple((new, old) for old, new in names if old != new),
            )
        )

    def lock(self, record: TableRecord, statement: Statement, partition: str | None = None) -> None:
        """Requests the lock of a statement.

        Raises LockTimeout, TxnAborted, and SnapshotOutdated or WriteConflict if the statement can't
        be committed any more (T40, P30).
        """
        request = lock_request(record, statement, self._lock_settings, partition)
        _, operation = lock_of(statement, self._lock_settings)
        if statement in (Statement.UPDATE, Statement.DELETE):
            if not request.dynamic:
                self._changed.begun(record, partition, operation)
        elif operation in (RowOperation.UPDATE, RowOperation.DELETE):
            self._changed.unknown(record, partition, operation)
        foreseen, self._foreseen = self._foreseen, False
        if foreseen and request not in self.locks:
            # It may have to wait for those that wait for what this transaction holds.
            self.locks = [request]
            raise SnapshotOutdated(f"transaction {self.id} began with another lock than it needs")
        if request not in self.locks:
            # Requesting a held lock again would wait for those that wait for it.
            self.begun.lock([request])
            self.locks.append(request)
        if self._restart_if_stale:
            if self.begun.stale:
                raise SnapshotOutdated(
                    f"transaction {self.id} waited for a lock and missed a commit"
                )
        elif reason := self.begun.lost_overwrite:
            self.begun.abort(f"write conflict on {reason}")
            raise WriteConflict(f"{reason}; transaction {self.id} was aborted, begin again")

    def commit(self) -> None:
        """Raises WriteConflict, or SnapshotOutdated for a single statement that looked for rows or
        replaced them, and brought some: it may begin again (T40)."""
        self.view.require_read()
        sought, inserted = self.looked_for.reports()
        read = self.looked_for.every_read() if self._serializable else []
        try:
            self.begun.commit(
                CommitContents(
                    writes=tuple(self.view.reports),
                    columns={name: tuple(new) for name, new in self._added_columns.items()},
                    changed=tuple(self._changed.reports()),
                    cursors=tuple(self.view.cursors.values()),
                    sinks=tuple(self.sinks),
                    rewritten=tuple(self._rewritten),
                    sought=tuple(sought),
                    inserted=tuple(inserted),
                    read=tuple(read),
                )
            )
        except WriteConflict as conflict:
            if self._restart_if_stale and (self._overwritten or sought or read):
                raise SnapshotOutdated(str(conflict)) from conflict
            raise
        if self.view.reports and lineage_events.is_on():
            lineage_events.tell(self.id, self._facts())

    def _facts(self) -> Callable[[], lineage_events.CommitFacts]:
        """What is told of the commit; the answer keeps nothing of what the transaction has read."""
        warehouse, reports, known, txn = self.warehouse, self.view.reports, self.derived, self.id
        records = {report.table: self.view.table(report.table) for report in reports}
        origins = [origin for each in known.origins.values() for origin in each]
        read = {record.name for record in self.looked_for.tables_read} - records.keys()
        read = read.union(*(origin.tables for origin in origins))
        branch, root, run = (
            warehouse.metastore.branch,
            warehouse.metastore.places.root,
            warehouse.run_id,
        )
        return lambda: lineage_events.CommitFacts(
            root,
            txn,
            "asset" if known.job else "statement",
            lineage_events.outputs_of(reports, records.__getitem__, known.origins),
            frozenset(lineage_events.dataset(name, branch) for name in read),
            known.job,
            run,
            tuple(origin.query for origin in origins),
            branch,
        )

    @property
    def _serializable(self) -> bool:
        """Whether it writes, and has to have read what all commits before its own left (P52)."""
        if not self.view.reports:
            return False
        written = {report.table for report in self.view.reports}
        records = (*self.looked_for.tables_read, *map(self.view.table, written))
        default = self.begun.settings.text(ISOLATION.name)
        levels = {ISOLATION.stated(record.properties) or default for record in records}
        return "serializable" in {self._isolation, *(level.lower() for level in levels)}

    def target(self, record: TableRecord, layout: TableLayout) -> WriteTarget:
        """The write target of the next statement."""
        number = self._number
        self._number += 1  # a failed statement's id is not used again (P19)
        return WriteTarget(
            table=record.name,
            files=layout.files,
            location=layout.path,
            columns=layout.columns,
            partition_columns=tuple(layout.partition_columns),
            txn_id=self.id,
            write_id=self.begun.write_ids[record.name],
            statement=number,
            compression=compression(record.properties),
            still_open=self.begun.heartbeat,
            buckets=layout.buckets,
            format=layout.format,
            distributed=distributed(record),
            give_up=self.begun.abort,
            checks=row_checks(record),
        )

    def write(
        self,
        record: TableRecord,
        write: Callable[[Engine, WriteTarget], _Result],
        rows: Rows | None = None,
        read_bytes: int = 0,
    ) -> _Result:
        """Writes the next statement into a table; returns what `write` returns.

        The engine is chosen by the rows that are written and the bytes that are read. A transaction
        that is lost stops it (P4). Raises NeedsSpark, OverwriteThenWrite, and what the engine
        raises.
        """
        if self._number == 0:
            self.begun.when_lost(lambda _reason: self.stop())
        target = self.target(record, self.view.layout(record))
        self.derived.note(record.name)

        run_id = self.warehouse.run_id

        def attempt(choice: Choice) -> _Result:
            engine = choice.engine.name
            with (
                statement_span(f"write {record.name}", self.id, run_id, **{ENGINE: engine}),
                one_moment(),
                choice.engine.statement(self.id),
            ):
                result = write(choice.engine, target)
            self.choices.append(choice)
            self._chosen = choice
            return result

        try:
            with self.begun.checked(again=False):
                return self.warehouse.engines.run(attempt, self.view.in_force, rows, read_bytes)
        except PublicationFailed as error:  # the base of an earlier overwrite may be in the way
            above = error.in_the_way.rpartition("/")[0]
            self.refuse_together(record, [above.removeprefix(target.location).strip("/")])
            raise

    def stop(self) -> None:
        """Stops what the transaction's statements are computing."""
        self.warehouse.engines.cancel(self.id)

    def report(
        self,
        record: TableRecord,
        operation: RowOperation,
        written: Sequence[WrittenDirectory],
        overwrite: bool = False,
        wrote: tuple[str, str] = ("", ""),
        keys: Callable[[], KeyHashes | None] = no_keys,
        assigned: Collection[str] | None = None,
    ) -> int:
        """Adds what a statement published to the commit, with the engine of `write`.

        Returns the inserted rows. `wrote`: who wrote and why, if it was not `write`. `keys`: those
        of the new rows; `assigned`: it only updated rows, in these columns (P51). Raises
        OverwriteThenWrite, which ends the transaction: files of the statement are there, and
        nothing counts them; CorruptFile.
        """
        chosen, self._chosen = self._chosen, None
        engine, reason = (chosen.engine.name, chosen.reason) if chosen else wrote
        try:
            self.refuse_together(record, [file.partition for file in written], overwrite)
        except OverwriteThenWrite as refused:
            self.begun.abort(f"OverwriteThenWrite: {refused}"[:500])
            raise
        if overwrite:
            self._overwritten |= {(record.name, published.partition) for published in written}
        elif operation is not RowOperation.INSERT:
            self._changed.add(record, operation, written)
        if assigned is None or assigned:
            self.looked_for.wrote(record, written, keys, overwrite, assigned or ())
        for published in written:
            self.view.reports.append(
                WriteReport(
                    record.name,
                    published.partition or None,
                    operation,
                    published.directory,
                    published.contents,
                    overwrite,
                    engine=engine,
                    reason=reason,
                )
            )
        return sum(directory.rows for directory in written if not directory.deletes)

    def count(self, table: str, **rows: int) -> None:
        self.counted.setdefault(table, Counter()).update(rows)

    def refuse_together(
        self, record: TableRecord, partitions: Sequence[str] = ("",), overwrite: bool = False
    ) -> None:
        """Raises OverwriteThenWrite if a statement may not write the partitions any more, before it
        writes anything where they are known by then (P6).

        '' stands for an unpartitioned table. Partitions that come with the rows are refused by
        `report`. The transaction may go on without the statement.
        """
        for partition in partitions:
            where = f"{record.name} {partition}".rstrip()
            if (record.name, partition) in self._overwritten:
                raise OverwriteThenWrite(
                    f"transaction {self.id} overwrote {where}, which would hide the rows of this"
                    " statement: they have the same write id; commit before it, or let the"
                    " overwrite bring all rows"
                )
            if overwrite and any(
                (report.table, report.partition or "") == (record.name, partition)
                for report in self.view.reports
            ):
                raise OverwriteThenWrite(
                    f"transaction {self.id} has written {where}, and now would overwrite it, which"
                    " would hide what it wrote; leave the earlier statement out, or commit between"
                    " the two"
                )
