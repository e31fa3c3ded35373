"""The Worker as a Dagster job: queued → plan → merge → validate → publish, per task of one table.

A run works off the whole queue of its table, since a run costs a process and a JVM; each task is
mapped, so that the run's page shows which partition is where. Steps of one task follow each other
(priorities), so that one compaction transaction is open at a time. A failure at any step fails the
task in the metastore and aborts its transaction (C32); the other tasks go on.
"""

# No `from __future__ import annotations`: Dagster reads the annotations of its functions.
import re
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import dagster as dg

from acid_platform.compaction.plan import NothingToDo
from acid_platform.compaction.states import CompactionState
from acid_platform.compaction.validation import Invariant, Measure, measures
from acid_platform.errors import CompactionLost, CompactionRefused
from acid_platform.orchestration.access import SparkAccess, WarehouseAccess
from acid_platform.orchestration.checks import Expectation, evaluate
from acid_platform.orchestration.metadata import TableStats, asset_key
from acid_platform.services.worker import CompactionRun, job_entity, job_name
from acid_platform.tables.context import worker_id
from acid_platform.warehouse import Warehouse

if TYPE_CHECKING:
    import pandas as pd

POOL = "acid_compaction"
IN_MEMORY = "in_memory"
"""Resource key of the IO manager: an attempt holds an open transaction, so it can't be stored."""

_OUT = dg.Out(is_required=False, io_manager_key=IN_MEMORY)
TABLE_TAG = "acid/table"


class QueueConfig(dg.Config):
    """Which part of the compaction queue a run works off."""

    table: str
    """`db.table`."""


