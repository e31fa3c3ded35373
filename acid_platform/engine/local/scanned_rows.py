"""The rows of a scan with their keys, by the Arrow reader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acid_platform.engine.local.event_files import Keys
from acid_platform.engine.local.partition_texts import Places
from acid_platform.engine.local.running import Statement
from acid_platform.engine.scans import TableScan
from acid_platform.errors import NeedsSpark, UnsupportedLayout
from acid_platform.layout.schema import ROW_ID_COLUMN
from acid_platform.layout.types import Column, HiveType
from acid_platform.reading.arrow_predicates import ArrowPredicate
from acid_platform.reading.arrow_read import partition_scalars
from acid_platform.storage.arrow_numpy import scalar_of, values_of
from acid_platform.storage.arrow_scan import ArrowScan, EntityRead

ENTITY = Column("__entity", HiveType("int"))
"""The place of a row's partition among the entities of its scan."""


def as_arrow_scan(
    scan: TableScan, wanted: Sequence[str], predicate: ArrowPredicate | None = None
) -> ArrowScan:
    """The scan by the Arrow reader, with row ids; ENTITY is one more partition column."""
    entities = tuple(
        EntityRead(
            entity.sources,
            entity.deletes,
            {
                ENTITY.name: scalar_of(place, pa.int32()),
                **partition_scalars(scan.partition_columns, entity.values),
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


def scanned(scan: ArrowScan, statement: Statement) -> Iterator[pa.RecordBatch]:
    """The batches of the scan, until the statement is stopped. Raises NeedsSpark too."""
    try:
        for batch in scan.batches():
            statement.check()
            yield batch
    except UnsupportedLayout as error:
        raise NeedsSpark(str(error)) from error


def keys_of(table: pa.Table, scan: TableScan) -> Keys:
    """The keys of rows with ROW_ID_COLUMN and ENTITY."""
    ids = table.column(ROW_ID_COLUMN)
    w, b, r = (
        values_of(pc.struct_field(ids, [place])).astype(np.int64, copy=False) for place in range(3)
    )
    index = values_of(table.column(ENTITY.name)).astype(np.int64, copy=False)
    return Keys(w, b, r, Places.ranked([entity.partition for entity in scan.entities], index))
