"""Which files are the warehouse's own: its identity, and locations outside its root (P31).

A location that begins with `/` or has a scheme is external: another warehouse may use it too. In a
copy of a metastore, made by a restore or by copying its files, external locations are foreign:
nothing there is written, compacted or removed until they are taken over.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field, replace

from acid_platform.compaction.states import CompactionState
from acid_platform.metastore import operations as ops
from acid_platform.metastore.codec import FLAT
from acid_platform.metastore.places import is_relative
from acid_platform.metastore.records import Identity
from acid_platform.metastore.rules.compactions import to_history
from acid_platform.metastore.rules.state import State
from acid_platform.metastore.rules.turn import Event, Turn, handles

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
    if any(not is_relative(place) for place in _locations(turn.state)):
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
