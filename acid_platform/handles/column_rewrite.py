"""Writing the files of a table again with the names of other columns, as one commit.

Each partition gets a base whose rows are those of now, with their row ids, as a major compaction
would make it; the declaration changes in the same commit. Until then, and after a crash, everybody
sees the old files with the old columns; so does whoever reads an older snapshot later. The lock is
EXCLUSIVE, so that no engine reads the new files with the old columns.

The files of a table with full ACID get another format in the same manner. An insert-only table
becomes one with full ACID, too. Its rows get row ids then, so
the old files can't stay: rows of them would have other ids for each reader.

A partition that gets other values goes the same way: its rows move in one commit, then the empty
partition goes. So does a table that is made anew, with the rows and columns of a query.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from acid_platform.compaction.execution import (
    Compaction,
    StagedCompaction,
    discard,
    execute,
    open_compaction,
    publish,
)
from acid_platform.compaction.plan import CompactionPlan, CompactionSettings
from acid_platform.compaction.profiles import compare
from acid_platform.compaction.states import CompactionKind, Layout
from acid_platform.engine.choice import CompactionChoice, choose
from acid_platform.errors import (
    CompactionMismatch,
    InvalidDefinition,
    NeedsSpark,
    NoSuchPartition,
    SnapshotOutdated,
    TableExists,
    UnsupportedStatement,
)
from acid_platform.handles.past_rows import overwrite_with
from acid_platform.handles.row_statements import RowStatement, require_writable
from acid_platform.handles.transaction import Transaction, autocommit
from acid_platform.handles.transaction_work import TransactionWork
from acid_platform.handles.warehouse import Warehouse
from acid_platform.layout.formats import FileFormat, is_insert_only
from acid_platform.layout.names import BaseName, original_bucket, partition_values
from acid_platform.layout.table_properties import (
    FIELD_DELIMITER,
    FILE_FORMAT,
    NULL_TEXT,
    TRANSACTIONAL_KIND,
    check_change,
)
from acid_platform.metastore import operations as ops
from acid_platform.metastore.branches import refuse_on_branch
from acid_platform.metastore.records import LockRequest, TableRecord
from acid_platform.scan.open import TableLayout, open_scan, select_entities
from acid_platform.scan.scans import ArrowScan
from acid_platform.tables.declaration import Changing, ColumnChange, Declaration, in_format
from acid_platform.tables.record_layout import all_columns_of, columns_of_record
from acid_platform.tables.table_constraints import declared_constraints
from acid_platform.transactions import RowOperation
from acid_platform.transactions.concurrency import LockType, Statement
from acid_platform.values.rows import Rows
from acid_platform.write.publishing import write_truncation


def rewrite(warehouse: Warehouse, statement: RowStatement[int]) -> int:
    """Runs a statement that writes all files of a table again, which begins with an EXCLUSIVE lock.

    Raises what it raises, and LockTimeout.
    """
    return remade(warehouse, statement.table, lambda txn: txn.run(statement))


def remade(warehouse: Warehouse, table: str, statement: Callable[[Transaction], int]) -> int:
    """Runs what writes all files of a table again, while nobody else writes it and readers see it
    as it was. Raises what it raises, LockTimeout, and InvalidDefinition on a branch."""
    if branch := warehouse.metastore.branch:
        refuse_on_branch("alter table", branch)
    lock = LockRequest(table, LockType.EXCLUSIVE, RowOperation.OVERWRITE)
    return autocommit(warehouse, table, statement, [lock])


def require_all_visible(work: TransactionWork, record: TableRecord) -> None:
    """Raises SnapshotOutdated if the snapshot misses rows, which the new files would hide;
    InvalidDefinition if they are those of a branch."""
    write_ids, _ = work.view.lists(record.name)
    for branch in work.warehouse.branches.list(judged=False) if write_ids.open else ():
        if record.name in branch.write_ids:
            raise InvalidDefinition(
                f"branch {branch.name} has written rows into {record.name}, and could not be merged"
                " after this: its rows are those of the present columns and files; merge the branch"
                " or drop it first"
            )
    if work.begun.stale or write_ids.open:
        raise SnapshotOutdated(
            f"transaction {work.id} does not see all that was written into {record.name}"
        )


@dataclass(frozen=True, slots=True, eq=False)
class RewriteColumns(RowStatement[int]):
    """Changes the columns of a table and its files, unless these know their columns by ids; returns
    the rows that were written again.

    `change` computes the columns of the declaration that the snapshot sees. Raises what `change`
    raises, SnapshotOutdated, InvalidDefinition, CompactionRefused for values that can't be copied,
    CompactionFailed, CompactionMismatch, NeedsSpark, CorruptFile.
    """

    change: Changing

    def run(self, work: TransactionWork, record: TableRecord) -> int:
        change = self.change(record)
        _refuse_unwritable(record, change)
        require_all_visible(work, record)
        layout = work.view.layout(record)
        if change.names:
            rows = _written_again(work, record, layout, change)
        else:
            rows = _emptied(work, record, layout, change)
        work.redeclare(change.before, change.after, change.names)
        return rows


def _refuse_unwritable(record: TableRecord, change: ColumnChange) -> None:
    """Raises InvalidDefinition for files that would be read wrongly afterwards."""
    stored = FileFormat.of(record.properties)
    if stored.name == "avro":
        raise InvalidDefinition(
            f"{record.name}: avro files can't be written again here; CREATE TABLE … AS SELECT with"
            " the new columns"
        )
    staying = [new for _, new in change.names]
    first = [name for name, _ in change.after.columns[: len(staying)]]
    if stored.by_position and first != staying:
        raise InvalidDefinition(
            f"{record.name}: {stored.name} files know columns by their position; put new columns"
            " last"
        )


def _written_again(
    work: TransactionWork, record: TableRecord, layout: TableLayout, change: ColumnChange
) -> int:
    """Writes a base for each partition that has files; none if all know their columns by ids."""
    settings = CompactionSettings.of(work.view.in_force, {}, change.after.properties)
    # Named and seen by the write id, as the base of an overwrite: older snapshots have no such id.
    settings = replace(settings, layout=Layout.HIVE4)
    base = BaseName(work.begun.write_ids[record.name])
    write_ids, txns = work.view.lists(record.name)
    mergeable = write_ids.for_compactor()
    staged: list[tuple[StagedCompaction, CompactionChoice]] = []
    with work.begun.checked(again=False):
        try:
            listings = work.view.listings(layout)
            selected = select_entities(layout, listings, mergeable, txns)
            files = chain.from_iterable(directory.files for directory in selected.values())
            if change.names and all(file.has_ids for file in files):
                return 0
            for partition, directory in selected.items():
                if not directory.paths:
                    continue
                plan = CompactionPlan(
                    kind=CompactionKind.MAJOR,
                    txn_id=work.id,
                    settings=settings,
                    inputs=directory,
                    write_ids=mergeable,
                    output_base=base,
                    output_delta=None,
                    output_delete_delta=None,
                    reason="other columns",
                )
                job = f"other columns of {record.name} {partition}".rstrip()
                staged.append(
                    _staged(work, open_compaction(plan, layout, partition, job, change.names))
                )
            work.begun.heartbeat()
            published = [(publish(each), choice) for each, choice in staged]
        except BaseException:
            for each, _ in staged:
                discard(each.compaction)
            raise
    return sum(
        work.report(
            record,
            RowOperation.UPDATE,
            directories,
            overwrite=True,
            wrote=(choice.engine.name, choice.reason),
        )
        for directories, choice in published
    )


def _staged(
    work: TransactionWork, compaction: Compaction
) -> tuple[StagedCompaction, CompactionChoice]:
    """The new base of a partition, where no reader sees it; Spark begins anew with what the local
    engine can't copy."""
    choice = choose(work.warehouse.engines, compaction)
    try:
        return _executed(work, choice, compaction), choice
    except NeedsSpark as refused:
        if choice.instead is None:
            raise
        choice = choice.instead(str(refused))
        return _executed(work, choice, compaction), choice


