"""What a committed transaction did to one table, from the metastore's counts: no file is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import dagster as dg

from acid_platform.metastore.records import EntityState, TableRecord, WriteReport
from acid_platform.orchestration.metadata import TableStats, table_metadata
from acid_platform.orchestration.partitions import Scope
from acid_platform.transaction import Transaction
from acid_platform.warehouse import Warehouse

MOST_PARTITIONS = 100
"""More written partitions than this are not listed in a materialization."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Rows that changed between two write ids; of an overwrite all rows before were deleted."""

    inserted: int
    updated: int
    deleted: int


@dataclass(frozen=True, slots=True)
class Uncommitted:
    """What a transaction has done to a table, looked at under its locks just before the commit."""

    table: str
    transaction: int
    run_id: str
    previous: int
    """Write id of the table before."""
    write_id: int
    counts: dict[str, int]
    reports: tuple[WriteReport, ...]
    replaced: int | None
    """Rows that its overwrites hide; None if they were never counted (adopted files, P24)."""

    @classmethod
    def of(cls, warehouse: Warehouse, txn: Transaction, table: str, run_id: str) -> Uncommitted:
        reports = tuple(one for one in txn.reports if one.table == table)
        entities = warehouse.metastore.entities(table)
        previous = TableStats.of(entities, table).write_id
        hidden = [
            TableStats.of(entities, table, one)
            for one in {one.partition for one in reports if one.overwrite}
        ]
        replaced = sum(one.rows for one in hidden) if all(one.counted for one in hidden) else None
        return cls(
            table,
            txn.id,
            run_id,
            previous,
            txn.write_ids.get(table, previous),
            txn.row_counts(table),
            reports,
            replaced,
        )

    @property
    def difference(self) -> Difference | None:
        if self.replaced is None:
            return None
        count = self.counts.get
        return Difference(
            count("inserted", 0) + count("overwritten", 0),
            count("updated", 0),
            count("deleted", 0) + self.replaced,
        )

    def metadata(self) -> dict[str, dg.MetadataValue]:
        """Ids, rows by operation, the difference to the write id before."""
        told: dict[str, dg.MetadataValue] = {
            "write id": dg.MetadataValue.int(self.write_id),
            "previous write id": dg.MetadataValue.int(self.previous),
            "transaction": dg.MetadataValue.int(self.transaction),
            "run id": dg.MetadataValue.dagster_run(self.run_id),
            "written directories": dg.MetadataValue.int(len(self.reports)),
            "written bytes": dg.MetadataValue.int(sum(one.bytes for one in self.reports)),
            **{f"rows {name}": dg.MetadataValue.int(rows) for name, rows in self.counts.items()},
        }
        if change := self.difference:
            told["difference to the previous write id"] = dg.MetadataValue.md(
                f"{change.inserted:,} inserted, {change.updated:,} updated,"
                f" {change.deleted:,} deleted"
            )
        return told

    def committed(self, warehouse: Warehouse) -> Materialized:
        return Materialized(
            self,
            warehouse.metastore.table(self.table),
            tuple(warehouse.metastore.entities(self.table)),
        )


@dataclass(frozen=True, slots=True)
class Materialized:
    """The same after its commit, with the table as it is now."""

    written: Uncommitted
    record: TableRecord
    entities: Sequence[EntityState]

    def rows_by_key(self, scope: Scope | None) -> dict[str, int]:
        """Rows in the table of each partition key of the run."""
        if scope is None:
            return {}
        names = [one.partition for one in self.entities if one.partition]
        return {
            key: sum(self._stats(name).rows for name in scope.of_key(key, names))
            for key in scope.values
        }

    def metadata(self) -> dict[str, dg.MetadataValue]:
        """What the transaction did, and the table's directories and schema."""
        now = TableStats.of(self.entities, self.written.table)
        told = table_metadata(self.record, now) | self.written.metadata()
        if partitions := self._partitions():
            told["partitions written"] = dg.MetadataValue.table(partitions)
        return told

    def _partitions(self) -> list[dg.TableRecord]:
        names = sorted({one.partition for one in self.written.reports if one.partition})
        return [
            dg.TableRecord(
                {
                    "partition": name,
                    "rows": stats.rows,
                    "bytes": stats.bytes,
                    "deltas": stats.deltas,
                    "delete_deltas": stats.delete_deltas,
                }
            )
            for name in names[:MOST_PARTITIONS]
            for stats in (self._stats(name),)
        ]

    def _stats(self, partition: str) -> TableStats:
        return TableStats.of(self.entities, self.written.table, partition)
