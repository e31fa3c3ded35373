"""What one snapshot sees of all tables, and a transaction of its own writes; each handle and SQL
read through it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from acid_platform.base.config import Settings
from acid_platform.layout.file_entries import EntityListing
from acid_platform.metastore.client.metastore import OpenTransaction
from acid_platform.metastore.pasts import AsOf, CursorMove
from acid_platform.metastore.records import (
    PastTable,
    TableChanges,
    TableRecord,
    ViewRecord,
    WriteReport,
)
from acid_platform.scan.open import TableLayout, open_scan
from acid_platform.scan.scans import Scan
from acid_platform.tables.record_layout import directory_listing, table_layout
from acid_platform.transactions import ValidTxnList, ValidWriteIdList

if TYPE_CHECKING:
    from acid_platform.scan.change_scan import ChangeScan


class ScanRequest(NamedTuple):
    """What a scan reads: a table as a snapshot declares it, the condition that prunes its
    partitions and files, and instead of the snapshot perhaps how the table was, or a list of write
    ids."""

    table: TableRecord
    where: str | None = None
    past: PastTable | None = None
    write_ids: ValidWriteIdList | None = None


class SnapshotView:
    """Declarations, scans and changes at the snapshot of a transaction, which may be a read lease.

    Scans and changes keep the snapshot's files only as long as the transaction is open. The caller
    looks files up inside `checked`. All methods raise SnapshotExpired or TxnAborted once it is not.
    """

    def __init__(self, transaction: OpenTransaction) -> None:
        self._transaction = transaction
        self._records: dict[str, TableRecord] = {}

    @property
    def transaction(self) -> OpenTransaction:
        """The metastore's transaction that holds the snapshot."""
        return self._transaction

    def table(self, name: str) -> TableRecord:
        """The table as the snapshot sees it, whatever others declare later. Raises NoSuchTable."""
        record = self._records.get(name.lower()) or self.transaction.table(name)
        return self._records.setdefault(record.name, record)

    def views(self) -> list[ViewRecord]:
        return self.transaction.views()

    def partitions(self, name: str) -> list[str]:
        """The names of a table's partitions, sorted. Raises NoSuchTable."""
        return sorted(self.layout(self.table(name)).partitions)

    @property
    def in_force(self) -> Settings:
        """The settings with which the next statement runs."""
        return self.transaction.settings

    def past(self, name: str, as_of: AsOf) -> PastTable:
        """The table as it was. Raises NoSuchTable, NoSuchPast, NotEnoughHistory."""
        return self.transaction.past(name, as_of)

    @contextmanager
    def checked(self) -> Iterator[SnapshotView]:
        """A block that reads files of the snapshot; raises at its end unless they are still kept.

        It takes no file for damaged that is gone because the transaction has ended.
        """
        with self.transaction.checked():
            yield self

    def check(self) -> None:
        """Raises SnapshotExpired or TxnAborted unless the files must still be there."""
        self.transaction.check()

    def lists(self, name: str) -> tuple[ValidWriteIdList, ValidTxnList]:
        return self.transaction.valid_write_ids(name), self.transaction.valid_txns

    def layout(self, record: TableRecord) -> TableLayout:
        """Where the table is, with the partitions and files that the snapshot sees."""
        return table_layout(record, self.transaction)

    def request(
        self,
        name: str,
        where: str | None = None,
        write_ids: ValidWriteIdList | None = None,
        as_of: AsOf | None = None,
    ) -> ScanRequest:
        """What to read of a table: the snapshot itself, a write id list (P13) or a past snapshot.

        Raises as `table` and `past`.
        """
        if as_of is not None:
            past = self.past(name, as_of)
            return ScanRequest(past.table, where, past)
        return ScanRequest(self.table(name), where, None, write_ids)

    def source(self, request: ScanRequest) -> tuple[TableLayout, ValidWriteIdList, ValidTxnList]:
        """Where the requested rows are: the table's layout, and the lists that select its files."""
        past = request.past
        if past is not None:
            layout = table_layout(past.table, self.transaction, past.partitions)
            return replace(layout, ended=past.ended), past.pin.write_ids, past.pin.txns
        if request.write_ids is not None:
            layout = table_layout(request.table, self.transaction)
            return layout, request.write_ids, self.transaction.valid_txns
        return self.layout(request.table), *self.lists(request.table.name)

    def scan(self, request: ScanRequest) -> Scan:
        """The opened files of a table. Raises NotEnoughHistory, CorruptFile, UnsupportedLayout."""
        scan = open_scan(*self.source(request), request.where, self.in_force)
        return replace(scan, still_open=self.check)

    def scans(self, requests: Sequence[ScanRequest]) -> list[Scan]:
        """Scans of several tables, in their order. Raises as `scan`."""
        return [self.scan(request) for request in requests]

    def changes(self, name: str, since: AsOf | None, until: AsOf | None) -> ChangeScan:
        """The changes of a table after `since`, without it all rows, up to `until` or the snapshot.

        Raises NoSuchTable, NoSuchPast, NotEnoughHistory, InvalidDefinition, CorruptFile.
        """
        return self.open_changes(self.transaction.changes(name, since, until))

    def open_changes(self, changes: TableChanges) -> ChangeScan:
        from acid_platform.tables.open_changes import open_changes

        layout = table_layout(changes.table, self.transaction, changes.entities)
        return replace(open_changes(layout, changes), still_open=self.check)


