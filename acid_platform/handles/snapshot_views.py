"""What one snapshot sees of all tables, and a transaction of its own writes; each handle and SQL
read through it. Read leases keep the files of a snapshot as long as its rows are read (P12)."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from acid_platform.base.clock import elapsed_seconds
from acid_platform.base.config import Settings
from acid_platform.base.first_use import Recent
from acid_platform.errors import (
    InvalidDefinition,
    MetastoreUnavailable,
    NoSuchTxn,
    OutcomeUnknown,
    SnapshotExpired,
)
from acid_platform.layout.names import table_name
from acid_platform.metastore.client.metastore import OpenTransaction
from acid_platform.metastore.pasts import AsOf, CursorMove, Pin
from acid_platform.metastore.records import (
    PastTable,
    TableChanges,
    TableRecord,
    ViewRecord,
    WriteReport,
)
from acid_platform.scan.open import (
    Listings,
    OwnDirectory,
    TableLayout,
    chosen_partitions,
    open_scan,
    require_files,
)
from acid_platform.scan.scans import Scan
from acid_platform.tables.record_layout import past_layout, recorded_listings, table_layout
from acid_platform.transactions import ValidTxnList, ValidWriteIdList

if TYPE_CHECKING:
    from acid_platform.handles.warehouse import Warehouse
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
        """Where the table is, with the partitions that the snapshot sees."""
        return table_layout(record, self.transaction)

    def listings(self, layout: TableLayout, where: str | None = None) -> Listings:
        """The files of the partitions that may match `where`; ask after the lists of ids."""
        partitions = chosen_partitions(layout, where)
        return recorded_listings(layout, self.transaction, partitions)

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
        """Where the requested rows are: the table's layout, and the lists that select its files,
        which `listings` names."""
        past = request.past
        if past is not None:
            return past_layout(past), past.pin.write_ids, past.pin.txns
        if request.write_ids is not None:
            layout = table_layout(request.table, self.transaction)
            return layout, request.write_ids, self.transaction.valid_txns
        return self.layout(request.table), *self.lists(request.table.name)

    def scan(self, request: ScanRequest) -> Scan:
        """The opened files of a table. Raises NotEnoughHistory, CorruptFile, UnsupportedLayout."""
        layout, write_ids, txns = self.source(request)
        listings = self.listings(layout, request.where)
        scan = open_scan(layout, listings, write_ids, txns, request.where, self.in_force)
        return replace(scan, still_open=self.check)

    def scans(self, requests: Sequence[ScanRequest]) -> list[Scan]:
        """Scans of several tables, in their order. Raises as `scan`."""
        return [self.scan(request) for request in requests]

    def changes(self, name: str, since: AsOf | None, until: AsOf | None) -> ChangeScan:
        """The changes of a table after `since`, without it all rows, up to `until` or the snapshot.

        Raises NoSuchTable, NoSuchPast, NotEnoughHistory, InvalidDefinition, CorruptFile.
        """
        return self.open_changes(self.transaction.changes(name, since, until))

    def reading_changes(
        self,
        name: str,  # noqa: ARG002
        since: AsOf | None,  # noqa: ARG002, only a transaction moves a cursor
    ) -> AbstractContextManager[None]:
        """A block that reads changes."""
        return nullcontext()

    def open_changes(self, changes: TableChanges) -> ChangeScan:
        from acid_platform.tables.open_changes import open_changes

        return replace(open_changes(changes, self.transaction), still_open=self.check)


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
        self.unread: set[tuple[str, str]] = set()
        """Consumers and tables whose changes no reader has given to the end yet."""
        """The moves of consumers of changes that its commit makes, by consumer and table."""
        self.note: Note = ignored
        """Gets each table whose rows are read."""
        self._writing = False

    def declare(self, record: TableRecord) -> None:
        """From now on the transaction sees this declaration of the table."""
        self._records[record.name] = record

    def layout(self, record: TableRecord) -> TableLayout:
        """With the files and partitions that the transaction itself has written."""
        layout = super().layout(record)
        own = [
            OwnDirectory(report.partition or "", report.directory, report.contents)
            for report in self.reports
            if report.table == record.name
        ]
        if not own:
            return layout
        new = dict.fromkeys((each.partition for each in own if each.partition), ())
        partitions = {**new, **layout.partitions}
        unseen = frozenset(new.keys() - layout.partitions.keys())
        return replace(layout, partitions=partitions, own=tuple(own), new=unseen)

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

    @contextmanager
    def reading_changes(self, name: str, since: AsOf | None) -> Iterator[None]:
        """A block that reads the changes of a consumer to their end, or leaves them unread."""
        consumer = since.consumer if since is not None else None
        read = set() if consumer is None else {(consumer, self.table(name).name)}
        self.unread |= read
        yield
        self.unread -= read

    def require_read(self) -> None:
        """Raises InvalidDefinition if the cursor of a consumer would pass changes that its reader
        has not given yet (P55)."""
        for consumer, table in sorted(self.unread):
            raise InvalidDefinition(
                f"the changes of {table} that {consumer} asked for are not read to their end, and"
                " its cursor would pass those that are left: read all batches, or abort"
            )


_LONG_SECONDS = 1.0
"""A block that takes longer checks its lease again at its end (P29)."""

MOST_SCANS = 16
"""Scans of a lease that are kept to be used again, with the keys of deleted rows."""


class HeldLease:
    """A lease, and what was opened under it."""

    def __init__(self, lease: OpenTransaction, tables: frozenset[str] = frozenset()) -> None:
        self.lease = lease
        """It may become a newer lease that protects the same files."""
        self.tables = tables
        """The tables that it protects from its start."""
        self.opened: dict[tuple[str, str, str], tuple[str, ...] | Pin] = {}
        """What was opened of each location and partition at a list of write ids, and since when
        changes of a location were read."""
        self.scans: Recent[tuple[str, str | None], Scan] = Recent(MOST_SCANS)
        """By table and condition; to be used again."""
        self._process = os.getpid()

    @property
    def ours(self) -> bool:
        """Whether heartbeats of this process keep it: not in the child of a fork."""
        return self._process == os.getpid() and not self.lease.ended


class LeaseView(SnapshotView):
    """Scans and changes under a lease, which notes what it has to protect."""

    def __init__(self, held: HeldLease) -> None:
        super().__init__(held.lease)
        self._held = held

    @property
    def transaction(self) -> OpenTransaction:
        return self._held.lease

    @property
    def tables(self) -> frozenset[str]:
        """Full names of tables, none of which is a view."""
        return self._held.tables

    def scan(self, request: ScanRequest) -> Scan:
        """As SnapshotView.scan; a scan of this lease that reads the same is used again."""
        held, key = self._held, (request.table.name, request.where)
        present = request.past is None and request.write_ids is None
        scan = held.scans.get(key) if present else None
        if scan is not None:
            require_files(scan, request.table.name)
            return scan
        scan = super().scan(request)
        write_ids = f"as of {scan.write_ids}" if request.past else str(request.write_ids or "")
        for entity in scan.entities:
            held.opened[scan.location, entity.partition, write_ids] = entity.paths
        if present:
            held.scans.put(key, scan)
        return scan

    def changes(self, name: str, since: AsOf | None, until: AsOf | None) -> ChangeScan:
        changes = self.transaction.changes(name, since, until)
        first = changes.before or changes.after
        scan = self.open_changes(changes)
        self._held.opened[changes.table.location, "changes", str(first.moment)] = first
        return scan


class Leases:
    """Takes snapshots, each held until `release` or until its only result is complete.

    Thread-safe.
    """

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse
        self._held: list[HeldLease] = []
        self._guard = threading.Lock()

    @contextmanager
    def lasting(self, *tables: str) -> Iterator[LeaseView]:
        """A snapshot whose scans outlive the block: its lease is held until `release`.

        `tables` are protected from the start, other tables once they are scanned (P12).

        A lease that this handle holds is used again if a new one would see the same. Raises
        SnapshotExpired if the lease ended before the block did (P29), NoSuchTable.
        """
        held = self._newest(tables)
        if held is not None:
            began = elapsed_seconds()
            with held.lease.checked(again=False):  # `_newest` has asked just now
                yield LeaseView(held)
            if elapsed_seconds() - began > _LONG_SECONDS:
                held.lease.check()  # this process may have slept
            return
        lease = self._open(*tables)
        held = HeldLease(lease, frozenset(table_name(name) for name in tables))
        with _ended_on_error(lease), lease.checked():
            yield LeaseView(held)
        if held.opened:
            self._keep(held)
        else:
            _end(lease)

    @contextmanager
    def brief(self, *tables: str, branch: str | None = None) -> Iterator[LeaseView]:
        """A snapshot for a result that needs no file any more when the block ends, as its lease;
        of this branch, or None: as this handle reads.

        Raises as `lasting`.
        """
        lease = self._open(*tables, branch=branch)
        with _ended_on_error(lease), lease.checked():
            yield LeaseView(HeldLease(lease))
        _end(lease)

    def release(self) -> None:
        """Ends all leases: frames read so far may raise SnapshotExpired from now on.

        If the metastore can't be reached, a lease ends after its timeout.
        """
        with self._guard:
            ended, self._held = self._held, []
        for held in ended:
            _end(held.lease)

    def _open(self, *tables: str, branch: str | None = None) -> OpenTransaction:
        info = self._warehouse.info()
        return self._warehouse.metastore.open_snapshot(tables, info, True, branch)

    def _newest(self, tables: Sequence[str]) -> HeldLease | None:
        """A held lease that sees what a new one would see of the tables (P11), renewed; or None."""
        names = {table_name(name) for name in tables}
        with self._guard:
            protecting = [held for held in self._held if held.ours and names <= held.tables]
        if not protecting:
            return None
        newest = protecting[-1]
        try:
            return newest if newest.lease.is_newest(tuple(sorted(names))) else None
        except (SnapshotExpired, NoSuchTxn):
            with self._guard:
                self._held = [held for held in self._held if held is not newest]
            return None

    def _keep(self, fresh: HeldLease) -> None:
        """Holds the lease; ends older leases of this handle that protect the same files."""
        replaced = []
        with self._guard:
            for held in self._held:
                if held.opened.items() <= fresh.opened.items():
                    replaced.append(held.lease)
                    held.lease = fresh.lease
            self._held = [*(held for held in self._held if held.lease is not fresh.lease), fresh]
        for lease in replaced:
            _end(lease)


def _end(lease: OpenTransaction) -> None:
    """Ends a lease that is not needed any more; its reads were checked before."""
    with suppress(SnapshotExpired, MetastoreUnavailable, OutcomeUnknown):
        lease.commit()


@contextmanager
def _ended_on_error(lease: OpenTransaction) -> Iterator[None]:
    try:
        yield
    except BaseException:
        _end(lease)
        raise
