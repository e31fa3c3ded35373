"""The queue of compactions: requests, takes, revocations, history; what the Initiator asks (C1 to
C4, C10, C13, C24 to C27, C33, C58, C60, P8, P9).

The Initiator gets candidates with their counters. No directory is listed or sent: an entity costs
some hundred bytes, however many deltas it has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

from acid_platform.compaction.states import (
    CompactionKind,
    CompactionState,
    EntitySize,
    LiveDirectory,
    entity_size,
)
from acid_platform.errors import (
    AcidError,
    AlreadyScheduled,
    CompactionRefused,
    InvalidDefinition,
    LeaseHeld,
    NoSuchPartition,
)
from acid_platform.layout import table_properties
from acid_platform.metastore import operations as ops
from acid_platform.metastore.operations.compaction import (
    CompactionTask,
    EndedCompaction,
    EntityCounters,
    EntityState,
)
from acid_platform.metastore.records import EntityDirectory
from acid_platform.metastore.rules import locking
from acid_platform.metastore.rules.cleaning import aborted_rows
from acid_platform.metastore.rules.compactions import CompactionEnded, CompactionRevoked, to_history
from acid_platform.metastore.rules.declared import refuse_foreign
from acid_platform.metastore.rules.snapshots import compactor_list, txn_list
from acid_platform.metastore.rules.state import Component, Entity, ServiceLease, State, TableState
from acid_platform.metastore.rules.table_declarations import being_cleaned, normal_partition
from acid_platform.metastore.rules.timers import patience
from acid_platform.metastore.rules.turn import Event, Turn, handles
from acid_platform.metastore.rules.txns import end
from acid_platform.transactions import CompactorWriteIdList, ValidTxnList

_I, _W, _R = (
    CompactionState.INITIATED,
    CompactionState.WORKING,
    CompactionState.READY_FOR_CLEANING,
)


_STRONGEST_FIRST = (_W, _I, _R)
"""Which state counts if an entity has several rows in the queue."""

Queue = dict[Entity, list[CompactionTask]]


# --- what is queued -----------------------------------------------------------------------------


def queue_by_entity(state: State) -> Queue:
    """The rows of the queue by their entity, without those of dropped tables and partitions."""
    queue: Queue = {}
    for row in state.compactions():
        queue.setdefault(row.entity, []).append(row)
    return queue


def queue_states(state: State) -> dict[Entity, CompactionState]:
    """The state of each queued entity; of several rows the strongest state counts (C6)."""
    return {
        entity: min((row.state for row in rows), key=_STRONGEST_FIRST.index)
        for entity, rows in queue_by_entity(state).items()
    }


def history(state: State, entity: Entity) -> tuple[EndedCompaction, ...]:
    """The ended compactions of an entity, newest first (C9)."""
    rows = reversed(state.past.get(entity, []))
    return tuple(EndedCompaction(row.state, row.enqueued) for row in rows)


# --- request, take, revoke ----------------------------------------------------------------------


@handles(ops.RequestCompaction)
def request(turn: Turn, operation: ops.RequestCompaction) -> int:
    """For a partitioned table without a partition it is a cleanup of what an aborted dynamic write
    left in unknown partitions; that row is ready for cleaning at once (C33).

    Raises AlreadyScheduled, which names the queued row, CompactionRefused, ForeignLocation,
    NoSuchTable, NoSuchPartition.
    """
    return _enqueue(turn, operation, queue_by_entity(turn.state), txn_list(turn.state))


@handles(ops.RequestCompactions)
def request_many(turn: Turn, operation: ops.RequestCompactions) -> list[ops.Wished]:
    waiting, txns = queue_by_entity(turn.state), txn_list(turn.state)
    answers = []
    for wish in operation.wishes:
        try:
            answers.append(ops.Wished(id=_enqueue(turn, wish, waiting, txns)))
        except AcidError as error:
            answers.append(ops.Wished(error=(type(error).__name__, str(error))))
    return answers


def _enqueue(
    turn: Turn, operation: ops.RequestCompaction, waiting: Queue, txns: ValidTxnList
) -> int:
    """Adds the row to the queue and to `waiting`, and returns its id."""
    table = turn.state.table(operation.table)
    refuse_foreign(table, "compaction")
    partition = operation.partition
    unknown = partition is None and _aborted_dynamic(turn.state, table)
    if not unknown and (partition is not None or table.record.partitioned):
        partition = normal_partition(table, partition or "")
        if partition not in table.partitions:
            raise NoSuchPartition(f"{table.record.name} has no partition {partition}")
    entity = (table.record.table_id, partition)
    name = f"{table.record.name} {partition or ''}".rstrip()
    high = (
        table.last_write_id if unknown else compactor_list(turn.state, table, txns).high_watermark
    )
    kinds = {kind.value: kind for kind in CompactionKind}
    kind = kinds.get(operation.kind.lower())
    for row in waiting.get(entity, ()):
        more = row.kind is CompactionKind.MINOR and kind is CompactionKind.MAJOR
        if row.state is not _R or (row.highest_write_id == high and not more):
            nothing = " and nothing was written since" if row.state is _R else ""
            raise AlreadyScheduled(
                f"compaction {row.id} of {name} is {row.state.text}{nothing}; wait for it"
            )
    if kind is None:
        raise CompactionRefused(
            f"{name}: {operation.kind!r} is not a kind of compaction here; use major or minor"
        )
    table_properties.check(f"compaction of {name}", operation.properties)
    row = CompactionTask(
        turn.state.next_compaction,
        table.record.name,
        *entity,
        _I,
        turn.now,
        kind=kind,
        properties=operation.properties,
        initiator=operation.initiator,
    )
    look = operation.obsolete_base and not unknown
    base = _only_base(turn.state, entity, high) if look else None
    if unknown or base:
        row = replace(
            row,
            state=_R,
            highest_write_id=high,
            commit_time=turn.now,
            next_txn_id=turn.state.next_txn,
            txn_id=base.txn if base else 0,
        )
    turn.record(CompactionAdded(row))
    waiting.setdefault(entity, []).append(row)
    return row.id


def _only_base(state: State, entity: Entity, high: int) -> EntityDirectory | None:
    """The base beside which the entity has nothing but obsolete directories: a compaction would
    find nothing to merge (C16)."""
    live = [each for each in state.directories.get(entity, {}).values() if not each.obsolete]
    alone = len(live) == 1 and live[0].base and live[0].high <= high
    return live[0] if alone else None


def _aborted_dynamic(state: State, table: TableState) -> bool:
    entity = (table.record.table_id, None)
    return table.record.partitioned and any(
        (component.table_id, component.partition) == entity and not component.cleaned
        for txn in state.aborted_txns()
        for component in state.components.get(txn.txn_id, ())
    )


@handles(ops.TakeCompaction)
def take(turn: Turn, operation: ops.TakeCompaction) -> CompactionTask | None:
    """The first initiated row whose entity is not being compacted or cleaned, and that nobody keeps
    from its lock (C28, P21)."""
    state = turn.state
    busy = {row.entity for row in state.compactions() if row.state is _W}
    for row in sorted(state.compactions(), key=lambda queued: queued.id):
        entity = row.entity
        table = state.tables.get(row.table_id)
        if row.state is not _I or operation.table not in (None, row.table):
            continue
        if table is not None and (table.record.foreign or locking.held_up(state, row)):
            continue
        if entity not in busy and not being_cleaned(state, entity):
            turn.record(CompactionTaken(id=row.id, worker=operation.worker))
            return state.compaction(row.id)
    return None


@handles(ops.AbortCompactions)
def abort_many(turn: Turn, operation: ops.AbortCompactions) -> dict[int, str]:
    """Aborts only initiated rows."""
    if not operation.ids:
        raise InvalidDefinition("ABORT COMPACTIONS needs at least one id; see SHOW COMPACTIONS")
    messages: dict[int, str] = {}
    for compaction in operation.ids:
        row = turn.state.queue.get(compaction)
        if row is not None and row.state is _I:
            turn.record(
                CompactionEnded(
                    id=compaction,
                    state=CompactionState.ABORTED,
                    error="aborted by ABORT COMPACTIONS",
                )
            )
            messages[compaction] = "aborted"
        else:
            now = "unknown" if row is None else row.state.text
            messages[compaction] = f"not aborted: it is {now}, not initiated"
    return messages


@handles(ops.RevokeWorkers)
def revoke(turn: Turn, operation: ops.RevokeWorkers) -> list[int]:
    host = operation.host
    oldest = turn.steady - turn.state.settings.integer("hive.compactor.worker.timeout")
    since = turn.state.timers.row_since
    ids = [
        row.id
        for row in turn.state.compactions()
        if row.state is _W
        and (
            since[row.id] < oldest
            if host is None
            else row.worker == host or row.worker.startswith(f"{host}-")
        )
    ]
    for compaction_id in ids:
        row = turn.state.compaction(compaction_id)
        if row.txn_id in turn.state.txns and turn.state.txns[row.txn_id].is_open:
            end(turn, row.txn_id, f"compaction {compaction_id} was taken from worker {row.worker}")
        turn.record(CompactionRevoked(id=compaction_id))
    return ids


@handles(ops.RecordNotInitiated)
def not_initiated(turn: Turn, operation: ops.RecordNotInitiated) -> int:
    table = turn.state.table(operation.table)
    row = CompactionTask(
        turn.state.next_compaction,
        table.record.name,
        table.record.table_id,
        operation.partition,
        CompactionState.DID_NOT_INITIATE,
        turn.now,
        kind=CompactionKind.MAJOR,
        ended=turn.now,
        error=operation.reason,
    )
    turn.record(CompactionAdded(row))
    return row.id


# --- events -------------------------------------------------------------------------------------


class CompactionAdded(Event, kind="queued"):
    """Adds a compaction to the queue; one that the Initiator failed to request, to the history."""

    row: CompactionTask

    def apply(self, state: State, _at: int) -> None:
        row = self.row
        state.next_compaction = row.id + 1
        if row.state is CompactionState.DID_NOT_INITIATE:
            to_history(state, row)
            return
        state.queue[row.id] = row
        state.timers.row_since[row.id] = state.timers.now


class CompactionTaken(Event, kind="taken"):
    id: int
    worker: str

    def apply(self, state: State, at: int) -> None:
        row = state.compaction(self.id)
        state.queue[row.id] = replace(
            row,
            state=_W,
            worker=self.worker,
            attempt=row.attempt + 1,
            started=at,
            txn_id=0,
            job=row.job_name(self.worker),
        )
        state.timers.row_since[row.id] = state.timers.now


_AGAIN = (CompactionState.FAILED, CompactionState.DID_NOT_INITIATE)

# --- leases -------------------------------------------------------------------------------------


@handles(ops.HoldService)
def hold(turn: Turn, operation: ops.HoldService) -> None:
    """A holder that has not renewed it for `hive.txn.timeout` counts as dead. Raises LeaseHeld
    while another holder lives."""
    service, holder = operation.service, operation.holder
    lease = turn.state.leases.get(service)
    timeout = patience(turn.state, lease.renewed) if lease else 0
    if lease and lease.holder != holder and turn.steady - lease.renewed <= timeout:
        raise LeaseHeld(
            f"{lease.holder} runs a cycle of the {service}, and only one may; wait for its end, or"
            f" {timeout / 1000:g} s if it has died"
        )
    turn.state.leases[service] = ServiceLease(holder, turn.steady)


@handles(ops.ReleaseService)
def release(turn: Turn, operation: ops.ReleaseService) -> None:
    lease = turn.state.leases.get(operation.service)
    if lease and lease.holder == operation.holder:
        del turn.state.leases[operation.service]


# --- candidates ---------------------------------------------------------------------------------


@handles(ops.GetCandidates)
def candidates(turn: Turn, operation: ops.GetCandidates) -> ops.CandidatePage:
    """At most `hive.compactor.fetch.size` candidates.

    Without `since`, or if it is earlier than this metastore's memory, all entities are candidates;
    otherwise those that changed since then, those with aborted transactions, and those whose
    latest compaction failed or did not initiate (C1).
    """
    state, after = turn.state, operation.after
    since = operation.since if operation.since >= state.awake else 0
    most = state.settings.integer("hive.compactor.fetch.size")
    aborted = aborted_rows(state)
    rows: list[EntityCounters] = []
    last: Entity | None = None
    more = False
    queued = queue_states(state)
    txns = txn_list(state)
    listed: dict[int, CompactorWriteIdList] = {}
    for table, entity in _entities(state, aborted, after[0] if after else 0):
        if after is not None and _key(entity) <= after:
            continue
        if not _asked(state, entity, since, entity in aborted):
            continue
        if len(rows) == most:
            more = True
            break
        write_ids = listed.get(entity[0])
        if write_ids is None:
            write_ids = listed[entity[0]] = compactor_list(state, table, txns)
        rows.append(
            _counters(state, table, entity, write_ids, aborted.get(entity, ()), queued.get(entity))
        )
        last = entity
    return ops.CandidatePage(rows, _key(last) if more and last else None)


def _key(entity: Entity) -> tuple[int, str]:
    return entity[0], entity[1] or ""


def _entities(
    state: State, aborted: Collection[Entity], first: int
) -> Iterator[tuple[TableState, Entity]]:
    """The entities of tables from this id on, in a fixed order, without dropped partitions (C4,
    C10)."""
    for table_id in sorted(number for number in state.tables if number >= first):
        table = state.tables[table_id]
        if table.record.foreign:
            continue
        if table.record.partitioned and (table_id, None) in aborted:
            yield table, (table_id, None)
        for entity in sorted(table.entities(), key=_key):
            yield table, entity


def _asked(state: State, entity: Entity, since: int, aborted: bool) -> bool:
    if not since or aborted or state.changed.get(entity, 0) >= since:
        return True
    past = state.past.get(entity, [])
    return bool(past) and past[-1].state in _AGAIN


def _counters(
    state: State,
    table: TableState,
    entity: Entity,
    write_ids: CompactorWriteIdList,
    aborted: Collection[Component],
    queued: CompactionState | None,
) -> EntityCounters:
    recorded = state.directories.get(entity, {}).values()
    size, error = EntitySize(), ""
    try:
        size = live_size(recorded, write_ids)
    except AcidError as broken:  # C23: a broken entity does not stop the cycle
        error = f"{type(broken).__name__}: {broken}"
    live = {
        directory.deletes for directory in recorded if not directory.base and not directory.obsolete
    }
    facts = _facts(state, table, entity, aborted, queued)
    return EntityCounters(*facts, size=size, both_kinds=len(live) == 2, error=error)


@handles(ops.GetEntities)
def entities(turn: Turn, operation: ops.GetEntities) -> list[EntityState]:
    """Raises NoSuchTable."""
    state = turn.state
    aborted, queued = aborted_rows(state), queue_states(state)
    rows = []
    for table in [state.table(operation.table)] if operation.table else state.tables.values():
        names = table.entities()
        unknown = (table.record.table_id, None)
        if table.record.partitioned and unknown in aborted:
            names.append(unknown)
        listed = compactor_list(state, table)
        rows += [
            EntityState(
                *_facts(state, table, entity, aborted.get(entity, ()), queued.get(entity)),
                location=table.record.location,
                directories=tuple(state.directories.get(entity, {}).values()),
                write_ids=listed,
            )
            for entity in names
        ]
    return rows


def _facts(
    state: State,
    table: TableState,
    entity: Entity,
    aborted: Collection[Component],
    queued: CompactionState | None,
) -> tuple[Any, ...]:
    """The fields that EntityCounters and EntityState have in common, in their order."""
    record = table.record
    oldest = min((state.txns[row.txn_id].started for row in aborted), default=0)
    counts = (len(aborted), oldest, queued, history(state, entity))
    return record.name, entity[1], record.partitioned, record.properties, *counts


def live_size(recorded: Collection[EntityDirectory], write_ids: CompactorWriteIdList) -> EntitySize:
    """What `entity_size` returns, computed from what commits recorded: a hundred times as fast.

    A directory that is obsolete for a snapshot of all commits is obsolete for the compactor too,
    unless a directory holds writes on both sides of the compactor's high watermark, or a base lies
    above it. Raises what `entity_size` raises.
    """
    high = write_ids.high_watermark
    original = deltas = count = 0
    base: int | None = None
    old_base = False
    for directory in recorded:
        if directory.high > high:
            if directory.base or directory.low <= high:
                return entity_size(
                    [LiveDirectory(it.name, _bytes(it)) for it in recorded], write_ids
                )
            continue
        if directory.obsolete and not directory.base:
            continue
        if directory.base:
            old_base |= directory.obsolete
            if not directory.obsolete:
                base = _bytes(directory)
        elif directory.name:
            deltas += directory.bytes
            count += 1
        else:
            original += directory.bytes
    return EntitySize(original if base is None else base, deltas, count, old_base)


def _bytes(directory: EntityDirectory) -> int:
    """The size for comparisons; a base without rows has a file (P32), but it counts as empty."""
    return 0 if directory.base and directory.txn and not directory.rows else directory.bytes
