"""A transaction as its user holds it: several statements, several tables, one commit."""

from __future__ import annotations

import types
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from acid_platform.config import Settings
from acid_platform.engine import jobs
from acid_platform.engine.arrow_read import arrow_scan
from acid_platform.engine.dml import Where, delete_events, insert_events, update_events
from acid_platform.engine.incoming import Rows, as_frame, conform
from acid_platform.engine.merge import Merge, MergeAction, MergeClause, MergeCounts, merge_clauses
from acid_platform.engine.open import TableLayout, open_scan
from acid_platform.engine.query import Condition
from acid_platform.engine.read import filtered
from acid_platform.engine.scan import TableScan
from acid_platform.engine.write import (
    DELETES,
    WriteTarget,
    Written,
    write_statement,
    write_truncation,
)
from acid_platform.errors import (
    AcidError,
    NoSuchPartition,
    OverwriteThenWrite,
    Transient,
    TxnAborted,
    UnsupportedStatement,
)
from acid_platform.layout.formats import is_insert_only
from acid_platform.layout.partitions import partition_name, partition_values
from acid_platform.layout.types import UNWRITABLE, Column
from acid_platform.metastore.records import LockRequest, TableRecord, WriteReport
from acid_platform.services.context import Context, columns_of_record, compression
from acid_platform.services.declaration import widened
from acid_platform.transactions import Operation, ValidTxnList, ValidWriteIdList
from acid_platform.transactions.locks import Statement, lock_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from acid_platform.metastore.client import Transaction as MetastoreTransaction

class SnapshotOutdated(Transient):
    """The only statement of a transaction waited for its lock meanwhile: begin again (T40)."""


