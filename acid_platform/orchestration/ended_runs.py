"""Sensors that clean up after ended runs, and fail runs whose process died silently.

The metastore decides by heartbeats which transactions are alive (P2, P7); Dagster's run status is
only a hint. These sensors reconcile the two. They are shipped STOPPED and need no JVM.
"""

# No `from __future__ import annotations`: Dagster reads the annotations of its functions.
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import dagster as dg

from acid_platform.base.clock import wall_ms
from acid_platform.handles.warehouse import Warehouse
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.operations.compaction import RevokeWorkers
from acid_platform.metastore.operations.transactions import AbortMany, GetOpenTxns
from acid_platform.metastore.records import NO_HEARTBEAT
from acid_platform.orchestration.compaction_job import worker_prefix
from acid_platform.orchestration.resources import WarehouseResource


@dg.run_failure_sensor(
    minimum_interval_seconds=5,
    description="Aborts the open transactions of a failed run, and requeues its compactions.",
)
def abort_failed_runs(
    context: dg.RunFailureSensorContext, warehouse: dg.ResourceParam[WarehouseResource]
) -> dg.SkipReason | None:
    return _abort(context, warehouse, dg.DagsterRunStatus.FAILURE)


@dg.run_status_sensor(
    run_status=dg.DagsterRunStatus.CANCELED,
    minimum_interval_seconds=5,
    description="Aborts the open transactions of a canceled run, and requeues its compactions.",
)
def abort_canceled_runs(
    context: dg.RunStatusSensorContext, warehouse: dg.ResourceParam[WarehouseResource]
) -> dg.SkipReason | None:
    return _abort(context, warehouse, dg.DagsterRunStatus.CANCELED)


def _abort(
    context: dg.RunStatusSensorContext, warehouse: WarehouseResource, status: dg.DagsterRunStatus
) -> dg.SkipReason | None:
    """End what a run left open. Dagster may write `status` to its record after the sensor ran."""
    run = context.dagster_run
    with warehouse.open() as opened:
        ended = abort_run(opened, run.run_id, f"run {run.run_id} is {status.value}")
    if not ended:
        return dg.SkipReason(f"run {run.run_id} left nothing open")
    context.log.info(ended)
    context.instance.report_engine_event(ended, run)  # shown on the run's page
    return None


def abort_run(warehouse: Warehouse, run_id: str, reason: str) -> str:
    """End what a run holds in the metastore; returns what was ended, as text, or ''.

    This is safe even if the run's process is still alive: its commit then fails (P2). Compactions
    that the run had taken are initiated again (C25).
    """
    metastore = warehouse.metastore
    revoked = metastore.call(RevokeWorkers(worker_prefix(run_id)))
    left = [holder.txn for holder in metastore.call(GetOpenTxns()) if holder.run_id == run_id]
    ended = [f"compactions {revoked} are initiated again"] if revoked else []
    if left:
        ended.append(
            f"{metastore.call(AbortMany(tuple(left), reason)).message} transactions: {left}"
        )
    return "; ".join(ended)


# --- lost runs -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SilentRun:
    """A run whose last transaction the reaper has aborted."""

    run_id: str
    txn_id: int
    at: int
    """Time of the abort, in milliseconds UTC."""
    reason: str


@dg.sensor(
    minimum_interval_seconds=15,
    description="Fails runs that are marked as started, but whose process has gone silent.",
)
def fail_lost_runs(
    context: dg.SensorEvaluationContext, warehouse: dg.ResourceParam[WarehouseResource]
) -> dg.SkipReason:
    """Fail runs whose process died together with its code server.

    Nobody else would tell Dagster, and the run would keep its slot in its pool forever. A run is
    lost if its last transaction was reaped, it has no other, and it has logged nothing since. A
    living process learns of the abort with its next heartbeat and logs it; it gets twice that time.
    """
    runs = {
        run.run_id: run
        for run in context.instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED]))
    }
    if not runs:
        return dg.SkipReason("no run is in progress")
    with warehouse.open() as opened:
        patience = 2 * opened.metastore.in_force.heartbeat_interval
        silent = list(silent_runs(opened.metastore, runs))
    now = wall_ms()
    lost = [
        run
        for run in silent
        if now - run.at > patience and _last_event(context.instance, run.run_id) < run.at
    ]
    for run in lost:
        reason = (
            f"transaction {run.txn_id} of this run was aborted, {run.reason}, and the run has"
            " logged nothing since: its process has ended or hangs; launch the run again"
        )
        context.log.info(f"run {run.run_id}: {reason}")
        context.instance.report_run_failed(runs[run.run_id], reason)
    if lost:
        return dg.SkipReason(f"failed: {', '.join(run.run_id for run in lost)}")
    return dg.SkipReason(f"{len(runs)} runs are in progress, none of them is lost")


def silent_runs(metastore: Metastore, run_ids: Collection[str]) -> Iterator[SilentRun]:
    """The runs whose last transaction was reaped (P2) within `acid.outcome.retention`."""
    alive = {holder.run_id for holder in metastore.call(GetOpenTxns())}
    mute = set(run_ids) - alive
    if not mute:
        return
    listed = ", ".join(f"'{run_id}'" for run_id in sorted(mute))
    _, rows = metastore.query(
        f"SELECT run_id, txn_id, ended, reason FROM txns WHERE run_id IN ({listed})"
        " QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY ended DESC, txn_id DESC) = 1"
    )
    for run_id, txn_id, ended, reason in rows:
        if reason.startswith(NO_HEARTBEAT):
            yield SilentRun(run_id, txn_id, ended, reason)


def _last_event(instance: dg.DagsterInstance, run_id: str) -> float:
    """The time of a run's last event, in milliseconds UTC."""
    last = instance.get_records_for_run(run_id, limit=1, ascending=False).records
    return max((record.timestamp for record in last), default=0.0) * 1000
