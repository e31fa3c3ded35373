"""The Worker: takes a queued compaction and executes it, or records why it can't (C26 to C36).

The steps are separate, so that an orchestrator can show them and add checks of its own between
merging and publishing; `work_once` runs them all.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING

from acid_platform.base.config import Settings, setting
from acid_platform.base.table_properties import (
    JOB_PREFIX,
    LOCAL_COMPACTION_BYTES,
    MOST_DELTAS,
    PUBLICATION_WAIT,
    QUEUES,
)
from acid_platform.compaction import execution as compaction
from acid_platform.compaction.execution import StagedCompaction
from acid_platform.compaction.forecast import Amount, Deviation, Forecast, against, forecast
from acid_platform.compaction.opening import CompactionWork, select_compactable
from acid_platform.compaction.plan import CompactionPlan, NothingToDo, plan_compaction
from acid_platform.compaction.states import CompactionState, Layout
from acid_platform.compaction.validation import Measure, compare
from acid_platform.engine.compaction_choice import (
    CompactionChoice,
    choose,
)
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
from acid_platform.metastore.client.metastore import CompactionTransaction
from acid_platform.metastore.operations.compaction import (
    EndCompaction,
    EndPublication,
    FailCompaction,
    GetQueue,
    PublishCompaction,
    RevokeWorkers,
    TakeCompaction,
)
from acid_platform.metastore.records import CompactionTask, WriteReport
from acid_platform.services import unpublishing
from acid_platform.services.explain_services import reported_rows
from acid_platform.services.lease import worker_id
from acid_platform.storage.removal import remove_at_once
from acid_platform.tables.record_layout import columns_of_record, compression, table_layout
from acid_platform.transactions import RowOperation
from acid_platform.write.publishing import WrittenDirectory

if TYPE_CHECKING:
    from acid_platform.handles.warehouse import Warehouse
    from acid_platform.metastore.client.metastore import Metastore


Check = Callable[[StagedCompaction], None]
"""A caller's own check of the staged output; it raises to prevent the publication."""


class End(StrEnum):
    """How a Worker's attempt ended."""

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
    """How a compaction task ended."""

    task: CompactionTask
    state: End
    reason: str
    plan: CompactionPlan | None = None
    outputs: tuple[WrittenDirectory, ...] = ()
    deviations: tuple[Deviation, ...] = ()
    """The forecast compared with what was written."""
    choice: CompactionChoice | None = None
    """The engine and why it was chosen; None if the task did not come to merging."""


