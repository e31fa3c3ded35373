"""Writing the files of a table again with the names of other columns, as one commit.

Each partition gets a base whose rows are those of now, with their row ids, as a major compaction
would make it; the declaration changes in the same commit. Until then, and after a crash, everybody
sees the old files with the old columns; so does whoever reads an older snapshot later. The lock is
EXCLUSIVE, so that no engine reads the new files with the old columns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from acid_platform.compaction.compaction_settings import CompactionSettings
from acid_platform.compaction.execution import StagedCompaction, discard, execute, publish
from acid_platform.compaction.opening import Compaction, open_compaction
from acid_platform.compaction.plan import CompactionPlan
from acid_platform.compaction.states import CompactionKind, Layout
from acid_platform.compaction.validation import compare
from acid_platform.engine.compaction_choice import CompactionChoice, choose
from acid_platform.errors import (
    CompactionMismatch,
    InvalidDefinition,
    NeedsSpark,
    SnapshotOutdated,
)
from acid_platform.handles.row_statements import RowStatement
from acid_platform.handles.transaction_work import TransactionWork
from acid_platform.layout.formats import FileFormat
from acid_platform.layout.names import BaseName
from acid_platform.metastore.records import LockRequest
from acid_platform.scan.arrow_scan import ArrowScan
from acid_platform.scan.table_layout import TableLayout, select_entities
from acid_platform.tables.column_changes import Changing, ColumnChange
from acid_platform.tables.record_layout import columns_of_record
from acid_platform.transactions import RowOperation
from acid_platform.transactions.locks import LockType
from acid_platform.write.publishing import write_truncation

if TYPE_CHECKING:
    from acid_platform.metastore.records import TableRecord


def rewriting_lock(table: str) -> LockRequest:
    """The lock with which a transaction begins that writes all files of a table again."""
    return LockRequest(table, LockType.EXCLUSIVE, RowOperation.OVERWRITE)


def require_all_visible(work: TransactionWork, record: TableRecord) -> None:
    """Raises SnapshotOutdated if the snapshot misses rows, which the new files would hide."""
    write_ids, _ = work.view.lists(record.name)
    if work.begun.stale or write_ids.open:
        raise SnapshotOutdated(
            f"transaction {work.id} does not see all that was written into {record.name}"
        )


@dataclass(frozen=True, slots=True, eq=False)
class RewriteColumns(RowStatement[int]):
    """Changes the columns of a table and its files; returns the rows that were written again.

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
        work.redeclare(change.before, change.after)
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
    """Writes a base for each partition that has files."""
    settings = CompactionSettings.of(work.view.in_force, {}, record.properties)
    # Named and seen by the write id, as the base of an overwrite: older snapshots have no such id.
    settings = replace(settings, layout=Layout.HIVE4)
    base = BaseName(work.begun.write_ids[record.name])
    write_ids, txns = work.view.lists(record.name)
    mergeable = write_ids.for_compactor()
    staged: list[tuple[StagedCompaction, CompactionChoice]] = []
    with work.begun.checked(again=False):
        try:
            for partition, directory in select_entities(layout, mergeable, txns).items():
                if not directory.paths:
                    continue
                plan = CompactionPlan(
                    CompactionKind.MAJOR,
                    work.id,
                    settings,
                    directory,
                    mergeable,
                    base,
                    None,
                    None,
                    "other columns",
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
