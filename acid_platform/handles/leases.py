"""The read leases of a handle: files stay while its frames may read them (P12)."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from acid_platform.base.clock import elapsed_seconds
from acid_platform.base.config import Settings
from acid_platform.base.errors import (
    MetastoreUnavailable,
    NoSuchTxn,
    OutcomeUnknown,
    SnapshotExpired,
)
from acid_platform.engine.recent import Recent
from acid_platform.handles.table_snapshot import TableSnapshot
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.names import table_name
from acid_platform.metastore.pasts import AsOf, Pin
from acid_platform.metastore.records import ClientInfo, PastTable, TableRecord, ViewRecord
from acid_platform.scan.arrow_scan import ArrowScan
from acid_platform.scan.open import arrow_scan, open_scan, require_files
from acid_platform.scan.table_layout import select_entities
from acid_platform.tables.context import Layouts, ScanRequest, past_scan
from acid_platform.transactions import ValidWriteIdList

if TYPE_CHECKING:
    import pyarrow as pa

    from acid_platform.metastore.client.metastore import Transaction as Lease
    from acid_platform.scan.change_scan import ChangeScan
    from acid_platform.scan.scans import Scan

_LONG_SECONDS = 1.0
"""A block that takes longer checks its lease again at its end (P29)."""

MOST_SCANS = 16
"""Scans of a lease that are kept to be used again, with the keys of deleted rows."""


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
        self._held: list[Held] = []
        self._guard = threading.Lock()

    def scan(
        self,
        table: str,
        where: str | None,
        explicit: ValidWriteIdList | None = None,
        as_of: AsOf | None = None,
    ) -> Scan:
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

        A lease that this handle holds is used again if a new one would see the same. Raises
        SnapshotExpired if the lease ended before the block did (P29), NoSuchTable.
        """
        held = self._newest(tables)
        if held is not None:
            began = elapsed_seconds()
            with held.lease.checked(again=False):  # `_newest` has asked just now
                yield FreshRead(held, self._layout)
            if elapsed_seconds() - began > _LONG_SECONDS:
                held.check()  # this process may have slept
            return
        lease = self._open(*tables)
        held = Held(lease, frozenset(table_name(name) for name in tables))
        with _ended_on_error(lease), lease.checked():
            if tables:
                lease.describe(tables)
            yield FreshRead(held, self._layout)
        if held.opened:
            self._keep(held)
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

    def changes(self, table: str, since: AsOf | None, until: AsOf | None) -> ChangeScan:
        """The changes of a table, whose files stay until `release` (P39)."""
        with self.fresh(table) as read:
            return read.changes(table, since, until)

    def change_batches(
        self,
        table: str,
        since: AsOf | None,
        until: AsOf | None,
        columns: Sequence[str] | None,
    ) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """The schema of the changes, and their batches, with a lease until the last one (P29)."""
        lease = self._open(table)
        with _ended_on_error(lease), lease.checked():
            scan = FreshRead(Held(lease, frozenset()), self._layout).changes(table, since, until)
            scan = scan.wanting(columns)

        def batches() -> Iterator[pa.RecordBatch]:
            try:
                with lease.checked():
                    yield from scan.batches()
            finally:
                _end(lease)

        return scan.schema, batches()

    def release(self) -> None:
        """Ends all leases: frames read so far may raise SnapshotExpired from now on.

        If the metastore can't be reached, a lease ends after its timeout.
        """
        with self._guard:
            ended, self._held = self._held, []
        for held in ended:
            _end(held.lease)

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

    def _newest(self, tables: Sequence[str]) -> Held | None:
        """A held lease that sees what a new one would see of the tables (P11), renewed; or None."""
        names = {table_name(name) for name in tables}
        with self._guard:
            known = [held for held in self._held if held.ours and names <= held.tables]
        if not known:
            return None
        held = known[-1]
        try:
            return held if held.lease.is_newest(tuple(sorted(names))) else None
        except (SnapshotExpired, NoSuchTxn):
            with self._guard:
                self._held = [other for other in self._held if other is not held]
            return None

    def _keep(self, fresh: Held) -> None:
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


class Held:
    """A lease, and what was opened under it."""

    def __init__(self, lease: Lease, tables: frozenset[str]) -> None:
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

    def check(self) -> None:
        """Raises SnapshotExpired unless the lease holds."""
        self.lease.check()


class FreshRead:
    """Reads at one fresh snapshot."""

    def __init__(self, held: Held, layout: Layouts) -> None:
        self._held = held
        self._layout = layout

    @property
    def lease(self) -> Lease:
        return self._held.lease

    @property
    def tables(self) -> frozenset[str]:
        """Full names that are known to be names of tables."""
        return self._held.tables

    def table(self, name: str) -> TableRecord:
        """The table as the snapshot sees it (P28). Raises NoSuchTable."""
        return self.lease.table(name)

    def views(self) -> list[ViewRecord]:
        return self.lease.views()

    @property
    def in_force(self) -> Settings:
        return self.lease.settings

    def past(self, name: str, as_of: AsOf) -> PastTable:
        """The table as it was (P36). Raises NoSuchTable, NoSuchPast, NotEnoughHistory."""
        return self.lease.past(name, as_of)

    def scans(
        self, wanted: Sequence[ScanRequest], explicit: ValidWriteIdList | None = None
    ) -> list[Scan]:
        """Scans of several tables, in their order. Raises SnapshotExpired."""
        return [
            self._scan(each.table, each.where, explicit)
            if each.past is None
            else self._past_scan(each.past, each.where)
            for each in wanted
        ]

    def changes(self, name: str, since: AsOf | None, until: AsOf | None) -> ChangeScan:
        """The changes of a table between two snapshots, the present one without `until` (P39).

        Raises NoSuchTable, NoSuchPast, NotEnoughHistory, InvalidDefinition, CorruptFile.
        """
        from acid_platform.tables.open_changes import open_changes

        found = self.lease.changes(name, since, until)
        held_since = found.before or found.after
        layout = self._layout(found.table, self.lease, found.entities)
        scan = open_changes(layout, found)
        what = (found.table.location, "changes", str(held_since.moment))
        self._held.opened[what] = held_since
        return replace(scan, still_open=self._held.check)

    def _past_scan(self, past: PastTable, where: str | None) -> Scan:
        scan = past_scan(self._layout, self.lease, past, where)
        return self._opened(scan, f"as of {past.pin.write_ids}")

    def _opened(self, scan: Scan, write_ids: str) -> Scan:
        """The scan, noted as opened under the lease at a list of write ids."""
        for entity in scan.entities:
            what = (scan.location, entity.partition, write_ids)
            self._held.opened[what] = entity.paths
        return replace(scan, still_open=self._held.check)

    def _scan(
        self, record: TableRecord, where: str | None, explicit: ValidWriteIdList | None
    ) -> Scan:
        held, key = self._held, (record.name, where)
        known = held.scans.get(key) if explicit is None else None
        if known is not None:
            require_files(known, record.name)
            return known
        write_ids = explicit or self.lease.valid_write_ids(record.name)
        layout = self._layout(record, self.lease)
        scan = open_scan(layout, write_ids, self.lease.valid_txns, where, self.in_force)
        scan = self._opened(scan, str(explicit or ""))
        if explicit is None:
            held.scans.put(key, scan)
        return scan


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
