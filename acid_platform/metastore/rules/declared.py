"""The declarations that a snapshot sees: tables, columns, properties, partitions, views (P28).

Each declaration is valid from one moment to another, and a snapshot has a moment. What no snapshot
can see any more is forgotten at the next purge, with the directories of dropped tables and
partitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter

from acid_platform.errors import DeclarationChanged, ForeignLocation, NoSuchTable
from acid_platform.layout.formats import FileFormat
from acid_platform.layout.names import table_name
from acid_platform.metastore.branches import BranchCommit, Placed
from acid_platform.metastore.records import PartitionRecord, TableRecord, ViewRecord
from acid_platform.metastore.rules import snapshots
from acid_platform.metastore.rules.snapshots import first_snapshot
from acid_platform.metastore.rules.state import Earlier, EntityDirectories, State, TableState, Txn
from acid_platform.transactions import TxnType

Columns = Sequence[tuple[str, str]]


def moment_of(state: State, txn: Txn | None) -> int:
    """The moment of the transaction's snapshot; without a snapshot, the newest moment."""
    return txn.taken if txn is not None and txn.taken else state.next_moment


def seen_table(state: State, txn: Txn | None, name: str) -> tuple[TableState, TableRecord]:
    """The table that a name means to a transaction, and its declaration there.

    A writer finds a table that was created after its snapshot, since it may have created it itself,
    and so does who reads a branch; the snapshot sees no rows in it. Raises NoSuchTable.
    """
    moment = moment_of(state, txn)
    if txn is None or moment == state.next_moment:
        table = state.table(name)
        return table, table.record
    full = table_name(name)
    for table in _candidates(state, full):
        record = table.at(moment)
        if record is not None and record.name == full:
            return table, record
    newest = state.table(full)
    if (txn.kind is TxnType.DEFAULT or txn.branch) and newest.at(moment) is None:
        return newest, newest.record
    raise NoSuchTable(
        f"there was no table {full} when transaction {txn.txn_id} took its snapshot; begin again"
    )


def seen_tables(state: State, branch: Txn) -> list[TableRecord]:
    """The tables that `seen_table` finds on a branch."""
    every = (*state.tables.values(), *state.dropped_tables.values())
    records = [table.at(branch.taken) for table in every]
    seen = {record.name: record for record in records if record is not None}
    for table, record in zip(every, records, strict=True):
        if record is None and not table.dropped:
            seen.setdefault(table.record.name, table.record)
    return [*seen.values()]


def _candidates(state: State, full: str) -> Iterator[TableState]:
    """Tables that may have had the name, beginning with the one that has it now."""
    bearer = state.names.get(full)
    if bearer is not None:
        yield state.tables[bearer]
    yield from state.dropped_tables.values()
    yield from state.tables.values()


def seen_partitions(state: State, txn: Txn | None, table: TableState) -> list[PartitionRecord]:
    """The partitions that the transaction sees, by name."""
    moment = moment_of(state, txn)
    if table.at(moment) is None:
        moment = state.next_moment  # the table was created after the snapshot
    seen = partitions_at(table, moment)
    own = {
        placed.partition
        for placed in placed_on_branch(state, txn, table.record.table_id)
        if placed.partition is not None
    }.difference(partition.name for partition in seen)
    made = [PartitionRecord(name, table.floors.get(name, ())) for name in own]
    return sorted((*seen, *made), key=_NAME) if made else seen


_NAME = attrgetter("name")


def commits_on(state: State, branch: int) -> Iterator[BranchCommit]:
    """The commits on a branch, in their order."""
    return iter(state.branch_commits.get(branch, {}).values())


def joined_commit(state: State, txn_id: int) -> BranchCommit | None:
    """The commit of a transaction that is committed on its branch."""
    txn = state.txns.get(txn_id)
    return state.branch_commits[txn.branch][txn_id] if txn is not None and txn.joined else None


def placed_on_branch(state: State, txn: Txn | None, table_id: int) -> Iterator[Placed]:
    """The directories of a table that the transaction sees of its branch."""
    if txn is None or not txn.sees:
        return
    commits = state.branch_commits[txn.branch]
    for number in txn.sees:
        for placed in commits[number].placed:
            if placed.table_id == table_id:
                yield placed


def partitions_at(table: TableState, moment: int) -> list[PartitionRecord]:
    """The partitions that a snapshot of this moment sees, by name."""
    every = (*table.partitions.values(), *table.dropped_partitions)
    return sorted(
        (partition for partition in every if partition.there_at(moment)),
        key=lambda partition: partition.name,
    )


def seen_views(state: State, txn: Txn | None) -> list[ViewRecord]:
    moment = moment_of(state, txn)
    now = [view for view in state.views.values() if view.version <= moment]
    return now + [
        earlier_view.view
        for earlier_view in state.earlier_views
        if earlier_view.view.version <= moment < earlier_view.until
    ]


def directories(state: State, entity: tuple[int, str | None]) -> EntityDirectories:
    """Every directory of an entity that a snapshot may need; its lists and floors decide which of
    them it sees (P22)."""
    dropped = state.dropped_directories.get(entity)
    present = state.directories.get(entity, {})
    return {**dropped, **present} if dropped else present


# --- changes against what was read ----------------------------------------------------------------


