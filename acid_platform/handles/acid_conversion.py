"""Making an insert-only table one with full ACID: its rows are written into files with row ids.

The new files and the declaration are one commit, under an EXCLUSIVE lock. Rows get row ids then,
so the old files can't stay: rows of them would have other ids for each reader.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from acid_platform.base.table_properties import (
    FIELD_DELIMITER,
    FILE_FORMAT,
    NULL_TEXT,
    TRANSACTIONAL_KIND,
)
from acid_platform.engine.reads import TableRead
from acid_platform.errors import InvalidDefinition, UnsupportedStatement
from acid_platform.handles.column_rewrite import require_all_visible
from acid_platform.handles.row_statements import (
    RowStatement,
    refuse_finer_rows,
    require_writable,
)
from acid_platform.layout.formats import is_insert_only
from acid_platform.layout.names import original_bucket
from acid_platform.tables.record_layout import columns_of_record
from acid_platform.transactions import RowOperation

if TYPE_CHECKING:
    from acid_platform.handles.transaction_work import TransactionWork
    from acid_platform.metastore.records import TableRecord

_SOURCE = "acid_source"
"""The name of the table in the query that copies its rows."""
_OF_FILES = (TRANSACTIONAL_KIND.name, FILE_FORMAT.name, FIELD_DELIMITER.name, NULL_TEXT.name)
"""Properties that only say what the files of an insert-only table are like."""


@dataclass(frozen=True, slots=True, eq=False)
class ConvertToAcid(RowStatement[int]):
    """Writes all rows again, with row ids; returns how many. Begins with `rewriting_lock`.

    Raises InvalidDefinition for a table that has full ACID, SnapshotOutdated,
    UnsupportedStatement for files that could not be told from others afterwards, and for timestamps
    with nanoseconds.
    """

    def run(self, work: TransactionWork, record: TableRecord) -> int:
        if not is_insert_only(record.properties):
            raise InvalidDefinition(f"{record.name} has full ACID already")
        require_writable(record)
        require_all_visible(work, record)
        view = work.view
        _refuse_other_names(work, record)
        (scan,) = view.scans([view.request(record.name)])
        refuse_finer_rows(scan, "files with row ids would")
        own, keys = columns_of_record(record)
        names = tuple(column.name for column in (*own, *keys))
        rows = work.warehouse.engines.select(
            f"SELECT * FROM {_SOURCE}", {_SOURCE: TableRead(scan, names)}, view.in_force
        )
        properties = {
            name: text for name, text in record.properties.items() if name not in _OF_FILES
        }
        after = replace(record, properties=properties)
        emptied = [entity.partition for entity in scan.entities]
        written = work.run(
            after,
            lambda engine, target: engine.overwrite(rows, target.without_defaults(), {}, emptied),
            rows,
        )
        count = work.report(record, RowOperation.UPDATE, written, overwrite=True)
        work.redeclare(record, after)
        return count


def _refuse_other_names(work: TransactionWork, record: TableRecord) -> None:
    """Raises UnsupportedStatement for files that a table with full ACID can't have, even if they
    are obsolete: they stay for older snapshots."""
    layout = work.view.layout(record)
    for listing in layout.listings(sorted(layout.partitions) if record.partitioned else [""]):
        for file in listing.files:
            if original_bucket(file.name) is None:
                raise UnsupportedStatement(
                    f"{listing.location}/{file.path} is not named like a file of ours: compact"
                    f" {record.name} ('major'), and repeat this when the Cleaner has removed it"
                )