def _executed(
    work: TransactionWork, choice: CompactionChoice, compaction: Compaction
) -> StagedCompaction:
    """Raises CompactionMismatch, which names each value that was not kept."""
    work.begun.when_lost(lambda _reason: choice.engine.cancel())
    with choice.engine.running():
        staged = execute(choice.engine, compaction)
    differences = compare(staged.expected, staged.actual)
    if differences:
        discard(compaction)
        raise CompactionMismatch(
            f"{compaction.plan.location}: other columns would change the data: "
            + "; ".join(map(str, differences))
            + "; the files and columns stay as they were"
        )
    return staged


def _emptied(
    work: TransactionWork, record: TableRecord, layout: TableLayout, change: ColumnChange
) -> int:
    """Hides all files of a table without rows. Raises InvalidDefinition if it has some."""
    (scan,) = work.view.scans([work.view.request(record.name)])
    if ArrowScan(scan, ()).count():
        raise InvalidDefinition(
            f"{record.name} has rows, and none of its columns would stay; TRUNCATE TABLE first, or"
            " keep one of them"
        )
    partitions = [entity.partition for entity in scan.entities if entity.paths]
    columns, _ = columns_of_record(change.after)
    target = work.target(record, replace(layout, columns=columns))
    with work.begun.checked(again=False):
        written = write_truncation(target, partitions)
    return work.report(record, RowOperation.UPDATE, written, overwrite=True)


