"""Converts the state to rows of the tables and back: what a snapshot holds and a start reads."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from typing import Any

from acid_platform.metastore.codec import decode, encode, left_out
from acid_platform.metastore.rules.declared import directories
from acid_platform.metastore.rules.state import Ended, State
from acid_platform.metastore.server.stored_kinds import KINDS, LIVE

Row = dict[str, Any]
Rows = dict[str, list[Row]]

COUNTERS = (
    "next_txn",
    "next_lock",
    "next_table",
    "next_compaction",
    "next_moment",
    "longest_timeout",
)
"""Numbers that belong to the whole state; the `next_` numbers are never used twice."""

_LEFT_OUT = {kind.name: left_out(kind.record) for kind in KINDS}
_LEFT_OUT_OF_ENDED = left_out(Ended)


def counters(state: State) -> dict[str, int]:
    return {name: getattr(state, name) for name in COUNTERS}


def live_rows(state: State, names: Container[str] = LIVE) -> Rows:
    """The rows of these live tables: all of them are the state except counters, heartbeats and
    what has ended."""
    return {
        kind.name: [
            {**_LEFT_OUT[kind.name], **dict(zip(kind.key, key, strict=True)), **encode(record)}
            for key, record in kind.every(state).items()
        ]
        for kind in KINDS
        if kind.name in names
    }


def ended_rows(state: State) -> Rows:
    """What has ended since the last snapshot, for the KEPT tables."""
    return {
        "txns": [{**_LEFT_OUT_OF_ENDED, **encode(ended)} for ended in state.ended.values()],
        "outcomes": [encode(outcome) for outcome in state.outcomes.values()],
        "writes": [encode(row) for row in state.written],
    }


def recorded_rows(state: State) -> list[Row]:
    """The files of directories that were recorded since the last snapshot and still exist (P26)."""
    return [
        {"table_id": table_id, "partition": partition, "directory": name, "contents": contents}
        for (table_id, partition), by_name in state.contents.items()
        for name, contents in by_name.items()
        if name in directories(state, (table_id, partition))
    ]


@dataclass(frozen=True, slots=True)
class Unsaved:
    """What had ended and been recorded at some position since the snapshot before."""

    ended: int
    outcomes: int
    written: int
    contents: dict[tuple[int, str | None], dict[str, str]]

    @classmethod
    def of(cls, state: State) -> Unsaved:
        contents = {entity: dict(by_name) for entity, by_name in state.contents.items()}
        return cls(len(state.ended), len(state.outcomes), len(state.written), contents)

    def forget(self, state: State) -> None:
        """Removes it from memory, since a snapshot has it; what came later stays."""
        # Nothing else removes these, so the first are the oldest.
        state.ended = dict(islice(state.ended.items(), self.ended, None))
        state.outcomes = dict(islice(state.outcomes.items(), self.outcomes, None))
        del state.written[: self.written]
        for entity, saved in self.contents.items():
            by_name = state.contents.get(entity, {})
            state.contents[entity] = {
                name: text for name, text in by_name.items() if saved.get(name) != text
            }
            if not state.contents[entity]:
                del state.contents[entity]


def restore(rows: Rows, numbers: dict[str, int]) -> State:
    """The state that has these `live_rows` and `counters`."""
    state = State(databases={})
    for name, number in numbers.items():
        setattr(state, name, number)
    for kind in KINDS:
        listed = rows[kind.name]
        if kind.order:
            listed = sorted(listed, key=itemgetter(*kind.order))
        key_of = itemgetter(*kind.key)
        for row in listed:
            key = key_of(row) if len(kind.key) > 1 else (row[kind.key[0]],)
            kind.put(state, key, decode(kind.record, row))
    state.queue = dict(sorted(state.queue.items()))  # compactions and drops
    return state
