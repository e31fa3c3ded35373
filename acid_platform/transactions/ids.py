"""States and types of transactions, and their operations."""

from __future__ import annotations

from enum import Enum
from typing import Literal

NONE_OPEN = (1 << 63) - 1
"""Hive's value of `minOpen` when no transaction is open."""


class TxnState(Enum):
    OPEN = "o"
    ABORTED = "a"
    COMMITTED = "c"


Isolation = Literal["snapshot", "serializable"]
"""What a transaction promises: it reads one snapshot, or also that nobody has changed what it read
when it commits (P52)."""


class TxnType(Enum):
    """The supported types of transactions."""

    DEFAULT = 0
    READ_ONLY = 2
    COMPACTION = 4


class RowOperation(Enum):
    """What a transaction does to an entity; the letters are Hive's."""

    SELECT = "s"
    INSERT = "i"
    UPDATE = "u"
    DELETE = "d"
    OVERWRITE = "o"
    """INSERT OVERWRITE and TRUNCATE. Hive records them as updates; here they have their own
    operation, since they also replace concurrently inserted rows."""
    COMPACT = "c"

    @property
    def writes(self) -> bool:
        return self is RowOperation.INSERT or self.changes

    @property
    def changes(self) -> bool:
        """Whether the operation touches existing rows."""
        return self in (RowOperation.UPDATE, RowOperation.DELETE, RowOperation.OVERWRITE)