@dataclass(frozen=True, slots=True)
class Queued:
    """A task that waited when the run began; another Worker may take it first."""

    id: int
    table: str
    partition: str | None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One task that this run has taken, the handle that it lives on, and the table before it."""

    warehouse: Warehouse
    run: CompactionRun
    before: TableStats


def worker_prefix(run_id: str) -> str:
    """Worker ids of a run begin with it, so that what a dead run held can be revoked (C25)."""
    return f"{socket.gethostname()}-{run_id[:8]}"


@dg.op(
    out=dg.DynamicOut(io_manager_key=IN_MEMORY), description="The tasks of the table that wait now."
)
def queued(
    context: dg.OpExecutionContext,
    config: QueueConfig,
    warehouse: dg.ResourceParam[WarehouseAccess],
) -> Iterator[dg.DynamicOutput[Queued]]:
    """Raises NoSuchTable."""
    with warehouse.open(context.run_id) as opened:
        table = opened.table(config.table).name
        waiting = [task for task in initiated(opened) if task.table == table]
    if not waiting:
        context.log.warning(
            f"nothing is compacted: no compaction of {table} waits in the queue; ask for one by"
            f" `acid compact {table} major`, or switch on initiator_sensor, which asks where deltas"
            " pass their thresholds"
        )
    for task in waiting:
        where = re.sub(r"\W", "_", task.partition or "table")
        yield dg.DynamicOutput(task, mapping_key=f"{task.id}_{where}")


def initiated(warehouse: Warehouse) -> list[Queued]:
    """Every task that waits for a Worker, in the order of the queue."""
    return [
        Queued(task.id, task.table, task.partition)
        for task in warehouse.metastore.queue()
        if task.state is CompactionState.INITIATED
    ]


@dg.op(
    out=_OUT,
    tags={"dagster/priority": "1"},
    description="Takes the next task, opens its transaction, chooses inputs and output names.",
)
def plan(
    context: dg.OpExecutionContext,
    task: Queued,
    warehouse: dg.ResourceParam[WarehouseAccess],
    spark: dg.ResourceParam[SparkAccess],
) -> Iterator[dg.Output[Attempt]]:
    opened = warehouse.open(context.run_id, spark.spark_session)
    worker = f"{worker_prefix(context.run_id)}-{worker_id().rpartition('-')[2]}"
    run = CompactionRun.take(opened, worker, task.table)
    if run is None:
        context.log.info(f"task {task.id} is another Worker's already")
        opened.close()
        return
    before = TableStats.of(
        opened.metastore.entities(run.task.table), run.task.table, run.task.partition
    )
    attempt = Attempt(opened, run, before)
    with _failing(context, attempt):
        context.instance.add_run_tags(
            context.run_id, {f"acid/compaction-{run.task.id}": job_name(run.task)}
        )
        chosen = run.prepare()
    if isinstance(chosen, NothingToDo):
        context.log.info(f"{job_entity(run.task)}: nothing to compact: {chosen.reason}")
        opened.close()
        return
    context.log.info(f"{job_entity(run.task)}: {chosen.kind.value}: {chosen.reason}")
    yield dg.Output(
        attempt,
        metadata={
            "compaction": run.task.id,
            "kind": chosen.kind.value,
            "reason": chosen.reason,
            "outputs": ", ".join(map(str, chosen.outputs)),
            "job": job_name(run.task),
        },
    )


@dg.op(
    out=_OUT,
    pool=POOL,
    tags={"dagster/priority": "2"},
    description="Spark tasks build the output where no reader sees it.",
)
def merge(context: dg.OpExecutionContext, attempt: Attempt) -> Iterator[dg.Output[Attempt]]:
    try:
        with _failing(context, attempt):
            staged = attempt.run.merge()
    except CompactionRefused as refused:
        context.log.warning(f"refused: {refused}")
        return
    yield dg.Output(
        attempt,
        metadata={
            "rows": sum(one.rows for one in staged.outputs),
            "bytes": sum(one.bytes for one in staged.outputs),
        },
    )


@dg.op(
    out=dg.Out(io_manager_key=IN_MEMORY),
    tags={"dagster/priority": "3"},
    description="Great Expectations: the output holds what the inputs held.",
)
def validate(context: dg.OpExecutionContext, attempt: Attempt) -> dg.Output[Attempt]:
    task = attempt.run.task
    with _failing(context, attempt):
        staged = attempt.run.staged
        assert staged, "merge comes first"
        found = measures(staged.expected, staged.actual)
        findings = evaluate(measure_frame(found), invariants(), ("measure",))
        told: dict[str, dg.MetadataValue] = {
            "invariants": dg.MetadataValue.table(
                [
                    dg.TableRecord({"expectation": one.name, "passed": one.passed})
                    for one in findings
                ]
            ),
            "measures": dg.MetadataValue.table(
                [
                    dg.TableRecord(
                        {
                            "invariant": one.invariant.value,
                            "measure": one.what,
                            "before": _told(one.expected),
                            "after": _told(one.actual),
                        }
                    )
                    for one in found
                ]
            ),
            "data docs": dg.MetadataValue.md(findings[0].docs),
        }
        if any(one.blocks for one in findings):
            differing = "; ".join(map(str, attempt.run.differences()))
            raise dg.Failure(
                f"compaction {task.id} of {job_entity(task)} would change the data: {differing};"
                " its inputs were kept",
                metadata=told,
                allow_retries=False,
            )
    context.log.info(f"all {len(found)} measures are equal")
    return dg.Output(attempt, metadata=told)


@dg.op(
    tags={"dagster/priority": "4"},
    description="Renames the output into place and commits; the inputs become obsolete.",
)
def publish(context: dg.OpExecutionContext, attempt: Attempt) -> None:
    task = attempt.run.task
    with _failing(context, attempt):
        outputs = attempt.run.publish()
    after = TableStats.of(
        attempt.warehouse.metastore.entities(task.table), task.table, task.partition
    )
    attempt.warehouse.close()
    # Not a materialization: the layout has changed, the data has not.
    context.log_event(
        dg.AssetObservation(
            asset_key(task.table),
            metadata={
                "compaction": task.id,
                "kind": task.kind.value,
                "partition": task.partition or "(unpartitioned)",
                "job": job_name(task),
                "outputs": ", ".join(one.directory for one in outputs),
                "rows": after.rows,
                **attempt.before.metadata("before: "),
                **after.metadata("after: "),
            },
        )
    )


@dg.job(
    executor_def=dg.in_process_executor,
    description="Compacts what waits in the queue of one table (C26 to C36).",
)
def compaction_job() -> None:
    queued().map(lambda task: publish(validate(merge(plan(task)))))


def invariants() -> list[Expectation]:
    """One for each invariant, over a `measure_frame`."""
    return [
        Expectation(
            f"compaction_keeps_{one.value.replace(' ', '_')}",
            "ExpectColumnPairValuesToBeEqual",
            dict(zip(("column_A", "column_B"), _sides(one), strict=True)),
            f"What the output holds is what the inputs held: {one.value}.",
        )
        for one in Invariant
    ]


def _sides(one: Invariant) -> tuple[str, str]:
    return f"{one.value} before", f"{one.value} after"


def measure_frame(found: Sequence[Measure]) -> "pd.DataFrame":
    """A measure in each row, in the columns of its invariant; those of the others are empty.

    Numbers are texts, since a checksum has 64 bits.
    """
    import pandas as pd

    return pd.DataFrame(
        [
            {
                "measure": one.what,
                **dict.fromkeys(name for other in Invariant for name in _sides(other)),
                **dict(
                    zip(_sides(one.invariant), map(_told, (one.expected, one.actual)), strict=True)
                ),
            }
            for one in found
        ]
    )


def _told(value: int | None) -> str:
    return "absent" if value is None else str(value)


@contextmanager
def _failing(context: dg.OpExecutionContext, attempt: Attempt) -> Iterator[None]:
    """Any failure inside fails the task and aborts its transaction (C32); also a cancellation."""
    try:
        yield
    except BaseException as error:
        try:
            if not isinstance(error, CompactionLost):
                attempt.run.fail(error)
        finally:
            attempt.warehouse.close()
        raise
