"""The statements that change rows, as values: what each checks, locks, writes and reports.

Writes says what each does, returns and raises.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from acid_platform.engine.interface import Condition, Where
from acid_platform.engine.merge_clauses import (
    MergeAction,
    MergeClause,
    MergeCounts,
    SourceKeys,
    assigned_columns,
    require_reachable,
)
from acid_platform.errors import (
    InvalidExpression,
    NoSuchPartition,
    UnsupportedStatement,
)
from acid_platform.handles.looked_for import pruning_part
from acid_platform.handles.snapshot_views import ignored
from acid_platform.handles.transaction_work import TransactionWork
from acid_platform.layout.formats import is_insert_only
from acid_platform.layout.names import partition_name, partition_values, written_values
from acid_platform.layout.sql_text import quoted
from acid_platform.layout.types import UNNAMED, require_columns
from acid_platform.metastore.records import TableRecord
from acid_platform.predicates.known_columns import reads_table, require_names
from acid_platform.scan.scans import Scan
from acid_platform.tables.record_layout import all_columns_of, bucketing, columns_of_record
from acid_platform.transactions import RowOperation
from acid_platform.transactions.concurrency import Statement
from acid_platform.values.rows import Rows, are_none, column_names, require_partition_columns
from acid_platform.write.publishing import write_truncation

Partition = Mapping[str, Any] | str | None
"""A partition: its name (`"month=3"`), or the values of all partition columns."""

_Result = TypeVar("_Result", covariant=True)


@dataclass(frozen=True, slots=True, eq=False)
class RowStatement(ABC, Generic[_Result]):
    """A statement that changes the rows of a table, inside a transaction."""

    table: str

    @property
    def lock(self) -> Statement | None:
        """What it locks the whole table for, so that a transaction can begin with this lock; None
        if it is known only while the statement runs."""
        return None

    def check(self, record: TableRecord) -> None:
        """Raises what is wrong with it, as far as the declaration tells."""

    @abstractmethod
    def run(self, work: TransactionWork, record: TableRecord) -> _Result:
        """Writes and reports the change; `record` is the table as the transaction sees it, and
        `check` has passed it."""


@dataclass(frozen=True, slots=True, eq=False)
class InsertRows(RowStatement[int]):
    """Writes.insert."""

    rows: Rows
    fixed: Mapping[str, Any] = field(default_factory=dict)

    lock = Statement.INSERT

    def check(self, record: TableRecord) -> None:
        require_rows_fit(record, column_names(self.rows))
        _require_partition(self.rows, record, self.fixed)

    def run(self, work: TransactionWork, record: TableRecord) -> int:
        work.lock(record, self.lock)
        work.refuse_together(record)
        fixed = written_values(self.fixed, columns_of_record(record)[1], record.name)
        written = work.write(
            record, lambda engine, target: engine.insert(self.rows, target, fixed), self.rows
        )
        keys = work.looked_for.keys_of(record, self.rows)
        count = work.report(record, RowOperation.INSERT, written, keys=keys)
        work.count(record.name, inserted=count)
        return count


@dataclass(frozen=True, slots=True, eq=False)
class OverwriteRows(RowStatement[int]):
    """Writes.overwrite."""

    rows: Rows
    partition: Partition = None
    fixed: Mapping[str, Any] = field(default_factory=dict)

    @property
    def lock(self) -> Statement | None:
        return Statement.INSERT_OVERWRITE if self.partition is None else None

    def check(self, record: TableRecord) -> None:
        whole = self._whole(record)
        require_rows_fit(record, column_names(self.rows))
        _require_partition(self.rows, record, whole or self.fixed)

    def _whole(self, record: TableRecord) -> Mapping[str, str | None]:
        """The values of the partition that it replaces; empty if it replaces any."""
        if self.partition is None:
            return {}
        return partition_values(self.partition, columns_of_record(record)[1], self.table)

    def run(self, work: TransactionWork, record: TableRecord) -> int:
        _, keys = columns_of_record(record)
        whole = self._whole(record)
        name = partition_name(whole) if whole else None
        work.lock(record, Statement.INSERT_OVERWRITE, name)
        emptied = [name] if name else [] if keys else [""]
        work.refuse_together(record, emptied, overwrite=True)
        fixed = whole or written_values(self.fixed, keys, record.name)
        written = work.write(
            record,
            lambda engine, target: engine.overwrite(self.rows, target, fixed, emptied),
            self.rows,
        )
        count = work.report(record, RowOperation.UPDATE, written, overwrite=True)
        work.count(record.name, overwritten=count)
        return count


@dataclass(frozen=True, slots=True, eq=False)
class UpdateRows(RowStatement[int]):
    """Writes.update."""

    assignments: Mapping[str, str]
    where: Where = None

    lock = Statement.UPDATE

    def check(self, record: TableRecord) -> None:
        from acid_platform.engine.merge_clauses import targets_of  # sqlglot takes long

        _refuse_insert_only(record, "UPDATE")
        require_writable(record)
        own, keys = columns_of_record(record)
        key_names = {column.name for column in keys}
        names = dict.fromkeys(map(str.lower, self.assignments))
        targets_of([name for name in names if name not in key_names], own, record.name)
        values = self.where.values if isinstance(self.where, Condition) else ()
        for text in self.assignments.values():
            if text not in map(quoted, values):
                _require_names(text, record, "UPDATE")
        if isinstance(self.where, str):
            _require_names(self.where, record, "UPDATE")

    def run(self, work: TransactionWork, record: TableRecord) -> int:
        work.lock(record, self.lock)
        work.refuse_together(record)
        scan = _scan(work, record, self.where)
        work.looked_for.change(record, self.where)
        written = work.write(
            record,
            lambda engine, target: engine.update(scan, target, self.assignments, self.where),
            read_bytes=scan.read_bytes,
        )
        assigned = assigned_columns(self.assignments, columns_of_record(record)[0])
        count = work.report(record, RowOperation.UPDATE, written, assigned=assigned)
        work.count(record.name, updated=count)
        return count


@dataclass(frozen=True, slots=True, eq=False)
class DeleteRows(RowStatement[int]):
    """Writes.delete."""

    where: Where = None

    lock = Statement.DELETE

    def check(self, record: TableRecord) -> None:
        _refuse_insert_only(record, "DELETE")
        if isinstance(self.where, str):
            _require_names(self.where, record, "DELETE FROM")

    def run(self, work: TransactionWork, record: TableRecord) -> int:
        work.lock(record, self.lock)
        work.refuse_together(record)
        scan = _scan(work, record, self.where)
        work.looked_for.change(record, self.where)
        written = work.write(
            record,
            lambda engine, target: engine.delete(scan, target, self.where),
            read_bytes=scan.read_bytes,
        )
        work.report(record, RowOperation.DELETE, written)
        count = sum(directory.rows for directory in written)
        work.count(record.name, deleted=count)
        return count


@dataclass(frozen=True, slots=True, eq=False)
class MergeRows(RowStatement[MergeCounts]):
    """Writes.merge."""

    source: Rows
    on: str
    clauses: Sequence[MergeClause]
    aliases: tuple[str, str] = ("t", "s")

    @property
    def _only_inserts(self) -> bool:
        return all(clause.action is MergeAction.INSERT for clause in self.clauses)

    @property
    def lock(self) -> Statement:
        return Statement.MERGE_INSERT if self._only_inserts else Statement.UPDATE

    def check(self, record: TableRecord) -> None:
        if not self.clauses:
            raise InvalidExpression(
                f"MERGE into {record.name} has no WHEN clause: say what happens to rows that match,"
                " or to those that don't"
            )
        require_reachable(self.clauses)
        clauses = self._complete(record)
        _refuse_insert_only(record, "MERGE")
        require_writable(record)
        for clause in clauses:
            if clause.action is MergeAction.INSERT:
                self._require_partition(clause, record)
                # Whether or not a row of the source has no match.
                require_columns(clause.values or (), all_columns_of(record), record.name)

    def run(self, work: TransactionWork, record: TableRecord) -> MergeCounts:
        from acid_platform.scan.recorded_ranges import equal_columns  # sqlglot takes long

        work.lock(record, self.lock)
        work.refuse_together(record)
        clauses = self._complete(record)
        if not clauses:
            return MergeCounts()
        on = "false" if are_none(self.source) else self.on
        scan = _scan(work, record, None)
        pairs = equal_columns(on, self.aliases)
        keys = SourceKeys(all_columns_of(record), pairs, clauses, self.aliases)
        written, counts = work.write(
            record,
            lambda engine, target: engine.merge(
                scan, target, self.source, on, clauses, self.aliases, keys=keys
            ),
            self.source,
            scan.read_bytes,
        )
        operation = RowOperation.INSERT if self._only_inserts else RowOperation.UPDATE
        assigned = None if counts.inserted else keys.assigned()
        work.report(record, operation, written, keys=keys.brought, assigned=assigned)
        work.looked_for.merge(record, keys, on, any(clause.by_source for clause in clauses))
        work.count(
            record.name, inserted=counts.inserted, updated=counts.updated, deleted=counts.deleted
        )
        return counts

    def _complete(self, record: TableRecord) -> list[MergeClause]:
        """The clauses that may apply, with their values. A source without rows and columns matches
        no row and inserts none, and what is said of its columns can't be checked."""
        if are_none(self.source):
            return [clause for clause in self.clauses if clause.by_source]
        return [self._with_all_columns(clause, record) for clause in self.clauses]

    def _with_all_columns(self, clause: MergeClause, record: TableRecord) -> MergeClause:
        """The clause with the values of `UPDATE SET *`, if it is one.

        No UPDATE may set what decides the place of a row, its partition and bucket: these columns
        are left out where ON demands that they are equal. Raises UnknownColumn.
        """
        if clause.action is not MergeAction.UPDATE or clause.values is not None:
            return clause
        from acid_platform.engine.merge_clauses import values_of_all
        from acid_platform.scan.recorded_ranges import equal_columns

        buckets = bucketing(record)
        placing = {column.name for column in columns_of_record(record)[1]}
        placing |= set(buckets.columns if buckets else ())
        pairs = equal_columns(self.on, self.aliases)
        same = placing & {own for own, other in pairs.items() if own == other}
        columns = [column for column in all_columns_of(record) if column.name not in same]
        names = column_names(self.source)
        return replace(clause, values=values_of_all(columns, names, self.aliases[1], record.name))

    def _require_partition(self, clause: MergeClause, record: TableRecord) -> None:
        """Raises NoSuchPartition if inserted rows would get to the default partition unasked."""
        if clause.values is None:
            _require_partition(self.source, record, {})
            return
        names = {name.lower() for name in clause.values}
        if len(names) < len(clause.values) or names - {
            column.name for column in all_columns_of(record)
        }:
            return  # the engine says what is wrong with them
        for key, _ in record.partition_columns:
            if key not in names:
                raise NoSuchPartition(
                    f"MERGE inserts rows into {record.name} without its partition column {key!r}:"
                    " give it a value; NULL is the default partition"
                )


