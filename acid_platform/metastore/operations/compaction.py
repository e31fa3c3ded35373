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
from acid_platform.metastore.messages import FLAT, MetastoreOperation, Unrecorded
from acid_platform.metastore.operations.transactions import Granted, Ticket
from acid_platform.metastore.pasts import Pin
from acid_platform.metastore.places import Located, Places
from acid_platform.metastore.records import ClientInfo, EntityDirectory, Holder, WriteReport
from acid_platform.transactions import CompactorWriteIdList, ValidTxnList, ValidWriteIdList
from acid_platform.transactions.ids import BRIEF


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


@dataclass(frozen=True, slots=True)
class CandidatePage:
    """Some candidates. The next page begins after the entity `after` (table id, partition); None if
    this is the last page."""

    candidates: list[EntityCounters]
    after: tuple[int, str] | None


@dataclass(frozen=True, slots=True)
class Wished:
    """The result of a wish: the id of the compaction, or an error (class and text)."""

    id: int = field(default=0, metadata=BRIEF)
    error: tuple[str, str] | None = field(default=None, metadata=BRIEF)


@dataclass(frozen=True, slots=True)
class CompactionTicket(Ticket):
    """What is kept of a compaction that began; `id` is the id of its row."""

    id: int


@dataclass(frozen=True, slots=True)
class CompactionGranted:
    """What a Worker receives; `compactor_list` is what it may merge (S16)."""

    granted: Granted = field(metadata=FLAT)
    compactor_list: CompactorWriteIdList
    task: CompactionTask


@dataclass(frozen=True, slots=True)
class Cleanings(Located):
    """The cleanings that may run now, and those that have to wait."""

    ready: list[CleaningTask]
    blocked: list[BlockedCleaning]

    def placed(self, places: Places) -> Self:
        return replace(self, ready=[task.placed(places) for task in self.ready])


class HoldService(Unrecorded[None], op="hold_service"):
    """Takes or renews the lease of a service (P9)."""

    service: str
    holder: str


class ReleaseService(Unrecorded[None], op="release_service"):
    """Gives up the lease; does nothing if another holder has it by now."""

    service: str
    holder: str


class GetMoment(Unrecorded[int], op="moment", answers="moment"):
    """The next moment: whatever changes from now on has this moment or a later one (C1)."""


class GetCandidates(Unrecorded[CandidatePage], op="candidates"):
    """Entities that changed since a moment (0: all), beginning after `after` (C1, C3)."""

    since: int
    after: tuple[int, str] | None


class GetEntities(Unrecorded[list[EntityState]], op="entities", answers="entities"):
    """Every entity, or those of one table, with their directories."""

    table: str | None = None


class GetQueue(Unrecorded[list[CompactionTask]], op="queue", answers="rows"):
    """The compactions that are initiated, working or ready for cleaning."""


class GetPastCompactions(Unrecorded[list[QueuedTask]], op="past_compactions", answers="rows"):
    """The compactions, and the cleanings of drops, that have ended."""


class RequestCompaction(MetastoreOperation[int], op="request_compaction", answers="id"):
    """Adds a row to the queue and returns its id (C24).

    `obsolete_base`: it is asked for since an overwrite has replaced a base (C16).
    """

    table: str
    partition: str | None
    kind: str
    properties: dict[str, str] = field(default_factory=dict)
    initiator: str = ""
    obsolete_base: bool = field(default=False, metadata=BRIEF)


class RequestCompactions(
    MetastoreOperation[list[Wished]], op="request_compactions", answers="answers"
):
    """Does `RequestCompaction` for each wish, all durable at once: an id or an error each."""

    wishes: tuple[RequestCompaction, ...]


class RecordNotInitiated(MetastoreOperation[int], op="record_not_initiated", answers="id"):
    """Adds a `did not initiate` row to the history (C9, C23)."""

    table: str
    partition: str | None
    reason: str


class TakeCompaction(
    MetastoreOperation[CompactionTask | None], op="take_compaction", answers="task"
):
    """Assigns the next task (of this table, if given) to the worker (C26)."""

    worker: str
    table: str | None = None


@dataclass(frozen=True, slots=True)
class Owned:
    """Names a Worker's task; `worker` and `attempt` prove that the Worker still owns it (P21)."""

    id: int
    worker: str
    attempt: int

    @classmethod
    def of(cls, task: CompactionTask, *rest: Any) -> Self:
        """The operation on this task; `rest`: its other fields."""
        return cls(task.id, task.worker, task.attempt, *rest)


