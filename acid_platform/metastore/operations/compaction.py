"""Operations of the Initiator, the Worker and the Cleaner, and of erasing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

from acid_platform.compaction.states import ErasureState
from acid_platform.metastore.codec import BRIEF
from acid_platform.metastore.operations.base import MetastoreOperation
from acid_platform.metastore.operations.transactions import Granted, Ticket
from acid_platform.metastore.records import (
    BlockedCleaning,
    CleaningTask,
    ClientInfo,
    CompactionTask,
    EntityCounters,
    EntityState,
    ErasureTask,
    QueuedTask,
    Unpublication,
    WriteReport,
)
from acid_platform.transactions import CompactorWriteIdList

# --- answers ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CandidatePage:
    """Some candidates. The next page begins after the entity `after` (table id, partition); None if
    this is the last page."""

    candidates: list[EntityCounters]
    after: tuple[int, str] | None


@dataclass(frozen=True, slots=True)
class CompactionWish:
    """A compaction that an Initiator requests."""

    table: str
    partition: str | None
    kind: str


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
class CompactionGranted(Granted):
    """What a Worker receives; `compactor_list` is what it may merge (S16)."""

    compactor_list: CompactorWriteIdList
    task: CompactionTask


@dataclass(frozen=True, slots=True)
class CompactionDone:
    id: int
    commit_id: int


@dataclass(frozen=True, slots=True)
class Cleanings:
    """The cleanings that may run now, and those that have to wait."""

    ready: list[CleaningTask]
    blocked: list[BlockedCleaning]


# --- the Initiator ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HoldService(MetastoreOperation[None]):
    """Takes or renews the lease of a service (P9)."""

    op = "hold_service"
    reads = True

    service: str
    holder: str


@dataclass(frozen=True, slots=True)
class ReleaseService(MetastoreOperation[None]):
    op = "release_service"
    reads = True

    service: str
    holder: str


@dataclass(frozen=True, slots=True)
class GetMoment(MetastoreOperation[int]):
    """The next moment: whatever changes from now on has this moment or a later one (C1)."""

    op = "moment"
    answers = "moment"
    reads = True


@dataclass(frozen=True, slots=True)
class GetCandidates(MetastoreOperation[CandidatePage]):
    """Entities that changed since a moment (0: all), beginning after `after` (C1, C3)."""

    op = "candidates"
    reads = True

    since: int
    after: tuple[int, str] | None


@dataclass(frozen=True, slots=True)
class GetEntities(MetastoreOperation[list[EntityState]]):
    """Every entity, or those of one table, with their directories."""

    op = "entities"
    answers = "entities"
    reads = True

    table: str | None = None


@dataclass(frozen=True, slots=True)
class GetQueue(MetastoreOperation[list[CompactionTask]]):
    """The compactions that are initiated, working or ready for cleaning."""

    op = "queue"
    answers = "rows"
    reads = True


@dataclass(frozen=True, slots=True)
class GetPastCompactions(MetastoreOperation[list[QueuedTask]]):
    """The compactions, and the cleanings of drops, that have ended."""

    op = "past_compactions"
    answers = "rows"
    reads = True


@dataclass(frozen=True, slots=True)
class RequestCompaction(MetastoreOperation[int]):
    """Adds a row to the queue and returns its id (C24)."""

    op = "request_compaction"
    answers = "id"

    table: str
    partition: str | None
    kind: str
    properties: dict[str, str] = field(default_factory=dict)
    initiator: str = ""


@dataclass(frozen=True, slots=True)
class RequestCompactions(MetastoreOperation[list[Wished]]):
    """Does `RequestCompaction` for each wish, all durable at once."""

    op = "request_compactions"
    answers = "answers"

    wishes: tuple[CompactionWish, ...]
    initiator: str


@dataclass(frozen=True, slots=True)
class RecordNotInitiated(MetastoreOperation[int]):
    """Adds a `did not initiate` row to the history (C9, C23)."""

    op = "record_not_initiated"
    answers = "id"

    table: str
    partition: str | None
    reason: str


# --- the Worker ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TakeCompaction(MetastoreOperation[CompactionTask | None]):
    """Assigns the next task (of this table, if given) to the worker (C26)."""

    op = "take_compaction"
    answers = "task"

    worker: str
    table: str | None = None


class Owned:
    """Names a Worker's task; `worker` and `attempt` prove that the Worker still owns it (P21)."""

    __slots__ = ()

    id: int
    worker: str
    attempt: int

    @classmethod
    def of(cls, task: CompactionTask, *rest: Any) -> Self:
        """The operation on this task; `rest`: its other fields."""
        return cls(task.id, task.worker, task.attempt, *rest)  # type: ignore[call-arg]


@dataclass(frozen=True, slots=True)
class BeginCompaction(MetastoreOperation[CompactionGranted], Owned):
    """Opens the COMPACTION transaction with its lock and lists (C28)."""

    op = "begin_compaction"
    kept = CompactionTicket

    id: int
    worker: str
    attempt: int
    info: ClientInfo


@dataclass(frozen=True, slots=True)
class PublishCompaction(MetastoreOperation[Ticket], Owned):
    """Asks to bring the output into place, and keeps other engines from reading meanwhile (P46).

    `directories` are the names of the output. It may wait for `wait` seconds while other engines
    read. The ticket's `ext` is for `EndPublication`; a commit ends the publication by itself.
    """

    op = "publish_compaction"

    id: int
    worker: str
    attempt: int
    txn: int
    directories: tuple[str, ...]
    wait: float

    @property
    def patience(self) -> float:
        return self.wait


