"""Drops of tables and partitions; the Cleaner removes their files later (P22)."""

from __future__ import annotations

from dataclasses import replace

from acid_platform.compaction.states import CompactionState
from acid_platform.errors import NoSuchPartition, Terminal
from acid_platform.metastore import operations as ops
from acid_platform.metastore.rules import lock_index, write_set
from acid_platform.metastore.rules.declared import refuse_foreign
from acid_platform.metastore.rules.state import Entity, State
from acid_platform.metastore.rules.table_declarations import normal_partition
from acid_platform.metastore.rules.turn import Event, Turn
from acid_platform.metastore.rules.txns import WriteIdAllocated
from acid_platform.metastore.tasks import DropTask
from acid_platform.transactions import RowOperation
from acid_platform.transactions.concurrency import LockType, WriteSetRow


def drop(turn: Turn, operation: ops.Drop) -> None:
    """Drops a table or partition; the Cleaner removes the files under C41 (P22).

    The files of a foreign table stay (P31). The drop of a partition allocates a write id: whoever
    sees it sees nothing at or below it. The caller commits the transaction. Raises NoSuchTable,
    NoSuchPartition, ForeignLocation, and Terminal without the lock.
    """
    state, txn_id = turn.state, operation.txn
    table = state.table(operation.name)
    partition = operation.partition
    if partition is not None:
        refuse_foreign(table, "DROP PARTITION")
        partition = normal_partition(table, partition)
        if partition not in table.partitions:
            raise NoSuchPartition(f"{table.record.name} has no partition {partition}")
    held = [
        component
        for ext in state.locks_by_txn.get(txn_id, [])
        if state.locks[ext].acquired
        for component in state.locks[ext].components
    ]
    if not any(
        f"{component.db}.{component.table}" == table.record.name
        and component.lock is LockType.EXCLUSIVE
        and component.partition in (None, partition)
        for component in held
    ):
        raise Terminal(f"transaction {txn_id} drops {table.record.name} without EXCLUSIVE lock")
    if partition is not None:
        turn.record(WriteIdAllocated(txn_id, table.record.table_id, table.next_write_id, needs=()))
    row = DropTask(
        id=state.next_compaction,
        table=table.record.name,
        table_id=table.record.table_id,
        partition=partition,
        state=CompactionState.READY_FOR_CLEANING,
        location=table.record.place_of(partition),
        enqueued=turn.now,
        txn_id=txn_id,
        next_txn_id=state.next_txn,
        highest_write_id=table.last_write_id,
        commit_time=turn.now,
    )
    turn.record(Dropped(row, state.last_txn))


class Dropped(Event, kind="dropped"):
    """Drops a table or partition; `row` is the Cleaner's task (P22)."""

    row: DropTask
    commit_id: int

    def apply(self, state: State, _at: int) -> None:
        row = self.row
        table, location = state.tables[row.table_id], row.location
        if not table.record.foreign:
            state.locations[location] = max(state.locations.get(location, 0), row.highest_write_id)
        if row.partition is None:
            del state.tables[row.table_id], state.names[table.record.name]
            for key, cursor in state.cursors.items():
                if key[1] == row.table_id:  # another table of this name has other changes (P55)
                    name = cursor.table or table.record.name
                    state.cursors[key] = replace(cursor, table=name)
            state.sinks = {key: sink for key, sink in state.sinks.items() if key[1] != row.table_id}
            state.dropped_tables[row.table_id] = table
            table.dropped = state.moment()
            write_set.forget_table(state, row.table_id)
            lock_index.forget_publications(state, row.table_id)
        else:
            # If it is created again it sees nothing older; a writer with an older write id must
            # conflict.
            former = table.partitions.pop(row.partition)
            table.dropped_partitions.append(replace(former, dropped=state.moment()))
            table.floors[row.partition] = (*former.floors, row.highest_write_id)
            overwritten = (RowOperation.OVERWRITE, row.txn_id, self.commit_id, row.highest_write_id)
            write_set.put_drop(state, WriteSetRow(row.table_id, row.partition, *overwritten))

        def gone(entity: Entity) -> bool:
            return entity[0] == row.table_id and row.partition in (None, entity[1])

        for entity in list(filter(gone, state.directories)):
            # Snapshots that are older than the drop need them until they end (P28).
            dropped = state.dropped_directories.setdefault(entity, {})
            dropped.update(state.directories.pop(entity))
        state.past = {key: past for key, past in state.past.items() if not gone(key)}
        state.past_drops = {key: past for key, past in state.past_drops.items() if not gone(key)}
        state.queue = {
            key: task
            for key, task in state.queue.items()
            if isinstance(task, DropTask) or not gone(task.entity)
        }
        for txn_id, components in state.components.items():
            state.components[txn_id] = [
                component
                for component in components
                if not gone(component.entity)
                or (row.partition is not None and component.operation is RowOperation.COMPACT)
            ]
        state.next_compaction = row.id + 1
        if not table.record.foreign:  # otherwise its files stay, whoever owns them (P31)
            state.queue[row.id] = row
            since = {**state.timers.row_since, row.id: state.timers.now}
            state.timers.row_since = {
                key: moment for key, moment in since.items() if key in state.queue
            }
