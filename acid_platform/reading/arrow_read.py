"""`to_arrow`: reads a table at a snapshot into a pyarrow Table, without a JVM."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from acid_platform.layout.types import Column
from acid_platform.reading.known_columns import require_columns
from acid_platform.reading.selection import TableLayout, pruning, select_entities
from acid_platform.snapshot.directory import AcidDirectory
from acid_platform.storage.arrow_numpy import scalar_of
from acid_platform.storage.arrow_scan import ArrowScan, EntityRead
from acid_platform.storage.arrow_types import arrow_type, partition_value
from acid_platform.storage.entity import open_entity
from acid_platform.transactions import ValidTxnList, ValidWriteIdList

_THREADS = 8


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
    wanted = tuple(names if columns is None else (name.lower() for name in columns))
    require_columns(wanted, all_columns, table.name)
    predicate = None
    if where is not None:  # the parser of predicates takes long to import
        from acid_platform.reading.arrow_predicates import arrow_predicate

        predicate = arrow_predicate(where, all_columns, table.name)
    selected = select_entities(table, write_ids, txns, where)

    def entity(item: tuple[str, AcidDirectory]) -> EntityRead:
        name, directory = item
        sources, deletes = open_entity(
            table.files,
            directory,
            write_ids,
            table.name,
            pruning(where, table.columns),
        )
        values = partition_scalars(table.partition_columns, table.values(name))
        return EntityRead(sources, deletes, values)

    with ThreadPoolExecutor(_THREADS) as pool:
        entities = tuple(pool.map(entity, selected.items()))
    return ArrowScan(
        table.files,
        table.columns,
        table.partition_columns,
        entities,
        write_ids,
        wanted,
        predicate,
        row_id,
        table.format,
    )


def partition_scalars(
    columns: Sequence[Column], texts: Sequence[str | None]
) -> dict[str, pa.Scalar]:
    """The values of a partition by column; `texts` as its directory name spells them."""
    return {
        column.name: scalar_of(partition_value(text, column.type), arrow_type(column.type))
        for column, text in zip(columns, texts, strict=True)
    }
