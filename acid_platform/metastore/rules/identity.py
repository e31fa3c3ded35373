"""Which files are the warehouse's own, and a metastore that was restored from a backup (P31, P24).

A location that begins with `/` or has a scheme is external: another warehouse may use it too. In a
copy of a metastore, made by a restore or by copying its files, external locations are foreign:
nothing there is written, compacted or removed until they are taken over.

After a restore, write ids that were allocated after the backup, or whose transaction was open in
it, are doubtful: no snapshot sees them, no compaction passes them and no Cleaner removes their
files, until somebody says which were committed and which were aborted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from typing import NamedTuple

from acid_platform.compaction.states import CompactionState
from acid_platform.errors import InvalidDefinition
from acid_platform.layout.names import parse_directory
from acid_platform.metastore import operations as ops
from acid_platform.metastore.messages import FLAT, ranges
from acid_platform.metastore.places import is_relative
from acid_platform.metastore.records import Identity, RecordedDirectory
from acid_platform.metastore.rules import snapshots
from acid_platform.metastore.rules.compactions import to_history
from acid_platform.metastore.rules.state import State, TableState
from acid_platform.metastore.rules.table_declarations import register_partitions
from acid_platform.metastore.rules.turn import Event, Turn, handles
from acid_platform.metastore.rules.write_set import place_directory

# --- decisions ----------------------------------------------------------------------------------


@handles(ops.GetIdentity)
def identity(turn: Turn, _operation: ops.GetIdentity) -> Identity:
    return turn.state.identity or Identity()


@handles(ops.Identify)
def identify(turn: Turn, operation: ops.Identify) -> Identity:
    if turn.state.identity is None:
        turn.record(Identified(Identity(operation.id)))
    return turn.state.identity or Identity()


@handles(ops.ReportIdentityPlaced)
def placed(turn: Turn, operation: ops.ReportIdentityPlaced) -> None:
    if turn.state.identity == Identity(operation.id, placed=False):
        turn.record(Identified(Identity(operation.id, placed=True)))


@handles(ops.TakeOver)
def take_over(turn: Turn, operation: ops.TakeOver) -> list[str]:
    """Raises NoSuchTable."""
    every = (
        turn.state.tables.values() if operation.name is None else [turn.state.table(operation.name)]
    )
    taken = [table.record for table in every if table.record.foreign]
    if taken:
        turn.record(TakenOver(tuple(record.table_id for record in taken)))
    return sorted(record.name for record in taken)


@handles(ops.GetDropped)
def location(turn: Turn, operation: ops.GetDropped) -> int | None:
    waiting = (
        drop.highest_write_id for drop in turn.state.drops() if drop.location == operation.location
    )
    return max(waiting, default=None)


def copied(turn: Turn) -> None:
    """Makes every table outside the warehouse foreign, since the metastore's files are a copy."""
    if any(not is_relative(where) for where in _locations(turn.state)):
        turn.record(Copied())


def _locations(state: State) -> Iterable[str]:
    yield from (table.record.location for table in state.tables.values())
    yield from state.locations
    yield from (drop.location for drop in state.drops())


# --- events -------------------------------------------------------------------------------------


class Identified(Event, kind="identified"):
    """Gives the metastore an identity, or notes that the warehouse's root carries it (P31)."""

    identity: Identity = field(metadata=FLAT)

    def apply(self, state: State, _at: int) -> None:
        state.identity = self.identity


class Copied(Event, kind="copied"):
    """The metastore's files turned out to be a copy (P31)."""

    def apply(self, state: State, at: int) -> None:
        disown(state, at)


def disown(state: State, at: int) -> None:
    """Makes every external location foreign, and keeps the files of dropped tables there."""
    outside = [key for key, table in state.tables.items() if not is_relative(table.record.location)]
    _mark(state, outside, True)
    why = "the files of the dropped table may belong to another warehouse, and stay"
    for row in [drop for drop in state.drops() if not is_relative(drop.location)]:
        to_history(state, replace(row, state=CompactionState.REFUSED, ended=at, error=why))


class TakenOver(Event, kind="taken_over"):
    tables: tuple[int, ...]

    def apply(self, state: State, _at: int) -> None:
        _mark(state, self.tables, False)
        for table_id in self.tables:  # the Initiator did not look at them while they were foreign
            state.changed |= dict.fromkeys(state.tables[table_id].entities(), state.next_moment)


def _mark(state: State, tables: Iterable[int], foreign: bool) -> None:
    for table_id in tables:
        table = state.tables[table_id]
        table.record = replace(table.record, foreign=foreign)


# --- after a restore ----------------------------------------------------------------------------


@handles(ops.GetDoubtful)
def doubtful(turn: Turn, _operation: ops.GetDoubtful) -> dict[str, list[tuple[int, int]]]:
    return doubtful_write_ids(turn.state)


def doubtful_write_ids(state: State) -> dict[str, list[tuple[int, int]]]:
    tables = sorted(state.tables.values(), key=lambda table: table.record.name)
    return {table.record.name: ranges(table.doubtful) for table in tables if table.doubtful}


