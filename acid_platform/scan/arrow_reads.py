"""The scan of a table by the Arrow reader, without a JVM: for `to_arrow` and the local engine."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from acid_platform.layout.types import Column, HiveType
from acid_platform.predicates.known_columns import require_columns
from acid_platform.scan.arrow_scan import ArrowScan
from acid_platform.scan.decode import EntityRead, Predicate
from acid_platform.scan.open import open_scan
from acid_platform.scan.scans import TableScan
from acid_platform.scan.table_layout import TableLayout
from acid_platform.storage.arrow_numpy import scalar_of
from acid_platform.storage.arrow_types import arrow_type, partition_value
from acid_platform.transactions import ValidTxnList, ValidWriteIdList

ENTITY = Column("__entity", HiveType("int"))
"""The place of a row's partition among the entities of its scan."""


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
        from acid_platform.predicates.arrow_predicates import arrow_predicate

        predicate = arrow_predicate(where, all_columns, table.name)
    return by_arrow(open_scan(table, write_ids, txns, where), wanted, predicate, row_id)


def by_arrow(
    scan: TableScan,
    wanted: Sequence[str],
    predicate: Predicate | None = None,
    row_id: bool = False,
) -> ArrowScan:
    """The scan by the Arrow reader. `wanted` are existing columns in lower case, or ENTITY."""
    with_entity = ENTITY.name in wanted
    entities = []
    for place, entity in enumerate(scan.entities):
        values = partition_scalars(scan.partition_columns, entity.values)
        if with_entity:
            values[ENTITY.name] = scalar_of(place, pa.int32())
        entities.append(EntityRead(entity.sources, entity.deletes, values))
    keys = scan.partition_columns
    return ArrowScan(
        scan.files,
        scan.columns,
        (*keys, ENTITY) if with_entity else keys,
        tuple(entities),
        scan.write_ids,
        tuple(wanted),
        predicate,
        row_id,
        scan.format,
    )


def partition_scalars(
    columns: Sequence[Column], texts: Sequence[str | None]
) -> dict[str, pa.Scalar]:
    """The values of a partition by column; `texts` as its directory name spells them."""
    return {
        column.name: scalar_of(partition_value(text, column.type), arrow_type(column.type))
        for column, text in zip(columns, texts, strict=True)
    }
