"""The values of the protocol's enumerations, which travel as numbers."""

from __future__ import annotations

from enum import IntEnum

from acid_platform.transactions import RowOperation, TxnState
from acid_platform.transactions.locks import LockType


class HiveLockState(IntEnum):
    ACQUIRED = 1
    WAITING = 2
    ABORT = 3
    NOT_ACQUIRED = 4


class CompactionType(IntEnum):
    MINOR = 1
    MAJOR = 2


INSERT_ONLY_TABLES = 2
"""The capability with which a client says that it goes by write ids."""

USER, ROLE = 1, 2
"""Kinds of principals."""

LOCK_TYPES = {
    1: LockType.SHARED_READ,
    2: LockType.SHARED_WRITE,
    3: LockType.EXCLUSIVE,
    4: LockType.EXCL_WRITE,
}
LOCK_NUMBERS = {lock: number for number, lock in LOCK_TYPES.items()} | {LockType.PUBLICATION: 3}
"""A publication keeps other engines out, as EXCLUSIVE does."""

OPERATIONS = {
    1: RowOperation.SELECT,
    2: RowOperation.INSERT,
    3: RowOperation.UPDATE,
    4: RowOperation.DELETE,
}
"""What a lock is for. Other numbers (5: not said, 6: no transaction) stand for no operation."""

TXN_STATES = {TxnState.COMMITTED: 1, TxnState.ABORTED: 2, TxnState.OPEN: 3}

LONGEST_RANGE = 10_000
"""The most transactions in one heartbeat."""
