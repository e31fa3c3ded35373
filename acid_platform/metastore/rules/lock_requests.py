"""What a lock request asks for: the locks, and what the transaction will touch (T23 to
T27, P11)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from acid_platform.errors import InvalidDefinition, ReadOnlyTxn, SnapshotExpired
from acid_platform.layout.declarable import table_name
from acid_platform.metastore.records import LockRequest
from acid_platform.metastore.rules.declared import refuse_foreign, unchanged
from acid_platform.metastore.rules.state import Component, State, TableState, Txn
from acid_platform.metastore.rules.table_declarations import normal_partition
from acid_platform.transactions import RowOperation, TxnType
from acid_platform.transactions.locks import LockComponent, LockType

MOST_LOCKS = 10_000
"""Locks of one request, while which is decided every other one waits (P78)."""
_STRICTEST = {
    LockType.SHARED_READ: RowOperation.SELECT,
    LockType.SHARED_WRITE: RowOperation.UPDATE,
    LockType.EXCL_WRITE: RowOperation.UPDATE,
    LockType.EXCLUSIVE: RowOperation.SELECT,
}
"""The operation of a request that names none (T27). EXCLUSIVE without an operation is for DDL."""


def resolve(
    state: State, txn: Txn, requests: Sequence[LockRequest]
) -> tuple[tuple[LockComponent, ...], tuple[Component, ...]]:
    """The locks of a request, and what the transaction will touch (T23 to T26)."""
    if not requests:
        raise InvalidDefinition(f"transaction {txn.txn_id} asks for no lock; name a table")
    if len(requests) > MOST_LOCKS:
        raise InvalidDefinition(
            f"transaction {txn.txn_id} asks for {len(requests):,} locks at once; a request has at"
            f" most {MOST_LOCKS:,}: lock whole tables, or ask several times"
        )
    components: list[LockComponent] = []
    touches: dict[tuple[int, str | None, RowOperation | None], Component] = {}
    for request in requests:
        if request.lock is LockType.PUBLICATION:
            raise InvalidDefinition(
                f"PUBLICATION of {request.table} is for the Worker of a compaction"
            )
        operation = request.operation or _STRICTEST[request.lock]
        if request.table.endswith(".*"):
            db = request.table.removesuffix(".*").lower()
            components.append(LockComponent(db, None, None, request.lock))
            continue
        table = unchanged(state, txn, request.table, operation.writes)
        partition = request.partition
        if partition is not None:
            partition = normal_partition(table, partition)
        if operation.writes and txn.kind is not TxnType.DEFAULT:
            raise ReadOnlyTxn(
                f"transaction {txn.txn_id} is {txn.kind.name}, but {operation.name} of"
                f" {table.record.name} needs a transaction that writes"
            )
        if operation is not RowOperation.INSERT and request.lock is not LockType.EXCLUSIVE:
            check_files(txn, table)
        if operation.writes:
            refuse_foreign(table, operation.name)
        db, _, short = table.record.name.partition(".")
        components.append(LockComponent(db, short, partition, request.lock, operation))
        if operation.writes:
            _touch(touches, txn, table, replace(request, partition=partition), operation)
    return tuple(components), tuple(touches.values())


def _touch(
    touches: dict[tuple[int, str | None, RowOperation | None], Component],
    txn: Txn,
    table: TableState,
    request: LockRequest,
    operation: RowOperation,
) -> None:
    table_id = table.record.table_id
    dynamic = request.partition is None and (table.record.partitioned or request.dynamic)
    component = Component(txn.txn_id, table_id, request.partition, operation, 0, dynamic)
    if not dynamic:
        touches[table_id, request.partition, operation] = component
        return
    # The whole table gets one row, with the strictest operation (T26).
    earlier = touches.get((table_id, None, None))
    asked = {operation, earlier.operation if earlier else operation}
    if RowOperation.OVERWRITE in asked:
        component = replace(component, operation=RowOperation.OVERWRITE)
    elif any(other.changes for other in asked):
        component = replace(component, operation=RowOperation.UPDATE)
    touches[table_id, None, None] = component


def tables_of(state: State, requests: Sequence[LockRequest]) -> dict[str, int]:
    named = (request.table for request in requests if not request.table.endswith(".*"))
    return {table_name(name): state.table(name).record.table_id for name in named}


def may_read(txn: Txn, table: TableState) -> bool:
    """Whether the Cleaner has kept all files that the transaction's snapshot may need (P11)."""
    asked = txn.all_tables or table.record.table_id in txn.needs.values()
    return asked or txn.txn_id >= table.cleaned_upto


def check_files(txn: Txn, table: TableState) -> None:
    """Raises SnapshotExpired if the transaction first asks for the table after a cleaning (P11)."""
    if not may_read(txn, table):
        raise SnapshotExpired(
            f"transaction {txn.txn_id} first asks for {table.record.name} after the Cleaner removed"
            " files that its snapshot may need; begin again"
        )
