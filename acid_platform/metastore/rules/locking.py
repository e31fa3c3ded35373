"""The lock queue: first come, first served; a request gets all of its locks or none (L1 to L16).

With the locks it says what the transaction will touch (T23 to T27, P11).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from acid_platform.errors import (
    AcidError,
    DeclarationChanged,
    InvalidDefinition,
    LockNotAcquired,
    LockTimeout,
    NoSuchTable,
    ReadOnlyTxn,
    SnapshotExpired,
)
from acid_platform.layout.names import table_name
from acid_platform.metastore import operations as ops
from acid_platform.metastore.messages import FLAT, encode
from acid_platform.metastore.operations.compaction import CompactionTask
from acid_platform.metastore.records import LockRequest
from acid_platform.metastore.rules.declared import refuse_foreign, unchanged
from acid_platform.metastore.rules.state import (
    Component,
    LockEntry,
    State,
    TableState,
    Txn,
    WriteIdRow,
    add_lock,
    put_lock,
    remove_lock,
)
from acid_platform.metastore.rules.table_declarations import normal_partition
from acid_platform.metastore.rules.turn import Event, Parked, Turn, error_reply
from acid_platform.metastore.rules.write_set import Aborted
from acid_platform.transactions import RowOperation, TxnType
from acid_platform.transactions.concurrency import (
    WAITS,
    LockComponent,
    LockType,
    blocked_by,
    zero_wait_reads,
)

MOST_LOCKS = 10_000
"""Locks of one request, while which is decided every other one waits (P78)."""
_STRICTEST = {
    LockType.SHARED_READ: RowOperation.SELECT,
    LockType.SHARED_WRITE: RowOperation.UPDATE,
    LockType.EXCL_WRITE: RowOperation.UPDATE,
    LockType.EXCLUSIVE: RowOperation.SELECT,
}
"""The operation of a request that names none (T27). EXCLUSIVE without an operation is for DDL."""
_NO_TABLES: Mapping[str, int] = MappingProxyType({})


def enqueue(
    turn: Turn,
    txn: Txn,
    requests: Sequence[LockRequest],
    wait: float,
    zero_wait: bool | None,
    *,
    begun: bool,
    other_engine: bool = False,
    reads: Mapping[str, int] = _NO_TABLES,
) -> None:
    """Adds a lock request of an open transaction, and grants it if nothing blocks it.

    It may wait for `wait` seconds; `zero_wait` None follows Hive (L10); `other_engine`: it is
    not one of ours that asks; `reads`: tables that it will read without a lock, whose files are
    kept while it waits (P11). Raises Parked if it has to wait, LockNotAcquired for a zero-wait
    request, LockTimeout for a request that may not wait, and SnapshotExpired, ReadOnlyTxn,
    ForeignLocation, NoSuchTable, NoSuchPartition, InvalidDefinition.
    """
    components, touches = resolve(turn.state, txn, requests)
    if other_engine:
        components = tuple(replace(component, other_engine=True) for component in components)
    entry = LockEntry(
        ext=turn.state.next_lock,
        txn_id=txn.txn_id,
        acquired=False,
        components=components,
        touches=touches,
        request_id=turn.request_id,
        begun=begun,
        requested=turn.now,
        deadline=turn.now + round(wait * 1000),
        tables={**reads, **tables_of(turn.state, requests)},
    )
    if zero_wait is None:
        zero_wait = zero_wait_reads(turn.state.settings.lock_settings)
    # An insert may go on where old files are gone, but must not read them later.
    needs = tuple(
        name
        for name, table_id in entry.tables.items()
        if may_read(txn, turn.state.tables[table_id])
    )
    stand_in_line(turn, entry, needs, zero_wait)


def stand_in_line(
    turn: Turn, entry: LockEntry, needs: tuple[str, ...], zero_wait: bool = False
) -> None:
    """Records a request, and grants it if nothing blocks it.

    `needs`: the tables whose files the Cleaner has to keep from now on. Raises Parked,
    LockNotAcquired and LockTimeout like `enqueue`.
    """
    blocked = first_block(turn.state, entry)
    if blocked:
        if zero_wait and blocked.asked.lock is LockType.SHARED_READ and not blocked.brief:
            raise LockNotAcquired(f"{blocked.reason}, and a read does not queue; try again later")
        if entry.deadline <= turn.now:
            raise LockTimeout(
                f"{blocked.reason}, and no wait was allowed; try again, or wait longer"
            )
    turn.record(LockRequested(entry, needs))
    if blocked:
        raise Parked
    grant(turn, entry)


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
    return asked or bool(txn.branch) or txn.txn_id >= table.cleaned_upto


def check_files(txn: Txn, table: TableState) -> None:
    """Raises SnapshotExpired if the transaction first asks for the table after a cleaning (P11)."""
    if not may_read(txn, table):
        raise SnapshotExpired(
            f"transaction {txn.txn_id} first asks for {table.record.name} after the Cleaner removed"
            " files that its snapshot may need; begin again"
        )


@dataclass(frozen=True, slots=True)
class Block:
    """What a request waits for."""

    asked: LockComponent
    """The component that has to wait."""
    existing: LockComponent
    reason: str

    @property
    def brief(self) -> bool:
        """Whether it soon ends by itself, so that every read waits for it (P46)."""
        return self.existing.lock is LockType.PUBLICATION


def first_block(state: State, entry: LockEntry) -> Block | None:
    """The first component that must wait, and for what.

    Requests with smaller ids block, and whatever is held (L2, L3, L5). But who holds a lock does
    not wait for a publication that waits (P46), nor for a request that waits for this lock (P48):
    each of them could wait for the other.
    """
    for component in entry.components:
        for other in _rivals(state, component):
            if other.ext >= entry.ext and not other.acquired:
                continue
            if 0 != other.txn_id == entry.txn_id:
                continue
            if other.publishes and not other.acquired and _holds_locks(state, entry.txn_id):
                continue
            for existing in other.components:
                if reason := blocked_by(component, existing):
                    if not other.acquired and _waits_for(state, other, entry.txn_id):
                        break
                    rival = f"(lock {other.ext}, transaction {other.txn_id})"
                    return Block(component, existing, f"{reason} {rival}")
    return None


def held_up(state: State, row: CompactionTask) -> Block | None:
    """What keeps a compaction from the lock with which it begins (C28)."""
    db, _, short = state.name_of(row.table_id).partition(".")
    asked = LockComponent(db, short, row.partition, LockType.SHARED_READ, RowOperation.COMPACT)
    entry = LockEntry(
        ext=state.next_lock,
        txn_id=state.next_txn,
        acquired=False,
        components=(asked,),
        touches=(),
        request_id="",
        begun=False,
        requested=0,
        deadline=0,
        tables={},
    )
    return first_block(state, entry)


def _holds_locks(state: State, txn_id: int) -> bool:
    return txn_id != 0 and any(
        state.locks[ext].acquired for ext in state.locks_by_txn.get(txn_id, ())
    )


def _waits_for(state: State, waiting: LockEntry, txn_id: int) -> bool:
    """Whether a lock that the transaction holds is in the way of the request."""
    held = [state.locks[ext] for ext in state.locks_by_txn.get(txn_id, ())] if txn_id else []
    return any(
        blocked_by(asked, component)
        for entry in held
        if entry.acquired
        for component in entry.components
        for asked in waiting.components
    )


def _rivals(state: State, component: LockComponent) -> Iterator[LockEntry]:
    if component.table is None:
        yield from state.locks.values()
        return
    for kind in reversed(LockType):
        if WAITS[component.lock, kind]:
            for name in (component.db, f"{component.db}.{component.table}"):
                yield from state.locks_by_name.get((name, kind), {}).values()


def grant(turn: Turn, entry: LockEntry) -> None:
    """Grants the locks and allocates write ids in the same order (P6).

    The first grant takes the snapshot (S4).
    """
    state = turn.state
    new: dict[int, int] = {}
    for component in entry.touches:
        table = state.tables[component.table_id]
        if entry.txn_id not in table.by_txn and component.table_id not in new:
            new[component.table_id] = table.next_write_id
    turn.record(LockGranted(entry.ext, tuple(new.items())))


def settle(turn: Turn) -> None:
    """Grants every waiting request that is no longer blocked, in the order of the ids."""
    for ext in list(turn.state.waiting.values()):
        entry = turn.state.locks.get(ext)
        if entry is None:
            continue
        refused = _changed_meanwhile(turn.state, entry)
        if refused is not None:
            end_wait(turn, entry, refused)
            if entry.begun:
                turn.record(Aborted(txn=entry.txn_id, reason=str(refused)))
        elif first_block(turn.state, entry) is None:
            grant(turn, entry)
            ticket = ops.Ticket(entry.txn_id, entry.ext)
            turn.answer_parked(
                entry.request_id, entry.txn_id, _op(entry), {"value": encode(ticket)}
            )


def _changed_meanwhile(state: State, entry: LockEntry) -> AcidError | None:
    """The error if a table has changed since the request was made (P28)."""
    txn = state.txns.get(entry.txn_id)
    written = {touch.table_id for touch in entry.touches}
    for name, table_id in entry.tables.items():
        if state.names.get(name) != table_id:
            what = "renamed" if table_id in state.tables else "dropped"
            return NoSuchTable(f"{name} was {what} while the lock waited")
        try:
            if txn is not None:
                unchanged(state, txn, name, table_id in written)
        except DeclarationChanged as error:
            return error
    return None


def expire_waits(turn: Turn) -> None:
    """Ends requests that have waited long enough (L11).

    If the request opened its transaction, the transaction is aborted.
    """
    for ext in list(turn.state.waiting.values()):
        entry = turn.state.locks.get(ext)
        if entry is None or turn.state.timers.wait_ends[ext] > turn.steady:
            continue
        blocked = first_block(turn.state, entry)
        reason = blocked.reason if blocked else "it was about to be granted"
        waited = (entry.deadline - entry.requested) / 1000
        error = LockTimeout(f"no lock within {waited:g} s: {reason}; try again, or wait longer")
        end_wait(turn, entry, error)
        if entry.begun:
            turn.record(Aborted(txn=entry.txn_id, reason="lock acquisition timed out"))


def end_wait(turn: Turn, entry: LockEntry, error: AcidError) -> None:
    """Removes a waiting request and answers its client with the error (L15)."""
    turn.record(LockRemoved(ext=entry.ext))
    turn.answer_parked(entry.request_id, entry.txn_id, _op(entry), error_reply(error))


def _op(entry: LockEntry) -> str:
    if entry.publishes:
        return ops.RequestPublication.op
    if not entry.txn_id:
        return ops.LockAlone.op
    return ops.Begin.op if entry.begun else ops.Lock.op


# --- events -----------------------------------------------------------------------------------


class LockRequested(Event, kind="lock"):
    """`needs`: names of tables whose files the Cleaner has to keep from now on."""

    entry: LockEntry = field(metadata=FLAT)
    needs: tuple[str, ...]

    def apply(self, state: State, _at: int) -> None:
        entry = self.entry
        state.next_lock = entry.ext + 1
        add_lock(state, entry)
        if not entry.txn_id:
            state.lock_beats[entry.ext] = state.timers.now
            return
        txn = state.txns[entry.txn_id]
        needs = {name: entry.tables[name] for name in self.needs} | txn.needs
        state.txns[txn.txn_id] = replace(txn, needs=needs)


class LockGranted(Event, kind="grant"):
    """`write_ids`: (table id, write id) for tables in which the transaction had no write id yet."""

    ext: int
    write_ids: tuple[tuple[int, int], ...]

    def apply(self, state: State, at: int) -> None:
        waiting = state.locks[self.ext]
        for table_id, write_id in self.write_ids:
            add_write_id(state, table_id, waiting.txn_id, write_id)
        touches = tuple(
            replace(touch, write_id=state.tables[touch.table_id].by_txn[touch.txn_id])
            for touch in waiting.touches
        )
        entry = replace(waiting, acquired=True, acquired_at=at, touches=touches)
        del state.waiting[entry.request_id]
        del state.timers.wait_ends[entry.ext]
        put_lock(state, entry)
        if not entry.txn_id:
            return
        before = state.components.get(entry.txn_id, ())
        state.components[entry.txn_id] = [*dict.fromkeys((*before, *touches))]
        txn = state.txns[entry.txn_id]
        if not txn.taken:
            state.txns[txn.txn_id] = replace(txn, taken=state.moment())


def add_write_id(state: State, table_id: int, txn_id: int, write_id: int) -> None:
    table = state.tables[table_id]
    table.next_write_id = write_id + 1
    table.writes.append(WriteIdRow(write_id, txn_id, state.last_txn))
    table.by_txn[txn_id] = write_id
    txn = state.txns[txn_id]
    state.txns[txn_id] = replace(txn, wrote=(*txn.wrote, table_id))


class LockRemoved(Event, kind="unlock"):
    ext: int

    def apply(self, state: State, _at: int) -> None:
        remove_lock(state, self.ext)
