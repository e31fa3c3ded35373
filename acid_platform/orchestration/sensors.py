"""Sensors: the Initiator's and the Cleaner's ticks, and the abort of what ended runs left open.

All are shipped STOPPED, so that a fresh `make dev` shows them and they start no work unasked. None
needs a JVM. Each skip says why.
"""

# No `from __future__ import annotations`: Dagster reads the annotations of its functions.
from collections.abc import Mapping

import dagster as dg

from acid_platform.clock import SystemClock
from acid_platform.config import Settings
from acid_platform.errors import LeaseHeld
from acid_platform.orchestration.access import WarehouseAccess
from acid_platform.orchestration.cleaning import cleaning_job
from acid_platform.orchestration.compaction import (
    TABLE_TAG,
    compaction_job,
    initiated,
    worker_prefix,
)
from acid_platform.services import initiator
from acid_platform.warehouse import Warehouse

TASKS_TAG = "acid/compactions"
MOST_ATTEMPTS = 3
"""Runs for one and the same set of waiting tasks; then a person has to look."""

_UNFINISHED = [
    dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING,
]


@dg.sensor(
    job=compaction_job, minimum_interval_seconds=30,
    description="Asks for a compaction where a table's deltas pass its thresholds (C1 to C24).",
)
def initiator_sensor(
    context: dg.SensorEvaluationContext, warehouse: dg.ResourceParam[WarehouseAccess]
) -> dg.SensorResult:
    """One cycle of the Initiator, then a run per table for what waits in the queue."""
    with warehouse.open() as opened:
        if not Settings.of(opened.metastore.settings()).flag("hive.compactor.initiator.on"):
            return dg.SensorResult(skip_reason="hive.compactor.initiator.on is false")
        try:
            decisions = initiator.run(opened.metastore, SystemClock().now_ms())
        except LeaseHeld as error:
            return dg.SensorResult(skip_reason=str(error))
        waiting = initiated(opened)
    for one in decisions:
        asks = one.decision.kind or one.decision.did_not_initiate
        (context.log.info if asks else context.log.debug)(str(one))
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
    looked = f"{len(decisions)} entities looked at, nothing waits"
    return dg.SensorResult(skip_reason="; ".join(reasons) or looked)


def _request(instance: dg.DagsterInstance, table: str, ids: str) -> dg.RunRequest | str:
    """A run for the waiting tasks of a table, or why there is none."""
    tags = {TABLE_TAG: table}
    if _running(instance, compaction_job.name, tags):
        return f"a run is compacting {table} already"
    tags |= {TASKS_TAG: ids}
    earlier = instance.get_runs_count(dg.RunsFilter(job_name=compaction_job.name, tags=tags))
    if earlier >= MOST_ATTEMPTS:
        return (f"{earlier} runs have not taken tasks {ids} of {table}: look at them, then launch"
                f" {compaction_job.name} by hand")
    return dg.RunRequest(
        run_key=f"{table}:{ids}:{earlier + 1}", tags=tags,
        run_config={"ops": {"queued": {"config": {"table": table}}}})


@dg.sensor(
    job=cleaning_job, minimum_interval_seconds=5,
    description="Launches the Cleaner when the metastore reports something removable (C37 to C55).",
)
def cleaner_sensor(
    context: dg.SensorEvaluationContext, warehouse: dg.ResourceParam[WarehouseAccess]
) -> dg.SensorResult:
    """What has to wait is told with the transactions that it waits for."""
    if _running(context.instance, cleaning_job.name, {}):
        return dg.SensorResult(skip_reason="the Cleaner is at work")
    with warehouse.open() as opened:
        if not Settings.of(opened.metastore.settings()).flag("hive.compactor.cleaner.on"):
            return dg.SensorResult(skip_reason="hive.compactor.cleaner.on is false")
        ready = opened.metastore.ready_to_clean()
        blocked = opened.metastore.cleaning_blocked()
    if ready:
        return dg.SensorResult(run_requests=[dg.RunRequest()])
    waits = [
        f"{one.table} {one.partition or ''} waits: {one.reason}"
        + "".join(f", transaction {held.txn} of {held.user}" for held in one.holders)
        for one in blocked
    ]
    return dg.SensorResult(skip_reason="; ".join(waits) or "nothing is removable")


@dg.run_failure_sensor(
    minimum_interval_seconds=5,
    description="Aborts what a failed run left open, and frees the compactions it had taken.")
def abort_failed_runs(
    context: dg.RunFailureSensorContext, warehouse: dg.ResourceParam[WarehouseAccess]
) -> dg.SkipReason | None:
    return _abort(context, warehouse)


@dg.run_status_sensor(
    run_status=dg.DagsterRunStatus.CANCELED, minimum_interval_seconds=5,
    description="Aborts what a canceled run left open, and frees the compactions it had taken.")
def abort_canceled_runs(
    context: dg.RunStatusSensorContext, warehouse: dg.ResourceParam[WarehouseAccess]
) -> dg.SkipReason | None:
    return _abort(context, warehouse)


def _abort(
    context: dg.RunStatusSensorContext, warehouse: WarehouseAccess
) -> dg.SkipReason | None:
    run = context.dagster_run
    with warehouse.open() as opened:
        ended = abort_run(opened, run.run_id, f"run {run.run_id} is {run.status.value}")
    if not ended:
        return dg.SkipReason(f"run {run.run_id} left nothing open")
    context.log.info(ended)
    context.instance.report_engine_event(ended, run)  # so that the run's page tells it
    return None


def abort_run(warehouse: Warehouse, run_id: str, reason: str) -> str:
    """Ends what a run holds in the metastore; answers what it ended, or nothing.

    Safe while the run's process still lives: its commit fails then (P2). Compactions that it had
    taken are initiated again (C25).
    """
    metastore = warehouse.metastore
    revoked = metastore.revoke_workers(worker_prefix(run_id))
    left = [row["txnid"] for row in metastore.transactions()
            if row["run_id"] == run_id and row["state"] == "OPEN"]
    told = [f"compactions {revoked} are initiated again"] if revoked else []
    if left:
        told.append(f"{metastore.abort_transactions(left, reason)} transactions: {left}")
    return "; ".join(told)


def _running(instance: dg.DagsterInstance, job: str, tags: Mapping[str, str]) -> bool:
    return instance.get_runs_count(
        dg.RunsFilter(job_name=job, statuses=_UNFINISHED, tags=dict(tags))) > 0
