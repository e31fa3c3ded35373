"""Insert and delete events of rows, as batches of the six ACID columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from acid_platform.layout import schema
from acid_platform.values.arrow_numpy import from_numpy
from acid_platform.values.arrow_types import acid_schema


def insert_events(rows: pa.StructArray, write_id: int, bucket: int, first: int) -> pa.RecordBatch:
    """Insert events of the rows, with this bucket property, numbered from `first`."""
    count = len(rows)
    write_ids = from_numpy(np.full(count, write_id))
    return pa.RecordBatch.from_arrays(
        [
            from_numpy(np.full(count, schema.INSERT_EVENT, np.int32)),
            write_ids,
            from_numpy(np.full(count, bucket, np.int32)),
            from_numpy(np.arange(first, first + count)),
            write_ids,
            rows,
        ],
        names=list(schema.ACID_COLUMNS),
    )


def delete_events(keys: Sequence[pa.Array], write_id: int) -> pa.RecordBatch:
    """Delete events of the rows with these keys: write ids, bucket properties, rowIds."""
    count = len(keys[0])
    return pa.RecordBatch.from_arrays(
        [
            from_numpy(np.full(count, schema.DELETE_EVENT, np.int32)),
            *keys,
            from_numpy(np.full(count, write_id)),
            pa.nulls(count),
        ],
        schema=acid_schema((), deletes=True),
    )
