"""The handle of a table: each change is a transaction, and each read holds its snapshot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from acid_platform.base.errors import (
    CompactionRefused,
    DeclarationChanged,
    InvalidDefinition,
)
from acid_platform.compaction.states import CompactionKind
from acid_platform.engine.merge_clauses import MergeClause, MergeCounts
from acid_platform.engine.rows import Rows
from acid_platform.handles.autocommit import autocommit
from acid_platform.handles.table_pasts import TablePasts
from acid_platform.handles.table_snapshot import TableSnapshot
from acid_platform.handles.transaction import Transaction, TransactionTable
from acid_platform.layout.formats import FileFormat
from acid_platform.layout.partition_names import partition_name, partition_values
from acid_platform.layout.types import Column, parse_columns
from acid_platform.metastore.names import table_name
from acid_platform.metastore.pasts import AsOf
from acid_platform.metastore.records import LockRequest, TableRecord
from acid_platform.tables.context import columns_of_record
from acid_platform.tables.declaration import change_column, check_columns, widened
from acid_platform.transactions import Operation, ValidWriteIdList
from acid_platform.transactions.locks import LockType

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from acid_platform.handles.warehouse import Warehouse
    from acid_platform.services.erasure import Erasure
    from acid_platform.services.explain import Section


_Done = TypeVar("_Done")
_ATTEMPTS = 100
"""Of a change of columns; each that fails lets another client's through."""


