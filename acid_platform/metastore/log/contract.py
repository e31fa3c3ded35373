"""What a log does: append, read, keep snapshots, and name one leader at a time (P10).

Batches have positions without gaps. A log never holds two batches at one position: `append` of a
position that exists is refused. So no clock decides whether a commit counts. A leader that was
replaced finds its next position taken, since a new leader first appends a batch of its own epoch.
The lease in `Leader` only tells others when to try, and a leader whether it may answer reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from acid_platform.errors import MetastoreDamaged, MetastoreUnavailable

FIRST = 1
"""The position of the first batch."""


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
