"""From a snapshot's lists to a scan: prunes files and loads deletes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from acid_platform.engine.scans import EntityScan, TableScan
from acid_platform.reading.selection import TableLayout, pruning, select_entities
from acid_platform.storage.entity import open_entity
from acid_platform.storage.kept_keys import kept_keys
from acid_platform.transactions import ValidTxnList, ValidWriteIdList


def open_scan(
    table: TableLayout, write_ids: ValidWriteIdList, txns: ValidTxnList, where: str | None = None
) -> TableScan:
    """The scan of a table at a snapshot; here `where` only prunes partitions and files."""
    selected = select_entities(table, write_ids, txns, where)

    def entity(name: str) -> EntityScan:
        directory = selected[name]
        sources, deletes = open_entity(
            table.files,
            directory,
            write_ids,
            table.name,
            pruning(where, table.columns),
            kept_keys,
        )
        return EntityScan(directory, sources, deletes, name, table.values(name))

    with ThreadPoolExecutor(8) as pool:
        entities = tuple(pool.map(entity, selected))
    return TableScan(
        table.files,
        table.path,
        table.columns,
        table.partition_columns,
        entities,
        write_ids,
        table.format,
    )
