"""Making a table's rows those of the past: an overwrite with them (P30, P36).

The rows are copied into new bases, which Hive and others read as any overwrite. Partitions that no
commit has touched since stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from acid_platform.compaction.fractions import refuse_finer
from acid_platform.engine.reads import TableRead
from acid_platform.errors import CompactionRefused, UnsupportedStatement
from acid_platform.handles.row_statements import RowStatement, require_writable
from acid_platform.handles.transaction_work import TransactionWork
from acid_platform.layout.types import TIMESTAMPS
from acid_platform.predicates.known_columns import require_columns
from acid_platform.scan.table_layout import select_entities
from acid_platform.tables.record_layout import columns_of_record
from acid_platform.transactions import RowOperation
from acid_platform.transactions.locks import Statement

if TYPE_CHECKING:
    from acid_platform.metastore.pasts import AsOf
    from acid_platform.metastore.records import TableRecord
    from acid_platform.scan.scans import Scan

_SOURCE = "acid_past"


@dataclass(frozen=True, slots=True, eq=False)
class RollBackRows(RowStatement[int]):
    """Writes.rollback_to: overwrites the partitions that differ from then."""

    as_of: AsOf

    def run(self, work: TransactionWork, record: TableRecord) -> int:
        require_writable(record)
        view = work.view
        request = view.request(record.name, as_of=self.as_of)
        own, keys = columns_of_record(record)
        then = [column.name for part in columns_of_record(request.table) for column in part]
        require_columns(then, (*own, *keys), record.name)
        work.lock(record, Statement.INSERT_OVERWRITE)
        with view.checked():
            scan = view.scan(request)
            now = select_entities(view.layout(record), *view.lists(record.name))
        before = {entity.partition: entity.paths for entity in scan.entities}
        after = {name: directory.paths for name, directory in now.items()}
        names = sorted({*before, *after})  # a snapshot without a partition reads nothing of it
        changed = [name for name in names if before.get(name, ()) != after.get(name, ())]
        work.refuse_after_overwrite(record, changed)
        if not changed:
            return 0
        scan = replace(
            scan, entities=tuple(each for each in scan.entities if each.partition in changed)
        )
        _refuse_finer(scan)
        columns = tuple(column.name for column in (*own, *keys) if column.name in then)
        rows = work.context.engines.select(
            f"SELECT * FROM {_SOURCE}", {_SOURCE: TableRead(scan, columns)}, view.in_force
        )
        written = work.run(
            record, lambda engine, target: engine.overwrite(rows, target, {}, changed), rows
        )
        count = work.report(record, RowOperation.UPDATE, written, overwrite=True)
        work.count(record.name, overwritten=count)
        return count


def _refuse_finer(scan: Scan) -> None:
    """Raises UnsupportedStatement for timestamps that copying would truncate (P17)."""
    kinds = (kind.kind for column in scan.columns for kind in column.type.walk())
    if not any(kind in TIMESTAMPS for kind in kinds):
        return
    for entity in scan.entities:
        for source in entity.sources.inserts:
            try:
                refuse_finer(scan.files, source.path, scan.format, source.length)
            except CompactionRefused as error:
                raise UnsupportedStatement(
                    f"{source.path} holds timestamps with nanoseconds, which a rollback would"
                    " truncate to microseconds; copy the rows with Hive"
                ) from error
