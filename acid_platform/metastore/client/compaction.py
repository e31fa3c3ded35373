"""The calls of a client that compacts and cleans (C20 to C61), and of one that erases."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from acid_platform.compaction.states import ErasureState
from acid_platform.config import Settings
from acid_platform.errors import AcidError, error_class
from acid_platform.metastore.client.link import Caller
from acid_platform.metastore.client.transaction import Transaction
from acid_platform.metastore.operations import Row
from acid_platform.metastore.operations.compaction import (
    AbortCompactions,
    AnswerErasure,
    CleaningFailed,
    CleaningLeft,
    CommitCompaction,
    EndCompaction,
    FailCompaction,
    GetCandidates,
    GetCleanings,
    GetEntities,
    GetErasures,
    GetMoment,
    GetPastCompactions,
    GetQueue,
    HoldService,
    MarkCleaned,
    RecordNotInitiated,
    RefuseCleaning,
    ReleaseService,
    RequestCompaction,
    RequestCompactions,
    RequestErasure,
    RevokeWorkers,
    StartCleaning,
    TakeCompaction,
    Wish,
)
from acid_platform.metastore.operations.shows import ShowCompaction
from acid_platform.metastore.operations.tables import GetSettings
from acid_platform.metastore.records import (
    BlockedCleaning,
    CleaningTask,
    CompactionTask,
    EntityCounters,
    EntityState,
    ErasureTask,
    WriteReport,
)

_WAIT = "hive.compactor.wait.timeout"


class CompactionCalls(Caller):
    """Part of `Metastore`."""

    def entities(self, table: str | None = None) -> list[EntityState]:
        """Every entity (of a table) with each directory that was reported of it (P8)."""
        return [self.places.entity(entity) for entity in self._call(GetEntities(table))]

    def candidates(self, since: int = 0) -> Iterator[EntityCounters]:
        """What the Initiator decides about, `hive.compactor.fetch.size` at a time (C1, C3).

        `since` is the `moment` when an earlier cycle began; 0 asks for all entities.
        """
        after: tuple[int, str] | None = None
        while True:
            page = self._call(GetCandidates(since, after))
            yield from page.candidates
            after = page.after
            if after is None:
                return

    def moment(self) -> int:
        """The metastore's count of events: not a clock, and it goes on after a restart."""
        return self._call(GetMoment())

    def hold_service(self, service: str, holder: str) -> None:
        """Takes or renews the lease of a service. Raises LeaseHeld (P9)."""
        self._call(HoldService(service, holder))

    def release_service(self, service: str, holder: str) -> None:
        self._call(ReleaseService(service, holder))

    def request_compaction(
        self,
        table: str,
        partition: str | None,
        kind: str,
        properties: Mapping[str, str] | None = None,
        initiator: str = "",
    ) -> int:
        """Enqueues (C24). Raises AlreadyScheduled naming the row, CompactionRefused."""
        return self._call(
            RequestCompaction(table, partition, kind, dict(properties or {}), initiator)
        )

    def request_compactions(
        self, wishes: Sequence[tuple[str, str | None, str]], initiator: str
    ) -> list[int | AcidError]:
        """Enqueues an Initiator's wishes (table, partition, kind) in one call; each has its own
        answer, an error does not stop the others."""
        asked = tuple(Wish(table, partition, kind) for table, partition, kind in wishes)
        return [
            error_class(wished.error[0])(wished.error[1]) if wished.error else wished.id
            for wished in self._call(RequestCompactions(asked, initiator))
        ]

    def queue(self) -> list[CompactionTask]:
        """The compactions that wait, are worked on, or are ready for cleaning, by id."""
        return self._call(GetQueue())

    def past_compactions(self) -> list[CompactionTask]:
        """The compactions that are over, by id."""
        return self._call(GetPastCompactions())

    def record_not_initiated(self, table: str, partition: str | None, reason: str) -> None:
        self._call(RecordNotInitiated(table, partition, reason))

    def take_compaction(self, worker: str, table: str | None = None) -> CompactionTask | None:
        """The next task (of a table), now `working` and owned by this worker and attempt (C26)."""
        return self._call(TakeCompaction(worker, table))

    def commit_compaction(
        self, task: CompactionTask, txn: Transaction, reports: Sequence[WriteReport]
    ) -> None:
        """Publishes, commits and makes the row ready for cleaning, all at once (C30, P21).

        Raises CompactionLost or TxnAborted: drop the output then.
        """
        try:
            self._call(CommitCompaction(task.id, task.worker, task.attempt, txn.id, tuple(reports)))
        finally:
            txn.forget()

    def compaction_nothing_to_do(
        self, task: CompactionTask, txn: Transaction, to_cleaning: bool, reason: str
    ) -> None:
        """Ready for cleaning, or refused; the transaction commits (C29)."""
        self._call(EndCompaction(task.id, task.worker, task.attempt, txn.id, to_cleaning, reason))
        txn.forget()

    def fail_compaction(self, task: CompactionTask, txn: Transaction | None, error: str) -> None:
        """Failed, and the transaction aborted (C32). Raises CompactionLost."""
        if txn is not None:
            txn.forget()
        txn_id = txn.id if txn else None
        self._call(FailCompaction(task.id, task.worker, task.attempt, txn_id, error))

    def abort_compactions(self, ids: Sequence[int]) -> dict[int, str]:
        """A message for each id; only initiated rows are aborted (C60)."""
        return self._call(AbortCompactions(tuple(ids)))

    def revoke_workers(self, host: str | None = None) -> list[int]:
        """Working rows of the host or worker, or (None) those that timed out, are initiated again
        (C25)."""
        return self._call(RevokeWorkers(host))

    def compaction_done(self, compaction: int) -> bool:
        """Whether it is neither initiated nor working any more. Raises CompactionRefused."""
        return self._call(ShowCompaction(compaction)).done

    def wait_compaction(self, compaction: int, timeout: float | None = None) -> Row:
        """Its SHOW COMPACTIONS row, once it is neither initiated nor working, or after `timeout`
        seconds (`hive.compactor.wait.timeout`); a timeout cancels nothing (C59)."""
        if timeout is None:
            timeout = Settings.of(self._call(GetSettings()).set).integer(_WAIT) / 1000
        deadline, pause = time.monotonic() + timeout, 0.02
        while True:
            shown = self._call(ShowCompaction(compaction))
            if shown.done or time.monotonic() >= deadline:
                return shown.row
            time.sleep(min(pause, max(0.0, deadline - time.monotonic())))
            pause = min(2 * pause, 0.5)

    # --- erasing ----------------------------------------------------------------------------

    def request_erasure(self, table: str, condition: str, user: str = "") -> int:
        """Records a request to erase rows, and answers its id: for one that is open already, the
        id that it has. Raises NoSuchTable."""
        return self._call(RequestErasure(table, condition, user))

    def answer_erasure(
        self,
        erasure: int,
        state: ErasureState,
        answer: str,
        waits_for: Iterable[int] = (),
        run_id: str = "",
    ) -> None:
        """Says what became of a request. Raises InvalidDefinition if it is not open."""
        self._call(AnswerErasure(erasure, state, answer, tuple(sorted(waits_for)), run_id))

    def erasures(self) -> list[ErasureTask]:
        """Every request, the oldest first."""
        return self._call(GetErasures())

    # --- cleaning ---------------------------------------------------------------------------

    def ready_to_clean(self) -> list[CleaningTask]:
        """What may be cleaned now (C37 to C55)."""
        return [self.places.task(task) for task in self._call(GetCleanings()).ready]

    def cleaning_blocked(self) -> list[BlockedCleaning]:
        """What has to wait, with the reason and the transactions it waits for."""
        return self._call(GetCleanings()).blocked

    def start_cleaning(self, task: CleaningTask) -> CleaningTask:
        """Takes it, with fresh lists. Raises CompactionLost if it may not run now (P21)."""
        started = self._call(StartCleaning(task.id, task.table, task.table_id, task.partition))
        return self.places.task(started)

    def mark_cleaned(
        self,
        task: CleaningTask,
        removed_write_ids: Iterable[int] | None = None,
        gone: Iterable[str] = (),
    ) -> None:
        """Done (C49). None: nothing aborted is left at or below the task's watermark; else only
        these aborted write ids are gone (C53). `gone` names the directories that were removed, of
        which no snapshot is told any more (P26). Raises CompactionLost."""
        self._call(
            MarkCleaned(
                task.id,
                task.table,
                task.table_id,
                task.partition,
                task.highest_write_id,
                None if removed_write_ids is None else tuple(sorted(removed_write_ids)),
                tuple(sorted(gone)),
            )
        )

    def cleaning_failed(self, task: CleaningTask, error: str) -> None:
        """Retried later, at most `hive.compactor.cleaner.retry.maxattempts` times (C48, P25)."""
        self._call(CleaningFailed(task.id, task.table, task.table_id, task.partition, error))

    def cleaning_again(self, task: CleaningTask) -> None:
        """Something obsolete is still there: the next cycle looks again (C47)."""
        self._call(CleaningLeft(task.id, task.table, task.table_id, task.partition))

    def refuse_cleaning(self, task: CleaningTask, reason: str) -> None:
        """NO_CLEANUP: the row ends as refused, the files stay (C44)."""
        self._call(RefuseCleaning(task.id, reason))
