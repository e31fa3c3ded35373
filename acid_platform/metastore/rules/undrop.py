"""Dropped tables whose files are all still there, and how one of them comes back (P83).

The drop of a table waits for the Cleaner as long as the table's history is kept. Until its removal
begins, the table can come back as it was, with its history and tags: it keeps its id. Snapshots of
before the drop see it as ever, but whoever has one may write no more: what others have committed
before the drop is no longer compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from acid_platform.errors import InvalidDefinition, NoSuchTable, TableExists
from acid_platform.layout.names import refuse_shared_name, table_name
from acid_platform.metastore import operations as ops
from acid_platform.metastore.operations.compaction import DropTask
from acid_platform.metastore.pasts import utc_text
from acid_platform.metastore.records import TableRecord
from acid_platform.metastore.rules import snapshots
from acid_platform.metastore.rules.state import Earlier, State, TableState
from acid_platform.metastore.rules.table_declarations import overlap, refuse_view
from acid_platform.metastore.rules.turn import Event, Turn, handles


@handles(ops.GetDroppedTables)
def dropped_tables(turn: Turn, _operation: ops.GetDroppedTables) -> list[ops.DroppedTable]:
    """The last drop comes first."""
    drops = sorted(_drops(turn.state), key=lambda drop: drop.id, reverse=True)
    return [_row(turn, drop) for drop in drops]


def _drops(state: State) -> Iterator[DropTask]:
    return (drop for drop in state.drops() if drop.partition is None)


def _row(turn: Turn, drop: DropTask) -> ops.DroppedTable:
    table = turn.state.dropped_tables[drop.table_id]
    kept = snapshots.retention(turn.state, table)
    until = drop.commit_time + kept if kept else 0
    return ops.DroppedTable(table.record, drop.commit_time, until, _refused(turn.state, drop))


def _refused(state: State, drop: DropTask) -> str:
    """Why the table can't come back; empty if it can."""
    if drop.cleaner_start or drop.cleaner_attempts:
        return "the removal of its files has begun"
    if drop.error:
        return drop.error
    branches = {branch.txn: name for name, branch in state.branches.items()}
    for txn in state.open_txns():
        if drop.table_id in txn.wrote:  # what others have overwritten since is no longer compared
            if name := branches.get(txn.branch):
                return f"branch {name} has written there before the drop; drop the branch"
            return f"transaction {txn.txn_id} has got a write id there before the drop; end it"
    for table_id in state.occupied.near(drop.location):
        return f"{state.name_of(table_id)} is at its place, {drop.location}"
    for other in state.drops():
        if other.table_id > drop.table_id and overlap(other.location, drop.location):
            return f"{other.table}, which was dropped since, was at its place, {drop.location}"
    return ""


@handles(ops.UndropTable)
def undrop(turn: Turn, operation: ops.UndropTable) -> TableRecord:
    """Raises NoSuchTable, TableExists, InvalidDefinition; then nothing has changed."""
    state, named = turn.state, table_name(operation.table)
    every = [drop for drop in _drops(state) if drop.table == named]
    drop = max(
        (drop for drop in every if operation.table_id in (0, drop.table_id)),
        key=lambda drop: drop.id,
        default=None,
    )
    if drop is None:
        ids = ", ".join(str(drop.table_id) for drop in every)
        raise NoSuchTable(
            f"no dropped table {named} has the id {operation.table_id}; there are {ids}"
            if every
            else f"no dropped table {named} has files left; `acid show dropped` lists those that do"
        )
    name = table_name(operation.rename or named)
    if name in state.names:
        raise TableExists(f"table {name} exists; bring {named} back AS another name")
    refuse_view(state, name)
    if name.partition(".")[0] not in state.databases:
        raise InvalidDefinition(
            f"{named} can't come back as {name}: there is no such database; create it first"
        )
    refuse_shared_name("the name of a table", name.partition(".")[2])
    if reason := _refused(state, drop):
        raise InvalidDefinition(
            f"{named}, dropped at {utc_text(drop.commit_time)}, can't come back: {reason}"
        )
    turn.record(Undropped(drop.id, name))
    return state.tables[drop.table_id].record


class Undropped(Event, kind="undropped"):
    """Brings a table back under a name; `drop`: the Cleaner's task, which ends."""

    drop: int
    name: str

    def apply(self, state: State, at: int) -> None:
        drop = state.queue.pop(self.drop)
        state.timers.row_since.pop(drop.id, None)
        table, moment = state.dropped_tables.pop(drop.table_id), state.moment()
        table.earlier.append(Earlier(table.record, table.dropped))
        table.record = replace(table.record, name=self.name, version=moment)
        table.dropped = 0
        state.tables[drop.table_id], state.names[self.name] = table, drop.table_id
        state.occupied.add(table.record.location, drop.table_id)
        _take_back(state, table)
        snapshots.note_commit(state, table, moment, at)
        state.changed |= dict.fromkeys(table.entities(), state.next_moment)


def _take_back(state: State, table: TableState) -> None:
    """The directories as they were before the drop: those of partitions that were dropped earlier,
    which their floors tell from the present ones, stay apart."""
    for entity in table.entities():
        gone, floor = state.dropped_directories.pop(entity, {}), -1
        if entity[1] in {former.name for former in table.dropped_partitions}:
            floor = max(table.partitions[entity[1]].floors)
        present = {name: each for name, each in gone.items() if each.high > floor}
        if present:
            state.directories[entity] = present
        if len(present) < len(gone):
            state.dropped_directories[entity] = {
                name: each for name, each in gone.items() if name not in present
            }
