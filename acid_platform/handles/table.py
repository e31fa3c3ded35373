"""The handle of a table: each change is a transaction, and each read holds its snapshot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from acid_platform.base.arguments import require_kind
from acid_platform.compaction.states import CompactionKind
from acid_platform.errors import (
    AcidError,
    CompactionRefused,
    DeclarationChanged,
    InvalidDefinition,
    NotErased,
)
from acid_platform.handles.read_verbs import Reads
from acid_platform.handles.row_statements import Partition, RowStatement
from acid_platform.handles.snapshot_views import SnapshotView
from acid_platform.handles.transaction import Transaction, autocommit, locks_at_begin
from acid_platform.handles.write_verbs import Writes
from acid_platform.layout.formats import FileFormat
from acid_platform.layout.names import partition_name, partition_values, table_name
from acid_platform.layout.types import Constraint
from acid_platform.metastore import operations as ops
from acid_platform.metastore.pasts import AsOf, SnapshotName, Tag
from acid_platform.metastore.records import LockRequest, TableRecord, refuse_names_of_views
from acid_platform.tables import declaration
from acid_platform.tables.declaration import Changing
from acid_platform.tables.record_layout import columns_of_record
from acid_platform.tables.table_constraints import (
    declared_constraints,
    require_computable,
    require_fulfilled,
)
from acid_platform.transactions import RowOperation
from acid_platform.transactions.concurrency import LockType
from acid_platform.values.arrow_types import declared_text

if TYPE_CHECKING:
    import pyarrow as pa

    from acid_platform.handles.warehouse import Warehouse
    from acid_platform.services.erasure import Erasure
    from acid_platform.services.explain_services import Section


_Result = TypeVar("_Result")
_ATTEMPTS = 100
"""How often a column change is tried. Each failure means that another client's change succeeded."""