@handles(ops.ResolveDoubtful)
def resolve(turn: Turn, operation: ops.ResolveDoubtful) -> list[tuple[int, int]]:
    """Raises NoSuchTable, InvalidDefinition."""
    table = turn.state.table(operation.name)
    committed, aborted = set(operation.committed), set(operation.aborted)
    wrong = sorted((committed | aborted) - table.doubtful | (committed & aborted))
    if wrong:
        raise InvalidDefinition(
            f"write ids {wrong} of {table.record.name} are not doubtful, or are listed as both;"
            f" the doubtful ids are {ranges(table.doubtful)}"
        )
    turn.record(
        DoubtResolved(
            table_id=table.record.table_id,
            committed=tuple(sorted(committed)),
            aborted=tuple(sorted(aborted)),
        )
    )
    return ranges(table.doubtful)


class Found(NamedTuple):
    """What is in an entity: the names of its directories, and the files of directories that the
    backup does not know."""

    table_id: int
    partition: str | None
    names: tuple[str, ...]
    unknown: tuple[RecordedDirectory, ...]


class MetastoreRestored(Event, kind="restored"):
    """`tables`: (table id, highest write id in its directories); `txn_id`: the highest transaction
    id there; `identity`: the warehouse's from now on (P31)."""

    tables: tuple[tuple[int, int], ...]
    txn_id: int
    identity: str
    present: tuple[Found, ...]

    def apply(self, state: State, at: int) -> None:
        state.identity = Identity(self.identity)
        disown(state, at)
        _rediscover(state, self.present)
        state.next_txn = max(state.next_txn, self.txn_id + 1)
        for table_id, highest in self.tables:
            table = state.tables[table_id]
            table.doubtful.update(range(table.next_write_id, highest + 1))
            if highest >= table.next_write_id:  # with columns of then, which nobody knows
                table.record = replace(table.record, retyped=highest)
            table.next_write_id = max(table.next_write_id, highest + 1)
        for txn in list(state.open_txns()):
            for table_id in txn.wrote:
                if table_id in state.tables:
                    _doubt(state.tables[table_id], txn.txn_id)
            for by_txn in (state.txns, state.components, state.heartbeats, state.reads):
                by_txn.pop(txn.txn_id, None)
        _settle_drops(state, at)
        state.branches, state.branch_commits = {}, {}  # what was written there is in doubt now
        for table in state.tables.values():
            # Doubtful write ids have no transaction any more; they must not raise a watermark.
            table.purged = max(table.purged, table.last_write_id)
            # What was committed or removed after the backup is not known in its order.
            snapshots.begin_history(table, state.next_moment, at, snapshots.UNKNOWN)
        state.moment()
        state.locks, state.locks_by_name, state.locks_by_txn, state.waiting = {}, {}, {}, {}
        state.departed = []
        state.cleaning = {}
        for row in [*state.compactions()]:
            if row.state is CompactionState.WORKING:
                state.queue[row.id] = replace(
                    row, state=CompactionState.INITIATED, worker="", started=0, txn_id=0
                )


def _settle_drops(state: State, at: int) -> None:
    """No dropped table comes back, since one may have done so after the backup; then it has later
    files, and if it could still do so, nothing of it is removed (P83)."""
    for drop in [*state.drops()]:
        table = state.dropped_tables.get(drop.table_id)
        if drop.partition is None and table is not None and snapshots.retention(state, table):
            why = "the metastore was restored; the table may have come back after the backup"
            to_history(state, replace(drop, state=CompactionState.REFUSED, ended=at, error=why))
        else:
            state.queue[drop.id] = replace(drop, cleaner_start=at)


def _rediscover(state: State, present: Sequence[Found]) -> None:
    """Records the directories that are newer than the backup, with their files.

    They include those of doubtful write ids, which no snapshot sees yet. Of the directories that
    the backup knows and that are gone, the obsolete ones are forgotten; whoever reads another one
    misses it (P26).
    """
    for table_id, partition, names, unknown in present:
        table = state.tables[table_id]
        if partition is not None:
            register_partitions(state, table, [partition])
        for new in unknown:
            directory = new.directory
            visibility = _visibility(directory.name)
            later = directory.high >= table.next_write_id or visibility >= state.next_txn
            if later or table.doubtful.intersection(range(directory.low, directory.high + 1)):
                place_directory(state, (table_id, partition), new)
        recorded = state.directories.get((table_id, partition), {})
        for name in [*recorded]:
            if recorded[name].obsolete and name not in names:
                del recorded[name]
                # A tag that needs it would show fewer rows.
                table.tags = {}


def _visibility(directory: str) -> int:
    name = parse_directory(directory) if directory else None
    return name.visibility if name is not None else 0


def _doubt(table: TableState, txn_id: int) -> None:
    write_id = table.by_txn.pop(txn_id, None)
    if write_id is not None:
        table.doubtful.add(write_id)
        table.writes = [row for row in table.writes if row.txn_id != txn_id]


class DoubtResolved(Event, kind="resolved"):
    table_id: int
    committed: tuple[int, ...]
    aborted: tuple[int, ...]

    def apply(self, state: State, at: int) -> None:
        table = state.tables[self.table_id]
        table.doubtful.difference_update(self.committed, self.aborted)
        table.aborted.update(self.aborted)
        moment = state.moment()
        for write_id in self.committed:
            snapshots.note_commit(state, table, moment, at, write_id)
