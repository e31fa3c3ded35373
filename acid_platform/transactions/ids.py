"""Ids, states and kinds of transactions."""

from __future__ import annotations

from enum import Enum
from typing import NewType

TxnId = NewType("TxnId", int)
WriteId = NewType("WriteId", int)
TableId = NewType("TableId", int)

NONE_OPEN = (1 << 63) - 1
"""What Hive prints as `minOpen` when nothing is open."""


class TxnState(Enum):
    OPEN = "o"
    ABORTED = "a"
    COMMITTED = "c"


class TxnType(Enum):
    """Built types only (P1)."""

    DEFAULT = 0
    READ_ONLY = 2
    COMPACTION = 4


class Operation(Enum):
    """What a transaction does to an entity; the letters are Hive's."""

    SELECT = "s"
    INSERT = "i"
    UPDATE = "u"
    DELETE = "d"
    OVERWRITE = "o"
    """INSERT OVERWRITE and TRUNCATE, which Hive records as an update (T34): they replace rows that
    were inserted as well (P30)."""
    COMPACT = "c"

    @property
    def writes(self) -> bool:
        return self is Operation.INSERT or self.changes

    @property
    def changes(self) -> bool:
        """Whether it touches rows that were there before."""
        return self in (Operation.UPDATE, Operation.DELETE, Operation.OVERWRITE)
