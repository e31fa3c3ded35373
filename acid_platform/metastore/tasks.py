"""What services do for tables, and what they ask for it: compactions, cleanings, erasures.

All times are milliseconds since 1970 UTC by the metastore's clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Self

from acid_platform.compaction.states import (
    CompactionKind,
    CompactionState,
    EntitySize,
    ErasureState,
)
from acid_platform.metastore.pasts import Pin
from acid_platform.metastore.places import Located, Places
from acid_platform.metastore.records import EntityDirectory, Holder
from acid_platform.transactions import CompactorWriteIdList, ValidTxnList, ValidWriteIdList


@dataclass(frozen=True, slots=True)
class ErasureTask:
    """A recorded request to erase rows, with its answer. It is never deleted."""

    id: int
    table: str
    condition: str
    """The condition that selects the rows, including their partition."""
    user: str
    requested: int
    state: ErasureState = ErasureState.REQUESTED
    answer: str = ""
    answered: int = 0
    run_id: str = ""
    """The Dagster run that answered the request."""
    waits_for: tuple[int, ...] = ()
    """Transactions that still needed files with such rows at the last attempt."""
    waits: int = 0
    """How many attempts found transactions in the way."""


@dataclass(frozen=True, slots=True)
class EntityTask:
    """Work on an entity. `id` is that of its row in the compaction queue, 0 if it has none."""

    id: int
    table: str
    table_id: int
    partition: str | None

    @classmethod
    def of(cls, task: EntityTask, *rest: Any, **more: Any) -> Self:
        """A record about the same work; `rest` and `more`: its other fields."""
        return cls(task.id, task.table, task.table_id, task.partition, *rest, **more)

    @property
    def entity(self) -> tuple[int, str | None]:
        return self.table_id, self.partition


@dataclass(frozen=True, slots=True)
class _QueueRow(EntityTask):
    """What each row of the compaction queue, and of its history, has."""

    state: CompactionState
    enqueued: int = 0
    txn_id: int = 0
    next_txn_id: int = 0
    highest_write_id: int = 0
    commit_time: int = 0
    cleaner_start: int = 0
    cleaner_attempts: int = 0
    cleaner_retry_at: int = 0
    ended: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionTask(_QueueRow):
    """A compaction in the queue; `worker` and `attempt` prove ownership (P21)."""

    kind: CompactionKind
    properties: dict[str, str] = field(default_factory=dict)
    initiator: str = ""
    worker: str = ""
    job: str = ""
    """The name of the last attempt's job; it stays after the job has ended."""
    attempt: int = 0
    started: int = 0

    def job_name(self, worker: str) -> str:
        """`<worker>-compactor-<db>.<table>[.<partition>]`: names the Spark job and the run (P9)."""
        name = f"{worker}-compactor-{self.table}"
        return f"{name}.{self.partition}" if self.partition else name


@dataclass(frozen=True, slots=True, kw_only=True)
class DropTask(_QueueRow):
    """A dropped table or partition whose files the Cleaner has to remove (P22).

    It waits in the compaction queue; SHOW COMPACTIONS shows it as a major compaction.
    """

    location: str


QueuedTask = CompactionTask | DropTask
"""A row of the compaction queue, or of its history."""


@dataclass(frozen=True, slots=True)
class _Cleaning(EntityTask, Located):
    """What the Cleaner has to know of each cleaning. The lists are those of S17."""

    location: str
    highest_write_id: int
    next_txn_id: int
    valid_txns: ValidTxnList
    write_ids: ValidWriteIdList

    def placed(self, places: Places) -> Self:
        return replace(self, location=places.outward(self.location))


@dataclass(frozen=True, slots=True)
class EntityCleaning(_Cleaning):
    """Removes obsolete and aborted directories of an entity (C37 to C56)."""

    properties: dict[str, str]
    pins: tuple[Pin, ...] = ()
    """Past snapshots whose directories have to stay, whatever the lists say (P36)."""


@dataclass(frozen=True, slots=True)
class DropCleaning(_Cleaning):
    """Removes `location`, which a drop left (P22).

    If it is `reused`, as every partition's is, only what has write ids up to `highest_write_id`.
    """

    reused: bool


CleaningTask = EntityCleaning | DropCleaning
"""What the Cleaner may do."""


@dataclass(frozen=True, slots=True)
class Unpublication(Located):
    """Removes `directories` below `location`: the output of an aborted compaction (P46)."""

    table: str
    table_id: int
    partition: str | None
    location: str
    txn_id: int
    """The transaction of the compaction."""
    directories: tuple[str, ...]
    lock: int
    """The lock that ends when they are gone."""

    def placed(self, places: Places) -> Self:
        return replace(self, location=places.outward(self.location))


@dataclass(frozen=True, slots=True)
class BlockedCleaning(EntityTask):
    """A cleaning that has to wait, with the reason and the transactions it waits for."""

    reason: str
    holders: tuple[Holder, ...] = ()
    by_history: bool = False
    """A retention or a tag is the reason (P36)."""


@dataclass(frozen=True, slots=True)
class EndedCompaction:
    """How a compaction ended, and when it was requested (C9)."""

    state: CompactionState
    enqueued: int


@dataclass(frozen=True, slots=True)
class _EntityFacts:
    """What the metastore knows of an entity besides its directories.

    `aborted` counts aborted transactions with data here, and `oldest_abort` is when the first of
    them was opened (0 if there is none). `history` is newest first.
    """

    table: str
    partition: str | None
    partitioned: bool
    properties: dict[str, str]
    aborted: int = 0
    oldest_abort: int = 0
    queued: CompactionState | None = None
    history: tuple[EndedCompaction, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityCounters(_EntityFacts):
    """The counters of one entity that the Initiator decides by (C1 to C20).

    `both_kinds`: there are deltas and delete_deltas. `error` says why the size could not be
    computed (C23).
    """

    size: EntitySize
    both_kinds: bool = False
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityState(_EntityFacts, Located):
    """One entity with every directory that the metastore knows.

    `write_ids` is the compactor's list for the table (S16, me = 0).
    """

    location: str
    directories: tuple[EntityDirectory, ...]
    write_ids: CompactorWriteIdList

    def placed(self, places: Places) -> Self:
        return replace(self, location=places.outward(self.location))
