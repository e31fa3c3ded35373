"""What the statements of a transaction share: locks, write targets, and what was written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from acid_platform.base.config import Settings
from acid_platform.base.errors import OverwriteThenWrite, Transient, WriteConflict
from acid_platform.engine.choice import LOCAL_BYTES, Choice
from acid_platform.engine.interface import Engine
from acid_platform.engine.rows import Rows
from acid_platform.layout.file_entries import EntityListing
from acid_platform.metastore.pasts import AsOf, CursorMove, SinkBatch
from acid_platform.metastore.records import (
    LockRequest,
    PastTable,
    TableRecord,
    ViewRecord,
    WriteReport,
)
from acid_platform.scan.open import open_scan
from acid_platform.scan.scans import Scan
from acid_platform.scan.table_layout import TableLayout
from acid_platform.tables.context import Context, ScanRequest, compression, distributed, past_scan
from acid_platform.tables.manifests import directory_listing
from acid_platform.tables.row_reports import RowReports
from acid_platform.transactions import Operation, ValidTxnList, ValidWriteIdList
from acid_platform.transactions.locks import Statement, lock_of
from acid_platform.write.publishing import WriteTarget, WrittenDirectory

if TYPE_CHECKING:
    from acid_platform.metastore.client.metastore import Transaction as MetastoreTransaction
    from acid_platform.scan.change_scan import ChangeScan

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Shares:
    """The rows of several inserts that one statement writes (P44): for each, by partition."""

    inserts: Sequence[Mapping[str, int]]

    def of(self, partition: str) -> list[int]:
        """The rows in a partition ('' without partitions) of each insert that has some there."""
        return [rows[partition] for rows in self.inserts if partition in rows]

    @property
    def reason(self) -> str:
        return f"a group of {len(self.inserts)} inserts"


class SnapshotOutdated(Transient):
    """The only statement of a transaction missed a commit: begin again (T40, P30).

    `locks` are those that it requested. A transaction that begins with them waits for the locks
    first and takes its snapshot then, so the snapshot misses nothing.
    """

    def __init__(self, text: str, locks: Sequence[LockRequest]) -> None:
        super().__init__(text)
        self.locks = tuple(locks)


class TransactionState:
    """The state of a transaction between its statements; `begun` is the metastore's transaction."""

    def __init__(
        self,
        context: Context,
        begun: MetastoreTransaction,
        restart_if_stale: bool,
        held: Sequence[LockRequest],
    ) -> None:
        self.context, self.begun = context, begun
        self.reports: list[WriteReport] = []
        self.row_counts: dict[str, Counter[str]] = {}
        self.choices: list[Choice] = []
        """The engine of each statement, and why it was chosen."""
        self.added_columns: dict[str, list[tuple[str, str]]] = {}
        self.records: dict[str, TableRecord] = {}
        self._restart_if_stale = restart_if_stale
        self._held = list(held)
        self._lock_settings = begun.settings.lock_settings
        self._changed = RowReports(begun.settings)
        self._cursors: dict[tuple[str, str], CursorMove] = {}
        self.sinks: list[SinkBatch] = []
        """The batches of streaming queries that it writes (P42)."""
        self._number = 0
        self._overwritten: set[tuple[str, str]] = set()
        self._chosen: Choice | None = None
        """The engine of the statement whose directories are recorded next."""

    @property
    def id(self) -> int:
        return int(self.begun.id)

    def scans(self, wanted: Sequence[ScanRequest]) -> list[Scan]:
        """Scans at the snapshot, with the transaction's own writes, or of the past, without them.

        Raises SnapshotExpired, TxnAborted.
        """
        scans = []
        with self.begun.checked():
            for record, where, past in wanted:
                if past is not None:
                    scans.append(past_scan(self.context.layout, self.begun, past, where))
                    continue
                write_ids, txns = self.lists(record.name)
                scan = open_scan(self.layout(record), write_ids, txns, where, self.in_force)
                scans.append(replace(scan, still_open=self.begun.check))
        return scans

    def past(self, name: str, as_of: AsOf) -> PastTable:
        """The table as it was (P36). Raises NoSuchTable, NoSuchPast, NotEnoughHistory."""
        return self.begun.past(name, as_of)

    def consume(self, name: str, consumer: str) -> ChangeScan:
        """The changes of a table since the consumer's last commit, and all rows if there was none.

        The commit moves the consumer's cursor to the snapshot of this transaction. Raises as
        `changes`.
        """
        scan = self.changes(name, AsOf(consumer=consumer), None)
        move = CursorMove(consumer, self.table(name).name, scan.before, scan.after)
        self._cursors[consumer, move.table] = move
        return scan

    def changes(self, name: str, since: AsOf | None, until: AsOf | None) -> ChangeScan:
        """The changes of a table up to the snapshot, without the transaction's own (P39).

        Raises NoSuchTable, NoSuchPast, NotEnoughHistory, InvalidDefinition, CorruptFile.
        """
        from acid_platform.tables.open_changes import open_changes

        with self.begun.checked():
            found = self.begun.changes(name, since, until)
            layout = self.context.layout(found.table, self.begun, found.entities)
            return replace(open_changes(layout, found), still_open=self.begun.check)

    def table(self, name: str) -> TableRecord:
        """The table as the snapshot sees it, with the columns that were added here (P28).

        Raises NoSuchTable.
        """
        record = self.records.get(name.lower()) or self.begun.table(name)
        return self.records.setdefault(record.name, record)

    @property
    def in_force(self) -> Settings:
        """The settings with which the next statement runs."""
        return self.begun.settings

    def learn_settings(self) -> None:
        """To be called after the session of the transaction has changed one."""
        self.begun.settings = self.context.metastore.in_force

    def views(self) -> list[ViewRecord]:
        return self.begun.views()

    def partitions(self, name: str) -> list[str]:
        """The partitions that the snapshot sees, and those written here."""
        return sorted(self.layout(self.table(name)).partitions)

    def lock(self, record: TableRecord, statement: Statement, partition: str | None = None) -> None:
        """Requests the lock of a statement.

        Raises LockTimeout, TxnAborted, and SnapshotOutdated or WriteConflict if the statement can't
        be committed any more (T40, P30).
        """
        lock, operation = lock_of(statement, self._lock_settings)
        dynamic = record.partitioned and partition is None
        if statement in (Statement.UPDATE, Statement.DELETE):
            if not dynamic:
                self._changed.begun(record, partition, operation)
        elif operation in (Operation.UPDATE, Operation.DELETE):
            self._changed.unknown(record, partition, operation)
        request = LockRequest(record.name, lock, operation, partition, dynamic)
        if request not in self._held:
            # Requesting a held lock again would wait for those that wait for it.
            self.begun.lock([request])
            self._held.append(request)
        if self._restart_if_stale:
            if self.begun.stale:
                raise SnapshotOutdated(
                    f"transaction {self.id} waited for a lock and missed a commit", self._held
                )
        elif reason := self.begun.lost_overwrite:
            self.begun.abort(f"write conflict on {reason}")
            raise WriteConflict(f"{reason}; transaction {self.id} was aborted, begin again")

    def commit(self) -> None:
        """Raises WriteConflict, or SnapshotOutdated for a single overwrite that may begin again."""
        try:
            self.begun.commit(
                self.reports,
                self.added_columns,
                self._changed.reports(),
                tuple(self._cursors.values()),
                self.sinks,
            )
        except WriteConflict as conflict:
            if self._restart_if_stale and self._overwritten:
                raise SnapshotOutdated(str(conflict), self._held) from conflict
            raise

    def lists(self, table: str) -> tuple[ValidWriteIdList, ValidTxnList]:
        return self.begun.valid_write_ids(table), self.begun.valid_txns

    def layout(self, record: TableRecord) -> TableLayout:
        """The layout with what the snapshot sees, and what was written here."""
        return with_own(self.context.layout(record, self.begun), self.reports)

    def target(self, record: TableRecord, layout: TableLayout) -> WriteTarget:
        """The write target of the next statement."""
        number = self._number
        self._number += 1  # a failed statement's id is not used again (P19)
        return WriteTarget(
            record.name,
            layout.files,
            layout.path,
            layout.columns,
            tuple(layout.partition_columns),
            self.id,
            self.begun.write_ids[record.name],
            number,
            compression(record),
            self.begun.heartbeat,
            layout.buckets,
            layout.format if layout.insert_only else None,
            self.in_force.integer(LOCAL_BYTES),
            distributed(record),
            self.begun.abort,
        )

    def run(
        self,
        record: TableRecord,
        layout: TableLayout,
        work: Callable[[Engine, WriteTarget], _T],
        rows: Rows | None = None,
        read_bytes: int = 0,
    ) -> _T:
        """Runs the next statement with the engine that its input asks for; returns its result.

        A transaction that is lost stops it (P4). Raises NeedsSpark, and what the engine raises.
        """
        if self._number == 0:
            self.begun.when_lost(lambda _reason: self.stop())
        target = self.target(record, layout)

        def statement(choice: Choice) -> _T:
            with choice.engine.statement(self.id):
                done = work(choice.engine, target)
            self.choices.append(choice)
            self._chosen = choice
            return done

        with self.begun.checked(again=False):
            return self.context.engines.run(statement, self.begun.settings, rows, read_bytes)

    def stop(self) -> None:
        """Stops what the transaction's statements are computing."""
        self.context.engines.cancel(self.id)

    def record(
        self,
        record: TableRecord,
        operation: Operation,
        written: Sequence[WrittenDirectory],
        overwrite: bool = False,
        unmatched: bool = False,
        wrote: tuple[str, str] = ("", ""),
        shares: Shares | None = None,
    ) -> int:
        """Adds what a statement published to the commit, with the engine that `run` it.

        Returns the inserted rows. `unmatched`: it is a MERGE that inserted rows. `wrote`: who wrote
        and why, if it was not `run`. `shares`: of the inserts that wrote it together (P44). Raises
        OverwriteThenWrite, CorruptFile.
        """
        chosen, self._chosen = self._chosen, None
        engine, reason = (chosen.engine.name, chosen.reason) if chosen else wrote
        if not overwrite and operation is not Operation.INSERT:
            self._changed.add(record, operation, written, unmatched)
        for published in written:
            entity = (record.name, published.partition)
            if entity in self._overwritten:
                raise self._overwritten_before(*entity)
            if overwrite:
                self._overwritten.add(entity)
            self.reports.append(
                WriteReport.of(
                    record.name,
                    published.partition or None,
                    operation,
                    published.directory,
                    published.contents,
                    overwrite,
                    engine=engine,
                    reason=shares.reason if shares else reason,
                    shares=shares.of(published.partition) if shares else (),
                )
            )
        return sum(directory.rows for directory in written if not directory.deletes)

    def count(self, table: str, **rows: int) -> None:
        self.row_counts.setdefault(table, Counter()).update(rows)

    def refuse_after_overwrite(
        self, record: TableRecord, partitions: Sequence[str] = ("",)
    ) -> None:
        """Raises OverwriteThenWrite before anything is written, if the partitions are known by
        then.

        '' stands for an unpartitioned table. Partitions that come with the rows are refused by
        `record`.
        """
        for partition in partitions:
            if (record.name, partition) in self._overwritten:
                raise self._overwritten_before(record.name, partition)

    def _overwritten_before(self, table: str, partition: str) -> OverwriteThenWrite:
        return OverwriteThenWrite(
            f"transaction {self.id} overwrote {table} {partition}".rstrip()
            + ": its base hides everything else that the transaction writes there; commit first"
        )


def with_own(layout: TableLayout, reports: Sequence[WriteReport]) -> TableLayout:
    """The layout with the files and partitions that the transaction itself has written.

    Of a partition that the snapshot does not see, only these: the recorded files of one that was
    dropped are kept for older snapshots (P22).
    """
    mine = [report for report in reports if report.table == layout.name]
    if not mine:
        return layout

    def listings(partitions: Sequence[str]) -> list[EntityListing]:
        seen = [name for name in partitions if not name or name in layout.partitions]
        known = dict(zip(seen, layout.listings(seen), strict=True))
        listed = [
            known.get(name, EntityListing(f"{layout.path}/{name}", ())) for name in partitions
        ]
        return [
            listing.joined(
                directory_listing(listing.location, report.directory, report.contents)
                for report in mine
                if report.partition == (name or None) and report.contents
            )
            for name, listing in zip(partitions, listed, strict=True)
        ]

    partitions = {report.partition: () for report in mine if report.partition}
    return replace(layout, partitions={**partitions, **layout.partitions}, listings=listings)
