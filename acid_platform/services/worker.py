"""The Worker: takes a queued compaction and carries it through, or says why not (C26 to C36).

The steps are separate, so that an orchestrator can show them and put checks of its own between
merging and publishing; `work_once` runs them all.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from acid_platform.compaction.forecast import Amount, Deviation, Forecast, against, forecast
from acid_platform.compaction.plan import CompactionPlan, NothingToDo, plan_compaction
from acid_platform.compaction.states import CompactionState, Layout
from acid_platform.compaction.validation import Measure, compare
from acid_platform.config import Settings, setting
from acid_platform.engine import compact
from acid_platform.engine.compact import CompactionWork, StagedCompaction
from acid_platform.engine.jobs import cancel, describe, tagged
from acid_platform.engine.write import Written
from acid_platform.errors import (
    AcidError,
    CompactionLost,
    CompactionMismatch,
    CompactionRefused,
    TxnAborted,
)
from acid_platform.metastore.client.metastore import CompactionTransaction
from acid_platform.metastore.records import CompactionTask, WriteReport
from acid_platform.reading.selection import select_compactable
from acid_platform.services.explain import reported_rows
from acid_platform.tables.context import (
    Context,
    columns_of_record,
    compression,
    worker_id,
)
from acid_platform.transactions import Operation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from acid_platform.metastore.client.metastore import Metastore

_QUEUES = ("hive.compactor.job.queue", "mapreduce.job.queuename", "mapred.job.queue.name")
_MOST_DELTAS = "hive.compactor.max.num.delta"

Check = Callable[[StagedCompaction], None]
"""A caller's own check of the staged output; raises to stop the publication."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a compaction task ended."""

    task: CompactionTask
    state: str
    """`published`, `ready for cleaning`, `refused`, `failed` or `lost`."""
    reason: str
    plan: CompactionPlan | None = None
    outputs: tuple[Written, ...] = ()
    deviations: tuple[Deviation, ...] = ()
    """The forecast beside what was written."""


@dataclass(slots=True)
class CompactionRun:
    """One attempt at one task. Call `prepare`, `merge`, `check`, `publish`; `fail` on any error."""

    context: Context
    task: CompactionTask
    txn: CompactionTransaction | None = None
    plan: CompactionPlan | None = None
    forecast: Forecast | None = None
    staged: StagedCompaction | None = None
    _work: CompactionWork | None = field(default=None, repr=False)
    _queue: str = field(default="", repr=False)
    _session: SparkSession | None = field(default=None, repr=False)
    """Set once it is used: failing must not start one."""

    @classmethod
    def take(
        cls, context: Context, worker: str | None = None, table: str | None = None
    ) -> CompactionRun | None:
        """The next task (of a table), now owned by `worker`; None when nothing waits (C26)."""
        task = context.metastore.take_compaction(worker or worker_id(), table)
        return None if task is None else cls(context, task)

    def prepare(self) -> CompactionPlan | NothingToDo:
        """Open the compaction's transaction, choose inputs and names; writes nothing (C28, C29)."""
        metastore = self.context.metastore
        self.txn = metastore.begin_compaction(self.task, self.task.worker, self.context.info())
        self.task = self.txn.task
        # As its snapshot sees them: columns that came with rows are known with these rows (P28).
        record = self.txn.table(self.task.table)
        layout = self.context.layout(record, self.txn)
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
            metastore.compaction_nothing_to_do(self.task, self.txn, plan.to_cleaning, plan.reason)
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
            int(setting(_MOST_DELTAS).parse(of_job(_MOST_DELTAS))),
            layout.format if layout.insert_only else None,
        )
        self._queue = of_job(*_QUEUES)
        self.plan = plan
        self.forecast = forecast(
            plan, reported_rows(metastore, self.task.table, self.task.partition)
        )
        return plan

    def merge(self) -> StagedCompaction:
        """Spark tasks build the output where no reader sees it, and profile both sides."""
        assert self.plan and self._work and self.txn, "prepare() comes first"
        spark = self._session = self.context.spark
        with tagged(spark, self.txn.id):
            describe(spark, job_name(self.task), self._queue)
            self.staged = compact.execute(spark, self.plan, self._work)
        return self.staged

    def differences(self) -> tuple[Measure, ...]:
        """What the output changed that it may not; empty for a right compaction."""
        assert self.staged, "merge() comes first"
        return compare(self.staged.expected, self.staged.actual)

    def check(self) -> None:
        """Raises CompactionMismatch naming each difference."""
        found = self.differences()
        if found:
            raise CompactionMismatch(
                f"compaction {self.task.id} of {job_entity(self.task)} would change the data: "
                + "; ".join(map(str, found))
                + "; its inputs were kept"
            )

    def deviations(self) -> tuple[Deviation, ...]:
        """What was expected beside what was written."""
        assert self.forecast and self.staged, "merge() comes first"
        return against(
            self.forecast, [Amount(one.rows, one.bytes, one.files) for one in self.staged.outputs]
        )

    def publish(self) -> tuple[Written, ...]:
        """Rename into place and commit; counts only if the task is still ours (P21)."""
        assert self.staged and self._work and self.txn, "merge() comes first"
        self.txn.heartbeat()
        try:
            outputs = compact.publish(self._work, self.staged)
        except FileNotFoundError:
            # Taken away since: the Cleaner removes what a lost attempt had staged.
            self.txn.heartbeat()
            raise
        reports = [
            WriteReport.of(
                self.task.table, self.task.partition, Operation.COMPACT, one.directory, one.contents
            )
            for one in outputs
        ]
        try:
            self.context.metastore.commit_compaction(self.task, self.txn, reports)
        except (CompactionLost, TxnAborted):
            for one in outputs:
                self._work.files.delete_directory(
                    f"{self._work.directory.location}/{one.directory}"
                )
            raise
        return outputs

    def fail(self, error: BaseException) -> None:
        """Drop the output, abort the transaction, mark the task failed (C32)."""
        if self.txn is not None:
            cancel(self._session, self.txn.id)
        if self.staged and self._work:
            compact.discard(self._work.files, self.staged.staging)
        text = f"{type(error).__name__}: {error}"[:2000]
        try:
            if isinstance(error, CompactionRefused) and self.txn is not None:
                self.context.metastore.compaction_nothing_to_do(self.task, self.txn, False, text)
            else:
                self.context.metastore.fail_compaction(self.task, self.txn, text)
        except CompactionLost:
            return  # revoked meanwhile: the row is another worker's now


