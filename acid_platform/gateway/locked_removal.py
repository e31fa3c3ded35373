"""Dropping and emptying tables and partitions under the locks that the client may hold already, as
Hive's own metastore does."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from acid_platform.errors import NoSuchPartition, NoSuchTxn, TxnAborted, UnsupportedStatement
from acid_platform.gateway import shapes
from acid_platform.layout import names
from acid_platform.metastore import operations as ops
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.records import TableRecord
from acid_platform.storage.files import Files
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
    for lock in metastore.call(ops.GetLocks()):
        if (
            lock.txn in mine
            and lock.acquired
            and lock.lock is LockType.EXCLUSIVE
            and (lock.database, lock.table) == (database, name)
            and lock.partition in (None, partition)
        ):
            metastore.call(ops.Drop(lock.txn, table, partition))
            return
    if partition is None:
        metastore.drop_table(table, wait=_WAIT)
    else:
        metastore.drop_partition(table, partition, wait=_WAIT)


def truncate(
    metastore: Metastore,
    table: str,
    partitions: Sequence[str] | None,
    write_id: int,
    mine: set[int],
) -> None:
    """Writes an empty base for the write id into the table, or into each of the partitions.

    The client has locked the table for writing, and its commit makes the bases visible (P32).
    `mine` are the transactions of this connection: a base with a write id of another could hide
    rows that are committed. Raises NoSuchTable, NoSuchPartition, UnsupportedStatement.
    """
    record = metastore.table(table)
    if not any(_writes(metastore, txn, record.name, write_id) for txn in mine):
        raise UnsupportedStatement(
            f"{record.name}: write id {write_id or 'none'} is of no open transaction in which this"
            " client locked the table; run TRUNCATE again"
        )
    for entity in _entities(metastore, record, partitions):
        files, root = Files.of(record.location)
        where = f"{root}/{entity}" if entity else root
        base = f"{where}/{names.BaseName(write_id)}"
        files.make_directory(base)
        files.write(f"{base}/{names.VERSION_FILE}", names.VERSION)


def _writes(metastore: Metastore, txn: int, table: str, write_id: int) -> bool:
    """If the transaction is open and has this write id of the table."""
    with suppress(NoSuchTxn, TxnAborted):
        return any(
            (one.table, one.write_id) == (table, write_id)
            for one in metastore.call(ops.GetTouched(txn))
        )
    return False


def _entities(
    metastore: Metastore, record: TableRecord, partitions: Sequence[str] | None
) -> Sequence[str | None]:
    if not record.partitioned:
        return [None]
    present = metastore.partitions(record.name)
    entities = [shapes.normal(record, name) for name in partitions or present]
    missing = sorted({*entities} - {*present})
    if missing:
        raise NoSuchPartition(f"{record.name} has no partition {missing[0]}")
    return entities