@dataclass(frozen=True, slots=True, eq=False)
class TruncateRows(RowStatement[None]):
    """Writes.truncate."""

    partition: Partition = None
    lock = Statement.TRUNCATE

    def run(self, work: TransactionWork, record: TableRecord) -> None:
        work.lock(record, self.lock)
        _, keys = columns_of_record(record)
        layout = work.view.layout(record)
        partitions = sorted(layout.partitions) if keys else [""]
        if self.partition is not None:
            values = partition_values(self.partition, keys, record.name, partitions)
            name = partition_name(values)
            if name not in partitions:
                raise NoSuchPartition(f"{record.name} has no partition {name}")
            partitions = [name]
        work.refuse_together(record, partitions, overwrite=True)
        with work.begun.checked(again=False):
            written = write_truncation(work.target(record, layout), partitions)
        work.report(record, RowOperation.UPDATE, written, overwrite=True)


def require_writable(record: TableRecord) -> None:
    """Raises UnsupportedStatement for partition columns whose directories can't be named."""
    for column in columns_of_record(record)[1]:
        if column.type.kind in UNNAMED:
            raise UnsupportedStatement(
                f"{record.name} is partitioned by {column}, whose directories this"
                " platform reads, but does not write; write with Hive, or copy into a table"
                " partitioned by a string"
            )


