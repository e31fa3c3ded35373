"""A snapshot of all tables that is held for a block, and what it sees of a table (P12)."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from acid_platform.base.errors import NoSuchTxn, SnapshotExpired
from acid_platform.metastore.names import table_name
from acid_platform.metastore.records import TableRecord
from acid_platform.scan.open import arrow_scan, open_scan
from acid_platform.scan.selection import AcidDirectory
from acid_platform.scan.table_layout import TableLayout
from acid_platform.transactions import ValidTxnList, ValidWriteIdList

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from acid_platform.handles.warehouse import Warehouse
    from acid_platform.metastore.client.metastore import Transaction as Lease


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
        for partition, seen in self.directories.items():
            names = [seen.base.directory] if seen.base else []
            names += [delta.directory for delta in seen.deltas]
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

    def __init__(self, warehouse: Warehouse, lease: Lease) -> None:
        self._warehouse = warehouse
        self._lease = lease

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
        return SnapshotTable(self._warehouse, self._lease, record)

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


class SnapshotTable:
    """A table as one snapshot sees it."""

    def __init__(self, warehouse: Warehouse, lease: Lease, record: TableRecord) -> None:
        self._warehouse = warehouse
        self._lease = lease
        self._record = record

    def read(
        self, columns: Sequence[str] | None = None, where: str | None = None, row_id: bool = False
    ) -> DataFrame:
        """As Table.read, at this snapshot.

        Raises SnapshotExpired after the block, or if the snapshot was not read for
        `acid.read.lease.max` (P12).
        """
        from acid_platform.engine.spark.read import filtered

        with self._lease.checked():
            write_ids, layout = self._seen()
            lease = self._lease
            scan = open_scan(layout, write_ids, lease.valid_txns, where, lease.settings)
        return filtered(
            lambda: self._warehouse.spark, scan, columns, where, row_id, self._record.name
        )

    def to_arrow(
        self, columns: Sequence[str] | None = None, where: str | None = None, row_id: bool = False
    ) -> pa.Table:
        """As Table.to_arrow, at this snapshot. Raises SnapshotExpired as `read`."""
        with self._lease.checked():
            write_ids, layout = self._seen()
            return arrow_scan(
                layout, write_ids, self._lease.valid_txns, columns, where, row_id
            ).table()

    def _seen(self) -> tuple[ValidWriteIdList, TableLayout]:
        return (
            self._lease.valid_write_ids(self._record.name),
            self._warehouse.layout(self._record, self._lease),
        )
