"""Empties tables and partitions in a transaction of the client's, as Hive's own metastore does."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from acid_platform.errors import NoSuchPartition, NoSuchTxn, TxnAborted, UnsupportedStatement
from acid_platform.gateway import shapes
from acid_platform.layout import names
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.operations.foreign_transactions import GetTouched
from acid_platform.metastore.records import TableRecord
from acid_platform.storage.files import Files


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
            for one in metastore.call(GetTouched(txn))
        )
    return False


def _entities(
    metastore: Metastore, record: TableRecord, partitions: Sequence[str] | None
) -> Sequence[str | None]:
    if not record.partitioned:
        return [None]
    known = metastore.partitions(record.name)
    wanted = [shapes.normal(record, name) for name in partitions or known]
    missing = sorted({*wanted} - {*known})
    if missing:
        raise NoSuchPartition(f"{record.name} has no partition {missing[0]}")
    return wanted
