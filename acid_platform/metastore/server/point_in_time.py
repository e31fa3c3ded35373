"""The state as of a moment, from a log or an archive of it (P40)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from acid_platform.base.local_files import scratch_directory
from acid_platform.errors import BackupRefused
from acid_platform.metastore.log.contract import Batch, Log, first_after
from acid_platform.metastore.pasts import utc_text
from acid_platform.metastore.rules.machine import Machine
from acid_platform.metastore.rules.state import State
from acid_platform.metastore.server.state_file import Origin, StateFile, open_state
from acid_platform.metastore.server.state_tables import publish_state
from acid_platform.metastore.server.store import events_of

LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Until:
    """How far to restore: to a moment in milliseconds UTC, to a position, or to the end."""

    moment: int | None = None
    position: int | None = None

    @classmethod
    def parse(cls, text: str) -> Until:
        """`latest`, the position of a batch, or a time in ISO form: UTC if it has no zone.

        Raises BackupRefused.
        """
        if text.strip().lower() == LATEST:
            return cls()
        if re.fullmatch(r"\d{1,18}", text.strip()):
            return cls(position=int(text))
        try:
            moment = datetime.fromisoformat(text.strip().removesuffix(" UTC"))
        except ValueError as error:
            raise BackupRefused(
                f"--until {text!r} is no time such as '2026-11-23 17:05:09' (UTC, or with a zone),"
                f" no position of the log, and not {LATEST!r}"
            ) from error
        zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return cls(moment=round(zoned.timestamp() * 1000))

    def includes(self, end: Origin | Batch) -> bool:
        """Whether this batch, or the end of a snapshot, is not later."""
        if self.position is not None:
            return end.position <= self.position
        return self.moment is None or end.made <= self.moment

    def is_beyond(self, end: Origin) -> bool:
        """Whether a log that ends there does not reach so far."""
        if self.position is not None:
            return end.position < self.position
        return self.moment is not None and end.made < self.moment

    def __str__(self) -> str:
        if self.position is not None:
            return f"position {self.position}"
        return LATEST if self.moment is None else utc_text(self.moment)


@dataclass(frozen=True, slots=True)
class Rebuilt:
    path: str
    log: str
    position: int
    """The batch after which it has the state."""
    made: int
    """The moment of that batch, in milliseconds UTC."""
    batches: int
    """How many batches were read after the snapshot before."""


def rebuild(log: Log, until: Until, file: Path) -> Rebuilt:
    """Writes the new snapshot `file` with the state as of `until`.

    Raises BackupRefused if the log does not reach from a snapshot or its beginning to there, and
    what reading the log raises.
    """
    if file.exists():
        raise BackupRefused(f"{file} exists; name a new file")
    with scratch_directory("restore") as scratch:
        begun = _snapshot_before(log, until, Path(scratch))
        end = begun.origin if begun else Origin(0, 0, 0, log.history)
        machine = Machine(begun.state() if begun else State())
        batches, later = 0, False
        for batch in log.read(end.position):
            if not until.includes(batch):
                later = True
                break
            machine.replay(events_of(batch))
            end = Origin.of(batch, log.history)
            batches += 1
            if batch.position == until.position:
                break
        if until.is_beyond(end) and not later:
            raise BackupRefused(
                f"{log.place} has every batch up to position {end.position}, of"
                f" {utc_text(end.made)}, but does not reach {until}; restore with --until"
                f" {LATEST}"
            )
        try:
            publish_state(file, machine.state, end, begun.path if begun else None)
        finally:
            if begun is not None:
                begun.close()
    return Rebuilt(str(file), log.place, end.position, end.made, batches)


@dataclass(frozen=True, slots=True)
class Window:
    """What a log can restore: from its first state to its last."""

    first: Origin
    last: Origin
    snapshots: int


def window_of(log: Log) -> Window:
    """Raises what reading the log raises."""
    positions = log.snapshots()
    first = last = None
    with scratch_directory("restore") as scratch:
        for position in positions[:1]:
            file = open_state(log.get_snapshot(position, Path(scratch)), Path(scratch))
            first = last = file.origin
            file.close()
        for batch in log.read(first.position if first else 0):
            last = Origin.of(batch, log.history)
            first = first or last
    nothing = Origin(0, 0, 0, log.history)
    return Window(first or nothing, last or nothing, len(positions))


def _snapshot_before(log: Log, until: Until, scratch: Path) -> StateFile | None:
    """The newest snapshot that is not later; None if the log has every batch. Raises
    BackupRefused."""
    positions = log.snapshots()
    for position in reversed(positions):
        file = open_state(log.get_snapshot(position, scratch), scratch)
        if until.includes(file.origin):
            return file
        file.close()
    first = first_after(log, 0)
    if first is None or not until.includes(first):
        raise BackupRefused(
            f"{log.place} has nothing from {until} or before, with which a restore could begin;"
            " `acid metastore archive` shows what can be restored"
        )
    return None
