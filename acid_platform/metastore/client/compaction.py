"""The client's calls for compactions and cleanings (C20 to C61), and for erasures."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from acid_platform.base.config import Settings
from acid_platform.base.errors import AcidError, error_class
from acid_platform.compaction.states import ErasureState
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
    EndPublication,
    FailCompaction,
    GetCandidates,
    GetCleanings,
    GetEntities,
    GetErasures,
    GetMoment,
    GetPastCompactions,
    GetQueue,
    GetUnpublished,
    HoldService,
    MarkCleaned,
    PublishCompaction,
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
    """The part of `Metastore` that compacts, cleans and erases."""

    def entities(self, table: str | None = None) -> list[EntityState]:
        """Every entity (of this table, if given) with each directory that was reported (P8)."""
        return [self.places.entity(entity) for entity in self._call(GetEntities(table))]

    def candidates(self, since: int = 0) -> Iterator[EntityCounters]:
        """The entities that the Initiator decides about, `hive.compactor.fetch.size` per call (C1,
        C3).

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
        """The metastore's count of changes. It is not a clock, and it survives a restart."""
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
        """Adds a compaction to the queue and returns its id (C24).

        Raises AlreadyScheduled, which names the queued row, and CompactionRefused.
        """
        return self._call(
            RequestCompaction(table, partition, kind, dict(properties or {}), initiator)
        )

    def request_compactions(
        self, wishes: Sequence[tuple[str, str | None, str]], initiator: str
    ) -> list[int | AcidError]:
        """Queues an Initiator's wishes (table, partition, kind) in one call.

        Returns an id or an error for each wish; an error does not stop the others.
        """
        asked = tuple(Wish(table, partition, kind) for table, partition, kind in wishes)
        return [
            error_class(wished.error[0])(wished.error[1]) if wished.error else wished.id
            for wished in self._call(RequestCompactions(asked, initiator))
        ]

    def queue(self) -> list[CompactionTask]:
        """The compactions that are initiated, working or ready for cleaning, by id."""
        return self._call(GetQueue())

    def past_compactions(self) -> list[CompactionTask]:
        """The compactions that have ended, by id."""
        return self._call(GetPastCompactions())

    def record_not_initiated(self, table: str, partition: str | None, reason: str) -> None:
        self._call(RecordNotInitiated(table, partition, reason))

    def take_compaction(self, worker: str, table: str | None = None) -> CompactionTask | None:
        """The next task (of this table, if given), now `working` and owned by this worker (C26)."""
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

    def publish_compaction(
        self, task: CompactionTask, txn: Transaction, directories: Sequence[str], wait: float
    ) -> int:
        """Keeps other engines from reading the entity until the compaction commits (P46).

        Waits at most `wait` seconds for those that read. `directories` are the names of the output.
        Returns the id for `end_publication`. Raises LockTimeout, which names the transaction that
        reads, CompactionLost and TxnAborted.
        """
        return self._call(
            PublishCompaction(task.id, task.worker, task.attempt, txn.id, tuple(directories), wait)
        ).ext

    def unpublished(self) -> list[CleaningTask]:
        """The output of aborted compactions that has to go before other engines read again, of the
        kind `publication` (P46)."""
        return [self.places.task(task) for task in self._call(GetUnpublished())]

    def end_publication(self, publication: int) -> None:
        """Lets other engines read again after an aborted compaction, whose output is gone."""
        self._call(EndPublication(publication))

    def compaction_nothing_to_do(
        self,
        task: CompactionTask,
        txn: Transaction,
        to_cleaning: bool,
        reason: str,
        again: bool = False,
    ) -> None:
        """Ends a task that wrote nothing: ready for cleaning, or refused. Commits its transaction
        (C29). `again`: the Initiator looks at the entity again in its next cycle."""
        self._call(
            EndCompaction(task.id, task.worker, task.attempt, txn.id, to_cleaning, reason, again)
        )
        txn.forget()

    def fail_compaction(
        self, task: CompactionTask, txn: Transaction | None, error: str, again: bool = False
    ) -> None:
        """Marks the task as failed and aborts its transaction (C32). Raises CompactionLost.

        `again`: it did not begin, since something held it up, and goes back into the queue.
        """
        if txn is not None:
            txn.forget()
        txn_id = txn.id if txn else None
        self._call(FailCompaction(task.id, task.worker, task.attempt, txn_id, error, again))

    def abort_compactions(self, ids: Sequence[int]) -> dict[int, str]:
        """Aborts the rows that are initiated; returns a message for each id (C60)."""
        return self._call(AbortCompactions(tuple(ids)))

    def revoke_workers(self, host: str | None = None) -> list[int]:
        """Makes working rows initiated again: those of the host or worker, or (None) all that timed
        out (C25). Returns their ids."""
        return self._call(RevokeWorkers(host))

    def compaction_done(self, compaction: int) -> bool:
        """Whether it is no longer initiated or working. Raises CompactionRefused for an
        unknown id."""
        return self._call(ShowCompaction(compaction)).done

    def wait_compaction(self, compaction: int, timeout: float | None = None) -> Row:
        """Waits until the compaction is no longer initiated or working, at most `timeout` seconds
        (`hive.compactor.wait.timeout`), and returns its row of SHOW COMPACTIONS.

        A timeout cancels nothing (C59).
        """
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
        """Records a request to erase rows and returns its id.

        An equal request that is still open keeps its id. Raises NoSuchTable.
        """
        return self._call(RequestErasure(table, condition, user))

    def answer_erasure(
        self,
        erasure: int,
        state: ErasureState,
        answer: str,
        waits_for: Iterable[int] = (),
        run_id: str = "",
    ) -> None:
        """Records the answer to a request. Raises InvalidDefinition if the request is not open."""
        self._call(AnswerErasure(erasure, state, answer, tuple(sorted(waits_for)), run_id))

    def erasures(self) -> list[ErasureTask]:
        """All requests to erase rows, oldest first."""
        return self._call(GetErasures())

    # --- cleaning ---------------------------------------------------------------------------

    def ready_to_clean(self) -> list[CleaningTask]:
        """What may be cleaned now (C37 to C55)."""
        return [self.places.task(task) for task in self._call(GetCleanings()).ready]

    def cleaning_blocked(self) -> list[BlockedCleaning]:
        """The cleanings that have to wait, with the reason and the transactions that
        they wait for."""
        return self._call(GetCleanings()).blocked

    def start_cleaning(self, task: CleaningTask) -> CleaningTask:
        """Takes the cleaning, with lists of this moment. Raises CompactionLost if it may not run
        (P21)."""
        started = self._call(StartCleaning(task.id, task.table, task.table_id, task.partition))
        return self.places.task(started)

    def mark_cleaned(
        self,
        task: CleaningTask,
        removed_write_ids: Iterable[int] | None = None,
        gone: Iterable[str] = (),
        held: Iterable[int] = (),
        left: str = "",
    ) -> None:
        """Marks the cleaning as done (C49).

        `removed_write_ids` None: nothing aborted is left at or below the task's watermark;
        otherwise only these aborted write ids are gone (C53). `gone`: names of the directories that
        were removed, which no reader is offered any more (P26). `held`: the moments of the pins for
        which directories were left in place (P36). `left`: what stays since the platform did not
        write it (P49), for SHOW COMPACTIONS. Raises CompactionLost.
        """
        self._call(
            MarkCleaned(
                task.id,
                task.table,
                task.table_id,
                task.partition,
                task.highest_write_id,
                None if removed_write_ids is None else tuple(sorted(removed_write_ids)),
                tuple(sorted(gone)),
                tuple(sorted(held)),
                left,
            )
        )

    def cleaning_failed(self, task: CleaningTask, error: str) -> None:
        """The cleaning failed; at most `hive.compactor.cleaner.retry.maxattempts` retries follow
        (C48, P25)."""
        self._call(CleaningFailed(task.id, task.table, task.table_id, task.partition, error))

    def cleaning_again(self, task: CleaningTask) -> None:
        """Something obsolete is still there; the next cycle tries again (C47)."""
        self._call(CleaningLeft(task.id, task.table, task.table_id, task.partition))

    def refuse_cleaning(self, task: CleaningTask, reason: str) -> None:
        """NO_CLEANUP: the row ends as refused, the files stay (C44)."""
        self._call(RefuseCleaning(task.id, reason))