def unchanged(state: State, txn: Txn, name: str, columns: bool = True) -> TableState:
    """The table that a transaction locks or writes, if it is the same as in its snapshot.

    Columns that were added at the end do no harm: rows without them have NULL there. Raises
    DeclarationChanged, NoSuchTable.
    """
    if not txn.taken:
        return state.table(name)
    table, record = seen_table(state, txn, name)
    since = f"since transaction {txn.txn_id} took its snapshot; begin again"
    if table.dropped:
        again = " and made again" if record.name in state.names else ""
        raise DeclarationChanged(f"{record.name} was dropped{again} {since}")
    if table.gone_since(txn.taken):
        raise DeclarationChanged(f"{record.name} was dropped and brought back {since}")
    if table.record.name != record.name:
        raise DeclarationChanged(f"{record.name} was renamed to {table.record.name} {since}")
    kept = len(record.columns)
    if columns and (
        table.record.columns[:kept] != record.columns
        or table.record.ids_of_columns[:kept] != record.ids_of_columns
    ):
        raise DeclarationChanged(f"the columns of {record.name} were changed {since}")
    if columns and table.record.constraints != record.constraints:
        raise DeclarationChanged(f"the constraints of {record.name} were changed {since}")
    return table


def require_version(record: TableRecord, read: Sequence[int] | None) -> None:
    """Raises DeclarationChanged unless `read` (table id and version) is the current declaration."""
    if read is not None and tuple(read) != (record.table_id, record.version):
        raise DeclarationChanged(
            f"{record.name} was altered or made again since it was read; read it again"
        )


def refuse_foreign(table: TableState, what: str) -> None:
    """Raises ForeignLocation if the table's files may belong to another warehouse (P31)."""
    if table.record.foreign:
        raise ForeignLocation(f"{table.record.name}: {what} is refused, {why_foreign(table)}")


def why_foreign(table: TableState) -> str:
    """The reason for an error text, with the next step."""
    return (
        f"as {table.record.location} may belong to the warehouse that this one was copied from;"
        f" `acid metastore take-over {table.record.name}` if it no longer does"
    )


def widened(state: State, txn: Txn, name: str, added: Columns) -> TableRecord | None:
    """The table with the columns that a transaction adds at its commit; None if it has them all.

    Raises DeclarationChanged if others added a column with another type, or added any column where
    files know their columns by position or id.
    """
    table = unchanged(state, txn, name)
    record, columns = table.record, dict(table.record.columns)
    for column, kind in added:
        if columns.get(column, kind) != kind:
            raise DeclarationChanged(
                f"transaction {txn.txn_id} adds {column} {kind} to {record.name}, which has got"
                f" {column} {columns[column]} meanwhile; begin again"
            )
    new = tuple((column, kind) for column, kind in added if column not in columns)
    _, before = seen_table(state, txn, name)
    others = record.columns[len(before.columns) :]
    stored = FileFormat.of(record.properties)
    known_by = "position" if stored.by_position else "id" if stored.has_column_ids else ""
    if known_by and others != tuple(added)[: len(others)]:
        raise DeclarationChanged(
            f"{', '.join(column for column, _ in others)} were added to {record.name} since, and"
            f" its files know columns by their {known_by}; begin transaction {txn.txn_id} again"
        )
    return record.with_columns((*record.columns, *new)) if new else None


# --- what nobody sees any more --------------------------------------------------------------------


def outlived(state: State) -> bool:
    """Whether `forget` has something to forget."""
    changed = [
        table for table in state.tables.values() if table.earlier or table.dropped_partitions
    ]
    if not (changed or state.dropped_tables or state.earlier_views):
        return False
    ends = _Ends(state)
    return (
        any(earlier_view.until <= ends.oldest for earlier_view in state.earlier_views)
        or any(not ends.asked(table, earlier) for table in changed for earlier in table.earlier)
        or any(ends.partitions(table) for table in changed)
        or any(ends.table(table) for table in state.dropped_tables.values())
    )


def forget(state: State) -> None:
    """Removes what no open snapshot sees; dropped tables and partitions once they are cleaned
    (C41)."""
    ends = _Ends(state)
    state.earlier_views = [view for view in state.earlier_views if view.until > ends.oldest]
    for table_id, table in state.tables.items():
        if table.earlier:
            table.earlier = [
                declaration for declaration in table.earlier if ends.asked(table, declaration)
            ]
        over = ends.partitions(table)
        if over:
            table.dropped_partitions = [
                partition for partition in table.dropped_partitions if partition.name not in over
            ]
            for name in over:
                state.dropped_directories.pop((table_id, name), None)
    for table_id, table in list(state.dropped_tables.items()):
        if ends.table(table):
            del state.dropped_tables[table_id]
            state.sinks = {key: sink for key, sink in state.sinks.items() if key[1] != table_id}
            for entity in [
                directory for directory in state.dropped_directories if directory[0] == table_id
            ]:
                del state.dropped_directories[entity]


class _Ends:
    """The drops that every open snapshot sees and for which the Cleaner has finished (P22)."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.oldest = first_snapshot(state)(0)
        self._removing: dict[int, set[str | None]] = {}
        for drop in state.drops():
            self._removing.setdefault(drop.table_id, set()).add(drop.partition)

    def of(self, table: TableState) -> int:
        """The oldest moment of which its declaration may be asked (P28, P36)."""
        return min(self.oldest, snapshots.oldest_kept(self._state, table))

    def asked(self, table: TableState, earlier: Earlier) -> bool:
        """Whether a snapshot may ask for the declaration, or a read as of the oldest write id."""
        return earlier.until > self.of(table) or (
            earlier.record.version <= table.anchor < earlier.until
        )

    def table(self, table: TableState) -> bool:
        return table.dropped <= self.oldest and table.record.table_id not in self._removing

    def partitions(self, table: TableState) -> set[str]:
        """Partitions whose last drop has ended: their directories are forgotten together."""
        last = {partition.name: partition.dropped for partition in table.dropped_partitions}
        oldest = self.of(table) if last else 0
        removing = self._removing.get(table.record.table_id, ())
        return {
            name for name, dropped in last.items() if dropped <= oldest and name not in removing
        }