class Table(Reads, Writes):
    """Get one by `Warehouse.table`. A verb is a transaction of its own: all or nothing."""

    def __init__(self, warehouse: Warehouse, name: str, known: TableRecord | None = None) -> None:
        """`known`: its declaration, if that was read just now."""
        self.known = known or warehouse.metastore.table(name)
        """The declaration when this handle was made, or when its last change of rows began."""
        super().__init__(warehouse, self.known.name)

    @property
    def record(self) -> TableRecord:
        """The table's current declaration. Raises NoSuchTable."""
        return self._warehouse.metastore.table(self._name)

    def partitions(self) -> list[str]:
        return sorted(self._warehouse.metastore.partitions(self._name))

    def _lasting_view(self) -> AbstractContextManager[SnapshotView]:
        return self._warehouse.leases.lasting(self._name)

    def _brief_view(self) -> AbstractContextManager[SnapshotView]:
        return self._warehouse.leases.brief(self._name)

    def _run(self, statement: RowStatement[_Result], engine: str | None) -> _Result:
        """Runs it as a transaction, which begins with its lock if it fits the known declaration."""
        checked, locks = None, list[LockRequest]()
        with suppress(AcidError):  # the transaction sees whether that is still wrong
            statement.check(self.known)
            checked = self.known
            locks = locks_at_begin(self._warehouse, [(checked, statement.lock)])

        def change(txn: Transaction) -> _Result:
            self.known = txn.view.table(self._name)
            return txn.run(statement, checked)

        with self._warehouse.using(engine):
            return autocommit(self._warehouse, self._name, change, locks)

    # --- rows ----------------------------------------------------------------------------------

    def erase(
        self,
        where: str,
        partition: Partition = None,
        end_history: bool = False,
        *,
        report: bool = False,
    ) -> Erasure:
        """Deletes rows from every file, also from files of old snapshots.

        Deletes the rows in one transaction, compacts and cleans, then reads every file of the
        table. Files that an open snapshot still needs stay: erase again when it has ended. Files
        that a retention or a tag keeps stay too, unless `end_history` ends the history of the
        partitions that held such rows: earlier snapshots of them can't be read any more, those of
        other partitions can.

        Raises InvalidDefinition on a branch; NotErased (P71) if a file with such rows is left, or
        one that has the columns of before they were changed; with `report`, the answer then names
        them in `remaining`. Raises as count, also NoSuchPartition, LeaseHeld, and CorruptFile for a
        file that can't be searched.
        """
        from acid_platform.services import erasure

        metastore = self._warehouse.metastore
        if metastore.branch:
            raise InvalidDefinition(
                f"an erasure is not done on branch {metastore.branch}, since it leaves no old file:"
                " open the warehouse without a branch (unset ACID_BRANCH)"
            )
        request = erasure.ErasureRequest.of(metastore, self.name, where, partition)
        deleted = self.delete(request.condition) if self.count(request.condition) else 0
        erasure.queue(metastore, request)
        outcomes = erasure.compact(self._warehouse, request)
        if end_history:
            erasure.end_history(metastore, request)
        removed = erasure.clean(metastore, request)
        result = erasure.prove(metastore, request, deleted, outcomes, removed)
        if not (report or result.erased):
            raise NotErased(str(result), result)
        return result

    def request_erasure(self, where: str, partition: Partition = None) -> int:
        """Records that these rows have to be erased, which Dagster's `erasure_sensor` will do.

        Nothing is deleted yet. Returns the request's id, as `acid show erasures` lists it; an equal
        request gets the same id while it is open. Raises as `erase` does before it deletes.
        """
        from acid_platform.services.erasure import ErasureRequest

        warehouse = self._warehouse
        request = ErasureRequest.of(warehouse.metastore, self.name, where, partition)
        return warehouse.metastore.call(
            ops.RequestErasure(request.table, request.condition, warehouse.info().user)
        )

    # --- the declaration and the files ---------------------------------------------------------

    def add_columns(
        self, columns: str | pa.Schema, comments: Mapping[str, str] | None = None
    ) -> None:
        """`add_columns("note string")`: adds columns at the end; rows of before have NULL there.

        `columns` may be an Arrow schema. `comments`: of the new columns, by their names. Raises
        UnknownColumn for a column that exists already and for the comment of none of these,
        InvalidDefinition.
        """
        adding = declaration.added(declared_text(columns), comments)
        self._alter_columns(lambda record: adding(record).after)

    def _alter_columns(self, altered: Callable[[TableRecord], TableRecord]) -> None:
        """Computes the columns again if others altered the table in the meantime (P28)."""
        for _ in range(_ATTEMPTS):
            record = self.record
            with suppress(DeclarationChanged):
                change = altered(record)
                self._warehouse.metastore.alter_table(
                    self._name,
                    columns=change.columns,
                    read=record,
                    comments=change.comments,
                    constraints=change.constraints,
                )
                return
        raise DeclarationChanged(
            f"{self._name}: others altered it during each of {_ATTEMPTS} attempts; try again"
        )

    def change_column(
        self,
        old: str,
        column: str,
        after: str | None = None,
        comment: str | None = None,
        constraints: Sequence[Constraint] = (),
    ) -> int:
        """`change_column("id", "key bigint")`: another name, wider type, place or comment.

        `after`: the column that it follows, empty for the first place. `comment`: None keeps the
        one that it has, as Hive does, and an empty one removes it. `constraints`: as of
        `add_constraint`, where no file has to be written again. See `change_columns`.
        """
        changing = declaration.changed(old, column, after, comment)
        if not constraints:
            return self.change_columns(changing)
        if self._needs_files(changing):
            raise InvalidDefinition(
                f"{self.name}: a column can't be renamed or moved in one statement with a new"
                " constraint; write two"
            )
        self._constrain(constraints, lambda record: changing(record).after)
        return 0

    def rename_column(self, old: str, new: str) -> int:
        """See `change_columns`."""
        require_kind("new", new, str, "the name of a column", InvalidDefinition)
        return self.change_columns(declaration.altered(old, new))

    def drop_columns(self, *names: str) -> int:
        """Drops columns with their values, which older snapshots keep. See `change_columns`."""
        return self.change_columns(declaration.dropped(names))

    def replace_columns(self, columns: str, comments: Mapping[str, str] | None = None) -> int:
        """Makes these the columns: others are dropped, and new ones are NULL. See
        `change_columns`."""
        return self.change_columns(declaration.replaced(columns, comments))

    def change_columns(self, changing: Changing) -> int:
        """Changes columns; returns the number of rows that were written again for that.

        Files store the names of their columns, and text files their order. Where these change, all
        files are written again under an EXCLUSIVE lock: rows keep their row ids, consumers of
        changes see none, and older snapshots have the columns and files of then. Every other change
        writes no file, nor does any of a table with full ACID in Parquet, whose columns have ids.
        Raises UnknownColumn, InvalidDefinition, LockTimeout, DeclarationChanged, and as a
        compaction: CompactionRefused, CompactionFailed, NeedsSpark, CorruptFile.
        """
        from acid_platform.handles.column_rewrite import RewriteColumns, rewrite

        if not self._needs_files(changing):
            with self._alone():
                if not self._needs_files(changing):
                    self._alter_columns(lambda record: changing(record).after)
                    return 0
        return rewrite(self._warehouse, RewriteColumns(self._name, changing))

    def explain_columns(self, changing: Changing) -> list[str]:
        """What `change_columns` would lock and write again. Raises what it raises at first."""
        lines = [f"lock {self._name}: {LockType.EXCLUSIVE.name}"]
        if not self._needs_files(changing) or self._has_ids(changing):
            return [*lines, "  only the declaration changes: no file is written"]
        directories = [
            directory
            for entity in self._warehouse.metastore.entities(self._name)
            for directory in entity.directories
            if not directory.obsolete
        ]
        files = sum(directory.files for directory in directories)
        size = sum(directory.bytes for directory in directories)
        return [
            *lines,
            f"  every file is read and written again, with its row ids: {files} files, {size:,}"
            " bytes",
            "  the old files stay as long as the history, and open readers, need them",
        ]

    def add_constraint(self, *constraints: Constraint) -> None:
        """`add_constraint(Constraint.check("n > 0"))`: adds constraints, or none of them.

        NOT NULL and CHECK: every row of the table is read, while nobody can write it, and has to
        fulfil them. Raises ConstraintViolated, InvalidDefinition, UnknownColumn,
        UnsupportedStatement, LockTimeout.
        """
        if not constraints:
            raise InvalidDefinition(f"{self.name}: name the constraints to add")
        self._constrain(constraints, lambda record: record)

    def _constrain(
        self, constraints: Sequence[Constraint], changed: Callable[[TableRecord], TableRecord]
    ) -> None:
        """Adds the constraints to what `changed` makes of the declaration."""

        def constrained(record: TableRecord) -> TableRecord:
            altered = changed(record)
            own, keys = columns_of_record(altered)
            every = declared_constraints(
                record.name, own, keys, constraints, present=altered.constraints
            )
            return replace(altered, constraints=every)

        engines, settings = self._warehouse.engines, self._warehouse.metastore.in_force
        require_computable(engines, settings, constrained(self.record))
        with self._alone():
            record = self.record
            new = constrained(record).constraints[len(record.constraints) :]
            if any(constraint.of_rows for constraint in new):
                with self._brief_view() as view:
                    (scan,) = view.scans([view.request(self._name)])
                    require_fulfilled(engines, view.in_force, scan, record, new)
            self._alter_columns(constrained)

    def drop_constraint(self, name: str) -> None:
        """Raises InvalidDefinition if the table has no such constraint."""

        def without(record: TableRecord) -> TableRecord:
            rest = tuple(
                constraint for constraint in record.constraints if constraint.name != name.lower()
            )
            if len(rest) == len(record.constraints):
                names = ", ".join(constraint.name for constraint in rest) or "none"
                raise InvalidDefinition(
                    f"{record.name} has no constraint {name.lower()}; it has {names}"
                )
            return replace(record, constraints=rest)

        self._alter_columns(without)

    def _needs_files(self, changing: Changing) -> bool:
        """Whether files of before would be read wrongly."""
        change = changing(self.record)
        views = self._warehouse.metastore.call(ops.GetViews())
        refuse_names_of_views(views, change.before, change.after.columns)
        return change.renames or (change.moves and self._by_position(change.before))

    def _has_ids(self, changing: Changing) -> bool:
        """Whether files know their columns by ids. Those of others in its directory have none."""
        stored = FileFormat.of(self.record.properties)
        names = changing(self.record).names
        return stored.has_column_ids and bool(names) and not self._has_originals

    def _by_position(self, record: TableRecord) -> bool:
        """Whether files may match columns by position, as Hive's original files do."""
        return FileFormat.of(record.properties).by_position or self._has_originals

    @property
    def _has_originals(self) -> bool:
        return any(
            not directory.name
            for entity in self._warehouse.metastore.entities(self._name)
            for directory in entity.directories
        )

    def rename(self, name: str) -> Table:
        """Renames the table; its files stay. Raises TableExists, InvalidDefinition, LockTimeout."""
        with self._alone():
            record = self._warehouse.metastore.alter_table(self._name, rename=table_name(name))
        return Table(self._warehouse, record.name)

    def _alone(self) -> AbstractContextManager[object]:
        """Keeps others from reading and writing the table. Raises LockTimeout."""
        lock = LockRequest(self._name, LockType.EXCLUSIVE, RowOperation.SELECT)
        return self._warehouse.metastore.begin(locks=[lock])

    def store_as(self, stored: str, *, engine: str | None = None) -> int:
        """Stores a table with full ACID as `orc` or `parquet`: all files are written again, with
        the row ids that their rows have, under an EXCLUSIVE lock, in one commit with the
        declaration.

        Older snapshots keep the old files; changes show none. Returns the number of rows written,
        0 if the table has this format. Raises InvalidDefinition for an insert-only table and
        another format, CompactionRefused for days before 15 October 1582 and for nanoseconds,
        which the other format would number otherwise or cut, LockTimeout.
        """
        from acid_platform.handles.column_rewrite import RewriteFormat, rewrite

        require_kind("stored", stored, str, "orc or parquet", InvalidDefinition)
        with self._warehouse.using(engine):
            return rewrite(self._warehouse, RewriteFormat(self._name, stored))

    def convert_to_acid(self, *, engine: str | None = None) -> int:
        """Makes an insert-only table one with full ACID: all rows are written again into ORC files
        with row ids, under an EXCLUSIVE lock, in one commit with the declaration.

        Older snapshots keep the old files; changes show none. Returns the number of rows. Raises
        InvalidDefinition for a table that has full ACID, UnsupportedStatement, LockTimeout.
        """
        from acid_platform.handles.column_rewrite import ConvertToAcid, rewrite

        with self._warehouse.using(engine):
            return rewrite(self._warehouse, ConvertToAcid(self._name))

    def rename_partition(self, old: Mapping[str, Any] | str, new: Mapping[str, Any] | str) -> int:
        """Gives the rows of a partition other values of the partition columns; returns how many.

        They are copied into the new partition, and the old one is emptied, in one commit; then the
        old one is dropped. Changes show deletes and inserts, and older snapshots the old partition.
        If others write into it meanwhile, it stays with their rows. Raises NoSuchPartition,
        TableExists if the new partition is there, LockTimeout, UnsupportedStatement.
        """
        from acid_platform.handles.column_rewrite import move_partition

        before, after = self._partition(old), self._partition(new)
        return move_partition(self._warehouse, self._name, before, after)

    def drop_partition(self, partition: Mapping[str, Any] | str) -> None:
        """Drops a partition for new snapshots; files stay while older ones need them (P22)."""
        self._warehouse.metastore.drop(self._name, self._partition(partition))

    def _partition(self, partition: Mapping[str, Any] | str) -> str:
        """The name of a partition. Raises NoSuchPartition."""
        keys = self.partition_columns
        return partition_name(partition_values(partition, keys, self.name, self.partitions()))

    def compact(
        self, kind: str, partition: Partition = None, wait: bool = True
    ) -> list[dict[str, Any]]:
        """Queues a `"minor"` or `"major"` compaction of a partition, or of each one (C58).

        With `wait` this process executes queued compactions until these have ended; otherwise a
        Worker takes them. Returns their rows of SHOW COMPACTIONS. Raises
        AlreadyScheduled, CompactionRefused, CompactionFailed.
        """
        parsed, targets = self._compactions(kind, partition)
        return self._warehouse.compact(self._name, targets, parsed, wait)

    def explain_compaction(self, kind: str, partition: Partition = None) -> list[Section]:
        """What `compact` would read and write, and after how many scans it pays off."""
        from acid_platform.services.explain_services import explain_compactions, wishes_of

        parsed, targets = self._compactions(kind, partition)
        return explain_compactions(
            self._warehouse.metastore, wishes_of(self._name, targets, parsed.value)
        )

    def _compactions(
        self, kind: str, partition: Partition
    ) -> tuple[CompactionKind, list[str | None]]:
        """The kind, and the partitions to compact. Raises CompactionRefused."""
        try:
            parsed = CompactionKind(kind.lower())
        except ValueError:
            raise CompactionRefused(
                f"{kind!r} is no kind of compaction; choose 'minor' or 'major'"
            ) from None
        if partition is not None:
            return parsed, [self._partition(partition)]
        return parsed, list(self.partitions()) if self.partition_columns else [None]

    # --- the past ------------------------------------------------------------------------------

    def tag(
        self,
        name: str,
        as_of: SnapshotName | None = None,
        expires: datetime | timedelta | None = None,
    ) -> Tag:
        """Names a snapshot, the present one or that of `as_of`, and keeps its files.

        They stay until the tag is dropped or expires, whatever the retention. Raises NoSuchPast,
        NotEnoughHistory, and InvalidDefinition for a name that is in use, or that commands would
        take for a write id, a time or the present.
        """
        past = None if as_of is None else AsOf.of(as_of)
        if isinstance(expires, timedelta):
            expires = datetime.now(UTC) + expires
        until = AsOf.of(expires).time if expires else 0
        user = self._warehouse.info().user
        return self._warehouse.metastore.call(
            ops.PlaceTag(self.name, name, as_of=past, expires=until or 0, user=user)
        )

    def drop_tag(self, name: str) -> None:
        """Raises NoSuchPast."""
        self._warehouse.metastore.call(ops.RemoveTag(self.name, name))

    def __repr__(self) -> str:
        return f"<Table {self.name}>"

    def __rich__(self) -> object:
        from acid_platform import display

        return display.timeline(self._warehouse, self.name)

    def _repr_html_(self) -> str:
        from acid_platform import display

        return display.timeline(self._warehouse, self.name)._repr_html_()
