"""Sensors that look after runs: what an ended one left open, and who ended without a word.

The metastore decides who is alive, by heartbeats (P2, P7); Dagster's status of a run is only news.
Both are brought together here. Shipped STOPPED; none needs a JVM.
"""

# No `from __future__ import annotations`: Dagster reads the annotations of its functions.
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import dagster as dg

from acid_platform.clock import SystemClock
from acid_platform.config import Settings
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.records import NO_HEARTBEAT
from acid_platform.orchestration.access import WarehouseAccess
from acid_platform.orchestration.compaction import worker_prefix
from acid_platform.warehouse import Warehouse


@dg.run_failure_sensor(
    minimum_interval_seconds=5,
    description="Aborts what a failed run left open, and frees the compactions it had taken.",
)
def abort_failed_runs(
    context: dg.RunFailureSensorContext, warehouse: dg.ResourceParam[WarehouseAccess]
) -> dg.SkipReason | None:
    return _abort(context, warehouse)


@dg.run_status_sensor(
    run_status=dg.DagsterRunStatus.CANCELED,
    minimum_interval_seconds=5,
    description="Aborts what a canceled run left open, and frees the compactions it had taken.",
)
def abort_canceled_runs(
    context: dg.RunStatusSensorContext, warehouse: dg.ResourceParam[WarehouseAccess]
) -> dg.SkipReason | None:
    return _abort(context, warehouse)


def _abort(context: dg.RunStatusSensorContext, warehouse: WarehouseAccess) -> dg.SkipReason | None:
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
    left = [holder.txn for holder in metastore.open_txns() if holder.run_id == run_id]
    told = [f"compactions {revoked} are initiated again"] if revoked else []
    if left:
        told.append(f"{metastore.abort_transactions(left, reason)} transactions: {left}")
    return "; ".join(told)


# --- runs that are lost --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Silent:
    """A run of which the reaper has aborted the last transaction."""

    run_id: str
    txn_id: int
    at: int
    """When, in milliseconds UTC."""
    reason: str


@dg.sensor(
    minimum_interval_seconds=15,
    description="Fails runs that count as going on, but whose process has fallen silent.",
)
def fail_lost_runs(
    context: dg.SensorEvaluationContext, warehouse: dg.ResourceParam[WarehouseAccess]
) -> dg.SkipReason:
    """Nobody else tells Dagster of a run whose process died with its code server: it would keep
    its place in its pool for ever.

    Its transaction was reaped, it has no other, and nothing was heard of it since. A living
    process learns of the abort by its next heartbeat and tells the run (materialize); it gets
    twice that time.
    """
    runs = {
        one.run_id: one
        for one in context.instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED]))
    }
    if not runs:
        return dg.SkipReason("no run is going on")
    with warehouse.open() as opened:
        patience = 2 * Settings.of(opened.metastore.settings()).heartbeat_interval
        silent = list(silent_runs(opened.metastore, runs))
    now = SystemClock().now_ms()
    lost = [
        one
        for one in silent
        if now - one.at > patience and _last_word(context.instance, one.run_id) < one.at
    ]
    for one in lost:
        told = (
            f"transaction {one.txn_id} of this run was aborted, {one.reason}, and nothing was"
            " heard of the run since: its process has ended, or hangs; launch it again"
        )
        context.log.info(f"run {one.run_id}: {told}")
        context.instance.report_run_failed(runs[one.run_id], told)
    if lost:
        return dg.SkipReason(f"failed: {', '.join(one.run_id for one in lost)}")
    return dg.SkipReason(f"{len(runs)} runs are going on, none of them is lost")


def silent_runs(metastore: Metastore, run_ids: Collection[str]) -> Iterator[Silent]:
    """Those of the runs whose last transaction was reaped (P2) within `acid.outcome.retention`."""
    alive = {holder.run_id for holder in metastore.open_txns()}
    mute = set(run_ids) - alive
    if not mute:
        return
    listed = ", ".join(f"'{one}'" for one in sorted(mute))
    _, rows = metastore.query(
        f"SELECT run_id, txn_id, ended, reason FROM txns WHERE run_id IN ({listed})"
        " QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY ended DESC, txn_id DESC) = 1"
    )
    for run_id, txn_id, ended, reason in rows:
        if reason.startswith(NO_HEARTBEAT):
            yield Silent(run_id, txn_id, ended, reason)


def _last_word(instance: dg.DagsterInstance, run_id: str) -> float:
    """When something was last heard of a run, in milliseconds UTC."""
    last = instance.get_records_for_run(run_id, limit=1, ascending=False).records
    return max((one.timestamp for one in last), default=0.0) * 1000
