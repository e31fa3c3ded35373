"""The journal and its tables in memory, with the store's operations: append, fold, load.

Everything goes through JSON, as in the file, so that no shared object of the process survives a
crash.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from acid_platform.metastore.codec import decode
from acid_platform.metastore.rules.declared import directories
from acid_platform.metastore.rules.events import Recorded
from acid_platform.metastore.rules.state import Ended, Outcome, State
from acid_platform.metastore.server import state_rows


class Storage(Protocol):
    """The storage that the simulated process needs; the store implements it too."""

    def append(self, events: Sequence[Recorded]) -> None: ...
    def load(self) -> tuple[State, list[Recorded]]: ...
    def fold(self, state: State, forget_before: int) -> None: ...
    def past_txn(self, txn_id: int) -> Ended | None: ...
    def past_outcome(self, request_id: str) -> Outcome | None: ...
    def recorded(
        self, table_id: int, partitions: Sequence[str | None]
    ) -> Mapping[tuple[str | None, str], str]: ...


class MemoryStore:
    """Storage in memory: what was appended is still there after a simulated crash."""

    def __init__(self) -> None:
        self._journal: list[tuple[str, int, str]] = []
        self._live = ""
        self._txns: dict[int, dict[str, Any]] = {}
        self._outcomes: dict[str, dict[str, Any]] = {}
        self._recorded: dict[tuple[int, str | None, str], str] = {}

    def append(self, events: Sequence[Recorded]) -> None:
        for kind, at, body in (record.as_json() for record in events):
            self._journal.append((kind, at, json.dumps(body)))

    def load(self) -> tuple[State, list[Recorded]]:
        events = [Recorded.parse(kind, at, json.loads(body)) for kind, at, body in self._journal]
        if not self._live:
            return State(), events
        rows, numbers = json.loads(self._live)
        return state_rows.restore(rows, numbers), events

    def fold(self, state: State, forget_before: int) -> None:
        over = json.loads(json.dumps(state_rows.ended_rows(state)))
        self._txns |= {row["txn_id"]: row for row in over["txns"]}
        self._outcomes |= {row["request_id"]: row for row in over["outcomes"]}
        self._live = json.dumps([state_rows.live_rows(state), state_rows.counters(state)])
        self._recorded |= {
            (row["table_id"], row["partition"], row["directory"]): row["contents"]
            for row in state_rows.recorded_rows(state)
        }
        self._recorded = {
            key: contents
            for key, contents in self._recorded.items()
            if key[2] in directories(state, key[:2])
        }
        self._journal = []

    def past_txn(self, txn_id: int) -> Ended | None:
        row = self._txns.get(txn_id)
        return decode(Ended, row) if row else None

    def recorded(
        self, table_id: int, partitions: Sequence[str | None]
    ) -> Mapping[tuple[str | None, str], str]:
        return {
            (partition, name): contents
            for (known, partition, name), contents in self._recorded.items()
            if known == table_id and partition in partitions
        }

    def past_outcome(self, request_id: str) -> Outcome | None:
        row = self._outcomes.get(request_id)
        return decode(Outcome, row) if row else None
