"""From a snapshot's lists to a scan: prunes files and loads deletes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain

from acid_platform.base.config import Settings
from acid_platform.predicates.known_columns import require_columns
from acid_platform.scan.arrow_scan import ArrowScan
from acid_platform.scan.entities import open_entity, require_recorded
from acid_platform.scan.kept_keys import kept_keys, keys_up_to
from acid_platform.scan.scans import EntityScan, Scan
from acid_platform.scan.table_layout import TableLayout, select_entities
from acid_platform.storage.files import in_threads
from acid_platform.transactions import ValidTxnList, ValidWriteIdList

_BLOCKS = 64
DELETE_KEYS = "acid.delete.keys.max"
"""The setting of how many delete events of an entity are loaded; Spark's tasks read more."""


def open_scan(
    table: TableLayout,
    write_ids: ValidWriteIdList,
    txns: ValidTxnList,
    where: str | None = None,
    settings: Settings | None = None,
) -> Scan:
    """The scan of a table at a snapshot; here `where` only prunes partitions and files.

    Without `settings` all deleted keys are loaded.
    """
    selected = select_entities(table, write_ids, txns, where)
    load = kept_keys if settings is None else partial(keys_up_to, settings.integer(DELETE_KEYS))

    def entity(name: str) -> EntityScan:
        directory = selected[name]
        sources, deletes = open_entity(
            table.files,
            directory,
            write_ids,
            table.name,
            load,
            where,
            table.columns,
        )
        return EntityScan(sources, deletes, name, table.values(name), directory.paths)

    if len(selected) < 2:
        entities = tuple(map(entity, selected))
    else:  # a task for several of many partitions: a task costs more than a look at a local file
        names, size = list(selected), 1 + len(selected) // _BLOCKS
        blocks = [names[first : first + size] for first in range(0, len(names), size)]
        opened = in_threads(lambda block: [entity(name) for name in block], blocks)
        entities = tuple(chain.from_iterable(opened))
    return Scan(
        table.files,
        table.path,
        table.columns,
        table.partition_columns,
        entities,
        write_ids,
        table.format,
    )


def arrow_scan(
    table: TableLayout,
    write_ids: ValidWriteIdList,
    txns: ValidTxnList,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    row_id: bool = False,
) -> ArrowScan:
    """The scan that `to_arrow` runs: the same rows as `read`, in file order.

    `columns` None: all columns. Raises UnknownColumn, InvalidExpression, UnsupportedStatement (a
    predicate that only Spark can evaluate), NotEnoughHistory, MalformedName, UnsupportedLayout,
    CorruptFile.
    """
    all_columns = (*table.columns, *table.partition_columns)
    names = [column.name for column in all_columns]
    column_names = tuple(names if columns is None else (name.lower() for name in columns))
    require_columns(column_names, all_columns, table.name)
    predicate = None
    if where is not None:  # the parser of predicates takes long to import
        from acid_platform.predicates.arrow_predicates import arrow_predicate

        predicate = arrow_predicate(where, all_columns, table.name)
    return ArrowScan(open_scan(table, write_ids, txns, where), column_names, predicate, row_id)


def require_files(scan: Scan, what: str) -> None:
    """Checks again that each file of a scan is there with its recorded size.

    `what` names the table. Raises CorruptFile. Keys of deleted rows are in memory by now; their
    files are checked too, so that an answer does not depend on what was read before.
    """
    for entity in scan.entities:
        require_recorded(scan.files, (*entity.sources.inserts, *entity.sources.deletes), what)