Note = Callable[[TableRecord, str | None], None]
"""Gets a table whose rows are read, and the condition that chooses them."""


def ignored(_record: TableRecord, _where: str | None) -> None:
    """Notes nothing."""


class TransactionView(SnapshotView):
    """Scans at the snapshot have the transaction's own rows; those of the past and changes do not.

    `scans` and `changes` check that the transaction is open after they have opened files, unless a
    statement writes what it reads.
    """

    def __init__(self, transaction: OpenTransaction) -> None:
        super().__init__(transaction)
        self.reports: list[WriteReport] = []
        """What the transaction has published so far."""
        self.cursors: dict[tuple[str, str], CursorMove] = {}
        """The moves of consumers of changes that its commit makes, by consumer and table."""
        self.note: Note = ignored
        """Gets each table whose rows are read."""
        self._writing = False

    def declare(self, record: TableRecord) -> None:
        """From now on the transaction sees this declaration of the table."""
        self._records[record.name] = record

    def layout(self, record: TableRecord) -> TableLayout:
        return with_own(super().layout(record), self.reports)

    @contextmanager
    def noting(self, note: Note) -> Iterator[None]:
        """A block of a statement that writes, in which `note` gets each table whose rows are read
        (P51, P52); its commit tells whether all files were there (P29)."""
        before, self.note, self._writing = (self.note, self._writing), note, True
        try:
            yield
        finally:
            self.note, self._writing = before

    def source(self, request: ScanRequest) -> tuple[TableLayout, ValidWriteIdList, ValidTxnList]:
        if request.past is None:  # the past never changes
            self.note(request.table, request.where)
        return super().source(request)

    def scans(self, requests: Sequence[ScanRequest]) -> list[Scan]:
        with self.transaction.checked(again=not self._writing):
            return super().scans(requests)

    def changes(self, name: str, since: AsOf | None, until: AsOf | None) -> ChangeScan:
        """As SnapshotView.changes; the commit moves the cursor of a consumer that is `since`."""
        self.note(self.table(name), None)
        with self.checked():
            scan = super().changes(name, since, until)
        if since is not None and since.consumer is not None:
            move = CursorMove(since.consumer, self.table(name).name, scan.before, scan.after)
            self.cursors[since.consumer, move.table] = move
        return scan


def with_own(layout: TableLayout, reports: Sequence[WriteReport]) -> TableLayout:
    """The layout with the files and partitions that the transaction itself has written.

    A partition that the snapshot does not see has only these: the recorded files of one that was
    dropped are kept for older snapshots (P22).
    """
    own = [report for report in reports if report.table == layout.name]
    if not own:
        return layout

    def listings(partitions: Sequence[str]) -> list[EntityListing]:
        recorded = [name for name in partitions if not name or name in layout.partitions]
        by_name = dict(zip(recorded, layout.listings(recorded), strict=True))
        return [
            by_name.get(name, EntityListing(layout.place(name), ())).joined(
                directory_listing(layout.place(name), report.directory, report.contents)
                for report in own
                if report.partition == (name or None)
            )
            for name in partitions
        ]

    partitions = {report.partition: () for report in own if report.partition}
    return replace(layout, partitions={**partitions, **layout.partitions}, listings=listings)
