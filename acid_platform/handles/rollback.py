"""Making a table's rows those of the past: an overwrite with them (P30, P36).

The rows are copied into new bases, which Hive and others read as any overwrite. Partitions that no
commit has touched since stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from acid_platform.base.errors import CompactionRefused, UnsupportedStatement
from acid_platform.compaction.fractions import refuse_finer
from acid_platform.engine.reads import TableRead
from acid_platform.engine.results import Result
from acid_platform.layout.types import TIMESTAMPS
from acid_platform.predicates.known_columns import require_columns
from acid_platform.scan.table_layout import select_entities
from acid_platform.tables.context import past_scan
from acid_platform.transactions import Operation
from acid_platform.transactions.locks import Statement

if TYPE_CHECKING:
    from acid_platform.handles.transaction_state import TransactionState
    from acid_platform.metastore.pasts import AsOf
    from acid_platform.metastore.records import TableRecord
    from acid_platform.scan.scans import EntityScan, Scan

_SOURCE = "acid_past"


def roll_back(work: TransactionState, record: TableRecord, as_of: AsOf) -> int:
    """Overwrites what differs from then; returns the number of rows written.

    Raises NoSuchPast, NotEnoughHistory, UnknownColumn for a column that the table has no more,
    UnsupportedStatement for timestamps with nanoseconds, and as an overwrite does.
    """
    past = work.past(record.name, as_of)
    columns = [name for name, _ in (*record.columns, *record.partition_columns)]
    then = [name for name, _ in (*past.table.columns, *past.table.partition_columns)]
    _require(then, work, record)
    work.lock(record, Statement.INSERT_OVERWRITE)
    layout = work.layout(record)
    with work.begun.checked():
        scan = past_scan(work.context.layout, work.begun, past, None)
        now = select_entities(layout, *work.lists(record.name))
    before = {entity.partition: entity.paths for entity in scan.entities}
    after = {name: directory.paths for name, directory in now.items()}
    names = sorted({*before, *after})  # a snapshot without a partition reads nothing of it
    changed = [name for name in names if before.get(name, ()) != after.get(name, ())]
    work.refuse_after_overwrite(record, changed)
    if not changed:
        return 0
    rows = _rows(work, scan, changed, [name for name in columns if name in then])
    written = work.run(
        record, layout, lambda engine, target: engine.overwrite(rows, target, {}, changed), rows
    )
    count = work.record(record, Operation.UPDATE, written, overwrite=True)
    work.count(record.name, overwritten=count)
    return count


def _require(then: list[str], work: TransactionState, record: TableRecord) -> None:
    layout = work.layout(record)
    require_columns(then, (*layout.columns, *layout.partition_columns), record.name)


def _rows(work: TransactionState, scan: Scan, changed: list[str], columns: list[str]) -> Result:
    chosen = tuple(entity for entity in scan.entities if entity.partition in changed)
    _refuse_finer(scan, chosen)
    read = TableRead(replace(scan, entities=chosen), tuple(columns))
    return work.context.engines.select(
        f"SELECT * FROM {_SOURCE}", {_SOURCE: read}, work.begun.settings
    )


def _refuse_finer(scan: Scan, entities: Iterable[EntityScan]) -> None:
    """Raises UnsupportedStatement for timestamps that copying would truncate (P17)."""
    kinds = (kind.kind for column in scan.columns for kind in column.type.walk())
    if not any(kind in TIMESTAMPS for kind in kinds):
        return
    for entity in entities:
        for source in entity.sources.inserts:
            try:
                refuse_finer(scan.files, source.path, scan.format, source.length)
            except CompactionRefused as error:
                raise UnsupportedStatement(
                    f"{source.path} holds timestamps with nanoseconds, which a rollback would"
                    " truncate to microseconds; copy the rows with Hive"
                ) from error
