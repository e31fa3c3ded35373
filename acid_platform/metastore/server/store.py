"""What a process knows of its log: the newest snapshot, and how far it has read (P3).

`python -m acid_platform.metastore.server.store --log WHERE --until POSITION …` writes the next
snapshot while the leader goes on: it reads the one before and the batches after, as a start does.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar

from acid_platform.base.databases import Error
from acid_platform.base.local_files import scratch_directory
from acid_platform.errors import BackupRefused, MetastoreDamaged
from acid_platform.metastore.client.target import environment
from acid_platform.metastore.log.contract import (
    Batch,
    BatchesForgotten,
    Log,
    PositionTaken,
    open_log,
)
from acid_platform.metastore.log.local import LocalLog
from acid_platform.metastore.messages import Row, encode, json_text
from acid_platform.metastore.records import HistoryRow
from acid_platform.metastore.rules.machine import Machine
from acid_platform.metastore.rules.state import Ended, Outcome, State
from acid_platform.metastore.rules.turn import Recorded
from acid_platform.metastore.server.state_tables import (
    Origin,
    StateFile,
    StateTables,
    open_state,
    publish_state,
    write_state,
)

_Result = TypeVar("_Result")


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


class Store:
    """For one thread.

    Raises MetastoreIncompatible, MetastoreDamaged, OSError, duckdb.Error, and what the log raises.
    """

    def __init__(self, log: Log, directory: Path) -> None:
        """`directory` is local, for snapshots of a log that is elsewhere and for new ones."""
        self.log, self._directory = log, directory
        self._file: StateFile | None = None
        self._tables: tuple[int, StateTables] | None = None
        self.end = Origin(0, 0, 0, "")
        """The last batch that was read or appended."""
        self.unsaved_bytes = 0
        """The size of the batches since the newest snapshot."""
        self._epoch = 0
        """The epoch that this process has begun."""

    # --- reading the log ------------------------------------------------------------------------

    def load(self, until: int | None = None) -> tuple[State, list[Recorded]]:
        """The state of the newest snapshot, and the events since, up to a position.

        It begins anew if a leader has replaced the batches by a snapshot meanwhile.
        """
        while True:
            self.open_newest()
            if self._file is not None and isinstance(self.log, LocalLog):
                self.log.require_history(self._file.origin.history, self._file.path)
            self.end = self._file.origin if self._file else Origin(0, 0, 0, "")
            self.unsaved_bytes = 0
            state = self._file.state() if self._file else State()
            try:
                return state, self.follow(until)
            except BatchesForgotten:
                if max(self.log.snapshots(), default=0) <= self.saved:
                    raise

    def follow(self, until: int | None = None) -> list[Recorded]:
        """The events of the batches that were appended since the last look, up to a position."""
        events: list[Recorded] = []
        for batch in self.log.read(self.end.position):
            if until is not None and batch.position > until:
                break
            self._require_next(batch)
            events += events_of(batch)
            self._advance(batch)
        return events

    def _require_next(self, batch: Batch) -> None:
        if batch.position != self.end.position + 1 or batch.epoch < self.end.epoch:
            raise MetastoreDamaged(
                f"batch {batch.position} of epoch {batch.epoch} in {self.log.place} follows batch"
                f" {self.end.position} of epoch {self.end.epoch}; restore a backup"
            )

    def _advance(self, batch: Batch) -> None:
        self.end = Origin.of(batch, self.log.history)
        self.unsaved_bytes += len(batch.text)

    # --- appending ------------------------------------------------------------------------------

    def begin_epoch(self, epoch: int, now: int) -> None:
        """Appends the first batch of an epoch, so that earlier leaders can append no more.

        Raises PositionTaken if one of them was faster: `follow` then has its batch.
        """
        self._append(Batch(self.end.position + 1, epoch, now, "[]"))
        self._epoch = epoch

    def append(self, events: Sequence[Recorded]) -> None:
        """Makes the events durable. Raises OSError, PositionTaken."""
        self._require_leading()
        text = json_text([record.as_json() for record in events])
        self._append(Batch(self.end.position + 1, self._epoch, events[-1].at, text))

    def settle(self, now: int) -> None:
        """Appends a batch without events, so that an append that failed can't get through later.

        Raises PositionTaken if it just did.
        """
        self._require_leading()
        self._append(Batch(self.end.position + 1, self._epoch, now, "[]"))

    def _require_leading(self) -> None:
        if self.end.epoch != self._epoch:  # it was read after an append that failed
            raise PositionTaken(f"epoch {self.end.epoch} has followed on epoch {self._epoch}")

    def _append(self, batch: Batch) -> None:
        self.log.append(batch)
        self._advance(batch)

    # --- snapshots ------------------------------------------------------------------------------

    @property
    def saved(self) -> int:
        """The position of the newest snapshot that is open here."""
        return self._file.origin.position if self._file else 0

    def open_newest(self) -> None:
        """Opens the newest snapshot of the log, if it is newer than the one that is open."""
        missing = 0
        while (newest := max(self.log.snapshots(), default=0)) > self.saved:
            try:
                path = self.log.get_snapshot(newest, self._directory)
                opened = open_state(path, self._directory)
            except FileNotFoundError as error:  # replaced by a newer one just now
                if newest == missing:
                    raise MetastoreDamaged(
                        f"{self.log.place} lists a snapshot at {newest} that can't be read; restore"
                        " a backup"
                    ) from error
                missing = newest
                continue
            self.let_go()
            self._file = opened

    def save(self, state: State, forget_before: int) -> None:
        """Puts a snapshot of the state into the log; it must be the state at the end of the log."""
        # Another process may still write one, if its leader was killed.
        for leftover in self._directory.glob("snapshot-*.new*"):
            leftover.unlink(missing_ok=True)
        draft = self._directory / f"snapshot-{os.getpid()}.new"
        self._retried(lambda: write_state(draft, state, self.end, self.path, forget_before))
        self.log.put_snapshot(self.end.position, draft)
        self.open_newest()
        Unsaved.of(state).forget(state)
        self.unsaved_bytes = 0

    # --- what memory no longer holds ------------------------------------------------------------

    def past_txn(self, txn_id: int) -> Ended | None:
        return self._file.past_txn(txn_id) if self._file else None

    def past_outcome(self, request_id: str) -> Outcome | None:
        return self._file.past_outcome(request_id) if self._file else None

    def recorded(
        self, table_id: int, partitions: Sequence[str | None]
    ) -> Mapping[tuple[str | None, str], str]:
        """The files of directories in the newest snapshot, by partition and directory (P26)."""
        return self._file.recorded(table_id, partitions) if self._file else {}

    def history(self, state: State, table_id: int, more: Sequence[HistoryRow] = ()) -> list[Row]:
        """The writes of a table, oldest first, and then those of `more` that are of it."""
        recent = [row for row in (*state.written, *more) if row.table_id == table_id]
        # Memory may still have what the snapshot has. A directory may have several rows.
        keys = {(row.write_id, row.partition, row.directory) for row in recent}
        saved = self._file.history(table_id) if self._file else []
        rows = [
            row for row in saved if (row.write_id, row.partition, row.directory) not in keys
        ] + recent
        return [
            {**encode(row), "message": row.message, "operation": row.operation.name.lower()}
            for row in rows
        ]

    def query(self, state: State, sql: str) -> tuple[list[str], list[list[object]]]:
        """See `StateTables.query`; `state` is the one at the end of the log."""
        if self._tables is None or self._tables[0] != self.end.position:
            self._close_tables()
            tables = self._retried(lambda: StateTables(state, self.end, self.path))
            self._tables = self.end.position, tables
        return self._tables[1].query(sql)

    def _retried(self, call: Callable[[], _Result]) -> _Result:
        while True:
            try:
                return call()
            except FileNotFoundError:  # replaced by a newer one just now
                gone = self.saved
                self.open_newest()
                if not gone < self.saved <= self.end.position:
                    raise

    @property
    def saved_bytes(self) -> int:
        return self._file.size if self._file else 0

    @property
    def path(self) -> Path | None:
        return self._file.path if self._file else None

    def close(self) -> None:
        self.let_go()
        self.log.close()

    def let_go(self) -> None:
        """Closes the snapshot; the log stays open."""
        self._close_tables()
        if self._file is not None:
            self._file.close()
        self._file = None

    def _close_tables(self) -> None:
        if self._tables is not None:
            self._tables[1].close()
        self._tables = None


def events_of(batch: Batch) -> list[Recorded]:
    """Raises MetastoreDamaged for a batch that holds no events that this program knows."""
    try:
        return [Recorded.parse(kind, at, body) for kind, at, body in json.loads(batch.text)]
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise MetastoreDamaged(
            f"batch {batch.position} holds no events of a metastore: {type(error).__name__}:"
            f" {error}; restore a backup"
        ) from error


def machine_at(store: Store, until: int | None = None) -> Machine:
    """The state machine at the end of the log, or at a position."""
    state, events = store.load(until)
    machine = Machine(state, store)
    machine.replay(events)
    return machine


_ATTEMPTS = 5


def start_saving(log: Log, until: int, forget_before: int) -> subprocess.Popen[bytes]:
    """Starts the process; it ends with 0 once the log has the snapshot."""
    command = [sys.executable, "-P", "-m", __name__, "--log", log.where, "--until", str(until)]
    command += ["--forget-before", str(forget_before), "--leader", str(os.getpid())]
    return subprocess.Popen(command, env=environment(), cwd="/", stdin=subprocess.DEVNULL)


def write_copy(log: Log, file: Path) -> Origin:
    """Writes a snapshot of the end of the log to a new file, while its leader goes on.

    Raises BackupRefused if the file exists or can't be written, and what reading the log raises.
    """
    if file.exists():
        raise BackupRefused(f"{file} exists; name a new file")
    if not file.parent.is_dir():
        raise BackupRefused(f"{file} can't be written: {file.parent} is no directory")
    with scratch_directory("copy") as scratch:
        for attempts_left in reversed(range(_ATTEMPTS)):
            store = Store(log, Path(scratch))
            try:
                state = machine_at(store).state
                publish_state(file, state, store.end, store.path)
                break
            except FileExistsError as error:
                raise BackupRefused(f"{file} exists; name a new file") from error
            except (MetastoreDamaged, FileNotFoundError):
                # The leader may have replaced batches by a snapshot meanwhile.
                if not attempts_left:
                    raise
            except (Error, OSError) as error:
                raise BackupRefused(f"{file} can't be written: {error}") from error
            finally:
                store.let_go()
    return store.end


def _end_with(leader: int) -> None:
    """Ends this process after its leader: another log may be at that place then."""
    while os.getppid() == leader:
        time.sleep(0.2)
    os._exit(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", required=True)
    parser.add_argument("--until", type=int, required=True)
    parser.add_argument("--forget-before", type=int, required=True)
    parser.add_argument("--leader", type=int, required=True)
    chosen = parser.parse_args()
    os.umask(0o077)
    threading.Thread(target=_end_with, args=(chosen.leader,), daemon=True).start()
    with scratch_directory("saving") as scratch:
        local = "://" not in chosen.log
        log = LocalLog(Path(chosen.log)) if local else open_log(chosen.log)
        store = Store(log, Path(chosen.log if local else scratch))
        state = machine_at(store, chosen.until).state
        if store.saved < chosen.until:  # otherwise another leader was faster
            store.save(state, chosen.forget_before)
        store.close()


if __name__ == "__main__":
    main()
