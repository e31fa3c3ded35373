"""A table inside of a transaction: its verbs, each a statement of the transaction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from acid_platform.base.errors import (
    InvalidDefinition,
    InvalidExpression,
    NoSuchPartition,
    UnsupportedStatement,
)
from acid_platform.engine.merge_clauses import (
    MergeAction,
    MergeClause,
    MergeCounts,
    merge_clauses,
    require_reachable,
)
from acid_platform.engine.reads import Condition, Where
from acid_platform.engine.rows import Rows, column_names
from acid_platform.handles.rollback import roll_back
from acid_platform.handles.transaction_state import Shares, TransactionState
from acid_platform.layout.formats import is_insert_only
from acid_platform.layout.partition_names import partition_name, partition_values
from acid_platform.layout.types import UNNAMED, Column
from acid_platform.metastore.pasts import AsOf
from acid_platform.metastore.records import TableRecord
from acid_platform.predicates.known_columns import require_columns, require_names
from acid_platform.scan.arrow_scan import ArrowScan
from acid_platform.scan.open import arrow_scan
from acid_platform.scan.scans import Scan
from acid_platform.scan.table_layout import TableLayout
from acid_platform.tables.context import ScanRequest, columns_of_record
from acid_platform.tables.declaration import widened
from acid_platform.transactions import Operation
from acid_platform.transactions.locks import Statement
from acid_platform.write.publishing import write_truncation

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from acid_platform.scan.change_scan import ChangeScan


class TransactionTable:
    """A table inside a transaction: reads see the transaction's snapshot and its own writes."""

    def __init__(self, work: TransactionState, record: TableRecord) -> None:
        self._work = work
        self._record = record
        self._columns, self._partition_columns = columns_of_record(record)

    @property
    def name(self) -> str:
        return self._record.name

    def read(
        self, columns: Sequence[str] | None = None, where: str | None = None, row_id: bool = False
    ) -> DataFrame:
        """As Table.read; the frame is valid until the transaction ends."""
        scan = self._scan(where)
        from acid_platform.engine.spark.read import filtered

        return filtered(lambda: self._work.context.spark, scan, columns, where, row_id, self.name)

    def to_arrow(
        self, columns: Sequence[str] | None = None, where: str | None = None, row_id: bool = False
    ) -> pa.Table:
        """As Table.to_arrow, at the transaction's snapshot and with its own writes.

        Raises TxnAborted if the metastore aborted it before the last file was read (P29).
        """
        with self._work.begun.checked():
            write_ids, txns = self._work.lists(self.name)
            return arrow_scan(self._layout(), write_ids, txns, columns, where, row_id).table()

    def changes(
        self,
        since: int | datetime | str | None = None,
        columns: Sequence[str] | None = None,
        consumer: str | None = None,
    ) -> DataFrame:
        """As Table.changes, up to the transaction's snapshot and without its own changes.

        With `consumer`, a name, these are the changes since that consumer's last commit, all rows
        if there was none; the commit of this transaction moves its cursor. So each change is
        consumed once, together with what is made of it. If another transaction has moved it, the
        commit raises WriteConflict. Raises NotEnoughHistory.
        """
        from acid_platform.engine.spark.change_frames import changed_rows

        return changed_rows(
            lambda: self._work.context.spark, self._change_scan(since, consumer), columns
        )

    def changes_arrow(
        self,
        since: int | datetime | str | None = None,
        columns: Sequence[str] | None = None,
        consumer: str | None = None,
    ) -> pa.RecordBatchReader:
        """The rows of `changes` as record batches, without a JVM; valid in the transaction."""
        import pyarrow as pa

        scan = self._change_scan(since, consumer).wanting(columns)

        def batches() -> Iterator[pa.RecordBatch]:
            with self._work.begun.checked():
                yield from scan.batches()

        return pa.RecordBatchReader.from_batches(scan.schema, batches())

    def _change_scan(self, since: int | datetime | str | None, consumer: str | None) -> ChangeScan:
        if consumer is not None:
            if since is not None:
                raise InvalidDefinition(
                    f"since={since!r} and consumer={consumer!r}: pass one of them"
                )
            return self._work.consume(self.name, consumer)
        return self._work.changes(self.name, None if since is None else AsOf.of(since), None)

    def insert(
        self,
        rows: Rows,
        fixed: Mapping[str, str | None] | None = None,
        shares: Shares | None = None,
    ) -> int:
        """Appends rows; makes the partitions that they need. Returns the number of rows.

        `fixed` gives values of partition columns that the rows lack. `shares`: of the inserts whose
        rows these are (P44). Raises UnknownColumn, WrongType, OverwriteThenWrite.
        """
        self.require_writable()
        require_columns(column_names(rows), self.all_columns, self.name)
        self._work.lock(self._record, Statement.INSERT)
        self._work.refuse_after_overwrite(self._record)
        written = self._work.run(
            self._record,
            self._layout(),
            lambda engine, target: engine.insert(rows, target, fixed or {}),
            rows,
        )
        count = self._work.record(self._record, Operation.INSERT, written, shares=shares)
        self._work.count(self.name, inserted=count)
        return count

    def overwrite(
        self,
        rows: Rows,
        partition: Mapping[str, Any] | str | None = None,
        fixed: Mapping[str, str | None] | None = None,
    ) -> int:
        """Replaces the whole table, or those partitions of a partitioned table that occur in the
        rows.

        With `partition` (`"month=3"` or a dict of all partition columns) exactly that partition is
        replaced, even by no rows. `fixed` gives values of partition columns that the rows lack.
        Returns the number of rows. Raises NoSuchPartition.
        """
        whole_partition = self._fixed(partition)
        self.require_writable()
        require_columns(column_names(rows), self.all_columns, self.name)
        name = partition_name(whole_partition) if whole_partition else None
        self._work.lock(self._record, Statement.INSERT_OVERWRITE, name)
        whole = [] if self._partition_columns else [""]
        empty = [name] if name else whole
        self._work.refuse_after_overwrite(self._record, empty)
        values = whole_partition or fixed or {}
        written = self._work.run(
            self._record,
            self._layout(),
            lambda engine, target: engine.overwrite(rows, target, values, empty),
            rows,
        )
        count = self._work.record(self._record, Operation.UPDATE, written, overwrite=True)
        self._work.count(self.name, overwritten=count)
        return count

    def rollback_to(self, as_of: int | datetime | str) -> int:
        """Makes the rows those of a past snapshot, by overwriting what has changed since.

        `as_of`: see Table.read. Returns the number of rows written. Raises NoSuchPast,
        NotEnoughHistory, WriteConflict, OverwriteThenWrite.
        """
        return self.roll_back_to(AsOf.of(as_of))

    def roll_back_to(self, as_of: AsOf) -> int:
        """The same for a snapshot as SQL names it."""
        self.require_writable()
        return roll_back(self._work, self._record, as_of)

    def truncate(self, partition: Mapping[str, Any] | str | None = None) -> None:
        """Removes all rows of the table, or of one partition, whose directory stays.

        Raises NoSuchPartition, OverwriteThenWrite.
        """
        self._work.lock(self._record, Statement.TRUNCATE)
        layout = self._layout()
        partitions = sorted(layout.partitions) if self._partition_columns else [""]
        if partition is not None:
            name = partition_name(
                partition_values(partition, self._partition_columns, self.name, partitions)
            )
            if name not in partitions:
                raise NoSuchPartition(f"{self.name} has no partition {name}")
            partitions = [name]
        self._work.refuse_after_overwrite(self._record, partitions)
        with self._work.begun.checked(again=False):
            written = write_truncation(self._work.target(self._record, layout), partitions)
        self._work.record(self._record, Operation.UPDATE, written, overwrite=True)

    def hide_deleted_rows(self, why: str) -> None:
        """Empties a table without rows, so that no reader opens the files of its deleted ones.

        A commit that the snapshot misses makes it begin again, as every overwrite (P30). Raises
        InvalidDefinition, which says `why`, if the table has rows.
        """
        scan = self._scan(None)
        if ArrowScan(scan, ()).count():
            raise InvalidDefinition(why)
        if scan.may_hold_rows:
            self.truncate()

    def merge(
        self,
        source: Rows,
        on: str,
        when_matched_update: Mapping[str, str] | None = None,
        when_matched_delete: str | None = None,
        when_not_matched_insert: Mapping[str, str] | Literal["*"] | None = None,
        clauses: Sequence[MergeClause] | None = None,
        aliases: tuple[str, str] = ("t", "s"),
    ) -> MergeCounts:
        """MERGE INTO this table `t` USING `source` `s` ON `on`; see Table.merge.

        `aliases`: other names for the table and the source.
        """
        chosen = [
            *(clauses or ()),
            *merge_clauses(when_matched_update, when_matched_delete, when_not_matched_insert),
        ]
        if not chosen:
            raise InvalidExpression(
                f"MERGE into {self.name} has no WHEN clause: say what happens to rows that match,"
                " or to those that don't"
            )
        require_reachable(chosen)
        only_inserts = all(clause.action is MergeAction.INSERT for clause in chosen)
        self._refuse_insert_only("MERGE")
        self.require_writable()
        self._work.lock(self._record, Statement.MERGE_INSERT if only_inserts else Statement.UPDATE)
        self._work.refuse_after_overwrite(self._record)
        scan = self._scan(None)
        written, counts = self._work.run(
            self._record,
            self._layout(),
            lambda engine, target: engine.merge(scan, target, source, on, chosen, aliases),
            source,
            scan.read_bytes,
        )
        operation = Operation.INSERT if only_inserts else Operation.UPDATE
        self._work.record(self._record, operation, written, unmatched=counts.inserted > 0)
        self._work.count(
            self.name, inserted=counts.inserted, updated=counts.updated, deleted=counts.deleted
        )
        return counts

    def require_writable(self) -> None:
        """Raises UnsupportedStatement for partition columns whose directories can't be named."""
        for column in self._partition_columns:
            if column.type.kind in UNNAMED:
                raise UnsupportedStatement(
                    f"{self.name} is partitioned by {column}, whose directories this"
                    " platform reads, but does not write; write with Hive, or copy into a table"
                    " partitioned by a string"
                )

    def _require_predicate(self, where: Where) -> None:
        if isinstance(where, str):
            require_names(where, self.all_columns, self.name)

    def _refuse_insert_only(self, statement: str) -> None:
        if is_insert_only(self._record.properties):
            raise UnsupportedStatement(
                f"{statement} needs rows with row ids, and {self.name} is insert-only:"
                " overwrite its partitions, or make a table without transactional_properties"
            )

    def update(self, assignments: Mapping[str, str], where: Where = None) -> int:
        """Sets columns to SQL expressions in the rows that match the predicate.

        Returns the number of rows changed. Raises PartitionColumnUpdate, UnknownColumn, WrongType,
        InvalidExpression.
        """
        self._refuse_insert_only("UPDATE")
        self.require_writable()
        keys = {column.name for column in self._partition_columns}
        require_columns(
            (name for name in assignments if name.lower() not in keys), self._columns, self.name
        )
        for text in assignments.values():
            require_names(text, self.all_columns, self.name)
        self._require_predicate(where)
        self._work.lock(self._record, Statement.UPDATE)
        self._work.refuse_after_overwrite(self._record)
        scan = self._scan(where)
        written = self._work.run(
            self._record,
            self._layout(),
            lambda engine, target: engine.update(scan, target, assignments, where),
            read_bytes=scan.read_bytes,
        )
        rows = self._work.record(self._record, Operation.UPDATE, written)
        self._work.count(self.name, updated=rows)
        return rows

    def delete(self, where: Where = None) -> int:
        """Deletes the rows that match the predicate, or all; returns the number of rows."""
        self._refuse_insert_only("DELETE")
        self._require_predicate(where)
        self._work.lock(self._record, Statement.DELETE)
        self._work.refuse_after_overwrite(self._record)
        scan = self._scan(where)
        written = self._work.run(
            self._record,
            self._layout(),
            lambda engine, target: engine.delete(scan, target, where),
            read_bytes=scan.read_bytes,
        )
        self._work.record(self._record, Operation.DELETE, written)
        rows = sum(directory.rows for directory in written)
        self._work.count(self.name, deleted=rows)
        return rows

    def add_columns(self, columns: str) -> None:
        """As Table.add_columns; others see the columns after the commit."""
        wide = widened(self._record, columns)
        new = wide.columns[len(self._record.columns) :]
        self._work.added_columns.setdefault(self.name, []).extend(new)
        self._record = self._work.records[self.name] = wide
        self._columns, _ = columns_of_record(wide)

    def partitions(self) -> list[str]:
        """The partitions that the transaction sees, with those that it wrote, sorted."""
        return self._work.partitions(self.name)

    @property
    def partition_columns(self) -> tuple[Column, ...]:
        return self._partition_columns

    @property
    def all_columns(self) -> tuple[Column, ...]:
        """The columns, then the partition columns."""
        return (*self._columns, *self._partition_columns)

    def _layout(self) -> TableLayout:
        return self._work.layout(self._record)

    def _scan(self, where: Where) -> Scan:
        pruning = where.pruning if isinstance(where, Condition) else where
        return self._work.scans([ScanRequest(self._record, pruning)])[0]

    def _fixed(self, partition: Mapping[str, Any] | str | None) -> dict[str, str | None]:
        if partition is None:
            return {}
        return partition_values(partition, self._partition_columns, self.name)