_OF_FILES = (TRANSACTIONAL_KIND.name, FILE_FORMAT.name, FIELD_DELIMITER.name, NULL_TEXT.name)
"""Properties that only say what the files of an insert-only table are like."""


@dataclass(frozen=True, slots=True, eq=False)
class ConvertToAcid(RowStatement[int]):
    """Writes all rows again, with row ids; returns how many. Run by `rewrite`.

    Raises InvalidDefinition for a table that has full ACID, SnapshotOutdated,
    UnsupportedStatement for files that could not be told from others afterwards, and for timestamps
    with nanoseconds.
    """

    def run(self, work: TransactionWork, record: TableRecord) -> int:
        if not is_insert_only(record.properties):
            raise InvalidDefinition(f"{record.name} has full ACID already")
        require_writable(record)
        require_all_visible(work, record)
        _refuse_other_names(work, record)
        (scan,) = work.view.scans([work.view.request(record.name)])
        properties = {
            name: text for name, text in record.properties.items() if name not in _OF_FILES
        }
        after = replace(record, properties=properties)
        emptied = [entity.partition for entity in scan.entities]
        finer = "files with row ids would"
        count = overwrite_with(work, after, scan, all_columns_of(record), emptied, finer)
        work.redeclare(record, after)
        return count


@dataclass(frozen=True, slots=True, eq=False)
class RewriteFormat(RowStatement[int]):
    """Writes the files of a table with full ACID again in another format, with their row ids;
    returns the rows of these files, 0 if it is the table's own. Run by `rewrite`.

    Raises InvalidDefinition for an insert-only table and for a format that can't keep its rows,
    SnapshotOutdated, CompactionRefused for values that can't be copied, CompactionFailed,
    CompactionMismatch, CorruptFile.
    """

    stored: str

    def run(self, work: TransactionWork, record: TableRecord) -> int:
        after = in_format(record, self.stored)
        if after.properties == record.properties:
            return 0
        require_writable(record)
        require_all_visible(work, record)
        layout = replace(work.view.layout(record), format=FileFormat.of(after.properties))
        rows = _written_again(work, record, layout, ColumnChange(record, after, ()))
        work.redeclare(record, after)
        return rows


def _refuse_other_names(work: TransactionWork, record: TableRecord) -> None:
    """Raises UnsupportedStatement for files that a table with full ACID can't have, even if they
    are obsolete: they stay for older snapshots."""
    layout = work.view.layout(record)
    for listing in work.view.listings(layout).values():
        for file in listing.files:
            if original_bucket(file.name) is None:
                raise UnsupportedStatement(
                    f"{listing.location}/{file.path} is not named like a file of ours: compact"
                    f" {record.name} ('major'), and repeat this when the Cleaner has removed it"
                )


