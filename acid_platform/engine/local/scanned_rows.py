"""The rows of a scan with their keys, by the Arrow reader."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acid_platform.engine.local.event_files import Keys
from acid_platform.engine.local.partition_texts import RowPartitions
from acid_platform.engine.local.running import RunningStatement
from acid_platform.errors import NeedsSpark, UnsupportedLayout
from acid_platform.layout.schema import ROW_ID_COLUMN
from acid_platform.scan.arrow_scan import ENTITY, ArrowScan
from acid_platform.scan.scans import Scan
from acid_platform.storage.arrow_numpy import values_of


def scanned(scan: ArrowScan, statement: RunningStatement) -> Iterator[pa.RecordBatch]:
    """The batches of the scan, until the statement is stopped. Raises NeedsSpark too."""
    try:
        for batch in scan.batches():
            statement.check()
            yield batch
    except UnsupportedLayout as error:
        raise NeedsSpark(str(error)) from error


def keys_of(table: pa.Table, scan: Scan) -> Keys:
    """The keys of rows with ROW_ID_COLUMN and ENTITY."""
    ids = table.column(ROW_ID_COLUMN)
    w, b, r = (
        values_of(pc.struct_field(ids, [place])).astype(np.int64, copy=False) for place in range(3)
    )
    index = values_of(table.column(ENTITY.name)).astype(np.int64, copy=False)
    return Keys(
        w, b, r, RowPartitions.ranked([entity.partition for entity in scan.entities], index)
    )