class BeginCompaction(
    MetastoreOperation[CompactionGranted], Owned, op="begin_compaction", outcome=CompactionTicket
):
    """Opens the COMPACTION transaction with its lock and lists (C28)."""

    info: ClientInfo


class RequestPublication(MetastoreOperation[Ticket], Owned, op="request_publication"):
    """Asks to bring the output into place, and keeps other engines from reading meanwhile (P46).

    `directories` are the names of the output. It may wait for `wait` seconds while other engines
    read. The ticket's `ext` is for `EndPublication`; a commit ends the publication by itself.
    """

    txn: int
    directories: tuple[str, ...]
    wait: float


class GetUnpublished(Unrecorded[list[Unpublication]], op="unpublished", answers="tasks"):
    """The output of aborted compactions that has to go before other engines read again (P46)."""


class EndPublication(MetastoreOperation[None], op="end_publication"):
    """Reports that the output of a publication whose compaction was aborted is gone (P46)."""

    ext: int


class CommitCompaction(MetastoreOperation[int], Owned, op="commit_compaction", answers="commit_id"):
    """Publishes the result, makes the row ready for cleaning and commits, all at once (C30)."""

    txn: int
    writes: tuple[WriteReport, ...]


class EndCompaction(MetastoreOperation[None], Owned, op="compaction_nothing_to_do"):
    """Ends a task that wrote nothing: ready for cleaning, or refused (C29)."""

    txn: int
    to_cleaning: bool
    reason: str
    again: bool = field(default=False, metadata=BRIEF)
    """The Initiator shall look at the entity again in its next cycle."""


class FailCompaction(MetastoreOperation[None], Owned, op="fail_compaction"):
    """Marks the task as failed and aborts its transaction, if it has one (C32)."""

    txn: int | None
    error: str
    again: bool = field(default=False, metadata=BRIEF)
    """The task did not begin, since something held it up: it goes back into the queue."""


class AbortCompactions(
    MetastoreOperation[dict[int, str]], op="abort_compactions", answers="messages"
):
    """ABORT COMPACTIONS: a message for each id (C60)."""

    ids: tuple[int, ...]


class RevokeWorkers(MetastoreOperation[list[int]], op="revoke_workers", answers="ids"):
    """Returns the working rows of a host or worker, or (None) all that timed out, to the queue."""

    host: str | None


class GetCleanings(Unrecorded[Cleanings], op="cleaning"):
    """The cleanings that may run now, and what the others wait for (C37 to C55).

    `every`: also those that are worth it only together with others, of few aborted transactions.
    """

    every: bool = field(default=False, metadata=BRIEF)


class StartCleaning(
    MetastoreOperation[CleaningTask], EntityTask, op="start_cleaning", answers="task"
):
    """Takes a cleaning, with lists of this moment."""


class MarkCleaned(MetastoreOperation[None], EntityTask, op="mark_cleaned"):
    """Marks a cleaning as done (C49).

    `removed` None: nothing aborted is left at or below `highest_write_id`; otherwise only these
    aborted write ids are gone (C53). `gone`: the directories that were removed (P26). `held`: the
    moments of the pins for which directories were left in place (P36). `left`: what stays there,
    since the platform did not write it (P49).
    """

    highest_write_id: int
    removed: tuple[int, ...] | None
    gone: tuple[str, ...] = ()
    held: tuple[int, ...] = ()
    left: str = field(default="", metadata=BRIEF)


class ReportCleaningFailed(MetastoreOperation[None], EntityTask, op="cleaning_failed"):
    """Reports a failure; the cleaning is tried again later (C48, C54, P25)."""

    error: str


class ReportCleaningLeft(MetastoreOperation[None], EntityTask, op="cleaning_again"):
    """Reports that something obsolete is still there: the next cycle tries again (C47)."""


class RefuseCleaning(MetastoreOperation[None], op="refuse_cleaning"):
    """NO_CLEANUP: the row ends as refused, the files stay (C44)."""

    id: int
    reason: str


class RequestErasure(MetastoreOperation[int], op="request_erasure", answers="id"):
    """Records a request to erase rows and returns its id."""

    table: str
    condition: str
    user: str


class AnswerErasure(MetastoreOperation[None], op="answer_erasure"):
    """Records the answer to a request."""

    id: int
    state: ErasureState
    answer: str
    waits_for: tuple[int, ...]
    run_id: str


class GetErasures(Unrecorded[list[ErasureTask]], op="erasures", answers="erasures"):
    """Every request to erase rows, with its answer."""
