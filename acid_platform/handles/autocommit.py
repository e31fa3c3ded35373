"""A statement as a transaction of its own, which begins again if its snapshot is outdated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import TYPE_CHECKING, TypeVar

from acid_platform.errors import LockTimeout, SnapshotOutdated
from acid_platform.metastore.records import LockRequest

if TYPE_CHECKING:
    from acid_platform.handles.transaction import Transaction
    from acid_platform.handles.warehouse import Warehouse

_Result = TypeVar("_Result")


def autocommit(
    warehouse: Warehouse, table: str, statement: Callable[[Transaction], _Result]
) -> _Result:
    """Runs a statement that writes `table` as a transaction; repeats it if its snapshot is outdated
    (T40).

    From the second attempt on it gets its locks before its snapshot, so the snapshot misses no
    commit that the locks prevent: an overwrite succeeds although others insert all the time (P30).
    Raises LockTimeout if another writer committed during each attempt.
    """
    locks: Sequence[LockRequest] = ()
    for attempt in count(1):
        txn = warehouse.transaction(restart_if_stale=True, locks=locks)
        try:
            with txn:
                return statement(txn)
        except SnapshotOutdated:
            locks = txn.locks
        if attempt >= txn.view.in_force.integer("hive.txn.max.retrysnapshot.count"):
            break
    raise LockTimeout(f"{table}: another writer committed during each attempt; try again")