class Table(TablePasts):
    """Get one by `Warehouse.table`. A verb is a transaction of its own: all or nothing."""

    def __init__(self, warehouse: Warehouse, name: str) -> None:
        self._warehouse = warehouse
        self._seen = warehouse.metastore.table(name)
        """The declaration when this handle was made, or when its last insert of its own began."""
        self._name = self._seen.name

    @property
    def name(self) -> str:
        """`db.table`, in lower case."""
        return self._name

    @property
    def record(self) -> TableRecord:
        """The table's current declaration. Raises NoSuchTable."""
        return self._warehouse.metastore.table(self._name)

    @property
    def columns(self) -> tuple[Column, ...]:
        return columns_of_record(self.record)[0]

    @property
    def partition_columns(self) -> tuple[Column, ...]:
        return columns_of_record(self.record)[1]

    @property
    def location(self) -> str:
        """Path or URI of the table's directory."""
        return self.record.location

    @property
    def properties(self) -> dict[str, str]:
        return dict(self.record.properties)

    # --- reading -------------------------------------------------------------------------------

    def read(
        self,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        snapshot: ValidWriteIdList | str | None = None,
        row_id: bool = False,
        as_of: int | datetime | str | None = None,
    ) -> DataFrame:
        """Committed rows, now or at a write id list; `row_id` adds the column row__id.

        `as_of` reads the table as it was right after the commit of a write id (int), at a time (UTC
        if it has no zone) or at a tag (str), with the columns of then.

        The frame is lazy and keeps its snapshot: a read lease of the warehouse protects its files
        until `Warehouse.release`, `close` or `acid.read.lease.max` (P12). A later action raises
        SnapshotExpired once the files are gone. The rows have no particular order. Raises
        UnknownColumn, InvalidExpression, NotEnoughHistory (which says since when history is kept),
        NoSuchPast, SnapshotExpired (P29).
        """
        from acid_platform.engine.spark.read import filtered

        explicit, past = _parsed(snapshot, as_of)
        scan = self._warehouse.leases.scan(self._name, where, explicit, past)
        return filtered(lambda: self._warehouse.spark, scan, columns, where, row_id, self.name)

    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        snapshot: ValidWriteIdList | str | None = None,
        row_id: bool = False,
        as_of: int | datetime | str | None = None,
    ) -> pa.Table:
        """The rows of `read` as a pyarrow Table, without a JVM: for notebooks and small tables.

        Only the wanted columns are decoded. `where` may compare columns with literals and with each
        other; predicates that only Spark evaluates are refused. Timestamps have no zone: they are
        wall clock times (P17). Insert-only tables of other formats than ORC and Parquet raise
        NeedsSpark: use read(). Raises UnknownColumn, InvalidExpression, UnsupportedStatement,
        UnsupportedLayout, NotEnoughHistory, NoSuchPast, CorruptFile, and SnapshotExpired if this
        process was suspended for so long that files may have been removed (P29).
        """
        explicit, past = _parsed(snapshot, as_of)
        return self._warehouse.leases.rows(self._name, columns, where, explicit, row_id, past)

    def count(self, where: str | None = None, as_of: int | datetime | str | None = None) -> int:
        """The number of rows, without Spark: read from footers if no row needs a test.

        Raises as to_arrow; use `read(where=…).count()` for predicates that only Spark evaluates.
        """
        return self._warehouse.leases.count(self._name, where, _parsed(None, as_of)[1])

    def snapshot(self) -> TableSnapshot:
        """The current snapshot; a read lease protects its files, as for a frame."""
        return self._warehouse.leases.snapshot(self._name)

    def partitions(self) -> list[str]:
        """Names such as `month=3`, sorted; empty for an unpartitioned table."""
        return sorted(self._warehouse.metastore.partitions(self._name))

    def history(self) -> list[dict[str, Any]]:
        """Committed writes, oldest first: operation, directory, rows, bytes, transaction, time."""
        return self._warehouse.metastore.history(self._name)

    # --- writing -------------------------------------------------------------------------------

    def insert(self, rows: Rows, *, engine: str | None = None) -> int:
        """Append rows; columns match by name, missing ones become NULL. Returns how many.

        `engine` of this and the other verbs: see Warehouse.using. With the table's property
        `acid.group.commit.interval`, small inserts of several threads share a transaction (P44).
        Raises UnknownColumn, WrongType, NeedsSpark.
        """

        def alone(txn: Transaction) -> int:
            self._seen = txn.declared.table(self._name)
            return txn.table(self._name).insert(rows)

        with self._warehouse.using(engine):
            together = self._warehouse.groups.insert(self._seen, rows)
            return autocommit(self._warehouse, self._name, alone) if together is None else together

    def overwrite(
        self,
        rows: Rows,
        partition: Mapping[str, Any] | str | None = None,
        *,
        engine: str | None = None,
    ) -> int:
        """Replace the table, one partition, or the partitions that the rows name."""
        return self._autocommit(lambda table: table.overwrite(rows, partition), engine)

    def update(
        self, assignments: Mapping[str, str], where: str | None = None, *, engine: str | None = None
    ) -> int:
        """Set columns to SQL expressions where the predicate holds; returns the rows changed.

        Raises PartitionColumnUpdate, UnknownColumn, WrongType, InvalidExpression, WriteConflict.
        """
        return self._autocommit(lambda table: table.update(assignments, where), engine)

    def delete(self, where: str | None = None, *, engine: str | None = None) -> int:
        """Deletes the rows that match the predicate, or all; returns the number of rows."""
        return self._autocommit(lambda table: table.delete(where), engine)

    def merge(
        self,
        source: Rows,
        on: str,
        when_matched_update: Mapping[str, str] | None = None,
        when_matched_delete: str | None = None,
        when_not_matched_insert: Mapping[str, str] | Literal["*"] | None = None,
        clauses: Sequence[MergeClause] | None = None,
        *,
        engine: str | None = None,
    ) -> MergeCounts:
        """MERGE INTO this table `t` USING `source` `s` ON `on`.

        `when_matched_update={"v": "s.v"}` sets columns of matched rows, except for rows that the
        condition `when_matched_delete` (`"true"` for all) deletes. `when_not_matched_insert` adds
        source rows without a match (`"*"`: all columns by name). `clauses` is any list of
        conditional clauses, of which the first that applies to a row is used.

        Raises SourceRowsAmbiguous if several source rows change one row, PartitionColumnUpdate,
        BucketColumnUpdate, UnknownColumn, WrongType, InvalidExpression, WriteConflict.
        """
        return self._autocommit(
            lambda table: table.merge(
                source,
                on,
                when_matched_update,
                when_matched_delete,
                when_not_matched_insert,
                clauses,
            ),
            engine,
        )

    def erase(self, where: str, partition: Mapping[str, Any] | str | None = None) -> Erasure:
        """Deletes rows from every file, also from files of old snapshots.

        Deletes the rows in one transaction, compacts and cleans, then reads every file of the
        table. Files that an open snapshot still needs stay; `remaining` names the transactions:
        erase again when they have ended. Raises as count, also NoSuchPartition, LeaseHeld, and
        CorruptFile for a file that can't be read.
        """
        from acid_platform.services import erasure

        metastore = self._warehouse.metastore
        request = erasure.ErasureRequest.of(metastore, self.name, where, partition)
        deleted = self.delete(request.condition) if self.count(request.condition) else 0
        erasure.queue(metastore, request)
        outcomes = erasure.compact(self._warehouse, request)
        removed = erasure.clean(metastore, request)
        return erasure.prove(metastore, request, deleted, outcomes, removed)

    def request_erasure(self, where: str, partition: Mapping[str, Any] | str | None = None) -> int:
        """Records that these rows have to be erased, which Dagster's `erasure_sensor` will do.

        Nothing is deleted yet. Returns the request's id, as `acid show erasures` lists it; an equal
        request gets the same id while it is open. Raises as `erase` does before it deletes.
        """
        from acid_platform.services.erasure import ErasureRequest

        warehouse = self._warehouse
        wanted = ErasureRequest.of(warehouse.metastore, self.name, where, partition)
        return warehouse.metastore.request_erasure(
            wanted.table, wanted.condition, warehouse.info().user
        )

    def truncate(self, partition: Mapping[str, Any] | str | None = None) -> None:
        """Removes all rows, or those of one partition. Raises NoSuchPartition, WriteConflict."""
        self._autocommit(lambda table: table.truncate(partition))

    def add_columns(self, columns: str) -> None:
        """Adds columns, such as `"note string"`; existing rows have NULL there. No file changes.

        Columns that others add at the same time stay. Raises UnknownColumn for a column that
        exists, DeclarationChanged if others altered the table during each attempt (P28).
        """
        self._alter_columns(lambda record: widened(record, columns).columns)

    def _alter_columns(self, columns: Callable[[TableRecord], Sequence[tuple[str, str]]]) -> None:
        """Computes the columns again if others altered the table in the meantime (P28)."""
        for _ in range(_ATTEMPTS):
            record = self.record
            with suppress(DeclarationChanged):
                self._warehouse.metastore.alter_table(
                    self._name, columns=columns(record), read=record
                )
                return
        raise DeclarationChanged(
            f"{self._name}: others altered it during each of {_ATTEMPTS} attempts; try again"
        )

    def change_column(self, old: str, column: str, after: str | None = None) -> None:
        """`change_column("id", "id bigint")`: gives a column a wider type, or another place.

        `after`: the column that it follows, empty for the first place. Renaming a column is only
        possible while the table has no rows, since files store the names of their columns. So is
        moving it if files match columns by position. Files of deleted rows are hidden first, as
        TRUNCATE does: a name of theirs may be used again for another type. Raises UnknownColumn,
        InvalidDefinition, LockTimeout.
        """
        (new,) = parse_columns(column)
        check_columns(self.name, [new])
        why = (
            f"{self.name} has rows, and their files find {old} by its name or position: every"
            " reader, Hive too, would read NULL or another column; CREATE VIEW with the new name,"
            " or CREATE TABLE … AS SELECT"
        )

        def changed(record: TableRecord) -> Sequence[tuple[str, str]]:
            return change_column(record, old.lower(), new, after and after.lower())

        def misread(record: TableRecord) -> bool:
            """Whether files of before would be read wrongly."""
            columns = changed(record)
            moved = [name for name, _ in columns] != [name for name, _ in record.columns]
            return new.name != old.lower() or (moved and self._by_position(record))

        if misread(self.record):
            self._autocommit(lambda table: table.hide_deleted_rows(why))
        with self._alone():
            if misread(self.record) and self._warehouse.leases.scan(self._name, None).may_hold_rows:
                raise InvalidDefinition(why)  # others wrote rows meanwhile
            self._alter_columns(changed)

    def _by_position(self, record: TableRecord) -> bool:
        """Whether files may match columns by position, as Hive's original files do."""
        if FileFormat.of(record.properties).by_position:
            return True
        return any(
            not directory.name
            for entity in self._warehouse.metastore.entities(record.name)
            for directory in entity.directories
        )

    def rename(self, name: str) -> Table:
        """Renames the table; its files stay. Raises TableExists, InvalidDefinition, LockTimeout."""
        with self._alone():
            record = self._warehouse.metastore.alter_table(self._name, rename=table_name(name))
        return Table(self._warehouse, record.name)

    def _alone(self) -> AbstractContextManager[object]:
        """Keeps others from reading and writing the table. Raises LockTimeout."""
        lock = LockRequest(self._name, LockType.EXCLUSIVE, Operation.SELECT)
        return self._warehouse.metastore.begin(locks=[lock])

    def drop_partition(self, partition: Mapping[str, Any] | str) -> None:
        """Drops a partition for new snapshots; files stay while older ones need them (P22)."""
        values = partition_values(partition, self.partition_columns, self.name, self.partitions())
        self._warehouse.metastore.drop_partition(self._name, partition_name(values))

    def compact(
        self, kind: str, partition: Mapping[str, Any] | str | None = None, wait: bool = True
    ) -> list[dict[str, Any]]:
        """Queues a `"minor"` or `"major"` compaction of a partition, or of each one (C58).

        With `wait` this process executes queued compactions until these have ended; otherwise a
        Worker takes them. Returns their rows of SHOW COMPACTIONS. Raises
        AlreadyScheduled, CompactionRefused, CompactionFailed.
        """
        wanted, targets = self._compactions(kind, partition)
        return self._warehouse.compact(self._name, targets, wanted, wait)

    def explain_compaction(
        self, kind: str, partition: Mapping[str, Any] | str | None = None
    ) -> list[Section]:
        """What `compact` would read and write, and after how many scans it pays off."""
        from acid_platform.services.explain import explain_compactions, wishes_of

        wanted, targets = self._compactions(kind, partition)
        return explain_compactions(
            self._warehouse.metastore, wishes_of(self._name, targets, wanted.value)
        )

    def _compactions(
        self, kind: str, partition: Mapping[str, Any] | str | None
    ) -> tuple[CompactionKind, list[str | None]]:
        """The kind, and the partitions to compact. Raises CompactionRefused."""
        try:
            wanted = CompactionKind(kind.lower())
        except ValueError:
            raise CompactionRefused(
                f"{kind!r} is no kind of compaction; choose 'minor' or 'major'"
            ) from None
        if partition is not None:
            values = partition_values(
                partition, self.partition_columns, self.name, self.partitions()
            )
            return wanted, [partition_name(values)]
        return wanted, list(self.partitions()) if self.partition_columns else [None]

    def _autocommit(
        self, verb: Callable[[TransactionTable], _Done], engine: str | None = None
    ) -> _Done:
        with self._warehouse.using(engine):
            return autocommit(self._warehouse, self.name, lambda txn: verb(txn.table(self._name)))

    def __repr__(self) -> str:
        return f"<Table {self.name}>"

    def __rich__(self) -> object:
        from acid_platform import display

        return display.timeline(self._warehouse, self.name)

    def _repr_html_(self) -> str:
        from acid_platform import display

        return display.timeline(self._warehouse, self.name)._repr_html_()


def _parsed(
    snapshot: ValidWriteIdList | str | None, as_of: int | datetime | str | None
) -> tuple[ValidWriteIdList | None, AsOf | None]:
    """Raises InvalidDefinition if both are given, WrongType."""
    if snapshot is not None and as_of is not None:
        raise InvalidDefinition("snapshot= and as_of= both say what to read; pass one of them")
    explicit = ValidWriteIdList.parse(snapshot) if isinstance(snapshot, str) else snapshot
    return explicit, None if as_of is None else AsOf.of(as_of)
