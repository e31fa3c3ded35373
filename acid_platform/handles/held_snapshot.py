"""A snapshot of all tables that is held for a block, and what it sees of a table (P12)."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from acid_platform.errors import NoSuchTxn, SnapshotExpired
from acid_platform.handles.leases import HeldLease, LeaseView
from acid_platform.handles.read_verbs import Reads
from acid_platform.handles.snapshot_view import SnapshotView
from acid_platform.metastore.records import TableRecord
from acid_platform.metastore.table_names import table_name
from acid_platform.scan.acid_directory import AcidDirectory
from acid_platform.transactions import ValidTxnList, ValidWriteIdList

if TYPE_CHECKING:
    from acid_platform.handles.warehouse import Warehouse
    from acid_platform.metastore.client.metastore import OpenTransaction


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

    @contextmanager
    def _brief_view(self) -> Iterator[SnapshotView]:
        with self._view.checked():
            yield self._view

    _lasting_view = _brief_view