def work_once(
    context: Context, check: Check | None = None, table: str | None = None
) -> Outcome | None:
    """Take and finish one task (of a table); None when nothing waits.

    A failure is recorded in the task and answered, not raised: the queue goes on.
    """
    run = CompactionRun.take(context, table=table)
    if run is None:
        return None
    try:
        plan = run.prepare()
        if isinstance(plan, NothingToDo):
            state = "ready for cleaning" if plan.to_cleaning else "refused"
            return Outcome(run.task, state, plan.reason)
        staged = run.merge()
        run.check()
        if check is not None:
            check(staged)
        outputs = run.publish()
        return Outcome(run.task, "published", plan.reason, plan, outputs, run.deviations())
    except CompactionLost as error:
        return Outcome(run.task, "lost", str(error), run.plan)
    except CompactionRefused as error:
        run.fail(error)
        return Outcome(run.task, "refused", str(error), run.plan)
    except AcidError as error:
        run.fail(error)
        return Outcome(run.task, "failed", str(error), run.plan)
    except Exception as error:  # a full disk, say: the trouble of one table, as to Hive's Worker
        run.fail(error)
        return Outcome(run.task, "failed", f"{type(error).__name__}: {error}", run.plan)
    except BaseException as error:
        run.fail(error)
        raise


def job_setting(
    settings: Settings, request: Mapping[str, str], table: Mapping[str, str], *names: str
) -> str:
    """A setting of one job: `compactor.<name>` of the request, then of the table, then the
    warehouse's value of the first name (C22)."""
    for properties in (request, table):
        for name in names:
            if f"compactor.{name}" in properties:
                return properties[f"compactor.{name}"]
    return settings.text(names[0])


def revoke_dead(metastore: Metastore) -> list[int]:
    """Tasks whose Worker was a process of this host that has ended are initiated again (C25).

    Those of a Dagster run are freed when the run has ended.
    """
    import psutil

    host, freed = socket.gethostname(), []
    for task in metastore.queue():
        worker_host, _, worker_id = task.worker.rpartition("-")
        process = worker_id.partition(".")[0]
        if (
            task.state is CompactionState.WORKING
            and worker_host == host
            and process.isdecimal()
            and not psutil.pid_exists(int(process))
        ):
            freed += metastore.revoke_workers(task.worker)
    return freed


def job_entity(task: CompactionTask) -> str:
    return f"{task.table}.{task.partition}" if task.partition else task.table


def job_name(task: CompactionTask) -> str:
    """`<worker>-compactor-<db>.<table>[.<partition>]` (compaction.md section 3)."""
    return f"{task.worker}-compactor-{job_entity(task)}"