class Transaction:
    """One ACID transaction. Use as a context manager: commits at the end, aborts on any exception.

    All statements see one snapshot, taken when the transaction began, plus its own writes (S4).
    First committer wins: `commit` raises WriteConflict when another transaction changed one of the
    same partitions meanwhile (T31, T33); then everything was rolled back.
    """

    def __init__(
        self, context: Context, begun: MetastoreTransaction, restart_if_stale: bool = False
    ) -> None:
        self._context = context
        self._begun = begun
        self._restart_if_stale = restart_if_stale
        self._lock_settings = Settings.of(context.metastore.settings()).lock_settings
        self._statements = 0
        self._reports: list[WriteReport] = []
        self._overwritten: set[tuple[str, str]] = set()
        self._row_counts: dict[str, Counter[str]] = {}
        self._added_columns: dict[str, str] = {}
        self._records: dict[str, TableRecord] = {}
        self._session: SparkSession | None = None
        """The session of its statements so far: aborting must not start one."""

    @property
    def id(self) -> int:
        return int(self._begun.id)

    @property
    def write_ids(self) -> dict[str, int]:
        """Write id of each table written so far."""
        return dict(self._begun.write_ids)

    @property
    def reports(self) -> tuple[WriteReport, ...]:
        """The directories that this transaction has published, one report each (P8)."""
        return tuple(self._reports)

    def row_counts(self, table: str) -> dict[str, int]:
        """Rows of a table by what was done: inserted, updated, deleted, overwritten (written by an
        overwrite)."""
        return {word: rows for word, rows in self._row_counts.get(table, {}).items() if rows}

    def table(self, name: str) -> TransactionTable:
        """Raises NoSuchTable."""
        record = self._records.get(name.lower()) or self._context.metastore.table(name)
        self._records[record.name] = record
        return TransactionTable(self, record)

    def scans(self, wanted: Sequence[tuple[TableRecord, str | None]]) -> list[TableScan]:
        """Scans at the snapshot, with the transaction's own writes; `where` prunes partitions.

        Raises SnapshotExpired.
        """
        scans = []
        for record, where in wanted:
            write_ids, txns = self._lists(record.name)
            layout = own_partitions(self._context.layout(record), self._reports)
            scans.append(open_scan(layout, write_ids, txns, where))
        return scans

    def heartbeat(self) -> None:
        """Raises TxnAborted when the transaction was aborted."""
        self._begun.heartbeat()

    def commit(self) -> None:
        """Raises WriteConflict, TxnAborted, OutcomeUnknown."""
        for table, columns in self._added_columns.items():
            # Before the rows that have them; without those rows they hold nothing but NULL.
            record = self._context.metastore.table(table)
            self._context.metastore.alter_table(
                table, columns=widened(record, columns, again=True).columns)
        self._begun.commit(self._reports)

    def abort(self, reason: str = "") -> None:
        """Nothing of it ever becomes visible; its files are removed by the Cleaner."""
        jobs.cancel(self._session, self.id)
        self._begun.abort(reason)

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self.commit()
        except AcidError as refused:
            error = refused
            raise
        finally:
            if error is not None and not self._begun.ended:
                self.abort(f"{type(error).__name__}: {error}"[:500])

    # --- for statements ------------------------------------------------------------------------

    def _lock(
        self, record: TableRecord, statement: Statement, partition: str | None = None
    ) -> None:
        lock, operation = lock_of(statement, self._lock_settings)
        dynamic = record.partitioned and partition is None
        self._begun.lock([LockRequest(record.name, lock, operation, partition, dynamic)])
        if self._restart_if_stale and self._begun.stale:
            raise SnapshotOutdated(f"transaction {self.id} waited for a lock and missed a commit")

    def _lists(self, table: str) -> tuple[ValidWriteIdList, ValidTxnList]:
        return self._begun.valid_write_ids(table), self._begun.valid_txns

    def _target(self, record: TableRecord, layout: TableLayout) -> WriteTarget:
        """Of the next statement."""
        statement = self._statements
        self._statements += 1  # a failed statement's id is not used again (P19)
        return WriteTarget(
            layout.files, layout.path, tuple(c.name for c in layout.partition_columns),
            self.id, self._begun.write_ids[record.name], statement, compression(record),
            self._begun.heartbeat, layout.buckets, layout.format if layout.insert_only else None,
        )

    @contextmanager
    def _statement(
        self, record: TableRecord, layout: TableLayout
    ) -> Iterator[WriteTarget]:
        """The target of the next statement; its Spark jobs carry the transaction's tag (P4)."""
        # First: what a target observes belongs to the kind of session that there is.
        spark = self._session = self._context.spark
        target = self._target(record, layout)
        if target.statement == 0:
            self._begun.when_lost(lambda reason: jobs.cancel(spark, self.id))
        try:
            with jobs.tagged(spark, self.id):
                yield target
        except Exception as error:
            if self._begun.lost and not isinstance(error, TxnAborted):
                raise TxnAborted(f"{self._begun.lost}; its Spark jobs were cancelled, begin again"
                                 ) from error
            raise

    def _record(
        self, record: TableRecord, operation: Operation, written: Sequence[Written],
        overwrite: bool = False,
    ) -> int:
        for one in written:
            entity = (record.name, one.partition)
            if entity in self._overwritten:
                raise self._overwritten_before(*entity)
            if overwrite:
                self._overwritten.add(entity)
            self._reports.append(WriteReport(
                record.name, one.partition or None, operation, one.directory, one.rows, one.bytes,
                one.files, overwrite))
        return sum(one.rows for one in written if not one.deletes)

    def _count(self, table: str, **rows: int) -> None:
        self._row_counts.setdefault(table, Counter()).update(rows)

    def _refuse_after_overwrite(self, record: TableRecord) -> None:
        """Early for an unpartitioned table; of a partitioned one `_record` knows the partitions."""
        if (record.name, "") in self._overwritten:
            raise self._overwritten_before(record.name, "")

    def _overwritten_before(self, table: str, partition: str) -> OverwriteThenWrite:
        return OverwriteThenWrite(
            f"transaction {self.id} overwrote {table} {partition}".rstrip()
            + ": its base hides whatever the same transaction writes there; commit first"
        )


