"""How the rows of a table can be changed: the verbs of every handle that writes."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeGuard, TypeVar

from acid_platform.base.arguments import (
    require_condition,
    require_kind,
    require_list,
    require_texts,
)
from acid_platform.engine.interface import Condition, Where
from acid_platform.engine.merge_clauses import MergeClause, MergeCounts, merge_clauses
from acid_platform.errors import InvalidExpression, UnknownColumn
from acid_platform.handles.row_statements import (
    DeleteRows,
    InsertRows,
    MergeRows,
    OverwriteRows,
    Partition,
    RowStatement,
    TruncateRows,
    UpdateRows,
)
from acid_platform.layout.types import Column
from acid_platform.metastore.pasts import AsOf, SnapshotName
from acid_platform.tables.table_constraints import row_checks
from acid_platform.values.coercion import Coerced, ValuesCoerced, description
from acid_platform.values.local_rows import coerced_table
from acid_platform.values.rows import Rows, are_none, column_names, plain_rows

if TYPE_CHECKING:
    import pyarrow as pa

    from acid_platform.handles.warehouse import Warehouse
    from acid_platform.metastore.records import TableRecord


_Result = TypeVar("_Result")
_FIXED = "a dict of partition columns and values, such as {'month': 3}"


class Writes(ABC):
    """Each verb is a statement: of its own transaction for a Table, which is all or nothing, else
    of the transaction that the handle belongs to.

    `engine` of a verb is as of Warehouse.using; `coerce=True` writes the rows as `coerced` returns
    them. All raise NoSuchTable, LockTimeout, WriteConflict, TxnAborted, PublicationFailed,
    NeedsSpark, and OverwriteThenWrite for a write and an overwrite of one partition in one
    transaction, whichever comes first.
    """

    @property
    @abstractmethod
    def name(self) -> str: ...

    @property
    @abstractmethod
    def all_columns(self) -> tuple[Column, ...]: ...

    @property
    @abstractmethod
    def record(self) -> TableRecord: ...

    _warehouse: Warehouse

    @abstractmethod
    def _run(self, statement: RowStatement[_Result], engine: str | None) -> _Result: ...

    def _note(self, counts: Mapping[str, Coerced]) -> None:
        """Says what `coerced` has changed."""
        warnings.warn(f"{self.name}: {description(counts)}", ValuesCoerced, stacklevel=5)

    def coerced(self, rows: Rows) -> pa.Table:
        """The rows with the table's types, converted as Hive's CAST does.

        A number is rounded to its scale, a text cut to its length, and what the type can't hold is
        NULL. What that changed is told by column in a warning, ValuesCoerced, and by
        Transaction.coerced. Raises WrongType for values without a conversion, UnknownColumn for a
        field of a struct, UnsupportedStatement for rows that Spark or a query computes.
        """
        return self._converted(self.filled(rows))

    def _converted(self, rows: Rows) -> pa.Table:
        converted, counts = coerced_table(rows, self.all_columns, self.name)
        if counts:
            self._note(counts)
        return converted

    def filled(self, rows: Rows, engine: str | None = None) -> Rows:
        """The rows as a write takes them; a dict of a list has the DEFAULT of each column that it
        leaves out and another one has. Raises WrongType, UnknownColumn."""
        plain = plain_rows(rows)
        if not are_mixed(plain):
            return plain
        with self._warehouse.using(engine):
            return filled(plain, self.record, self._warehouse)

    def _given(self, rows: Rows, coerce: bool, engine: str | None) -> Rows:
        return self.coerced(rows) if coerce else self.filled(rows, engine)

    def insert(
        self,
        rows: Rows,
        fixed: Mapping[str, Any] | None = None,
        *,
        coerce: bool = False,
        engine: str | None = None,
    ) -> int:
        """Appends rows; columns match by name, missing ones become NULL, or their DEFAULT, in each
        dict of a list by itself. Returns how many.

        Makes the partitions that the rows need. `fixed`: values of partition columns that the rows
        lack; None is the default partition. Raises UnknownColumn, WrongType, NoSuchPartition
        for rows without a partition column.
        """
        require_kind("fixed", fixed, (Mapping, type(None)), _FIXED)
        given = self._given(rows, coerce, engine)
        return self._run(InsertRows(self.name, given, fixed or {}), engine)

    def overwrite(
        self,
        rows: Rows,
        partition: Partition = None,
        fixed: Mapping[str, Any] | None = None,
        *,
        coerce: bool = False,
        engine: str | None = None,
    ) -> int:
        """Replaces the whole table, or those partitions of a partitioned table that occur in the
        rows.

        With `partition` (`"month=3"` or a dict of all partition columns) exactly that partition is
        replaced, even by no rows. `fixed`: as in `insert`. Returns the number of rows. Raises
        UnknownColumn, WrongType, NoSuchPartition.
        """
        require_kind("fixed", fixed, (Mapping, type(None)), _FIXED)
        given = self._given(rows, coerce, engine)
        return self._run(OverwriteRows(self.name, given, partition, fixed or {}), engine)

    def update(
        self, assignments: Mapping[str, str], where: Where = None, *, engine: str | None = None
    ) -> int:
        """Sets columns to SQL expressions where the predicate holds; returns the rows changed.

        `{"s.a": "1"}` sets a field of a struct, at any depth; a struct that was NULL then has NULL
        in its other fields. Raises PartitionColumnUpdate, BucketColumnUpdate, UnknownColumn,
        WrongType, InvalidExpression, UnsupportedStatement for an insert-only table, and for a
        subquery, which `wh.sql("UPDATE …")` takes.
        """
        given = "a dict of columns and SQL texts, such as {'v': 'v + 1'}"
        require_kind("assignments", assignments, Mapping, given, InvalidExpression)
        require_texts("assignments", assignments, given, InvalidExpression)
        require_condition("where", where, Condition, type(None))
        return self._run(UpdateRows(self.name, assignments, where), engine)

    def delete(self, where: Where = None, *, engine: str | None = None) -> int:
        """Deletes the rows that match the predicate, or all; returns the number of rows.

        Raises UnknownColumn, InvalidExpression, UnsupportedStatement for an insert-only table, and
        for a subquery, which `wh.sql("DELETE FROM …")` takes.
        """
        require_condition("where", where, Condition, type(None))
        return self._run(DeleteRows(self.name, where), engine)

    def merge(
        self,
        source: Rows,
        on: str,
        when_matched_update: Mapping[str, str] | Literal["*"] | None = None,
        when_matched_delete: str | None = None,
        when_not_matched_insert: Mapping[str, str] | Literal["*"] | None = None,
        clauses: Sequence[MergeClause] | None = None,
        aliases: tuple[str, str] = ("t", "s"),
        *,
        coerce: bool = False,
        engine: str | None = None,
    ) -> MergeCounts:
        """MERGE INTO this table `t` USING `source` `s` ON `on`.

        `when_matched_update={"v": "s.v"}` sets columns of matched rows (`"*"`: all columns, which
        the source must have; those of partitions and buckets only need to be equal in `on`), except
        for rows that the condition `when_matched_delete` (`"true"` for all) deletes.
        `when_not_matched_insert` adds source rows without a match (`"*"`: all columns by name,
        NULL for those that the source lacks). `clauses` is any list of conditional clauses, also
        for rows that no source row matches, of which the first that applies to a row is used.
        `aliases`: other names for the table and the source. The source may have more columns than
        the table. One without rows and columns, such as `[]`, matches and inserts nothing, and
        what `on` and the clauses say of its columns is not checked.

        Raises SourceRowsAmbiguous if several source rows change one row, and don't all delete it,
        PartitionColumnUpdate, BucketColumnUpdate, UnknownColumn, WrongType, InvalidExpression,
        NoSuchPartition for inserted rows without a partition column, UnsupportedStatement for an
        insert-only table.
        """
        require_condition("on", on)
        require_list("aliases", aliases, "two names, such as ('t', 's')")
        given = "a list of MergeClause"
        require_kind("clauses", clauses, (Sequence, type(None)), given)
        for clause in clauses or ():
            require_kind("one of clauses", clause, MergeClause, given)
        source = plain_rows(source)
        short = merge_clauses(when_matched_update, when_matched_delete, when_not_matched_insert)
        all_clauses = [*(clauses or ()), *short]
        if any(clause.takes_all for clause in all_clauses) and are_mixed(source):
            refuse_mixed(source, self.record)
        if coerce and not are_none(source):
            source = self._converted(source)
        statement = MergeRows(self.name, source, on, all_clauses, aliases)
        return self._run(statement, engine)

    def truncate(self, partition: Partition = None) -> None:
        """Removes all rows of the table, or of one partition, whose directory stays.

        Raises NoSuchPartition.
        """
        self._run(TruncateRows(self.name, partition), None)

    def rollback_to(self, as_of: SnapshotName, *, engine: str | None = None) -> int:
        """Makes the rows those of a past snapshot: overwrites what has changed since; columns that
        were added since stay, and are NULL.

        `as_of`: see `read`. Returns the number of rows written. It conflicts like an overwrite
        (P30). Raises NoSuchPast, NotEnoughHistory, UnknownColumn for a column that the table has no
        more or as another one, UnsupportedStatement for timestamps with nanoseconds.
        """
        from acid_platform.handles.past_rows import RollBackRows

        return self._run(RollBackRows(self.name, AsOf.of(as_of)), engine)

    @abstractmethod
    def add_columns(self, columns: str | pa.Schema) -> None:
        """Adds columns, such as `"note string"`; existing rows have NULL there. No file changes.

        `columns` may be an Arrow schema. Those of a transaction are there for others after its
        commit. Columns that others add at the same time stay. Raises UnknownColumn for a column
        that exists, DeclarationChanged.
        """


_Dicts = Sequence[Mapping[str, object]]


def are_mixed(rows: Rows) -> TypeGuard[_Dicts]:
    """Whether the rows are dicts of which one leaves out a column that another has, or all of them
    are empty. Raises as `column_names`."""
    if not isinstance(rows, Sequence) or not rows:
        return False
    most = len(column_names(rows))
    return not most or any(len(row) < most for row in rows)


def filled(rows: _Dicts, record: TableRecord, warehouse: Warehouse) -> _Dicts:
    """Mixed rows with the defaults of the columns that some of them leave out."""
    defaults = row_checks(record).defaults
    left_out = _left_out(rows, defaults)
    if not left_out:
        return rows
    texts = ", ".join(f"{defaults[name]} AS c{n}" for n, name in enumerate(left_out))
    computed = warehouse.engines.select(f"SELECT {texts}", {}, warehouse.metastore.in_force)
    (values,) = computed.to_arrow().to_pylist()
    given = dict(zip(left_out.values(), values.values(), strict=True))
    return [{**given, **row} for row in rows]


def refuse_mixed(rows: _Dicts, record: TableRecord) -> None:
    """Raises UnknownColumn for mixed rows whose columns MERGE takes by name, if some of them leave
    out a column with a default: it would be NULL, or overwrite what a row of the table has."""
    for column, spelled in _left_out(rows, row_checks(record).defaults).items():
        row = next(number for number, row in enumerate(rows, 1) if spelled not in row)
        raise UnknownColumn(
            f"MERGE into {record.name}: row {row} lacks {column!r}, which has a DEFAULT and which"
            " other rows have: give it in every row or in none, or name the columns instead of *"
        )


def _left_out(rows: _Dicts, defaults: Mapping[str, str]) -> dict[str, str]:
    """The columns with a default that some rows leave out and others have, or that no row has
    because all are empty, and how the rows spell each."""
    names = {name.lower(): name for name in column_names(rows)}
    return {
        column: names.get(column, column)
        for column in defaults
        if not names or (column in names and any(names[column] not in row for row in rows))
    }
