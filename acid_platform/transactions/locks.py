"""Locks: types, levels, the 4.x matrix, and what each statement asks for (L rules).

Pure. Who waits for whom is decided by `blocked_by`; queueing belongs to the metastore.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from acid_platform.errors import InvalidDefinition
from acid_platform.transactions.ids import Operation


class LockType(Enum):
    SHARED_READ = "r"
    SHARED_WRITE = "w"
    EXCL_WRITE = "x"
    EXCLUSIVE = "e"

    @classmethod
    def parse(cls, text: str) -> LockType:
        """From the name (`SHARED_WRITE`, any case) or Hive's letter. Raises InvalidDefinition."""
        for one in cls:
            if text.upper() == one.name or text == one.value:
                return one
        names = ", ".join(one.name for one in cls)
        raise InvalidDefinition(f"no lock type {text!r}; use one of {names}")


class LockLevel(Enum):
    DATABASE = "database"
    TABLE = "table"
    PARTITION = "partition"


@dataclass(frozen=True, slots=True)
class LockComponent:
    """One locked resource of a request: a database, a table (no partition) or a partition."""

    db: str
    table: str | None
    partition: str | None
    lock: LockType
    operation: Operation = Operation.SELECT

    @property
    def level(self) -> LockLevel:
        if self.table is None:
            return LockLevel.DATABASE
        return LockLevel.TABLE if self.partition is None else LockLevel.PARTITION

    @property
    def resource(self) -> str:
        """`db`, `db.table` or `db.table/partition`, for messages."""
        name = self.db if self.table is None else f"{self.db}.{self.table}"
        return name if self.partition is None else f"{name}/{self.partition}"


_R, _W = LockType.SHARED_READ, LockType.SHARED_WRITE
_X, _E = LockType.EXCL_WRITE, LockType.EXCLUSIVE

# fmt: off
WAITS: dict[tuple[LockType, LockType], bool] = {
    # (requested, existing): must the requested lock wait?
    (_R, _R): False, (_R, _W): False, (_R, _X): False, (_R, _E): True,
    (_W, _R): False, (_W, _W): False, (_W, _X): True, (_W, _E): True,
    (_X, _R): False, (_X, _W): True, (_X, _X): True, (_X, _E): True,
    (_E, _R): True, (_E, _W): True, (_E, _X): True, (_E, _E): True,
}
# fmt: on
"""The 4.x matrix (L2), exceptions in `blocked_by`."""


def same_resource(one: LockComponent, other: LockComponent) -> bool:
    """L4: same database, and tables and partitions equal or not named."""
    if one.db != other.db:
        return False
    if one.table is None or other.table is None:
        return True
    if one.table != other.table:
        return False
    return None in (one.partition, other.partition) or one.partition == other.partition


def blocked_by(requested: LockComponent, existing: LockComponent) -> str | None:
    """Why `requested` must wait for `existing`, or None (matrix, L4, L6)."""
    if not same_resource(requested, existing) or not WAITS[requested.lock, existing.lock]:
        return None
    database_read = any(
        one.level is LockLevel.DATABASE and one.lock is LockType.SHARED_READ
        for one in (requested, existing)
    )
    levels_differ = requested.level is not existing.level
    # A SHARED_READ of the database only guards against dropping the database (L6).
    if database_read and levels_differ and LockLevel.DATABASE in (requested.level, existing.level):
        return None
    return (
        f"{requested.lock.name} of {requested.resource} waits for {existing.lock.name}"
        f" of {existing.resource}"
    )


class Statement(Enum):
    """What asks for a lock on a transactional table."""

    READ = "read"
    INSERT = "insert"
    INSERT_OVERWRITE = "insert overwrite"
    UPDATE = "update"
    DELETE = "delete"
    MERGE_INSERT = "merge insert"
    TRUNCATE = "truncate"
    DROP = "drop"
    COMPACT = "compact"


@dataclass(frozen=True, slots=True)
class LockSettings:
    """`hive.txn.xlock.write`, `.iow` and `.mergeinsert`."""

    xlock_write: bool = False
    xlock_iow: bool = True
    xlock_mergeinsert: bool = False


_I, _U, _D = Operation.INSERT, Operation.UPDATE, Operation.DELETE
_O = Operation.OVERWRITE

STATEMENT_LOCKS: dict[tuple[Statement, bool], tuple[LockType, Operation]] = {
    # (statement, xlock.write): lock of the target and the operation that is recorded
    (Statement.READ, False): (_R, Operation.SELECT),
    (Statement.READ, True): (_R, Operation.SELECT),
    (Statement.INSERT, False): (_W, _I),
    (Statement.INSERT, True): (_R, _I),
    (Statement.INSERT_OVERWRITE, False): (_X, _O),
    (Statement.INSERT_OVERWRITE, True): (_E, _O),
    (Statement.UPDATE, False): (_W, _U),
    (Statement.UPDATE, True): (_X, _U),
    (Statement.DELETE, False): (_W, _D),
    (Statement.DELETE, True): (_X, _D),
    (Statement.MERGE_INSERT, False): (_W, _I),
    (Statement.MERGE_INSERT, True): (_R, _I),
    (Statement.TRUNCATE, False): (_X, _O),
    (Statement.TRUNCATE, True): (_X, _O),
    (Statement.DROP, False): (_E, Operation.SELECT),
    (Statement.DROP, True): (_E, Operation.SELECT),
    (Statement.COMPACT, False): (_R, Operation.COMPACT),
    (Statement.COMPACT, True): (_R, Operation.COMPACT),
}
"""With defaults of the other two settings. TRUNCATE writes an empty base: an overwrite (P6)."""


def lock_of(
    statement: Statement, settings: LockSettings | None = None
) -> tuple[LockType, Operation]:
    """Lock type and recorded operation of a statement's target (T34).

    `xlock.iow=false` keeps INSERT OVERWRITE at EXCL_WRITE; `xlock.mergeinsert` records MERGE's
    inserts as updates, and locks them exclusively under `xlock.write`.
    """
    chosen = settings or LockSettings()
    if statement is Statement.INSERT_OVERWRITE and not chosen.xlock_iow:
        return _X, _O
    if statement is Statement.MERGE_INSERT and chosen.xlock_mergeinsert:
        return (_X if chosen.xlock_write else _W), _U
    return STATEMENT_LOCKS[statement, chosen.xlock_write]


def zero_wait_reads(settings: LockSettings) -> bool:
    """Whether a blocked SHARED_READ is refused at once rather than queued (L10)."""
    return not (settings.xlock_iow and settings.xlock_write)