@dataclass(frozen=True, slots=True)
class GetUnpublished(MetastoreOperation[list[Unpublication]]):
    """The output of aborted compactions that has to go before other engines read again (P46)."""

    op = "unpublished"
    answers = "tasks"
    reads = True


@dataclass(frozen=True, slots=True)
class EndPublication(MetastoreOperation[None]):
    """Reports that the output of a publication whose compaction was aborted is gone (P46)."""

    op = "end_publication"

    ext: int


@dataclass(frozen=True, slots=True)
class CommitCompaction(MetastoreOperation[CompactionDone], Owned):
    """Publishes the result, makes the row ready for cleaning and commits, all at once (C30)."""

    op = "commit_compaction"

    id: int
    worker: str
    attempt: int
    txn: int
    writes: tuple[WriteReport, ...]


@dataclass(frozen=True, slots=True)
class EndCompaction(MetastoreOperation[None], Owned):
    """Ends a task that wrote nothing: ready for cleaning, or refused (C29)."""

    op = "compaction_nothing_to_do"

    id: int
    worker: str
    attempt: int
    txn: int
    to_cleaning: bool
    reason: str
    again: bool = field(default=False, metadata=BRIEF)
    """The Initiator shall look at the entity again in its next cycle."""


@dataclass(frozen=True, slots=True)
class FailCompaction(MetastoreOperation[None], Owned):
    """Marks the task as failed and aborts its transaction, if it has one (C32)."""

    op = "fail_compaction"

    id: int
    worker: str
    attempt: int
    txn: int | None
    error: str
    again: bool = field(default=False, metadata=BRIEF)
    """The task did not begin, since something held it up: it goes back into the queue."""


@dataclass(frozen=True, slots=True)
class AbortCompactions(MetastoreOperation[dict[int, str]]):
    """ABORT COMPACTIONS: a message for each id (C60)."""

    op = "abort_compactions"
    answers = "messages"

    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RevokeWorkers(MetastoreOperation[list[int]]):
    """Returns the working rows of a host or worker, or (None) all that timed out, to the queue."""

    op = "revoke_workers"
    answers = "ids"

    host: str | None


# --- the Cleaner --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GetCleanings(MetastoreOperation[Cleanings]):
    op = "cleaning"
    reads = True


class Cleaning:
    """Names a cleaning."""

    __slots__ = ()

    id: int
    table: str
    table_id: int
    partition: str | None

    @classmethod
    def of(cls, task: CleaningTask, *rest: Any, **more: Any) -> Self:
        """The operation on this cleaning; `rest` and `more`: its other fields."""
        named = (task.id, task.table, task.table_id, task.partition)
        return cls(*named, *rest, **more)  # type: ignore[call-arg]


@dataclass(frozen=True, slots=True)
class StartCleaning(MetastoreOperation[CleaningTask], Cleaning):
    """Takes a cleaning, with lists of this moment."""

    op = "start_cleaning"
    answers = "task"

    id: int
    table: str
    table_id: int
    partition: str | None


@dataclass(frozen=True, slots=True)
class MarkCleaned(MetastoreOperation[None], Cleaning):
    """Marks a cleaning as done (C49).

    `removed` None: nothing aborted is left at or below `highest_write_id`; otherwise only these
    aborted write ids are gone (C53). `gone`: the directories that were removed (P26). `held`: the
    moments of the pins for which directories were left in place (P36). `left`: what stays there,
    since the platform did not write it (P49).
    """

    op = "mark_cleaned"

    id: int
    table: str
    table_id: int
    partition: str | None
    highest_write_id: int
    removed: tuple[int, ...] | None
    gone: tuple[str, ...] = ()
    held: tuple[int, ...] = ()
    left: str = field(default="", metadata=BRIEF)


@dataclass(frozen=True, slots=True)
class ReportCleaningFailed(MetastoreOperation[None], Cleaning):
    """Reports a failure; the cleaning is tried again later (C48, C54, P25)."""

    op = "cleaning_failed"

    id: int
    table: str
    table_id: int
    partition: str | None
    error: str


@dataclass(frozen=True, slots=True)
class ReportCleaningLeft(MetastoreOperation[None], Cleaning):
    """Reports that something obsolete is still there: the next cycle tries again (C47)."""

    op = "cleaning_again"

    id: int
    table: str
    table_id: int
    partition: str | None


@dataclass(frozen=True, slots=True)
class RefuseCleaning(MetastoreOperation[None]):
    """NO_CLEANUP: the row ends as refused, the files stay (C44)."""

    op = "refuse_cleaning"

    id: int
    reason: str


# --- erasing ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RequestErasure(MetastoreOperation[int]):
    """Records a request to erase rows and returns its id."""

    op = "request_erasure"
    answers = "id"

    table: str
    condition: str
    user: str


@dataclass(frozen=True, slots=True)
class AnswerErasure(MetastoreOperation[None]):
    """Records the answer to a request."""

    op = "answer_erasure"

    id: int
    state: ErasureState
    answer: str
    waits_for: tuple[int, ...]
    run_id: str


@dataclass(frozen=True, slots=True)
class GetErasures(MetastoreOperation[list[ErasureTask]]):
    op = "erasures"
    answers = "erasures"
    reads = True
