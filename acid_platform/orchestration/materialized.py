"""What a committed transaction did to a table, from the metastore's counts; reads no file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from acid_platform.engine.coercion import Coerced
from acid_platform.errors import AcidError
from acid_platform.handles.transaction import Transaction
from acid_platform.handles.warehouse import Warehouse
from acid_platform.metastore.records import TableRecord, WriteReport
from acid_platform.metastore.tasks import EntityState
from acid_platform.orchestration.metadata import TableStats, table_metadata
from acid_platform.orchestration.partition_keys import PartitionScope

MOST_PARTITIONS = 100
"""The most written partitions that a materialization lists."""


@dataclass(frozen=True, slots=True)
class Uncommitted:
    """What a transaction has done to a table, determined under its locks just before the commit."""

    table: str
    transaction: int
    run_id: str
    previous: int
    """The table's highest write id before the transaction."""
    write_id: int
    counts: dict[str, int]
    reports: tuple[WriteReport, ...]
    engines: tuple[tuple[str, str], ...]
    """The engine of each statement of the transaction, and why it was chosen."""
    replaced: int | None
    """Rows that its overwrites replace; None if they were never counted (adopted files, P24)."""
    coerced: Mapping[str, Coerced] = field(default_factory=dict)
    """What `coerce=True` has changed, by column."""

    @classmethod
    def of(cls, warehouse: Warehouse, txn: Transaction, table: str, run_id: str) -> Uncommitted:
        reports = tuple(report for report in txn.reports if report.table == table)
        entities = warehouse.metastore.entities(table)
        previous = TableStats.of(entities).write_id
        hidden = [
            TableStats.of(entities, partition)
            for partition in {report.partition for report in reports if report.overwrite}
        ]
        replaced = (
            sum(stats.rows for stats in hidden) if all(stats.counted for stats in hidden) else None
        )
        return cls(
            table,
            txn.id,
            run_id,
            previous,
            txn.write_ids.get(table, previous),
            txn.row_counts(table),
            reports,
            txn.engines,
            replaced,
            txn.coerced(table),
        )

    def metadata(self) -> dict[str, dg.MetadataValue]:
        """Ids, rows by operation, and the difference to the previous write id."""
        metadata: dict[str, dg.MetadataValue] = {
            "write id": dg.MetadataValue.int(self.write_id),
            "previous write id": dg.MetadataValue.int(self.previous),
            "transaction": dg.MetadataValue.int(self.transaction),
            "engines": dg.MetadataValue.text(
                "; ".join(dict.fromkeys(f"{name}: {reason}" for name, reason in self.engines))
            ),
            "run id": dg.MetadataValue.dagster_run(self.run_id),
            "written directories": dg.MetadataValue.int(len(self.reports)),
            "written bytes": dg.MetadataValue.int(sum(report.bytes for report in self.reports)),
            **{f"rows {name}": dg.MetadataValue.int(rows) for name, rows in self.counts.items()},
        }
        if self.coerced:
            metadata["coerced values"] = dg.MetadataValue.table(
                [
                    dg.TableRecord(
                        {"column": place, "changed": count.changed, "became NULL": count.nulled}
                    )
                    for place, count in self.coerced.items()
                ]
            )
        if self.replaced is not None:  # an overwrite deletes all rows that it replaces
            count = self.counts.get
            metadata["difference to the previous write id"] = dg.MetadataValue.md(
                f"{count('inserted', 0) + count('overwritten', 0):,} inserted,"
                f" {count('updated', 0):,} updated,"
                f" {count('deleted', 0) + self.replaced:,} deleted"
            )
        return metadata

    def committed(
        self, warehouse: Warehouse, scope: PartitionScope | None, log: dg.DagsterLogManager
    ) -> tuple[dict[str, Any], dict[str, int]]:
        """After the commit: the metadata of the materialization, and the rows of each partition
        key of the run.

        Fails in no case: a retry would append the rows once more.
        """
        log.info(
            f"transaction {self.transaction} committed write id {self.write_id} of {self.table}"
        )
        try:
            now = Materialized(
                self,
                warehouse.metastore.table(self.table),
                tuple(warehouse.metastore.entities(self.table)),
            )
        except AcidError as error:
            log.warning(f"can't read the table's current statistics: {error}")
            return self.metadata(), {}
        return now.metadata(), now.rows_by_key(scope)


@dataclass(frozen=True, slots=True)
class Materialized:
    """What a transaction did to a table, and the table after its commit."""

    written: Uncommitted
    record: TableRecord
    entities: Sequence[EntityState]

    def rows_by_key(self, scope: PartitionScope | None) -> dict[str, int]:
        """The table's rows for each partition key of the run."""
        if scope is None:
            return {}
        names = [entity.partition for entity in self.entities if entity.partition]
        return {
            key: sum(self._stats(name).rows for name in scope.of_key(key, names))
            for key in scope.values
        }

    def metadata(self) -> dict[str, Any]:
        """What the transaction did, and the table's directories and schema."""
        now = TableStats.of(self.entities)
        metadata = table_metadata(self.record, now) | self.written.metadata()
        if partitions := self._partitions():
            metadata["partitions written"] = dg.MetadataValue.table(partitions)
        return metadata

    def _partitions(self) -> list[dg.TableRecord]:
        names = sorted({report.partition for report in self.written.reports if report.partition})
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
        return TableStats.of(self.entities, partition)
