"""The six columns in which ACID files store rows with keys (F6); the footer's metadata (F8)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from acid_platform.formats.data_file import DELETE_EVENT, INSERT_EVENT, Keyed, KeyRun
from acid_platform.layout.acid_keys import RowKey
from acid_platform.layout.types import Column
from acid_platform.values.arrow_types import arrow_type, from_numpy

OPERATION = "operation"
ORIGINAL_TRANSACTION = "originalTransaction"
BUCKET = "bucket"
ROW_ID = "rowId"
CURRENT_TRANSACTION = "currentTransaction"
ROW = "row"

ACID_COLUMNS = (OPERATION, ORIGINAL_TRANSACTION, BUCKET, ROW_ID, CURRENT_TRANSACTION, ROW)
_ID_TYPES = (pa.int32(), pa.int64(), pa.int32(), pa.int64(), pa.int64())

KEY_INDEX = "hive.acid.key.index"
STATS = "hive.acid.stats"
ACID_VERSION = "hive.acid.version"
UPDATES = "acid.updates"
"""In a file of delete events: which of them belong to updates. Only our writers tell it."""
RAW_TEXT = "acid.text.raw"
"""In a file of ours: it has text that is not UTF-8, as it was in a file of another writer."""


def is_acid(names: Sequence[str]) -> bool:
    """Whether these are the six ACID columns; some writers use lower case."""
    return [name.lower() for name in names] == [name.lower() for name in ACID_COLUMNS]


def user_metadata(stripe_ends: Iterable[RowKey], inserts: int, deletes: int) -> dict[str, bytes]:
    """The user metadata that Hive expects in the footer: last keys of the stripes, and counts."""
    index = "".join(f"{write_id},{bucket},{row};" for write_id, bucket, row in stripe_ends)
    return {
        KEY_INDEX: index.encode(),
        STATS: f"{inserts},0,{deletes}".encode(),
        ACID_VERSION: b"2",
    }


def index_flaw(text: str, last_keys: Sequence[RowKey]) -> tuple[str, bool] | None:
    """What is wrong with the text of a key index, and whether it does harm; `last_keys`: of each
    stripe.

    Hive 4 copes with a missing index, not with a wrong one. None if the index lists these keys.
    """
    if not text:
        return f"no {KEY_INDEX} in the footer", False
    try:
        index = [
            tuple(int(number) for number in entry.split(",")) for entry in text.split(";") if entry
        ]
    except ValueError:
        return f"{KEY_INDEX} is {text[:60]!r}, which is not a list of row keys", True
    if len(index) != len(last_keys):
        return f"{KEY_INDEX} has {len(index)} keys for {len(last_keys)} stripes", False
    for indexed, actual in zip(index, last_keys, strict=True):
        if indexed != actual:
            return f"{KEY_INDEX} says {indexed}, but the stripe ends with {actual}", True
    return None


def acid_schema(
    columns: Sequence[Column], timestamps: str = "ns", deletes: bool = False
) -> pa.Schema:
    """The schema of batches of insert events or, with `deletes`, of delete events.

    `columns` are the fields of `row`, `timestamps` is the unit of timestamps. The `row` of delete
    events has type null, which takes no memory.
    """
    fields = [(column.name, arrow_type(column.type, timestamps)) for column in columns]
    row = pa.null() if deletes else pa.struct(fields)
    return pa.schema(list(zip(ACID_COLUMNS, (*_ID_TYPES, row), strict=True)))


def stored_events(rows: Keyed, names: Sequence[str]) -> pa.RecordBatch:
    """The six columns of the rows; `names`: of the table's columns."""
    count, keys = len(rows), rows.keys
    assert keys is not None, "a row of an ACID file has a key"
    if isinstance(keys, KeyRun):
        ids = (
            np.full(count, keys.write_id),
            np.full(count, keys.bucket, np.int32),
            np.arange(keys.first, keys.first + count),
        )
    else:
        ids = keys.write_ids, keys.buckets.astype(np.int32, copy=False), keys.row_ids
    event = DELETE_EVENT if rows.values is None else INSERT_EVENT
    row = pa.nulls(count)
    if rows.values is not None:
        row = pa.StructArray.from_arrays(rows.values.columns, names=list(names))
    numbers = (np.full(count, event, np.int32), *ids, rows.makers())
    return pa.RecordBatch.from_arrays([*map(from_numpy, numbers), row], names=list(ACID_COLUMNS))
