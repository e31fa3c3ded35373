"""What the logs that several processes may lead have alike: PostgreSQL's and an object store's."""

from __future__ import annotations

import secrets
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property

from acid_platform.errors import MetastoreDamaged
from acid_platform.metastore.log.contract import Batch, BatchesForgotten, Log, PositionTaken


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
