"""A snapshot of all tables that is held by a read lease, and what it sees of a table (P12)."""

from __future__ import annotations

import os
import threading
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from acid_platform.base.clock import elapsed_seconds
from acid_platform.base.first_use import Recent
from acid_platform.errors import MetastoreUnavailable, NoSuchTxn, OutcomeUnknown, SnapshotExpired
from acid_platform.handles.read_verbs import Reads
from acid_platform.handles.snapshot_view import ScanRequest, SnapshotView
from acid_platform.layout.names import table_name
from acid_platform.metastore.pasts import AsOf, Pin
from acid_platform.metastore.records import TableRecord
from acid_platform.scan.acid_directory import AcidDirectory
from acid_platform.scan.open import require_files
from acid_platform.transactions import ValidTxnList, ValidWriteIdList

if TYPE_CHECKING:
    from acid_platform.handles.warehouse import Warehouse
    from acid_platform.metastore.client.metastore import OpenTransaction
    from acid_platform.scan.change_scan import ChangeScan
    from acid_platform.scan.scans import Scan


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
    def brief(self, table: str) -> Iterator[LeaseView]:
        """A snapshot for a result that needs no file any more when the block ends, as its lease.

        Raises as `lasting`.
        """
        lease = self._open(table)
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

    def _open(self, *tables: str) -> OpenTransaction:
        return self._warehouse.metastore.open_snapshot(tables, self._warehouse.info(), True)

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


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """What a snapshot sees of a table: its id lists, and the directories of each partition."""

    table: str
    write_ids: ValidWriteIdList
    txns: ValidTxnList
    directories: Mapping[str, AcidDirectory]
    """By partition name; '' stands for an unpartitioned table."""

    def __str__(self) -> str:
        lines = [str(self.write_ids)]
        for partition, directory in self.directories.items():
            names = [directory.base.directory] if directory.base else []
            names += [delta.directory for delta in directory.deltas]
            lines.append(f"  {partition or self.table}: {' '.join(names) or 'empty'}")
        return "\n".join(lines)

    def __rich__(self) -> object:
        from acid_platform import display

        return display.snapshot(self)

    def _repr_html_(self) -> str:
        from acid_platform import display

        return display.snapshot(self)._repr_html_()


class Snapshot:
    """A snapshot of all tables; its frames are valid until the block ends."""

    def __init__(self, warehouse: Warehouse, lease: OpenTransaction) -> None:
        self._warehouse, self._lease = warehouse, lease
        self._view = LeaseView(HeldLease(lease))

    def table(self, name: str) -> SnapshotTable:
        """The table as it was declared at the snapshot, whatever others do later (P28).

        Raises NoSuchTable, SnapshotExpired after the block.
        """
        try:
            record = self._lease.table(table_name(name))
        except NoSuchTxn as error:
            raise SnapshotExpired(
                f"{name}: the block of this snapshot has ended; take a new one by"
                " Warehouse.snapshot"
            ) from error
        return SnapshotTable(self._warehouse, self._view, record.name)

    def close(self) -> None:
        with suppress(SnapshotExpired):
            self._lease.commit()

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        self.close()


class SnapshotTable(Reads):
    """A table as one snapshot sees it, also as it was before; get one by `Snapshot.table`.

    Every verb raises SnapshotExpired after the block, or if the snapshot was not read for
    `acid.read.lease.max` (P12).
    """

    def __init__(self, warehouse: Warehouse, view: SnapshotView, name: str) -> None:
        super().__init__(warehouse, name)
        self._view = view

    @property
    def record(self) -> TableRecord:
        return self._view.table(self.name)

    def _brief_view(self) -> AbstractContextManager[SnapshotView]:
        return self._view.checked()

    _lasting_view = _brief_view
