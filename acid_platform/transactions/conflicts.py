"""Write-write conflicts: first committer wins, per partition (T30 to T38, P6)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from acid_platform.transactions.ids import Operation


@dataclass(frozen=True, slots=True)
class Touched:
    """What an open transaction does to one entity; `write_id` 0 if it has none."""

    table_id: int
    partition: str | None
    operation: Operation
    txn_id: int
    write_id: int = 0


@dataclass(frozen=True, slots=True)
class Committed:
    """A row of the write set: the interval [txn_id, commit_id] and what it did (T30)."""

    table_id: int
    partition: str | None
    operation: Operation
    txn_id: int
    commit_id: int
    write_id: int = 0
    overwrite: bool = False


_S, _I, _U, _D, _C = (
    Operation.SELECT, Operation.INSERT, Operation.UPDATE, Operation.DELETE, Operation.COMPACT,
)

CONFLICTING: dict[tuple[Operation, Operation], bool] = {
    # (mine, theirs); INSERT OVERWRITE and TRUNCATE are recorded as UPDATE (T34, P6)
    (_S, _S): False, (_S, _I): False, (_S, _U): False, (_S, _D): False, (_S, _C): False,
    (_I, _S): False, (_I, _I): False, (_I, _U): False, (_I, _D): False, (_I, _C): False,
    (_U, _S): False, (_U, _I): False, (_U, _U): True, (_U, _D): True, (_U, _C): False,
    (_D, _S): False, (_D, _I): False, (_D, _U): True, (_D, _D): True, (_D, _C): False,
    (_C, _S): False, (_C, _I): False, (_C, _U): False, (_C, _D): False, (_C, _C): False,
}
"""T31 and T34 as one literal table."""


def same_entity(mine: Touched, theirs: Committed) -> bool:
    """Same table, and the same partition or both without one (T31, T37)."""
    return mine.table_id == theirs.table_id and mine.partition == theirs.partition


def overlaps(mine: Touched, theirs: Committed) -> bool:
    """Whether theirs committed after mine was opened (T30, T32)."""
    return mine.txn_id != theirs.txn_id and mine.txn_id <= theirs.commit_id


def conflicts(mine: Touched, theirs: Committed) -> str | None:
    """Why `mine` may not commit after `theirs`, or None.

    T31: both update or delete the same entity and overlap. P6: an overwrite with a higher write id
    was committed, so whatever `mine` writes, an insert too, would be hidden by its base.
    """
    if not mine.operation.writes or not same_entity(mine, theirs):
        return None
    if theirs.overwrite and mine.txn_id != theirs.txn_id and 0 < mine.write_id < theirs.write_id:
        return (
            f"write id {mine.write_id} lies below the overwrite that transaction {theirs.txn_id}"
            f" committed with write id {theirs.write_id}, which would hide it"
        )
    if CONFLICTING[mine.operation, theirs.operation] and overlaps(mine, theirs):
        return (
            f"{mine.operation.name.lower()} of transaction [{mine.txn_id}, now] overlaps the"
            f" {theirs.operation.name.lower()} of transaction"
            f" [{theirs.txn_id}, {theirs.commit_id}]"
        )
    return None


def first_conflict(
    mine: Iterable[Touched], theirs: Iterable[Committed]
) -> tuple[Touched, Committed, str] | None:
    """The first pair that conflicts, with the reason."""
    known = list(theirs)
    for one in mine:
        for other in known:
            if reason := conflicts(one, other):
                return one, other, reason
    return None
