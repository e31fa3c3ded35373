"""The Worker: takes a queued compaction and executes it, or records why it can't (C26 to C36).

The steps are separate, so that an orchestrator can show them and add checks of its own between
merging and publishing; `work_once` runs them all.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from acid_platform.compaction import execution
from acid_platform.compaction.execution import (
    Compaction,
    StagedCompaction,
    open_compaction,
    select_compactable,
)
from acid_platform.compaction.plan import (
    Amount,
    CompactionPlan,
    CompactionSettings,
    Deviation,
    Forecast,
    NothingToDo,
    against,
    forecast,
    plan_compaction,
)
from acid_platform.compaction.profiles import Measure, compare
from acid_platform.compaction.states import CompactionState
from acid_platform.engine.choice import CompactionChoice, choose
from acid_platform.errors import (
    AcidError,
    CompactionLost,
    CompactionMismatch,
    CompactionRefused,
    LockNotAcquired,
    LockTimeout,
    NeedsSpark,
    PublicationWaited,
    StoreRefused,
    StoreUnavailable,
    TxnAborted,
)
from acid_platform.layout.table_properties import PUBLICATION_WAIT
from acid_platform.metastore import operations as ops
from acid_platform.metastore.client.metastore import CompactionTransaction
from acid_platform.metastore.operations.compaction import CompactionTask
from acid_platform.metastore.records import WriteReport
from acid_platform.scan.open import TableLayout, chosen_partitions
from acid_platform.services import removals, worker_id
from acid_platform.services.explain_services import reported_rows
from acid_platform.storage.durability import remove_at_once
from acid_platform.tables.record_layout import recorded_listings, table_layout
from acid_platform.transactions import RowOperation
from acid_platform.write.publishing import WrittenDirectory

if TYPE_CHECKING:
    from acid_platform.handles.warehouse import Warehouse
    from acid_platform.metastore.client.metastore import Metastore


class End(StrEnum):
    PUBLISHED = "published"
    READY_FOR_CLEANING = "ready for cleaning"
    """There was nothing to merge, but something to remove."""
    REFUSED = "refused"
    FAILED = "failed"
    PUT_BACK = "put back"
    """A lock kept it from beginning: the task is in the queue again."""
    LOST = "lost"
    """The task was taken from this Worker."""


@dataclass(frozen=True, slots=True)
class CompactionOutcome:
    task: CompactionTask
    state: End
    reason: str
    plan: CompactionPlan | None = None
    outputs: tuple[WrittenDirectory, ...] = ()
    deviations: tuple[Deviation, ...] = ()
    """The forecast compared with what was written."""
    engine: str = ""
    """Empty if the task did not come to merging."""
    engine_reason: str = ""


@dataclass(slots=True)
class CompactionRun:
    """An attempt at a task. Call `prepare`, `merge`, `check`, `commit`; on any error `fail`."""

    warehouse: Warehouse
    task: CompactionTask
    txn: CompactionTransaction | None = None
    plan: CompactionPlan | None = None
    forecast: Forecast | None = None
    staged: StagedCompaction | None = None
    choice: CompactionChoice | None = None
    """The engine that merges and why; set by `merge`."""
    _layout: TableLayout | None = field(default=None, repr=False)
    _published: bool = field(default=False, repr=False)
    """Whether the output is in its place, where a commit may have named it."""
    _publication: int = field(default=0, repr=False)
    """The publication that the metastore has granted; 0: none (P46)."""

    @classmethod
    def take(
        cls, warehouse: Warehouse, worker: str | None = None, table: str | None = None
    ) -> CompactionRun | None:
        """Takes the next task (of a table) for `worker`; None if no task waits (C26)."""
        task = warehouse.metastore.call(ops.TakeCompaction(worker or worker_id(), table=table))
        return None if task is None else cls(warehouse, task)

    def prepare(self) -> CompactionPlan | NothingToDo:
        """Begins the compaction's transaction, chooses inputs and output names (C28, C29).

        Writes no file.
        """
        metastore = self.warehouse.metastore
        self.txn = metastore.begin_compaction(self.task, self.task.worker, self.warehouse.info())
        self.task = self.txn.task
        # As its snapshot sees the table: it has every column that rows in the snapshot have (P28).
        record = self.txn.table(self.task.table)
        self._layout = table_layout(record, self.txn)
        # The compactor's own transaction is open in these lists (HIVE-29567).
        lists = self.txn.compactor_list, self.txn.valid_txns
        partitions = chosen_partitions(self._layout, only=self.task.partition or "")
        listings = recorded_listings(self._layout, self.txn, partitions)
        directory, write_ids = select_compactable(self._layout, listings, *lists)
        settings = CompactionSettings.of(self.txn.settings, self.task.properties, record.properties)
        plan = plan_compaction(directory, self.task.kind, write_ids, self.txn.id, settings)
        if isinstance(plan, NothingToDo):
            metastore.call(
                ops.EndCompaction.of(self.task, self.txn.id, plan.to_cleaning, plan.reason)
            )
            self.txn.forget()
            return plan
        self.plan = plan
        self.forecast = forecast(
            plan, reported_rows(metastore, self.task.table).get(self.task.partition, {})
        )
        return plan

    def merge(self) -> StagedCompaction:
        """Builds the output where no reader sees it; profiles inputs and output.

        Small inputs are merged in this process, others in Spark tasks. If this process finds that
        it can't while it reads, Spark begins anew. Raises NeedsSpark if only the local engine may
        run, and can't, and in an object store what `commit` raises.
        """
        assert self.plan and self._layout and self.txn, "prepare() comes first"
        if self._layout.files.object_store:  # the output is written where it will be read
            self._may_publish()
        with self.txn.checked(again=False):
            partition = self.task.partition or ""
            compaction = open_compaction(self.plan, self._layout, partition, self.task.job)
            self.choice = choose(self.warehouse.engines, compaction)
            try:
                self.staged = _executed(self.choice, compaction)
            except NeedsSpark as refused:
                if self.choice.instead is None:
                    raise
                self.choice = self.choice.instead(str(refused))
                self.staged = _executed(self.choice, compaction)
        return self.staged

    def differences(self) -> tuple[Measure, ...]:
        """What the compaction changed and must not change; empty if it is correct."""
        assert self.staged, "merge() comes first"
        return compare(self.staged.expected, self.staged.actual)

    def check(self) -> None:
        """Raises CompactionMismatch, which names each difference."""
        differences = self.differences()
        if differences:
            raise CompactionMismatch(
                f"compaction {self.task.id} of {job_entity(self.task)} would change the data: "
                + "; ".join(map(str, differences))
                + "; its inputs were kept"
            )

    def commit(self) -> tuple[WrittenDirectory, ...]:
        """Renames the output into place and commits, if the task is still ours (P21).

        Raises PublicationWaited if other engines read too long (P46), CompactionLost, TxnAborted.
        """
        assert self.staged and self.txn, "merge() comes first"
        self._may_publish()
        self.txn.heartbeat()
        try:
            outputs = execution.publish(self.staged)
            self._published = True
        except FileNotFoundError:
            # The Cleaner removed the staged output, so the attempt is lost: the heartbeat raises.
            self.txn.heartbeat()
            raise
        reports = [
            WriteReport(
                self.task.table,
                self.task.partition,
                RowOperation.COMPACT,
                published.directory,
                published.contents,
            )
            for published in outputs
        ]
        try:
            self.txn.commit_compaction(reports)
        except (CompactionLost, TxnAborted):
            if self._taken_back():
                self._end_publication()
            raise
        return outputs

    def _may_publish(self) -> None:
        """Asks for the publication, once. Raises PublicationWaited, CompactionLost, TxnAborted."""
        assert self.plan and self._layout and self.txn, "prepare() comes first"
        renames = not self._layout.files.object_store
        if self._publication or not self.plan.comes_into_sight(renames):
            return
        for left in self.warehouse.metastore.call(ops.GetUnpublished()):  # by earlier attempts
            if (left.table, left.partition) == (self.task.table, self.task.partition):
                removals.unpublish(self.warehouse.metastore, left)
        names, wait = tuple(map(str, self.plan.outputs)), self.plan.settings.publication_wait
        try:
            self._publication = self.warehouse.metastore.call(
                ops.RequestPublication.of(self.task, self.txn.id, names, wait)
            ).ext
        except LockTimeout as error:
            raise PublicationWaited(
                f"other engines read {job_entity(self.task)}: {error}; the Initiator looks at it"
                f" again, and {PUBLICATION_WAIT} says how long to wait"
            ) from error

    def _taken_back(self) -> bool:
        """Removes the output from where other engines see it; False if that fails.

        Then the Cleaner does it.
        """
        assert self.plan and self._layout
        files = self._layout.files
        try:
            for output in self.plan.outputs:
                remove_at_once(files, self.plan.location, str(output), self.plan.txn_id)
        except (OSError, StoreRefused, StoreUnavailable):
            return False
        return True

    def _end_publication(self) -> None:
        """After the transaction was aborted and the output removed."""
        if self._publication:
            self.warehouse.metastore.call(ops.EndPublication(self._publication))
            self._publication = 0

    def ended(
        self, state: End, reason: str, outputs: tuple[WrittenDirectory, ...] = ()
    ) -> CompactionOutcome:
        """How the attempt ended; `outputs` are what it published."""
        amounts = [
            Amount(output.rows, output.contents.bytes, len(output.contents.files))
            for output in outputs
        ]
        deviations = against(self.forecast, amounts) if outputs and self.forecast else ()
        engine, why = (self.choice.engine.name, self.choice.reason) if self.choice else ("", "")
        return CompactionOutcome(
            self.task, state, reason, self.plan, outputs, deviations, engine, why
        )

    def held_up(self, error: BaseException) -> bool:
        """Whether a lock kept the task from beginning, or its transaction ended before the Worker
        heard of it: then nothing has failed."""
        return self.txn is None and isinstance(error, LockNotAcquired | LockTimeout | TxnAborted)

    def fail(self, error: BaseException) -> None:
        """Removes the output, aborts the transaction and marks the task as failed (C32).

        What was refused ends as refused, and a task that was held up before it began is put back.
        """
        if self.choice is not None:
            self.choice.engine.cancel()
        if self.staged and not self._published:
            execution.discard(self.staged.compaction)
        text = f"{type(error).__name__}: {error}"[:2000]
        # What was renamed may be committed; then nothing is taken back.
        gone = not self._publication or (not self._published and self._taken_back())
        try:
            if isinstance(error, CompactionRefused) and self.txn is not None and gone:
                again = isinstance(error, PublicationWaited)
                end = ops.EndCompaction.of(self.task, self.txn.id, False, text, again)
                self.warehouse.metastore.call(end)
                self.txn.forget()
            else:
                txn_id = None
                if self.txn is not None:
                    self.txn.forget()
                    txn_id = self.txn.id
                fail = ops.FailCompaction.of(self.task, txn_id, text, self.held_up(error))
                self.warehouse.metastore.call(fail)
                if gone:
                    self._end_publication()
        except CompactionLost:
            return  # revoked in the meantime: the row belongs to another Worker now


def _executed(choice: CompactionChoice, compaction: Compaction) -> StagedCompaction:
    with choice.engine.running():
        return execution.execute(choice.engine, compaction)


def work_once(warehouse: Warehouse, table: str | None = None) -> CompactionOutcome | None:
    """Takes and finishes one task (of a table); None if no task waits.

    A failure is recorded in the task and returned, not raised, so that the queue goes on.
    """
    run = CompactionRun.take(warehouse, table=table)
    if run is None:
        return None
    try:
        plan = run.prepare()
        if isinstance(plan, NothingToDo):
            state = End.READY_FOR_CLEANING if plan.to_cleaning else End.REFUSED
            return CompactionOutcome(run.task, state, plan.reason)
        run.merge()
        run.check()
        outputs = run.commit()
        return run.ended(End.PUBLISHED, plan.reason, outputs)
    except CompactionLost as error:
        return run.ended(End.LOST, str(error))
    except CompactionRefused as error:
        run.fail(error)
        return run.ended(End.REFUSED, str(error))
    except AcidError as error:
        run.fail(error)
        return run.ended(End.PUT_BACK if run.held_up(error) else End.FAILED, str(error))
    except Exception as error:  # such as a full disk: as in Hive, it fails only this task
        run.fail(error)
        return run.ended(End.FAILED, f"{type(error).__name__}: {error}")
    except BaseException as error:
        run.fail(error)
        raise


def revoke_dead(metastore: Metastore) -> list[int]:
    """Puts tasks back into the queue whose Worker was a process of this host that has ended (C25).

    Tasks of a Dagster run are put back when the run ends.
    """
    import psutil

    host, requeued = socket.gethostname(), []
    for task in metastore.call(ops.GetQueue()):
        worker_host, _, worker_id = task.worker.rpartition("-")
        process = worker_id.partition(".")[0]
        if (
            task.state is CompactionState.WORKING
            and worker_host == host
            and process.isdecimal()
            and not psutil.pid_exists(int(process))
        ):
            requeued += metastore.call(ops.RevokeWorkers(task.worker))
    return requeued


def job_entity(task: CompactionTask) -> str:
    return f"{task.table}.{task.partition}" if task.partition else task.table
