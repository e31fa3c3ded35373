"""The six columns of ACID files and the user metadata of their footers (F6, F8)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from acid_platform.layout.types import Column

OPERATION = "operation"
ORIGINAL_TRANSACTION = "originalTransaction"
BUCKET = "bucket"
ROW_ID = "rowId"
CURRENT_TRANSACTION = "currentTransaction"
ROW = "row"

ACID_COLUMNS = (OPERATION, ORIGINAL_TRANSACTION, BUCKET, ROW_ID, CURRENT_TRANSACTION, ROW)

ROW_ID_COLUMN, FILE_NAME_COLUMN = VIRTUAL_COLUMNS = ("row__id", "input__file__name")
"""Columns that every table has when they are named, but that `*` does not include."""
INSERT_EVENT = 0
DELETE_EVENT = 2

KEY_INDEX = "hive.acid.key.index"
STATS = "hive.acid.stats"
ACID_VERSION = "hive.acid.version"
UPDATES = "acid.updates"
"""In a file of delete events: which of them belong to updates. Only our writers tell it."""

_POSITIONAL = re.compile(r"_col\d+")

RowKey = tuple[int, int, int]
"""(originalTransaction, bucket property, rowId)."""


def is_acid(names: Sequence[str]) -> bool:
    """Whether these are the six ACID columns; some writers use lower case."""
    return [name.lower() for name in names] == [name.lower() for name in ACID_COLUMNS]


def is_positional(names: Sequence[str]) -> bool:
    """Whether all columns are named `_col0`, `_col1`, …, as old writers named them."""
    return bool(names) and all(map(_POSITIONAL.fullmatch, names))


def user_metadata(stripe_ends: Iterable[RowKey], inserts: int, deletes: int) -> dict[str, bytes]:
    """The user metadata that Hive expects in the footer: last keys of the stripes, and counts."""
    index = "".join(f"{write_id},{bucket},{row};" for write_id, bucket, row in stripe_ends)
    return {
        KEY_INDEX: index.encode(),
        STATS: f"{inserts},0,{deletes}".encode(),
        ACID_VERSION: b"2",
    }


_WIDTH = {
    "boolean": 1,
    "tinyint": 1,
    "smallint": 2,
    "int": 4,
    "date": 4,
    "float": 4,
    "bigint": 8,
    "double": 8,
    "decimal": 9,
    "timestamp": 12,
    "string": 20,
    "varchar": 20,
    "char": 20,
    "binary": 40,
}


def cheapest(columns: Iterable[Column]) -> Column | None:
    """The column that is cheapest to decode, for a scan that needs no column but has to name one.

    None if no column has a primitive type.
    """
    flat = [column for column in columns if not column.type.nested]
    return min(flat, key=lambda column: _WIDTH.get(column.type.kind, 99), default=None)
