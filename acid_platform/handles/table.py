"""The handle of a table: each change is a transaction, and each read holds its snapshot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from acid_platform.compaction.states import CompactionKind
from acid_platform.engine.rows import Rows
from acid_platform.errors import CompactionRefused, DeclarationChanged, InvalidDefinition
from acid_platform.handles.constraint_checks import require_computable, require_fulfilled
from acid_platform.handles.read_verbs import Reads
from acid_platform.handles.row_statements import (
    HideDeletedRows,
    InsertRows,
    Partition,
    RowStatement,
)
from acid_platform.handles.snapshot_view import SnapshotView
from acid_platform.handles.transaction import Transaction, autocommit
from acid_platform.handles.write_verbs import Writes
from acid_platform.layout.constraints import Constraint
from acid_platform.layout.formats import FileFormat
from acid_platform.layout.partition_names import partition_name, partition_values
from acid_platform.layout.types import parse_columns
from acid_platform.metastore.operations.compaction import RequestErasure
from acid_platform.metastore.operations.history import PlaceTag, RemoveTag
from acid_platform.metastore.pasts import AsOf, SnapshotName, Tag
from acid_platform.metastore.records import LockRequest, TableRecord
from acid_platform.metastore.table_names import table_name
from acid_platform.tables.declaration import change_column, check_columns, widened
from acid_platform.tables.record_layout import columns_of_record
from acid_platform.tables.table_constraints import declared_constraints
from acid_platform.transactions import RowOperation
from acid_platform.transactions.locks import LockType

if TYPE_CHECKING:
    from acid_platform.handles.warehouse import Warehouse
    from acid_platform.services.erasure import Erasure
    from acid_platform.services.explain_services import Section


_Result = TypeVar("_Result")
_ATTEMPTS = 100
"""How often a column change is tried. Each failure means that another client's change succeeded."""


