"""Locks that requests wait for, and conflicts for which commits fail, as literal tables.

Lock types and levels, Hive 4's compatibility matrix, and the locks of each statement (L rules):
`blocked_by` decides which request waits for which lock; the metastore keeps the queue. Of commits,
the first one wins, by row or by partition (T30 to T38, P6, P30, P38), and of two that each brought
what the other had looked for and not found (P51).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from acid_platform.base.config import LockSettings
from acid_platform.errors import InvalidDefinition
from acid_platform.transactions.ids import BRIEF, RowOperation
from acid_platform.transactions.row_sets import Region, RowKey, RowSet


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
    other_engine: bool = field(default=False, metadata=BRIEF)
    """Whether another engine asks for it, through the gateway."""
    directories: tuple[str, ...] = field(default=(), metadata=BRIEF)
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


_S, _I, _U, _D, _O, _C = RowOperation

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


@dataclass(frozen=True, slots=True)
class Touched:
    """What an open transaction does in one entity; `write_id` is 0 if it has none yet.

    `rows` are those that it updated or deleted; None if only the entity is known.
    """

    table_id: int
    partition: str | None
    operation: RowOperation
    txn_id: int
    write_id: int = 0
    rows: RowSet | None = None


@dataclass(frozen=True, slots=True)
class WriteSetRow:
    """A row of the write set: the interval [txn_id, commit_id] and what it did (T30).

    `rows` are those that it updated or deleted; None if only the entity is known.
    """

    table_id: int
    partition: str | None
    operation: RowOperation
    txn_id: int
    commit_id: int
    write_id: int = 0
    rows: RowSet | None = field(default=None, metadata=BRIEF)


_N, _Y = False, True

# fmt: off
CONFLICTING: dict[tuple[RowOperation, RowOperation], bool] = {
    # (mine, theirs)
    (_S, _S): _N, (_S, _I): _N, (_S, _U): _N, (_S, _D): _N, (_S, _O): _N, (_S, _C): _N,
    (_I, _S): _N, (_I, _I): _N, (_I, _U): _N, (_I, _D): _N, (_I, _O): _N, (_I, _C): _N,
    (_U, _S): _N, (_U, _I): _N, (_U, _U): _Y, (_U, _D): _Y, (_U, _O): _Y, (_U, _C): _N,
    (_D, _S): _N, (_D, _I): _N, (_D, _U): _Y, (_D, _D): _Y, (_D, _O): _Y, (_D, _C): _N,
    (_O, _S): _N, (_O, _I): _Y, (_O, _U): _Y, (_O, _D): _Y, (_O, _O): _Y, (_O, _C): _N,
    (_C, _S): _N, (_C, _I): _N, (_C, _U): _N, (_C, _D): _N, (_C, _O): _N, (_C, _C): _N,
}
# fmt: on
"""T31, T34 and P30 as one literal table: an overwrite conflicts with inserts as well."""

BY_ROW = frozenset({_U, _D})
"""Operations that are compared by row, where both sides know their rows."""


def same_entity(mine: Touched, theirs: WriteSetRow) -> bool:
    """Whether both touch the same table, and the same partition or none (T31, T37)."""
    return mine.table_id == theirs.table_id and mine.partition == theirs.partition


def overlaps(mine: Touched, theirs: WriteSetRow) -> bool:
    """Whether `theirs` committed after `mine` was opened (T30, T32)."""
    return mine.txn_id != theirs.txn_id and mine.txn_id <= theirs.commit_id


def conflicts(mine: Touched, theirs: WriteSetRow) -> str | None:
    """Why `mine` may not commit after `theirs`, or None if it may.

    T31 and P30: both touch the same entity, they overlap, and `CONFLICTING` says so; but two whose
    rows are known conflict only in a row that both have changed. P6: an overwrite with a
    higher write id committed, so its base would hide whatever `mine` writes, even an insert.
    """
    if not mine.operation.writes or not same_entity(mine, theirs):
        return None
    overwritten = theirs.operation is RowOperation.OVERWRITE and mine.txn_id != theirs.txn_id
    if overwritten and 0 < mine.write_id < theirs.write_id:
        return (
            f"write id {mine.write_id} is below write id {theirs.write_id}, with which"
            f" transaction {theirs.txn_id} committed an overwrite that would hide it"
        )
    if CONFLICTING[mine.operation, theirs.operation] and overlaps(mine, theirs):
        reason = (
            f"{mine.operation.name.lower()} of transaction [{mine.txn_id}, now] overlaps the"
            f" {theirs.operation.name.lower()} of transaction"
            f" [{theirs.txn_id}, {theirs.commit_id}]"
        )
        if not {mine.operation, theirs.operation} <= BY_ROW:
            return reason
        if mine.rows is not None and theirs.rows is not None:
            rows = mine.rows.shared(theirs.rows)
            exact = mine.rows.exact and theirs.rows.exact
            return f"{reason} {'in' if exact else 'near'} row {describe(rows)}" if rows else None
        if mine.rows is not None or theirs.rows is not None:
            unnamed = mine.txn_id if mine.rows is None else theirs.txn_id
            return f"{reason}, and {unnamed} did not name its rows"
        return reason
    return None


def describe(rows: list[RowKey]) -> str:
    """Row keys as `row__id` shows them, for messages."""
    return ", ".join(
        f'{{"writeid":{write_id},"bucketid":{bucket},"rowid":{row}}}'
        for write_id, bucket, row in rows
    )


# --- what was looked for and not found ------------------------------------------------------------


class InTable(NamedTuple):
    """Rows of a table."""

    table_id: int
    region: Region


@dataclass(frozen=True, slots=True)
class Looked:
    """What a committed transaction looked for by conditions in order to write, and which rows it
    brought: `inserted`, or updated in the columns that their regions name. One that did only one of
    the two leaves none (P51)."""

    txn_id: int
    commit_id: int
    sought: tuple[InTable, ...]
    inserted: tuple[InTable, ...]

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        return sum(looked.region.size for looked in (*self.sought, *self.inserted))

    @property
    def new_rows(self) -> list[InTable]:
        return [brought for brought in self.inserted if not brought.region.compared]

    @property
    def new_values(self) -> list[InTable]:
        """The rows with the values that it gave columns by an UPDATE."""
        updated = [brought for brought in self.inserted if brought.region.compared]
        return [InTable(table_id, region.assigned) for table_id, region in updated]


# fmt: off
SKEWED: dict[tuple[bool, bool], bool] = {
    # (mine looked for rows that theirs brought, theirs looked for rows that mine brought)
    (_N, _N): _N,  # neither knows of the other: any order
    (_N, _Y): _N,  # theirs was first
    (_Y, _N): _N,  # mine is as if it were first: it did not see theirs, and theirs needs none of it
    (_Y, _Y): _Y,  # each has to be before the other
}
# fmt: on
"""P51 as one literal table: two transactions that overlap need an order in which each has found
what it would find if they ran one after the other."""


def skew(mine: Looked, theirs: Looked) -> tuple[int, str] | None:
    """In which table `mine` may not commit after `theirs`, which it did not see, and why (P51)."""
    missed, missing = missed_by(mine, theirs), missed_by(theirs, mine)
    if not SKEWED[missed is not None, missing is not None]:
        return None
    where = missed or missing or mine.sought[0]
    return where.table_id, (
        f"transaction {mine.txn_id} looked for rows ({where.region}) among which transaction"
        f" [{theirs.txn_id}, {theirs.commit_id}] has inserted some meanwhile, and that one for rows"
        f" which {mine.txn_id} inserts"
    )


def missed_by(looker: Looked, other: Looked) -> InTable | None:
    """What it looked for of which the other one may have brought some; None if there is none.

    Who gives rows other keys counts as looking for new rows with these keys.
    """
    return shared(looker.sought, other.inserted) or shared(looker.new_values, other.new_rows)


def shared(sought: Sequence[InTable], brought: Sequence[InTable]) -> InTable | None:
    """What was looked for of which some may have been brought; None if there is none."""
    for mine in sought:
        for theirs in brought:
            if mine.table_id == theirs.table_id and mine.region.meets(theirs.region):
                return mine
    return None


# --- what was read --------------------------------------------------------------------------------


class Changed(Enum):
    """Which rows of an entity a committed directory has changed, as far as its kind tells."""

    NOTHING = "nothing"
    ITS_ROWS = "the rows that it has"
    ANY_ROW = "any row"


# fmt: off
CHANGED: dict[tuple[bool, bool, bool], Changed] = {
    # (a base, of delete events, by a compaction)
    (_N, _N, _N): Changed.ITS_ROWS,
    (_N, _Y, _N): Changed.ANY_ROW,  # nobody has recorded the values of the deleted rows
    (_Y, _N, _N): Changed.ANY_ROW,
    (_Y, _Y, _N): Changed.ANY_ROW,  # there is none
    (_N, _N, _Y): Changed.NOTHING,
    (_N, _Y, _Y): Changed.NOTHING,
    (_Y, _N, _Y): Changed.NOTHING,
    (_Y, _Y, _Y): Changed.NOTHING,
}
# fmt: on
"""P52 as one literal table: what a directory means for a serializable transaction that has read its
entity, and does not see it."""
