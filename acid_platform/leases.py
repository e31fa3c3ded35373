"""The read leases of a handle: files stay while its frames may read them (P12)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from acid_platform.engine.open import open_scan, past_scan
from acid_platform.errors import MetastoreUnavailable, OutcomeUnknown, SnapshotExpired
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.pasts import AsOf
from acid_platform.metastore.records import ClientInfo, PastTable, TableRecord, ViewRecord
from acid_platform.reading.arrow_read import arrow_scan
from acid_platform.reading.selection import select_entities
from acid_platform.storage.arrow_scan import ArrowScan
from acid_platform.table_snapshot import TableSnapshot
from acid_platform.tables.context import Layouts, ScanRequest
from acid_platform.transactions import ValidWriteIdList

if TYPE_CHECKING:
    import pyarrow as pa

    from acid_platform.engine.scans import TableScan
    from acid_platform.metastore.client.metastore import Transaction as Lease


class Leases:
    """Takes snapshots, each held until `release` or until its only result is complete.

    Thread-safe.
    """

    def __init__(
        self,
        metastore: Metastore,
        layout: Layouts,
        info: Callable[[], ClientInfo],
    ) -> None:
        self._metastore, self._layout, self._info = metastore, layout, info
        self._held: list[tuple[Lease, list[TableScan]]] = []
        self._guard = threading.Lock()

    def scan(
        self,
        table: str,
        where: str | None,
        explicit: ValidWriteIdList | None = None,
        as_of: AsOf | None = None,
    ) -> TableScan:
        """A scan at a fresh snapshot, at an explicit write id list (P13), or of the past (P36).

        `where` prunes partitions.
        """
        with self.fresh(table) as read:
            if as_of is not None:
                past = read.past(table, as_of)
                return read.scans([ScanRequest(past.table, where, past)])[0]
            return read.scans([ScanRequest(read.table(table), where)], explicit)[0]

    @contextmanager
    def fresh(self, *tables: str) -> Iterator[FreshRead]:
        """A snapshot for a block: declarations, and scans that outlive the block under its lease.

        `tables` are protected from the start, other tables once they are scanned (P12).

        Raises SnapshotExpired if the lease ended before the block did (P29).
        """
        lease = self._open(*tables)
        read = FreshRead(lease, self._layout)
        with _ended_on_error(lease), lease.checked():
            yield read
        if read.opened:
            self._keep(lease, read.opened)
        else:
            _end(lease)

    def snapshot(self, table: str) -> TableSnapshot:
        """What a fresh snapshot sees of a table; its files are protected like those of a scan."""
        with self.fresh(table) as read:
            record, lease = read.table(table), read.lease
            (scan,) = read.scans([ScanRequest(record)])
            layout = self._layout(record, lease)
            return TableSnapshot(
                record.name,
                scan.write_ids,
                lease.valid_txns,
                select_entities(layout, scan.write_ids, lease.valid_txns),
            )

    def rows(
        self,
        table: str,
        columns: Sequence[str] | None,
        where: str | None,
        explicit: ValidWriteIdList | None = None,
        row_id: bool = False,
        as_of: AsOf | None = None,
    ) -> pa.Table:
        """Live rows at a fresh snapshot, whose lease ends here: the result needs no files."""
        with self._arrow_scan(table, columns, where, explicit, row_id, as_of) as scan:
            return scan.table()

    def count(self, table: str, where: str | None = None, as_of: AsOf | None = None) -> int:
        """How many rows `rows` would return, mostly read from footers."""
        with self._arrow_scan(table, [], where, as_of=as_of) as scan:
            return scan.count()

    def release(self) -> None:
        """Ends all leases: frames read so far may raise SnapshotExpired from now on.

        If the metastore can't be reached, a lease ends after its timeout.
        """
        with self._guard:
            held, self._held = self._held, []
        for lease, _ in held:
            _end(lease)

    def _open(self, *tables: str) -> Lease:
        return self._metastore.open_snapshot(tables, self._info())

    @contextmanager
    def _arrow_scan(
        self,
        table: str,
        columns: Sequence[str] | None,
        where: str | None,
        explicit: ValidWriteIdList | None = None,
        row_id: bool = False,
        as_of: AsOf | None = None,
    ) -> Iterator[ArrowScan]:
        lease = self._open(table)
        with _ended_on_error(lease), lease.checked():
            if as_of is None:
                write_ids, txns = explicit or lease.valid_write_ids(table), lease.valid_txns
                layout = self._layout(lease.table(table), lease)
            else:
                past = lease.past(table, as_of)
                write_ids, txns = past.pin.write_ids, past.pin.txns
                layout = self._layout(past.table, lease, past.partitions)
            yield arrow_scan(layout, write_ids, txns, columns, where, row_id)
        _end(lease)

    def _keep(self, lease: Lease, scans: list[TableScan]) -> None:
        """Holds the lease, unless an older lease of this handle protects the same files already."""
        with self._guard:
            kept = []
            for held, earlier in self._held:
                if _same_files(earlier, scans):
                    with suppress(SnapshotExpired):
                        held.check()
                        _end(lease)
                        return
                    continue
                kept.append((held, earlier))
            self._held = [*kept, (lease, scans)]


class FreshRead:
    """Reads at one fresh snapshot."""

    def __init__(self, lease: Lease, layout: Layouts) -> None:
        self.lease = lease
        self.opened: list[TableScan] = []
        """The scans that were opened so far."""
        self._layout = layout

    def table(self, name: str) -> TableRecord:
        """The table as the snapshot sees it (P28). Raises NoSuchTable."""
        return self.lease.table(name)

    def views(self) -> list[ViewRecord]:
        return self.lease.views()

    def past(self, name: str, as_of: AsOf) -> PastTable:
        """The table as it was (P36). Raises NoSuchTable, NoSuchPast, NotEnoughHistory."""
        return self.lease.past(name, as_of)

    def scans(
        self, wanted: Sequence[ScanRequest], explicit: ValidWriteIdList | None = None
    ) -> list[TableScan]:
        """Scans of several tables, in their order. Raises SnapshotExpired."""
        names = sorted({each.table.name for each in wanted if each.past is None})
        lists = {name: explicit or self.lease.valid_write_ids(name) for name in names}
        scans = [
            past_scan(self._layout, self.lease, each.past, each.where)
            if each.past is not None
            else open_scan(
                self._layout(each.table, self.lease),
                lists[each.table.name],
                self.lease.valid_txns,
                each.where,
            )
            for each in wanted
        ]
        self.opened += scans
        return scans


def _end(lease: Lease) -> None:
    """Ends a lease that is not needed any more; its reads were checked before."""
    with suppress(SnapshotExpired, MetastoreUnavailable, OutcomeUnknown):
        lease.commit()


@contextmanager
def _ended_on_error(lease: Lease) -> Iterator[None]:
    try:
        yield
    except BaseException:
        _end(lease)
        raise


def _same_files(left: list[TableScan], right: list[TableScan]) -> bool:
    return len(left) == len(right) and all(
        scan.location == other.location
        and [(entity.partition, entity.directory) for entity in scan.entities]
        == [(entity.partition, entity.directory) for entity in other.entities]
        for scan, other in zip(left, right, strict=True)
    )
