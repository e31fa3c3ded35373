"""Giving a partition other values: its rows move in one commit, then the empty partition goes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from acid_platform.engine.reads import TableRead
from acid_platform.errors import NoSuchPartition, TableExists
from acid_platform.handles.row_statements import (
    RowStatement,
    refuse_finer_rows,
    require_writable,
)
from acid_platform.handles.transaction import autocommit
from acid_platform.handles.transaction_work import TransactionWork
from acid_platform.layout.partition_names import partition_values
from acid_platform.metastore.operations.transactions import Drop
from acid_platform.metastore.records import LockRequest
from acid_platform.scan.open import open_scan
from acid_platform.tables.record_layout import columns_of_record
from acid_platform.transactions import RowOperation
from acid_platform.transactions.locks import LockType, Statement
from acid_platform.write.publishing import write_truncation

if TYPE_CHECKING:
    from acid_platform.handles.warehouse import Warehouse
    from acid_platform.metastore.records import TableRecord

_SOURCE = "acid_source"
"""The name of the partition's rows in the query that copies them."""


@dataclass(frozen=True, slots=True)
class Moved:
    """What a move has done: the rows, and the empty base in the place of the old ones."""

    rows: int
    emptied: str


@dataclass(frozen=True, slots=True, eq=False)
class MovePartition(RowStatement[Moved]):
    """Copies the rows of a partition into a new one, and empties the old one.

    Raises NoSuchPartition, TableExists if there is a partition with the new values,
    UnsupportedStatement for timestamps with nanoseconds.
    """

    old: str
    new: str

    def run(self, work: TransactionWork, record: TableRecord) -> Moved:
        require_writable(record)
        for partition in (self.old, self.new):
            work.lock(record, Statement.INSERT_OVERWRITE, partition)
        view, layout = work.view, work.view.layout(record)
        if self.old not in layout.partitions:
            raise NoSuchPartition(f"{record.name} has no partition {self.old}")
        if self.new in layout.partitions:
            raise TableExists(
                f"{record.name} already has partition {self.new}; INSERT the rows of {self.old}"
                " there, and drop it"
            )
        work.refuse_after_overwrite(record, [self.old, self.new])
        own, keys = columns_of_record(record)
        only = {self.old: layout.partitions[self.old]}
        with view.checked():
            lists = view.lists(record.name)
            scan = open_scan(replace(layout, partitions=only), *lists, None, view.in_force)
        scan = replace(scan, still_open=view.check)
        refuse_finer_rows(scan, "a new partition would")
        names = tuple(column.name for column in own)
        rows = work.warehouse.engines.select(
            f"SELECT * FROM {_SOURCE}", {_SOURCE: TableRead(scan, names)}, view.in_force
        )
        values = partition_values(self.new, keys, record.name)
        written = work.run(
            record,
            lambda engine, target: engine.overwrite(
                rows, target.without_defaults(), values, [self.new]
            ),
            rows,
        )
        count = work.report(record, RowOperation.UPDATE, written, overwrite=True)
        with work.begun.checked(again=False):
            (emptied,) = write_truncation(work.target(record, layout), [self.old])
        work.report(record, RowOperation.UPDATE, [emptied], overwrite=True)
        work.count(record.name, overwritten=count)
        return Moved(count, emptied.directory)


def move_partition(warehouse: Warehouse, table: str, old: str, new: str) -> int:
    """Moves the rows, then drops the old partition, unless others wrote into it in between: then
    it stays with their rows. Returns the number of moved rows.

    Raises what MovePartition raises, and LockTimeout.
    """
    move = MovePartition(table, old, new)
    moved = autocommit(warehouse, table, lambda txn: txn.run(move))
    metastore = warehouse.metastore
    lock = LockRequest(table, LockType.EXCLUSIVE, partition=old)
    with metastore.begin(locks=[lock], info=warehouse.info()) as txn:
        left = [
            directory.name
            for entity in metastore.entities(table)
            for directory in entity.directories
            if entity.partition == old and not directory.obsolete
        ]
        if left == [moved.emptied]:
            metastore.call(Drop(txn.id, table, old))
            txn.forget()
    return moved.rows