@dataclass(frozen=True, slots=True, eq=False)
class ReplaceTable(RowStatement[int]):
    """Makes the table anew with these rows and their columns; returns how many. Run by `remade`.

    `declared`: what is asked for. Properties, constraints and comments of columns stay as far as it
    does not state others. Raises InvalidDefinition for other partition columns, buckets or formats,
    and for a constraint of a column that goes; SnapshotOutdated, and what an insert raises.
    """

    rows: Rows
    declared: Declaration

    def run(self, work: TransactionWork, record: TableRecord) -> int:
        after = self._after(record)
        require_writable(after)
        require_all_visible(work, record)
        partitions = sorted(work.view.layout(record).partitions) if record.partitioned else [""]
        written = work.write(
            after, lambda engine, target: engine.overwrite(self.rows, target, {}, partitions)
        )
        count = work.report(after, RowOperation.UPDATE, written, overwrite=True)
        work.redeclare(record, after, self._others(record), rows=True)
        work.count(record.name, overwritten=count)
        return count

    def _after(self, record: TableRecord) -> TableRecord:
        wanted, name = self.declared.record(record.name, record.location), record.name
        for what, own, other in (
            ("PARTITIONED BY", record.partition_columns, wanted.partition_columns),
            ("CLUSTERED BY", _buckets(record), _buckets(wanted)),
        ):
            if own != other:
                raise InvalidDefinition(
                    f"{name} has {what} {_listed(own)}, and would have {_listed(other)}; that stays"
                    f" as long as a table: say it again, or DROP TABLE {name} first"
                )
        check_change(name, record.properties, self.declared.properties)
        names = dict((*wanted.columns, *wanted.partition_columns))
        comments = {each: text for each, text in record.comments.items() if each in names}
        after = replace(
            record.with_columns(wanted.columns, {new: old for old, new in self._others(record)}),
            properties={**record.properties, **wanted.properties},
            comments={**comments, **wanted.comments},
        )
        ColumnChange(record, after, ())
        constraints = declared_constraints(name, *columns_of_record(after), record.constraints)
        return replace(after, constraints=constraints)

    def _others(self, record: TableRecord) -> list[tuple[str, str]]:
        """The columns that are none of the table's, though one has the name: with another type."""
        before = dict(record.columns)
        columns = self.declared.record(record.name, record.location).columns
        return [("", name) for name, kind in columns if before.get(name, kind) != kind]


def _buckets(record: TableRecord) -> list[tuple[str, str]]:
    return [(name, f"INTO {record.bucket_count} BUCKETS") for name in record.bucket_columns]


def _listed(pairs: Sequence[tuple[str, str]]) -> str:
    return ", ".join(map(" ".join, pairs)) or "nothing"


@dataclass(frozen=True, slots=True)
class Moved:
    """What a move has done: the rows, and the empty base in the place of the old ones."""

    rows: int
    emptied: str


@dataclass(frozen=True, slots=True, eq=False)
class MovePartition(RowStatement[Moved]):
    """Copies the rows of a partition into a new one, and empties the old one.

    Raises NoSuchPartition, TableExists if there is a partition with the new values,
    UnsupportedStatement for timestamps with nanoseconds.
    """

    old: str
    new: str

    def run(self, work: TransactionWork, record: TableRecord) -> Moved:
        require_writable(record)
        for partition in (self.old, self.new):
            work.lock(record, Statement.INSERT_OVERWRITE, partition)
        view, layout = work.view, work.view.layout(record)
        if self.old not in layout.partitions:
            raise NoSuchPartition(f"{record.name} has no partition {self.old}")
        if self.new in layout.partitions:
            raise TableExists(
                f"{record.name} already has partition {self.new}; INSERT the rows of {self.old}"
                " there, and drop it"
            )
        work.refuse_together(record, [self.old, self.new], overwrite=True)
        own, keys = columns_of_record(record)
        only = {self.old: layout.partitions[self.old]}
        with view.checked():
            lists = view.lists(record.name)
            listings = view.listings(replace(layout, partitions=only))
            scan = open_scan(layout, listings, *lists, None, view.in_force)
        scan = replace(scan, still_open=view.check)
        values = partition_values(self.new, keys, record.name)
        copying = "a new partition would"
        count = overwrite_with(work, record, scan, own, [self.new], copying, fixed=values)
        with work.begun.checked(again=False):
            (emptied,) = write_truncation(work.target(record, layout), [self.old])
        work.report(record, RowOperation.UPDATE, [emptied], overwrite=True)
        work.count(record.name, overwritten=count)
        return Moved(count, emptied.directory)


def move_partition(warehouse: Warehouse, table: str, old: str, new: str) -> int:
    """Moves the rows, then drops the old partition, unless others wrote into it in between: then
    it stays with their rows. Returns the number of moved rows.

    Raises what MovePartition raises, and LockTimeout.
    """
    if branch := warehouse.metastore.branch:
        refuse_on_branch("rename partition", branch)
    move = MovePartition(table, old, new)
    moved = autocommit(warehouse, table, lambda txn: txn.run(move))
    metastore = warehouse.metastore
    lock = LockRequest(table, LockType.EXCLUSIVE, partition=old)
    with metastore.begin(locks=[lock], info=warehouse.info()) as txn:
        left = [
            directory.name
            for entity in metastore.entities(table)
            for directory in entity.directories
            if entity.partition == old and not directory.obsolete
        ]
        if left == [moved.emptied]:
            metastore.call(ops.Drop(txn.id, table, old))
            txn.forget()
    return moved.rows
