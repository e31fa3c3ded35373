"""Transactions that another engine drives through the gateway (P34).

Such an engine keeps no handle here: it names its transaction in each call, asks again and again for
a lock that waits, and reads under a transaction list that it was given before.
"""

from __future__ import annotations

from dataclasses import dataclass

from acid_platform.metastore.operations.base import MetastoreOperation, Unrecorded
from acid_platform.metastore.records import LockRequest
from acid_platform.transactions import RowOperation, ValidTxnList, ValidWriteIdList

# --- answers ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LockProgress:
    """A lock request by its id: granted, or still waiting."""

    ext: int
    acquired: bool


@dataclass(frozen=True, slots=True)
class TouchedEntity:
    """What a transaction locked for writing: a partition, or the table (None), and for what.

    `dynamic`: the table stands for those of its partitions that get rows.
    """

    partition: str | None
    dynamic: bool
    operation: RowOperation = RowOperation.UPDATE


@dataclass(frozen=True, slots=True)
class TouchedTable:
    """A table in which an open transaction has a write id (0: none) or locks of writes.

    `unfinished`: its engine says when all its files are written, and has not said so yet.
    """

    table: str
    write_id: int
    entities: tuple[TouchedEntity, ...]
    unfinished: bool = False


# --- operations ---------------------------------------------------------------------------------


class RequestLock(MetastoreOperation[LockProgress], op="request_lock"):
    """Asks for locks, all or none, and answers at once. `txn` 0: no transaction holds them.

    A request that waits goes on waiting after the answer; `CheckLock` tells how it stands.
    `finishes`: the engine will say with `FinishWrite` when all its files are written.
    """

    txn: int
    locks: tuple[LockRequest, ...]
    zero_wait: bool
    finishes: bool = False


class FinishWrite(MetastoreOperation[bool], op="finish_write", answers="awaited"):
    """The engine has written all files of this write id; False if that was not awaited.

    `txns`: the transactions of whoever says so; None: any transaction may be meant.
    """

    table: str
    write_id: int
    txns: tuple[int, ...] | None = None


class CheckLock(Unrecorded[LockProgress], op="check_lock"):
    """How a lock request stands; keeps it and its transaction alive (L12)."""

    ext: int


class GetTxnList(Unrecorded[ValidTxnList], op="txn_list", answers="valid_txns"):
    """The transactions as a snapshot of this moment sees them, without a lease (S1)."""


class GetWriteIdsUnder(Unrecorded[list[ValidWriteIdList]], op="write_ids_under", answers="lists"):
    """What a snapshot with this transaction list sees of each table (S7 to S9).

    Its files are kept for it only if an open transaction has a lock of the table (P34). With
    `no_floors`, for who reads every directory that is there, write ids of a dropped table whose
    files are still there count as aborted (P22).
    """

    tables: tuple[str, ...]
    valid_txns: ValidTxnList
    no_floors: bool = False


class GetTouched(Unrecorded[list[TouchedTable]], op="touched", answers="tables"):
    """The tables in which an open transaction has a write id or a lock of a write."""

    txn: int


class GetConflict(Unrecorded[str], op="conflict", answers="reason"):
    """Why an open transaction can no longer commit what its locks say that it writes; else ""."""

    txn: int
