"""Sensors of the services: Initiator, Cleaner and recorded erasure requests.

All sensors are shipped STOPPED, so a fresh `make dev` shows them, but they start no work unasked.
None needs a JVM. Each skip gives its reason.
"""

# No `from __future__ import annotations`: Dagster reads the annotations of its functions.
from collections.abc import Mapping
from datetime import UTC, datetime

import dagster as dg

from acid_platform.base.clock import SystemClock
from acid_platform.base.config import Settings
from acid_platform.errors import LeaseHeld
from acid_platform.metastore.operations.compaction import GetCleanings, GetErasures
from acid_platform.metastore.operations.transactions import GetTxnStates
from acid_platform.metastore.records import ErasureTask
from acid_platform.orchestration.access import WarehouseAccess
from acid_platform.orchestration.cleaning_job import cleaning_job
from acid_platform.orchestration.compaction_job import (
    TABLE_TAG,
    compaction_job,
    initiated,
)
from acid_platform.orchestration.erasure_job import REQUEST_TAG, erase
from acid_platform.services import initiator

TASKS_TAG = "acid/compactions"
MOST_ATTEMPTS = 3
"""Runs for the same set of queued tasks; after these a person has to look."""

UNFINISHED = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


@dg.sensor(
    job=compaction_job,
    minimum_interval_seconds=30,
    description="Requests a compaction when a table's deltas exceed its thresholds (C1 to C24).",
)
def initiator_sensor(
    context: dg.SensorEvaluationContext, warehouse: dg.ResourceParam[WarehouseAccess]
) -> dg.SensorResult:
    """One cycle of the Initiator, then a run for each table with queued tasks."""
    with warehouse.open() as opened:
        if not Settings.of(opened.metastore.settings()).flag("hive.compactor.initiator.on"):
            return dg.SensorResult(skip_reason="hive.compactor.initiator.on is false")
        try:
            decisions = initiator.run(opened.metastore, SystemClock().now_ms())
        except LeaseHeld as error:
            return dg.SensorResult(skip_reason=str(error))
        waiting = initiated(opened)
    for decision in decisions:
        asks = decision.decision.kind or decision.decision.did_not_initiate
        (context.log.info if asks else context.log.debug)(str(decision))
    tables = sorted({task.table for task in waiting})
    requests, reasons = [], []
    for table in tables:
        ids = ",".join(str(task.id) for task in waiting if task.table == table)
        verdict = _request(context.instance, table, ids)
        if isinstance(verdict, dg.RunRequest):
            requests.append(verdict)
        else:
            reasons.append(verdict)
    if requests:
        return dg.SensorResult(run_requests=requests)
    nothing = f"checked {len(decisions)} entities, the queue is empty"
    return dg.SensorResult(skip_reason="; ".join(reasons) or nothing)


def _request(instance: dg.DagsterInstance, table: str, ids: str) -> dg.RunRequest | str:
    """A run for the queued tasks of a table, or why there is none."""
    tags = {TABLE_TAG: table}
    if _running(instance, compaction_job.name, tags):
        return f"a run is already compacting {table}"
    tags |= {TASKS_TAG: ids}
    earlier = instance.get_runs_count(dg.RunsFilter(job_name=compaction_job.name, tags=tags))
    if earlier >= MOST_ATTEMPTS:
        return (
            f"{earlier} runs have not taken tasks {ids} of {table}; look at the runs, then launch"
            f" {compaction_job.name} yourself"
        )
    return dg.RunRequest(
        run_key=f"{table}:{ids}:{earlier + 1}",
        tags=tags,
        run_config={"ops": {"queued": {"config": {"table": table}}}},
    )


@dg.sensor(
    job=cleaning_job,
    minimum_interval_seconds=5,
    description="Launches the Cleaner when there is something to remove (C37 to C55).",
)
def cleaner_sensor(
    context: dg.SensorEvaluationContext, warehouse: dg.ResourceParam[WarehouseAccess]
) -> dg.SensorResult:
    """Launches the Cleaner, or reports which transactions a cleaning waits for."""
    if _running(context.instance, cleaning_job.name, {}):
        return dg.SensorResult(skip_reason="the Cleaner is running")
    with warehouse.open() as opened:
        if not Settings.of(opened.metastore.settings()).flag("hive.compactor.cleaner.on"):
            return dg.SensorResult(skip_reason="hive.compactor.cleaner.on is false")
        cleanings = opened.metastore.call(GetCleanings())
        ready, blocked = cleanings.ready, cleanings.blocked
    if ready:
        return dg.SensorResult(run_requests=[dg.RunRequest()])
    waits = [
        f"{cleaning.table} {cleaning.partition or ''} waits: {cleaning.reason}"
        + "".join(f", transaction {held.txn} of {held.user}" for held in cleaning.holders)
        for cleaning in blocked
    ]
    return dg.SensorResult(skip_reason="; ".join(waits) or "there is nothing to remove")


@dg.sensor(
    job=erase,
    minimum_interval_seconds=30,
    description="Launches `erase` for each recorded request that waits for no transaction.",
)
def erasure_sensor(
    context: dg.SensorEvaluationContext, warehouse: dg.ResourceParam[WarehouseAccess]
) -> dg.SensorResult:
    """Launches a run for each request whose blocking transactions have ended."""
    with warehouse.open() as opened:
        tasks = [task for task in opened.metastore.call(GetErasures()) if task.state.open]
        states = opened.metastore.call(
            GetTxnStates(tuple({txn for task in tasks for txn in task.waits_for}))
        )
    requests, reasons = [], []
    for task in tasks:
        held = [txn for txn in task.waits_for if states.get(txn) == "o"]
        verdict = f"waits for transactions {held}" if held else _erasure(context.instance, task)
        if isinstance(verdict, dg.RunRequest):
            requests.append(verdict)
        else:
            reasons.append(f"request {task.id} of {task.table}: {verdict}")
    if requests:
        return dg.SensorResult(run_requests=requests)
    return dg.SensorResult(skip_reason="; ".join(reasons) or "there are no erasure requests")


def _erasure(instance: dg.DagsterInstance, task: ErasureTask) -> dg.RunRequest | str:
    """A run for a recorded request, or why there is none."""
    tags = {REQUEST_TAG: str(task.id)}
    if _running(instance, erase.name, tags):
        return "a run is already working on it"
    asked = datetime.fromtimestamp(task.requested / 1000, UTC)
    earlier = instance.get_runs_count(
        dg.RunsFilter(job_name=erase.name, tags=tags, created_after=asked)
    )
    if earlier - task.waits >= MOST_ATTEMPTS:
        return (
            f"{earlier} runs have not erased it, {task.answer or 'for an unknown reason'}; look at"
            " the runs, then launch one of them again"
        )
    return dg.RunRequest(
        run_key=f"{task.id}:{task.requested}:{earlier + 1}",
        tags={**tags, TABLE_TAG: task.table},
        run_config={
            "ops": {"delete_rows": {"config": {"table": task.table, "where": task.condition}}}
        },
    )


def _running(instance: dg.DagsterInstance, job: str, tags: Mapping[str, str]) -> bool:
    return (
        instance.get_runs_count(dg.RunsFilter(job_name=job, statuses=UNFINISHED, tags=dict(tags)))
        > 0
    )