def require_rows_fit(record: TableRecord, names: Sequence[str]) -> None:
    """Raises UnsupportedStatement as `require_writable`, UnknownColumn for a column of the rows
    that the table lacks."""
    require_writable(record)
    require_columns(names, all_columns_of(record), record.name)


def _require_partition(rows: Rows, record: TableRecord, fixed: Mapping[str, str | None]) -> None:
    """Raises NoSuchPartition if the rows lack a partition column that has no fixed value, or if
    another name has one."""
    keys = [name for name, _ in record.partition_columns]
    if others := [name for name in fixed if name not in keys]:
        raise NoSuchPartition(
            f"fixed names {others[0]!r}; {record.name} has the partition columns"
            f" {', '.join(keys) or 'none'}"
        )
    names = [name for name, _ in record.partition_columns if name not in fixed]
    require_partition_columns(rows, names, record.name)


def _require_names(text: str, record: TableRecord, verb: str) -> None:
    """Raises UnknownColumn, and UnsupportedStatement for a subquery, which only SQL can have."""
    if reads_table(text):
        raise UnsupportedStatement(
            f"{verb.split()[0]} of {record.name}: {text!r} has a subquery, which a verb does not"
            f' read; write the statement in SQL: wh.sql("{verb} {record.name} …")'
        )
    require_names(text, all_columns_of(record), record.name)


def _refuse_insert_only(record: TableRecord, statement: str) -> None:
    if is_insert_only(record.properties):
        raise UnsupportedStatement(
            f"{statement} needs rows with row ids, and {record.name} is insert-only:"
            f" overwrite its partitions, or ALTER TABLE {record.name} CONVERT TO ACID, which writes"
            " all rows again"
        )


def _scan(work: TransactionWork, record: TableRecord, where: Where) -> Scan:
    """The scan that a statement changes; its commit tells whether all files were there (P29)."""
    with work.begun.checked(again=False), work.view.noting(ignored):  # the statement tells more
        return work.view.scan(work.view.request(record.name, pruning_part(where)))
