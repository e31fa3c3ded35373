"""Lock types and levels, Hive 4's compatibility matrix, and the locks of each statement (L rules).

`blocked_by` decides which request waits for which lock; the metastore keeps the queue.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from acid_platform.errors import InvalidDefinition
from acid_platform.transactions.ids import RowOperation


class LockType(Enum):
    SHARED_READ = "r"
    SHARED_WRITE = "w"
    EXCL_WRITE = "x"
    EXCLUSIVE = "e"
    PUBLICATION = "p"
    """Not Hive's: held while the output of a compaction comes into place (P46)."""

    @classmethod
    def parse(cls, text: str) -> LockType:
        """Parses a name (`SHARED_WRITE`, any case) or Hive's letter. Raises InvalidDefinition."""

        for lock in cls:
            if text.upper() == lock.name or text == lock.value:
                return lock
        names = ", ".join(lock.name for lock in cls)
        raise InvalidDefinition(f"there is no lock type {text!r}; use one of {names}")


class LockLevel(Enum):
    DATABASE = "database"
    TABLE = "table"
    PARTITION = "partition"


@dataclass(frozen=True, slots=True)
class LockComponent:
    """A resource that a request locks: a database, a table or a partition."""

    db: str
    table: str | None
    partition: str | None
    lock: LockType
    operation: RowOperation = RowOperation.SELECT
    other_engine: bool = field(default=False, metadata={"brief": True})
    """Whether another engine asks for it, through the gateway."""
    directories: tuple[str, ...] = field(default=(), metadata={"brief": True})
    """The names of the directories that a PUBLICATION brings into place."""

    @property
    def level(self) -> LockLevel:
        if self.table is None:
            return LockLevel.DATABASE
        return LockLevel.TABLE if self.partition is None else LockLevel.PARTITION

    @property
    def resource(self) -> str:
        """The name of the resource for messages: `db`, `db.table` or `db.table/partition`."""
        name = self.db if self.table is None else f"{self.db}.{self.table}"
        return name if self.partition is None else f"{name}/{self.partition}"


_R, _W = LockType.SHARED_READ, LockType.SHARED_WRITE
_X, _E = LockType.EXCL_WRITE, LockType.EXCLUSIVE
_P = LockType.PUBLICATION

# fmt: off
WAITS: dict[tuple[LockType, LockType], bool] = {
    # (requested, existing): must the requested lock wait?
    (_R, _R): False, (_R, _W): False, (_R, _X): False, (_R, _E): True,
    (_W, _R): False, (_W, _W): False, (_W, _X): True, (_W, _E): True,
    (_X, _R): False, (_X, _W): True, (_X, _X): True, (_X, _E): True,
    (_E, _R): True, (_E, _W): True, (_E, _X): True, (_E, _E): True,
    (_P, _R): True, (_P, _W): True, (_P, _X): True, (_P, _E): True, (_P, _P): True,
    (_R, _P): True, (_W, _P): True, (_X, _P): True, (_E, _P): True,
}
# fmt: on
"""Hive 4's compatibility matrix (L2), and PUBLICATION; `blocked_by` has the exceptions."""


def same_resource(first: LockComponent, second: LockComponent) -> bool:
    """Whether one resource contains the other, or both are the same (L4)."""
    if first.db != second.db:
        return False
    if first.table is None or second.table is None:
        return True
    if first.table != second.table:
        return False
    return None in (first.partition, second.partition) or first.partition == second.partition


def blocked_by(requested: LockComponent, existing: LockComponent) -> str | None:
    """Why `requested` must wait for `existing`, or None (matrix, L4, L6, P46)."""
    if not same_resource(requested, existing) or not WAITS[requested.lock, existing.lock]:
        return None
    if LockType.PUBLICATION in (requested.lock, existing.lock) and not (
        requested.lock is existing.lock or requested.other_engine or existing.other_engine
    ):
        return None  # our own readers go by what was committed, not by what is there
    locks_database_for_reading = any(
        component.level is LockLevel.DATABASE and component.lock is LockType.SHARED_READ
        for component in (requested, existing)
    )
    levels_differ = requested.level is not existing.level
    # A SHARED_READ of a database only protects it from being dropped (L6).
    if locks_database_for_reading and levels_differ:
        return None
    return (
        f"{requested.lock.name} of {requested.resource} waits for {existing.lock.name}"
        f" of {existing.resource}"
    )


class Statement(Enum):
    """Kind of a statement that locks a transactional table."""

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
    """The settings `hive.txn.xlock.write`, `.iow` and `.mergeinsert`."""

    xlock_write: bool = False
    xlock_iow: bool = True
    xlock_mergeinsert: bool = False


_I, _U, _D = RowOperation.INSERT, RowOperation.UPDATE, RowOperation.DELETE
_O = RowOperation.OVERWRITE

STATEMENT_LOCKS: dict[Statement, tuple[LockType, LockType, RowOperation]] = {
    # the lock of the target, its lock under xlock.write, and the operation that is recorded
    Statement.READ: (_R, _R, RowOperation.SELECT),
    Statement.INSERT: (_W, _R, _I),
    Statement.INSERT_OVERWRITE: (_X, _E, _O),
    Statement.UPDATE: (_W, _X, _U),
    Statement.DELETE: (_W, _X, _D),
    Statement.MERGE_INSERT: (_W, _R, _I),
    Statement.TRUNCATE: (_X, _X, _O),
    Statement.DROP: (_E, _E, RowOperation.SELECT),
    Statement.COMPACT: (_R, _R, RowOperation.COMPACT),
}
"""Locks if the other two settings have their defaults. TRUNCATE writes an empty base and so counts
as an overwrite."""


def lock_of(
    statement: Statement, settings: LockSettings | None = None
) -> tuple[LockType, RowOperation]:
    """The lock type of a statement's target and the operation that is recorded (T34).

    With `xlock.iow` false, INSERT OVERWRITE always takes EXCL_WRITE. With `xlock.mergeinsert`,
    inserts of MERGE are recorded as updates, and under `xlock.write` they take EXCL_WRITE.
    """
    chosen = settings or LockSettings()
    if statement is Statement.INSERT_OVERWRITE and not chosen.xlock_iow:
        return _X, _O
    if statement is Statement.MERGE_INSERT and chosen.xlock_mergeinsert:
        return (_X if chosen.xlock_write else _W), _U
    lock, under_xlock_write, operation = STATEMENT_LOCKS[statement]
    return (under_xlock_write if chosen.xlock_write else lock), operation


def zero_wait_reads(settings: LockSettings) -> bool:
    """Whether a blocked SHARED_READ fails at once instead of waiting (L10)."""

    return not (settings.xlock_iow and settings.xlock_write)
