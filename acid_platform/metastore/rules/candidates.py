"""The Initiator's questions: candidates with their counters, and the lease of its cycle.

No directory is listed or sent: an entity costs some hundred bytes, however many deltas it has (C1
to C4, C10, C13, P8, P9).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from acid_platform.compaction.states import CompactionState, EntitySize, LiveDirectory, entity_size
from acid_platform.errors import AcidError, LeaseHeld
from acid_platform.metastore import operations as ops
from acid_platform.metastore.records import EntityDirectory
from acid_platform.metastore.rules.cleaning_survey import aborted_rows
from acid_platform.metastore.rules.compaction_queue import history, queue_states
from acid_platform.metastore.rules.snapshots import compactor_list, txn_list
from acid_platform.metastore.rules.state import Component, Entity, ServiceLease, State, TableState
from acid_platform.metastore.rules.timers import patience
from acid_platform.metastore.rules.turn import Turn, handles
from acid_platform.metastore.tasks import EntityCounters, EntityState
from acid_platform.transactions import CompactorWriteIdList

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
