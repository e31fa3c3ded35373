"""Logs for the simulator: one in memory, which loses acknowledgements, and one in a directory.

Everything goes through JSON, as in a file, so that no shared object of a process survives a crash.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from acid_platform.metastore.log.contract import Batch, BatchesForgotten, PositionTaken
from acid_platform.metastore.log.local import LocalLog
from acid_platform.metastore.messages import decode
from acid_platform.metastore.rules.declared import directories
from acid_platform.metastore.rules.state import Ended, Outcome, State
from acid_platform.metastore.server import stored_kinds
from acid_platform.metastore.server.state_tables import Origin
from acid_platform.metastore.server.store import Store, Unsaved


class Place(Protocol):
    """Where the log of a simulated metastore lies."""

    shared: bool
    """Whether several processes may lead it, and acknowledgements get lost."""

    def store(self, appends: bool = True) -> Store:
        """The store of another process."""


class MemoryLog:
    """A log that several processes share."""

    where = place = "memory"
    history = "0123456789abcdef"
    exists = True

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        """Those that are not forgotten."""
        self.last = 0
        self.files: dict[int, tuple[Origin, str]] = {}
        """Snapshots by position: where they come from, and their content."""
        self.failing = ""
        """What happens to the next append: it is `lost`, its `answer` is lost, it is `late`, or the
        log is `away`, so that it isn't even refused."""
        self.late: list[Batch] = []
        """Appends that failed and may get through later."""
        self.arriving = False
        """Whether what is late arrives just before the next append."""
        self.attempted: Batch | None = None
        """What an append was last asked for."""
        self.broken = 0
        """If it is not 0: reading ends with an error after so many batches."""

    def create(self, after: int = 0) -> None:
        """Does nothing: it is there."""

    def open_to_append(self) -> None:
        """Does nothing."""

    def append(self, batch: Batch) -> None:
        failing, self.failing = self.failing, ""
        self.attempted = batch
        if self.arriving:
            self.arrive()
        if failing == "away":
            raise OSError("the log can't be reached")
        self.require_free(batch)
        if failing == "late":
            self.late.append(batch)
        elif failing != "lost":
            self._put(batch)
        if failing:
            raise OSError(f"the log can't be reached: {failing}")

    def require_free(self, batch: Batch) -> None:
        if batch.position != self.last + 1:
            raise PositionTaken(f"the log ends with batch {self.last}")

    def _put(self, batch: Batch) -> None:
        self.batches.append(batch)
        self.last = batch.position

    def arrive(self) -> None:
        """What is late gets through, or finds its position taken."""
        for batch in self.late:
            if batch.position == self.last + 1:
                self._put(batch)
        self.late, self.arriving = [], False

    def has(self, batch: Batch | None) -> bool:
        return any(each is batch for each in self.batches)

    def read(self, after: int) -> Iterator[Batch]:
        broken, self.broken = self.broken, 0
        if after < self.last and (not self.batches or self.batches[0].position > after + 1):
            raise BatchesForgotten(f"batch {after + 1} is forgotten")
        for batch in self.batches:
            if batch.position > after:
                yield batch
                broken -= 1
                if not broken:
                    raise OSError("the log can't be read")

    def snapshots(self) -> list[int]:
        return sorted(self.files)

    def put_content(self, origin: Origin, content: str) -> None:
        """A snapshot is put, and what it replaces is forgotten."""
        self.files[origin.position] = origin, content
        newest = max(self.files)
        self.files = {at: file for at, file in self.files.items() if at >= origin.position}
        self.batches = [batch for batch in self.batches if batch.position > newest]

    def close(self) -> None:
        """Does nothing."""


class MemoryFile:
    """A snapshot in memory."""

    path = None
    size = 0

    def __init__(self, origin: Origin, content: str) -> None:
        self.origin = origin
        self.rows, self._numbers, ended, recorded = json.loads(content)
        self.txns = {row["txn_id"]: row for row in ended["txns"]}
        self.outcomes = {row["request_id"]: row for row in ended["outcomes"]}
        self.files = {
            (row["table_id"], row["partition"], row["directory"]): row["contents"]
            for row in recorded
        }

    def state(self) -> State:
        return stored_kinds.restore(self.rows, self._numbers)

    def past_txn(self, txn_id: int) -> Ended | None:
        row = self.txns.get(txn_id)
        return decode(Ended, row) if row else None

    def past_outcome(self, request_id: str) -> Outcome | None:
        row = self.outcomes.get(request_id)
        return decode(Outcome, row) if row else None

    def recorded(
        self, table_id: int, partitions: Sequence[str | None]
    ) -> Mapping[tuple[str | None, str], str]:
        return {
            (partition, name): contents
            for (known, partition, name), contents in self.files.items()
            if known == table_id and partition in partitions
        }

    def close(self) -> None:
        """Does nothing."""


class MemoryStore(Store):
    """What one process knows of a log in memory."""

    log: MemoryLog
    _file: Any

    def __init__(self, log: MemoryLog) -> None:
        super().__init__(log, Path("/nonexistent"))  # type: ignore[arg-type]

    def open_newest(self) -> None:
        newest = max(self.log.snapshots(), default=0)
        if newest > self.saved:
            self._file = MemoryFile(*self.log.files[newest])

    def save(self, state: State, forget_before: int) -> None:
        ended = stored_kinds.ended_rows(state)
        recorded = {
            (row["table_id"], row["partition"], row["directory"]): row
            for row in stored_kinds.recorded_rows(state)
        }
        txns = {row["txn_id"]: row for row in ended["txns"]}
        outcomes = {row["request_id"]: row for row in ended["outcomes"]}
        if self._file is not None:
            txns = self._file.txns | txns
            outcomes = self._file.outcomes | outcomes
            for (table_id, partition, name), contents in self._file.files.items():
                if name in directories(state, (table_id, partition)):
                    row = {"table_id": table_id, "partition": partition, "directory": name}
                    recorded.setdefault((table_id, partition, name), row | {"contents": contents})
        kept = {"txns": [*txns.values()], "outcomes": [*outcomes.values()]}
        live = stored_kinds.live_rows(state), stored_kinds.counters(state)
        self.log.put_content(self.end, json.dumps([*live, kept, [*recorded.values()]]))
        self.open_newest()
        Unsaved.of(state).forget(state)
        self.unsaved_bytes = 0


class Memory:
    """A log in memory."""

    shared = True

    def __init__(self) -> None:
        self.log = MemoryLog()

    def store(self, appends: bool = True) -> Store:
        return MemoryStore(self.log)


class InDirectory:
    """The log in a directory, which one process at a time leads."""

    shared = False

    def __init__(self, directory: Path) -> None:
        self.directory, self.opened = directory, list[Store]()
        LocalLog(directory).create()

    def store(self, appends: bool = True) -> Store:
        log = LocalLog(self.directory)
        if appends:
            log.open_to_append()
        self.opened.append(Store(log, self.directory))
        return self.opened[-1]

    def close(self) -> None:
        for store in self.opened:
            store.close()
