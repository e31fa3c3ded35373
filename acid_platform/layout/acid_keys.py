"""Keys of rows: their bucket property (F10), their order, and the column in which a query sees
them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from acid_platform.errors import CorruptFile, InvalidDefinition

if TYPE_CHECKING:
    import numpy as np

ROW_ID_COLUMN, FILE_NAME_COLUMN = VIRTUAL_COLUMNS = ("row__id", "input__file__name")
"""Columns that every table has when they are named, but that `*` does not include."""

RowKey = tuple[int, int, int]
"""(originalTransaction, bucket property, rowId)."""


MAX_BUCKET = 4095
MAX_STATEMENT = 4095
_VERSION_SHIFT = 29
_AT_ONCE = 1 << 17
"""Keys that are compared at a time, which bounds the memory."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """A decoded bucket property: bucket number and statement number."""

    number: int
    statement: int = 0

    @property
    def property(self) -> int:
        """The encoded property. Raises InvalidDefinition if a number does not fit 12 bits."""
        if not (0 <= self.number <= MAX_BUCKET and 0 <= self.statement <= MAX_STATEMENT):
            raise InvalidDefinition(
                f"bucket {self.number}, statement {self.statement}: both must be 0 to 4095; use at"
                " most 4096 partitions per write and 4096 statements per transaction"
            )
        return (1 << _VERSION_SHIFT) | (self.number << 16) | self.statement


def decode_bucket(prop: int) -> Bucket:
    """Decodes a property of either version; version 0 (before Hive 3) is the bare bucket number.

    Raises CorruptFile.
    """
    version = (prop >> _VERSION_SHIFT) & 7
    if version == 0:
        return Bucket(prop)
    if version == 1:
        return Bucket((prop & 0x0FFF0000) >> 16, prop & 0x0FFF)
    raise CorruptFile(
        f"bucket property {prop} has the unknown codec version {version}; restore the file"
    )


def codec_versions(properties: np.ndarray) -> np.ndarray:
    """The codec version of each property, (n,); 0 and 1 are known."""
    return (properties >> _VERSION_SHIFT) & 7


def codec_in_sql(column: str) -> str:
    """Spark's SQL of `codec_versions`."""
    return f"(shiftright({column}, {_VERSION_SHIFT}) & 7)"


def number_in_sql(column: str) -> str:
    """Spark's SQL of `bucket_numbers`."""
    number = f"shiftright({column}, 16) & 4095"
    return f"CAST(CASE WHEN {codec_in_sql(column)} = 1 THEN {number} ELSE {column} END AS int)"


def bucket_numbers(properties: np.ndarray) -> np.ndarray:
    """The bucket number in each property, (n,), of either version, int64 (n,)."""
    import numpy as np  # late: commands that read no rows start without it

    coded = codec_versions(properties) == 1
    return np.where(coded, (properties >> 16) & 0xFFF, properties).astype(np.int64)


def ascending_steps(w: np.ndarray, b: np.ndarray, r: np.ndarray) -> np.ndarray:
    """Mask (n - 1,): whether each key (write id, bucket property, rowId) is below the next one."""
    dw, db, dr = w[1:] - w[:-1], b[1:] - b[:-1], r[1:] - r[:-1]
    steps: np.ndarray = (dw > 0) | ((dw == 0) & ((db > 0) | ((db == 0) & (dr > 0))))
    return steps


def ascend(w: np.ndarray, b: np.ndarray, r: np.ndarray) -> bool:
    """Whether the keys, int64 (n,) each, ascend strictly."""
    return all(
        bool(ascending_steps(*(ids[at : at + _AT_ONCE + 1] for ids in (w, b, r))).all())
        for at in range(0, len(r) - 1, _AT_ONCE)
    )
