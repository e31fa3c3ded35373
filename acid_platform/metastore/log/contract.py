"""What a log does: append, read, keep snapshots, and name one leader at a time (P10).

Batches have positions without gaps. A log never holds two batches at one position: `append` of a
position that exists is refused. So no clock decides whether a commit counts. A leader that was
replaced finds its next position taken, since a new leader first appends a batch of its own epoch.
The lease in `Leader` only tells others when to try, and a leader whether it may answer reads.
"""

from __future__ import annotations

import secrets
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Protocol

from acid_platform.errors import MetastoreDamaged, MetastoreUnavailable


@dataclass(frozen=True, slots=True)
class Batch:
    """Events that became durable together."""

    position: int
    epoch: int
    """That of the leader that appended it; it never falls."""
    made: int
    """When it was decided, in milliseconds UTC."""
    text: str
    """The events as JSON. The first batch of an epoch has none."""


@dataclass(frozen=True, slots=True)
class Leader:
    """The process that may append, as it wrote itself into the log."""

    epoch: int
    address: str = ""
    """`host:port` at which clients reach it; empty if it has ended."""
    beat: int = 0
    """Counts the renewals of the lease."""
    lease: int = 0
    """Milliseconds for which others do nothing after they have seen a renewal."""
    key: str = field(default="", repr=False)
    """The key of the clients; who may read the log may know it."""
    authority: str = ""
    """The certificate of the authority (PEM) if the leader uses TLS."""


class PositionTaken(MetastoreUnavailable):
    """Another leader has appended: whoever gets this no longer leads."""


class BatchesForgotten(MetastoreDamaged):
    """Batches that are asked for are gone because a snapshot has replaced them: begin with that."""


class Log(Protocol):
    """A log, for one thread, except that `set_leader` may run in another.

    All methods raise OSError, or MetastoreUnavailable if the log can't be reached, and
    MetastoreDamaged if its content can't be right.
    """

    where: str
    """The address by which another process opens it; a path for a local directory."""

    @property
    def place(self) -> str:
        """Where the log is. A copy of the log has another place (P31)."""

    @property
    def history(self) -> str:
        """The id of this sequence of batches: 16 hexadecimal digits."""

    @property
    def exists(self) -> bool:
        """Whether it was created."""

    def create(self, after: int = 0) -> None:
        """Begins a new history, whose first position is the one after `after`."""

    def open_to_append(self) -> None:
        """Finds the end of the log. To be called before the first append, and after a failed one.

        Whatever can be read afterwards is durable.
        """

    def append(self, batch: Batch) -> None:
        """Makes a batch durable.

        If this raises PositionTaken, the batch is not in the log. After another error it may be.
        """

    def read(self, after: int) -> Iterator[Batch]:
        """The batches after this position, in order."""

    def snapshots(self) -> list[int]:
        """The positions of the snapshots, lowest first."""

    def get_snapshot(self, position: int, directory: Path) -> Path:
        """The DuckDB file with the state after the batch at this position.

        It is below `directory` if the log is elsewhere. Raises FileNotFoundError if it is gone.
        """

    def put_snapshot(self, position: int, file: Path, keep_since: int | None = None) -> None:
        """Moves a DuckDB file into the log, and forgets what it replaces.

        Batches up to `position` and older snapshots are kept as far as they are needed to restore
        to a moment from `keep_since` on (milliseconds UTC); None: they are not needed.
        """

    def leader(self) -> Leader | None:
        """Who leads, or led last; None if nobody ever did."""

    def set_leader(self, before: Leader | None, after: Leader) -> bool:
        """Replaces the leader if it still is `before`; returns whether it was."""

    def close(self) -> None:
        """Ends the use of the log."""


def first_after(log: Log, position: int) -> Batch | None:
    """The batch after a position; None if there is none, or if a snapshot has replaced it."""
    try:
        return next(iter(log.read(position)), None)
    except MetastoreDamaged:
        return None


@dataclass(frozen=True, slots=True)
class Beginning:
    """What a log says of itself since it was created."""

    history: str
    place: str
    """Where it was then."""
    after: int
    """Its first position is the next one."""

    @classmethod
    def new(cls, place: str, after: int) -> Beginning:
        return cls(secrets.token_hex(8), place, after)


class SharedLog(Log):
    """Append, leader and snapshots may each be used by a thread of its own."""

    def __init__(self, where: str) -> None:
        self.where = where
        self._number = secrets.token_hex(8)
        """Tells this writer's batches from those of others."""
        self._last: int | None = None
        """The position of the last batch; None if it has to be looked up."""
        self._epoch = 0

    @cached_property
    @abstractmethod
    def beginning(self) -> Beginning:
        """Raises MetastoreDamaged if there is no log."""

    @abstractmethod
    def remove_unused(self) -> bool:
        """Removes the log if it was made by a restore and no metastore ever led it; returns whether
        it did."""

    @property
    def history(self) -> str:
        return self.beginning.history

    def _saved(self) -> int:
        """The position that the newest snapshot has, or with which the log begins."""
        return max([self.beginning.after, *self.snapshots()])

    def _end_at(self, newest: int, last: int, epoch: int) -> None:
        """Appends go on after this batch, or after the newest snapshot if that is later."""
        self._last, self._epoch = (last, epoch) if last >= newest else (newest, 0)

    def _is_next(self, batch: Batch) -> bool:
        """Whether the batch comes next; no if the log has one at its position, which is perhaps an
        earlier attempt of ours. Raises PositionTaken if it can't be appended."""
        if self._last is None:
            self.open_to_append()
            assert self._last is not None
        if batch.position > self._last + 1 or batch.epoch < self._epoch:
            raise PositionTaken(
                f"{self.place} ends with batch {self._last} of epoch {self._epoch}, so batch"
                f" {batch.position} of epoch {batch.epoch} is not the next one"
            )
        return batch.position > self._last

    def _taken(self, position: int) -> PositionTaken:
        return PositionTaken(f"{self.place}: another process has appended batch {position}")

    def _lacks(self, position: int) -> MetastoreDamaged:
        newest = max(self.snapshots(), default=0)
        if position <= newest:
            return BatchesForgotten(
                f"{self.place} no longer holds batch {position}, which the snapshot at {newest}"
                " replaces: begin with that"
            )
        return MetastoreDamaged(
            f"{self.place} lacks batch {position}; put back what is missing, or restore a backup"
        )

    def close(self) -> None:
        self._last = None
