"""What a committed transaction did to a table, from the metastore's counts; reads no file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from acid_platform.errors import AcidError
from acid_platform.handles.transaction import Transaction
from acid_platform.handles.warehouse import Warehouse
from acid_platform.metastore.records import WriteReport
from acid_platform.orchestration.metadata import TableStats, table_metadata
from acid_platform.orchestration.partition_keys import PartitionScope
from acid_platform.values.coercion import Coerced

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
            return self._with_its_table(warehouse, scope)
        except AcidError as error:
            log.warning(f"can't read the table's current statistics: {error}")
            return self.metadata(), {}

    def _with_its_table(
        self, warehouse: Warehouse, scope: PartitionScope | None
    ) -> tuple[dict[str, Any], dict[str, int]]:
        """As `committed`. Raises AcidError if the metastore can't be asked."""
        record = warehouse.metastore.table(self.table)
        entities = warehouse.metastore.entities(self.table)
        metadata = table_metadata(record, TableStats.of(entities)) | self.metadata()
        written = sorted({report.partition for report in self.reports if report.partition})
        partitions = [
            dg.TableRecord(
                {
                    "partition": name,
                    "rows": stats.rows,
                    "bytes": stats.bytes,
                    "deltas": stats.deltas,
                    "delete_deltas": stats.delete_deltas,
                }
            )
            for name in written[:MOST_PARTITIONS]
            for stats in (TableStats.of(entities, name),)
        ]
        if partitions:
            metadata["partitions written"] = dg.MetadataValue.table(partitions)
        if scope is None:
            return metadata, {}
        names = [entity.partition for entity in entities if entity.partition]
        return metadata, {
            key: sum(TableStats.of(entities, name).rows for name in scope.of_key(key, names))
            for key in scope.values
        }
