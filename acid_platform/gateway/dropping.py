"""Dropping under the lock that the client may hold already."""

from __future__ import annotations

from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.operations.transactions import Drop, GetLocks
from acid_platform.transactions.locks import LockType

_WAIT = 30.0
"""Seconds for the exclusive lock of a client that holds none."""


def drop(metastore: Metastore, table: str, partition: str | None, mine: set[int]) -> None:
    """Drops a table or a partition of it.

    Hive locks the table in a transaction first and commits that afterwards: the drop is made in
    that transaction, and its commit is repeated then, which is no error (T10). `mine` are the
    transactions of this connection. For others the drop has a transaction of its own. Raises
    LockTimeout, NoSuchTable, NoSuchPartition.
    """
    database, _, name = table.partition(".")
    for lock in metastore.call(GetLocks()):
        if (
            lock.txn in mine
            and lock.acquired
            and lock.lock is LockType.EXCLUSIVE
            and (lock.database, lock.table) == (database, name)
            and lock.partition in (None, partition)
        ):
            metastore.call(Drop(lock.txn, table, partition))
            return
    if partition is None:
        metastore.drop_table(table, wait=_WAIT)
    else:
        metastore.drop_partition(table, partition, wait=_WAIT)