class Table(Reads, Writes):
    """Get one by `Warehouse.table`. A verb is a transaction of its own: all or nothing."""

    def __init__(self, warehouse: Warehouse, name: str) -> None:
        self._insert_record = warehouse.metastore.table(name)
        """The declaration when this handle was made, or when its last insert of its own began."""
        super().__init__(warehouse, self._insert_record.name)

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
        with self._warehouse.using(engine):
            return autocommit(self._warehouse, self._name, lambda txn: txn.run(statement))

    # --- rows ----------------------------------------------------------------------------------

    def insert(
        self,
        rows: Rows,
        fixed: Mapping[str, str | None] | None = None,
        *,
        engine: str | None = None,
    ) -> int:
        """As Writes.insert; small inserts may share a transaction (P44)."""

        def alone(txn: Transaction) -> int:
            self._insert_record = txn.view.table(self._name)
            return txn.run(InsertRows(self._name, rows, fixed or {}))

        with self._warehouse.using(engine):
            grouped = self._warehouse.grouped_inserts.insert(self._insert_record, rows, fixed)
            return autocommit(self._warehouse, self._name, alone) if grouped is None else grouped

    def erase(self, where: str, partition: Partition = None) -> Erasure:
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

    def request_erasure(self, where: str, partition: Partition = None) -> int:
        """Records that these rows have to be erased, which Dagster's `erasure_sensor` will do.

        Nothing is deleted yet. Returns the request's id, as `acid show erasures` lists it; an equal
        request gets the same id while it is open. Raises as `erase` does before it deletes.
        """
        from acid_platform.services.erasure import ErasureRequest

        warehouse = self._warehouse
        request = ErasureRequest.of(warehouse.metastore, self.name, where, partition)
        return warehouse.metastore.call(
            RequestErasure(request.table, request.condition, warehouse.info().user)
        )

    # --- the declaration and the files ---------------------------------------------------------

    def add_columns(self, columns: str, comments: Mapping[str, str] | None = None) -> None:
        """`add_columns("note string")`: adds columns at the end; rows of before have NULL there.

        `comments`: of the new columns, by their names. Raises UnknownColumn for a column that
        exists already and for the comment of none of these, InvalidDefinition.
        """
        self._alter_columns(lambda record: widened(record, columns, comments))

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
    ) -> None:
        """`change_column("id", "id bigint")`: gives a column a wider type, place or comment.

        `after`: the column that it follows, empty for the first place. `comment`: None keeps the
        one that it has, as Hive does, and an empty one removes it. `constraints`: as of
        `add_constraint`, while the column keeps its name. Renaming a column is only
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

        def changed(record: TableRecord) -> TableRecord:
            return change_column(record, old.lower(), new, after and after.lower(), comment)

        def misread(record: TableRecord) -> bool:
            """Whether files of before would be read wrongly."""
            columns = changed(record).columns
            moved = [name for name, _ in columns] != [name for name, _ in record.columns]
            return new.name != old.lower() or (moved and self._by_position(record))

        if constraints:
            if new.name != old.lower() or misread(self.record):
                raise InvalidDefinition(
                    f"{self.name}: a column can't be renamed or moved in one statement with a new"
                    " constraint; write two"
                )
            self._constrain(constraints, changed)
            return
        if misread(self.record):
            self._run(HideDeletedRows(self._name, why), None)
        with self._alone():
            if misread(self.record) and self._may_hold_rows():
                raise InvalidDefinition(why)  # others wrote rows meanwhile
            self._alter_columns(changed)

    def add_constraint(self, *constraints: Constraint) -> None:
        """`add_constraint(Constraint.check("n > 0"))`: adds constraints, or none of them.

        NOT NULL and CHECK: every row of the table is read, while nobody can write it, and has to
        fulfil them. Raises ConstraintViolated, InvalidDefinition, UnknownColumn,
        UnsupportedStatement, LockTimeout.
        """
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

        require_computable(self._warehouse, constrained(self.record))
        with self._alone():
            record = self.record
            new = constrained(record).constraints[len(record.constraints) :]
            with self._brief_view() as view:
                require_fulfilled(view, self._warehouse, record, new)
            self._alter_columns(constrained)

    def drop_constraint(self, name: str) -> None:
        """Raises InvalidDefinition if the table has no such constraint."""

        def without(record: TableRecord) -> TableRecord:
            rest = tuple(one for one in record.constraints if one.name != name.lower())
            if len(rest) == len(record.constraints):
                names = ", ".join(one.name for one in rest) or "none"
                raise InvalidDefinition(
                    f"{record.name} has no constraint {name.lower()}; it has {names}"
                )
            return replace(record, constraints=rest)

        self._alter_columns(without)

    def _may_hold_rows(self) -> bool:
        with self._brief_view() as view:
            return view.scan(view.request(self._name)).may_hold_rows

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
        lock = LockRequest(self._name, LockType.EXCLUSIVE, RowOperation.SELECT)
        return self._warehouse.metastore.begin(locks=[lock])

    def drop_partition(self, partition: Mapping[str, Any] | str) -> None:
        """Drops a partition for new snapshots; files stay while older ones need them (P22)."""
        values = partition_values(partition, self.partition_columns, self.name, self.partitions())
        self._warehouse.metastore.drop_partition(self._name, partition_name(values))

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
            values = partition_values(
                partition, self.partition_columns, self.name, self.partitions()
            )
            return parsed, [partition_name(values)]
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
        NotEnoughHistory, and InvalidDefinition for a name that is in use.
        """
        past = None if as_of is None else AsOf.of(as_of)
        if isinstance(expires, timedelta):
            expires = datetime.now(UTC) + expires
        until = AsOf.of(expires).time if expires else 0
        user = self._warehouse.info().user
        return self._warehouse.metastore.call(
            PlaceTag(self.name, name, as_of=past, expires=until or 0, user=user)
        )

    def drop_tag(self, name: str) -> None:
        """Raises NoSuchPast."""
        self._warehouse.metastore.call(RemoveTag(self.name, name))

    def __repr__(self) -> str:
        return f"<Table {self.name}>"

    def __rich__(self) -> object:
        from acid_platform import display

        return display.timeline(self._warehouse, self.name)

    def _repr_html_(self) -> str:
        from acid_platform import display

        return display.timeline(self._warehouse, self.name)._repr_html_()