@dataclass(slots=True)
class CompactionRun:
    """An attempt at a task. Call `prepare`, `merge`, `check`, `publish`; on any error `fail`."""

    context: Warehouse
    task: CompactionTask
    txn: CompactionTransaction | None = None
    plan: CompactionPlan | None = None
    forecast: Forecast | None = None
    staged: StagedCompaction | None = None
    choice: CompactionChoice | None = None
    """The engine that merges and why; set by `merge`."""
    _work: CompactionWork | None = field(default=None, repr=False)
    _published: bool = field(default=False, repr=False)
    """Whether the output is in its place, where a commit may have named it."""
    _local_bytes: int = field(default=0, repr=False)
    """The most bytes of inputs that are merged in this process, unless the engine is given."""
    _publication: int = field(default=0, repr=False)
    """The publication that the metastore has granted; 0: none (P46)."""
    _wait: float = field(default=0.0, repr=False)
    """For how many seconds other engines may hold up the publication."""

    @classmethod
    def take(
        cls, context: Warehouse, worker: str | None = None, table: str | None = None
    ) -> CompactionRun | None:
        """Takes the next task (of a table) for `worker`; None if no task waits (C26)."""
        task = context.metastore.call(TakeCompaction(worker or worker_id(), table=table))
        return None if task is None else cls(context, task)

    def prepare(self) -> CompactionPlan | NothingToDo:
        """Begins the compaction's transaction, chooses inputs and output names (C28, C29).

        Writes no file.
        """
        metastore = self.context.metastore
        self.txn = metastore.begin_compaction(self.task, self.task.worker, self.context.info())
        self.task = self.txn.task
        # As its snapshot sees the table: it has every column that rows in the snapshot have (P28).
        record = self.txn.table(self.task.table)
        layout = table_layout(record, self.txn)
        partition = self.task.partition or ""
        # The compactor's own transaction is open in these lists (HIVE-29567).
        seen, listed = select_compactable(
            layout, self.txn.compactor_list, self.txn.valid_txns, partition
        )
        plan = plan_compaction(
            seen,
            self.task.kind,
            listed,
            self.txn.id,
            Layout.of(record.properties),
            insert_only=layout.insert_only,
        )
        if isinstance(plan, NothingToDo):
            metastore.call(EndCompaction.of(self.task, self.txn.id, plan.to_cleaning, plan.reason))
            self.txn.forget()
            return plan
        columns, _ = columns_of_record(record)
        settings = Settings.of(metastore.settings())
        of_job = partial(job_setting, settings, self.task.properties, record.properties)
        self._work = CompactionWork(
            layout.files,
            seen,
            columns,
            listed,
            partition,
            compression(record),
            int(setting(MOST_DELTAS).parse(of_job(MOST_DELTAS))),
            layout.format if layout.insert_only else None,
            self.task.job,
            of_job(*QUEUES),
        )
        self._local_bytes = int(
            setting(LOCAL_COMPACTION_BYTES).parse(of_job(LOCAL_COMPACTION_BYTES))
        )
        self._wait = float(setting(PUBLICATION_WAIT).parse(of_job(PUBLICATION_WAIT))) / 1000
        self.plan = plan
        self.forecast = forecast(
            plan, reported_rows(metastore, self.task.table).get(self.task.partition, {})
        )
        return plan

    def merge(self) -> StagedCompaction:
        """Builds the output where no reader sees it; profiles inputs and output.

        Small inputs are merged in this process, others in Spark tasks. If this process finds that
        it can't while it reads, Spark begins anew. Raises NeedsSpark if only the local engine may
        run, and can't, and in an object store what `publish` raises.
        """
        assert self.plan and self._work and self.txn, "prepare() comes first"
        if self._work.files.object_store:  # the output is written where it will be read
            self._may_publish()
        self.choice = choose(self.context.engines, self.plan, self._work, self._local_bytes)
        try:
            self.staged = self._executed(self.choice)
        except NeedsSpark as refused:
            if self.choice.instead is None:
                raise
            self.choice = self.choice.instead(str(refused))
            self.staged = self._executed(self.choice)
        return self.staged

    def _executed(self, choice: CompactionChoice) -> StagedCompaction:
        assert self.plan and self._work
        assert self.txn
        with self.txn.checked(again=False), choice.engine.running():
            return compaction.execute(choice.engine, self.plan, self._work)

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

    def deviations(self) -> tuple[Deviation, ...]:
        """The forecast compared with what was written."""
        assert self.forecast and self.staged, "merge() comes first"
        return against(
            self.forecast,
            [Amount(output.rows, output.bytes, output.files) for output in self.staged.outputs],
        )

    def publish(self) -> tuple[WrittenDirectory, ...]:
        """Renames the output into place and commits, if the task is still ours (P21).

        Raises PublicationWaited if other engines read too long (P46), CompactionLost, TxnAborted.
        """
        assert self.staged and self._work and self.txn, "merge() comes first"
        self._may_publish()
        self.txn.heartbeat()
        try:
            outputs = compaction.publish(self._work, self.staged)
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
            self.txn.publish(reports)
        except (CompactionLost, TxnAborted):
            if self._taken_back():
                self._end_publication()
            raise
        return outputs

    def _may_publish(self) -> None:
        """Asks for the publication, once. Raises PublicationWaited, CompactionLost, TxnAborted."""
        assert self.plan and self._work and self.txn, "prepare() comes first"
        if self._publication or not self.plan.comes_into_sight(not self._work.files.object_store):
            return
        unpublishing.remove_of(self.context.metastore, self.task.table, self.task.partition)
        names = [str(name) for name in self.plan.outputs]
        try:
            self._publication = self.context.metastore.call(
                PublishCompaction.of(self.task, self.txn.id, tuple(names), self._wait)
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
        assert self.plan and self._work
        try:
            for output in self.plan.outputs:
                remove_at_once(self._work.files, self.plan.location, str(output), self.plan.txn_id)
        except (OSError, StoreRefused, StoreUnavailable):
            return False
        return True

    def _end_publication(self) -> None:
        """After the transaction was aborted and the output removed."""
        if self._publication:
            self.context.metastore.call(EndPublication(self._publication))
            self._publication = 0

    def ended(
        self, state: End, reason: str, outputs: tuple[WrittenDirectory, ...] = ()
    ) -> CompactionOutcome:
        """How the attempt ended; `outputs` are what it published."""
        deviations = self.deviations() if outputs else ()
        return CompactionOutcome(
            self.task, state, reason, self.plan, outputs, deviations, self.choice
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
        if self.staged and self._work and not self._published:
            compaction.discard(self._work.files, self.staged.plan, self.staged.staging)
        text = f"{type(error).__name__}: {error}"[:2000]
        # What was renamed may be committed; then nothing is taken back.
        gone = not self._publication or (not self._published and self._taken_back())
        try:
            if isinstance(error, CompactionRefused) and self.txn is not None and gone:
                again = isinstance(error, PublicationWaited)
                end = EndCompaction.of(self.task, self.txn.id, False, text, again)
                self.context.metastore.call(end)
                self.txn.forget()
            else:
                txn_id = None
                if self.txn is not None:
                    self.txn.forget()
                    txn_id = self.txn.id
                fail = FailCompaction.of(self.task, txn_id, text, self.held_up(error))
                self.context.metastore.call(fail)
                if gone:
                    self._end_publication()
        except CompactionLost:
            return  # revoked in the meantime: the row belongs to another Worker now


def work_once(
    context: Warehouse, check: Check | None = None, table: str | None = None
) -> CompactionOutcome | None:
    """Takes and finishes one task (of a table); None if no task waits.

    A failure is recorded in the task and returned, not raised, so that the queue goes on.
    """
    run = CompactionRun.take(context, table=table)
    if run is None:
        return None
    try:
        plan = run.prepare()
        if isinstance(plan, NothingToDo):
            state = End.READY_FOR_CLEANING if plan.to_cleaning else End.REFUSED
            return CompactionOutcome(run.task, state, plan.reason)
        staged = run.merge()
        run.check()
        if check is not None:
            check(staged)
        outputs = run.publish()
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


def job_setting(
    settings: Settings, request: Mapping[str, str], table: Mapping[str, str], *names: str
) -> str:
    """A setting for one job (C22).

    `compactor.<name>` of the request wins, then that of the table, then the warehouse's value of
    the first name.
    """
    for properties in (request, table):
        for name in names:
            if JOB_PREFIX + name in properties:
                return properties[JOB_PREFIX + name]
    return settings.text(names[0])


def revoke_dead(metastore: Metastore) -> list[int]:
    """Puts tasks back into the queue whose Worker was a process of this host that has ended (C25).

    Tasks of a Dagster run are put back when the run ends.
    """
    import psutil

    host, requeued = socket.gethostname(), []
    for task in metastore.call(GetQueue()):
        worker_host, _, worker_id = task.worker.rpartition("-")
        process = worker_id.partition(".")[0]
        if (
            task.state is CompactionState.WORKING
            and worker_host == host
            and process.isdecimal()
            and not psutil.pid_exists(int(process))
        ):
            requeued += metastore.call(RevokeWorkers(task.worker))
    return requeued


def job_entity(task: CompactionTask) -> str:
    return f"{task.table}.{task.partition}" if task.partition else task.table