class TransactionTable:
    """A table inside a transaction: reads see the transaction's snapshot and its own writes."""

    def __init__(self, txn: Transaction, record: TableRecord) -> None:
        self._txn = txn
        self._record = record
        self._columns, self._partition_columns = columns_of_record(record)

    @property
    def name(self) -> str:
        return self._record.name

    def read(
        self, columns: Sequence[str] | None = None, where: str | None = None, row_id: bool = False
    ) -> DataFrame:
        """Rows as Table.read; valid until the transaction ends."""
        return filtered(self._spark, self._scan(where), columns, where, row_id, self.name)

    def to_arrow(
        self, columns: Sequence[str] | None = None, where: str | None = None, row_id: bool = False
    ) -> pa.Table:
        """Rows as Table.to_arrow, at the transaction's snapshot and with its own writes."""
        write_ids, txns = self._txn._lists(self.name)
        layout = own_partitions(self._layout(), self._txn.reports)
        return arrow_scan(layout, write_ids, txns, columns, where, row_id).table()

    def insert(self, rows: Rows) -> int:
        """Append; partitions are made as the rows need them. Returns the number of rows.

        Raises UnknownColumn, WrongType, OverwriteThenWrite.
        """
        self._require_writable()
        self._txn._lock(self._record, Statement.INSERT)
        self._txn._refuse_after_overwrite(self._record)
        with self._txn._statement(self._record, self._layout()) as target:
            frame = conform(self._spark, rows, self.all_columns, self.name)
            written = write_statement(insert_events(frame, target, self._columns), target)
        rows = self._txn._record(self._record, Operation.INSERT, written)
        self._txn._count(self.name, inserted=rows)
        return rows

    def overwrite(self, rows: Rows, partition: Mapping[str, Any] | str | None = None) -> int:
        """Replace the whole table, or of a partitioned one the partitions that the rows name.

        With `partition` (`"month=3"` or a dict of all partition columns) exactly that one is
        replaced, also by no rows. Returns the number of rows. Raises NoSuchPartition.
        """
        fixed = self._fixed(partition)
        self._require_writable()
        name = partition_name(fixed) if fixed else None
        self._txn._lock(self._record, Statement.INSERT_OVERWRITE, name)
        self._txn._refuse_after_overwrite(self._record)
        whole = [] if self._partition_columns else [""]
        empty = [name] if name else whole
        with self._txn._statement(self._record, self._layout()) as target:
            frame = conform(self._spark, rows, self.all_columns, self.name, fixed)
            written = write_statement(
                insert_events(frame, target, self._columns), target, overwrite=True,
                empty_partitions=empty)
        count = self._txn._record(self._record, Operation.UPDATE, written, overwrite=True)
        self._txn._count(self.name, overwritten=count)
        return count

    def truncate(self, partition: Mapping[str, Any] | str | None = None) -> None:
        """Remove all rows of the table, or of one partition, whose directory stays.

        Raises NoSuchPartition, OverwriteThenWrite.
        """
        self._txn._lock(self._record, Statement.TRUNCATE)
        self._txn._refuse_after_overwrite(self._record)
        layout = own_partitions(self._layout(), self._txn.reports)
        partitions = sorted(layout.partitions) if self._partition_columns else [""]
        if partition is not None:
            name = partition_name(self._fixed(partition))
            if name not in partitions:
                raise NoSuchPartition(f"{self.name} has no partition {name}")
            partitions = [name]
        written = write_truncation(self._txn._target(self._record, layout), partitions)
        self._txn._record(self._record, Operation.UPDATE, written, overwrite=True)

    def merge(
        self, source: Rows, on: str, when_matched_update: Mapping[str, str] | None = None,
        when_matched_delete: str | None = None,
        when_not_matched_insert: Mapping[str, str] | Literal["*"] | None = None,
        clauses: Sequence[MergeClause] | None = None, aliases: tuple[str, str] = ("t", "s"),
    ) -> MergeCounts:
        """MERGE INTO this table `t` USING `source` `s` ON `on`; see Table.merge.

        `aliases`: other names for the table and the source.
        """
        chosen = [*(clauses or ()), *merge_clauses(
            when_matched_update, when_matched_delete, when_not_matched_insert)]
        only_inserts = all(one.action is MergeAction.INSERT for one in chosen)
        self._refuse_insert_only("MERGE")
        self._require_writable()
        self._txn._lock(self._record, Statement.MERGE_INSERT if only_inserts else Statement.UPDATE)
        self._txn._refuse_after_overwrite(self._record)
        scan = self._scan(None)
        with self._txn._statement(self._record, self._layout()) as target:
            frame = as_frame(self._spark, source, self.all_columns, self.name)
            events, counts = Merge(
                self._spark, scan, target, self.name, on, chosen, *aliases).events(frame)
            written = write_statement(events, target)
        operation = Operation.INSERT if only_inserts else Operation.UPDATE
        self._txn._record(self._record, operation, written)
        self._txn._count(self.name, inserted=counts.inserted, updated=counts.updated,
                         deleted=counts.deleted)
        return counts

    def _require_writable(self) -> None:
        for column in self.all_columns:
            if any(one.kind in UNWRITABLE for one in column.type.walk()):
                raise UnsupportedStatement(
                    f"column {column.name!r} of {self.name} is {column.type}, which is read but not"
                    " written here yet; write with Hive, or copy into a table with string columns")

    def _refuse_insert_only(self, statement: str) -> None:
        if is_insert_only(self._record.properties):
            raise UnsupportedStatement(
                f"{statement} needs rows with an identity, and {self.name} is insert-only:"
                " overwrite its partitions, or make a table without transactional_properties")

    def update(self, assignments: Mapping[str, str], where: Where = None) -> int:
        """Set columns to SQL expressions over the row where the predicate holds.

        Returns the number of rows changed. Raises PartitionColumnUpdate, UnknownColumn, WrongType,
        InvalidExpression.
        """
        self._refuse_insert_only("UPDATE")
        self._require_writable()
        self._txn._lock(self._record, Statement.UPDATE)
        self._txn._refuse_after_overwrite(self._record)
        scan = self._scan(where)
        with self._txn._statement(self._record, self._layout()) as target:
            events = update_events(self._spark, scan, target, assignments, where, self.name)
            written = write_statement(events, target)
        rows = self._txn._record(self._record, Operation.UPDATE, written)
        self._txn._count(self.name, updated=rows)
        return rows

    def delete(self, where: Where = None) -> int:
        """Delete the rows where the predicate holds, all without one; returns how many."""
        self._refuse_insert_only("DELETE")
        self._txn._lock(self._record, Statement.DELETE)
        self._txn._refuse_after_overwrite(self._record)
        scan = self._scan(where)
        with self._txn._statement(self._record, self._layout()) as target:
            events = delete_events(self._spark, scan, target, where)
            written = write_statement(events, target, only=DELETES)
        self._txn._record(self._record, Operation.DELETE, written)
        rows = sum(one.rows for one in written)
        self._txn._count(self.name, deleted=rows)
        return rows

    def add_columns(self, columns: str) -> None:
        """As Table.add_columns; others see the columns when the transaction commits."""
        self._record = self._txn._records[self.name] = widened(self._record, columns)
        self._columns, _ = columns_of_record(self._record)
        earlier = self._txn._added_columns.get(self.name)
        self._txn._added_columns[self.name] = f"{earlier}, {columns}" if earlier else columns

    @property
    def _spark(self) -> SparkSession:
        return self._txn._context.spark

    @property
    def partition_columns(self) -> tuple[Column, ...]:
        return self._partition_columns

    @property
    def all_columns(self) -> tuple[Column, ...]:
        """Its columns, then its partition columns."""
        return (*self._columns, *self._partition_columns)

    def _layout(self) -> TableLayout:
        return self._txn._context.layout(self._record)

    def _scan(self, where: Where) -> TableScan:
        pruning = where.pruning if isinstance(where, Condition) else where
        return self._txn.scans([(self._record, pruning)])[0]

    def _fixed(self, partition: Mapping[str, Any] | str | None) -> dict[str, str | None]:
        if partition is None:
            return {}
        return partition_values(partition, self._partition_columns, self.name)


def own_partitions(layout: TableLayout, reports: Sequence[WriteReport]) -> TableLayout:
    """The layout with partitions that only the transaction itself has written so far."""
    mine = {one.partition: () for one in reports if one.table == layout.name and one.partition}
    return replace(layout, partitions={**mine, **layout.partitions}) if mine else layout
