"""DELETE and UPDATE: one scan finds the rows with their row ids, then events are written (P20)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acid_platform.engine.local.event_files import Keys, publish_events, require_writable
from acid_platform.engine.local.partition_texts import Places
from acid_platform.engine.publishing import WriteTarget, Written
from acid_platform.engine.queries import Where
from acid_platform.engine.scans import TableScan
from acid_platform.errors import (
    InvalidExpression,
    NeedsSpark,
    UnknownColumn,
    UnsupportedLayout,
    UnsupportedStatement,
)
from acid_platform.layout.schema import ROW_ID_COLUMN
from acid_platform.layout.types import Column, HiveType
from acid_platform.reading.arrow_predicates import ArrowPredicate, arrow_predicate
from acid_platform.storage.arrow_scan import ArrowScan, EntityRead
from acid_platform.storage.arrow_types import arrow_type, partition_value

ENTITY = Column("__entity", HiveType("int"))
"""The place of a row's partition among the entities of its scan."""


@dataclass(frozen=True, slots=True)
class Found:
    """Rows of a scan: `values` are the wanted columns, in file order."""

    values: pa.Table
    keys: Keys


def delete_rows(
    scan: TableScan, target: WriteTarget, where: Where, check: Callable[[], None]
) -> list[Written]:
    """Writes and publishes a delete event for each matching row, in the file of its bucket.

    Raises PublicationFailed, CorruptFile, TxnAborted, NeedsSpark.
    """
    require_writable(target)
    keys = found_rows(scan, where, (), check).keys
    return publish_events(target, check, lambda files: files.delete(keys))


def found_rows(
    scan: TableScan, where: Where, wanted: Sequence[str], check: Callable[[], None]
) -> Found:
    """The rows that `where` accepts, with their keys. Raises NeedsSpark."""
    predicate = _predicate(scan, where)
    arrow = as_arrow_scan(scan, (*wanted, ENTITY.name), predicate)
    batches = list(_checked(arrow, check))
    table = pa.Table.from_batches(batches, schema=arrow.schema)
    return Found(table.select(list(wanted)), keys_of(table, scan))


def keys_of(table: pa.Table, scan: TableScan) -> Keys:
    """The keys of rows with ROW_ID_COLUMN and ENTITY."""
    ids = table.column(ROW_ID_COLUMN)
    w, b, r = (
        pc.struct_field(ids, [place]).to_numpy().astype(np.int64, copy=False) for place in range(3)
    )
    names = tuple(entity.partition for entity in scan.entities)
    index = table.column(ENTITY.name).to_numpy().astype(np.int64, copy=False)
    return Keys(w, b, r, Places(names, index))


def as_arrow_scan(
    scan: TableScan, wanted: Sequence[str], predicate: ArrowPredicate | None = None
) -> ArrowScan:
    """The scan by the Arrow reader, with row ids; ENTITY is one more partition column."""
    entities = tuple(
        EntityRead(
            entity.sources,
            entity.deletes,
            {
                ENTITY.name: pa.scalar(place, pa.int32()),
                **{
                    column.name: pa.scalar(
                        partition_value(text, column.type), arrow_type(column.type)
                    )
                    for column, text in zip(scan.partition_columns, entity.values, strict=True)
                },
            },
        )
        for place, entity in enumerate(scan.entities)
    )
    return ArrowScan(
        scan.files,
        scan.columns,
        (*scan.partition_columns, ENTITY),
        entities,
        scan.write_ids,
        tuple(wanted),
        predicate,
        True,
        scan.format,
    )


def _checked(scan: ArrowScan, check: Callable[[], None]) -> Iterator[pa.RecordBatch]:
    """The batches of the scan; `check` is called between them."""
    try:
        for batch in scan.batches():
            check()
            yield batch
    except UnsupportedLayout as error:
        raise NeedsSpark(str(error)) from error


def _predicate(scan: TableScan, where: Where) -> ArrowPredicate | None:
    if where is None:
        return None
    if not isinstance(where, str):
        raise NeedsSpark("a condition with a subquery")
    columns = (*scan.columns, *scan.partition_columns)
    try:
        return arrow_predicate(where, columns, "the table")
    except (UnsupportedStatement, InvalidExpression, UnknownColumn) as error:
        raise NeedsSpark(str(error)) from error
