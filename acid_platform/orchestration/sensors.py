"""What starts runs, and cleans up after those that died: sensors, and a condition of an asset.

Sensors are shipped STOPPED, so a fresh `make dev` shows them, but they start no work unasked; only
merge_branches runs, for which a run asks by its tag. None needs a JVM. Each skip gives its reason.
The metastore decides by heartbeats which transactions are alive (P2, P7); Dagster's run status is
only a hint, and some sensors reconcile the two.
"""

# No `from __future__ import annotations`: Dagster reads the annotations of its functions.

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime

import dagster as dg

from acid_platform.base.clock import wall_ms
from acid_platform.errors import InvalidDefinition, LeaseHeld, NoSuchTable
from acid_platform.handles.warehouse import Warehouse
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.operations.compaction import (
    ErasureTask,
    GetCleanings,
    GetErasures,
    RevokeWorkers,
)
from acid_platform.metastore.operations.tables import GetCursors, GetLastWriteId
from acid_platform.metastore.operations.transactions import AbortMany, GetTxnStates
from acid_platform.metastore.records import NO_HEARTBEAT
from acid_platform.orchestration.decorators import CONSUMES
from acid_platform.orchestration.inputs import consumer_of
from acid_platform.orchestration.resources import WarehouseResource
from acid_platform.orchestration.service_jobs import (
    REQUEST_TAG,
    TABLE_TAG,
    cleaning_job,
    compaction_job,
    erase,
    initiated,
    worker_prefix,
)
from acid_platform.services import initiator

TASKS_TAG = "acid/compactions"
CONSUMER_TAG, CHANGES_TAG = "acid/consumer", "acid/changes"
MOST_ATTEMPTS = 3
"""Runs for the same set of queued tasks; after these a person has to look."""

_LONGEST_NAME = 80

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
    description="Requests a compaction when a table's deltas exceed its thresholds.",
)
def initiator_sensor(
    context: dg.SensorEvaluationContext, warehouse: dg.ResourceParam[WarehouseResource]
) -> dg.SensorResult:
    """One cycle of the Initiator, then a run for each table with queued tasks."""
    with warehouse.open(branch="") as opened:
        if not opened.metastore.in_force.flag("hive.compactor.initiator.on"):
            return dg.SensorResult(skip_reason="hive.compactor.initiator.on is false")
        try:
            decisions = initiator.run(opened.metastore, wall_ms())
        except LeaseHeld as error:
            return dg.SensorResult(skip_reason=str(error))
        waiting = initiated(opened)
    for decision in decisions:
        asks = decision.decision.kind or decision.decision.did_not_initiate
        (context.log.info if asks else context.log.debug)(str(decision))
    ids: dict[str, list[str]] = {}
    for task in waiting:
        ids.setdefault(task.table, []).append(str(task.id))
    return _result(
        (_compacting(context.instance, table, ",".join(ids[table])) for table in sorted(ids)),
        f"checked {len(decisions)} entities, the queue is empty",
    )


def _result(verdicts: Iterable[dg.RunRequest | str], nothing: str) -> dg.SensorResult:
    """The runs, or why there is none: the reasons of all verdicts, `nothing` without a verdict."""
    requests, reasons = [], []
    for verdict in verdicts:
        if isinstance(verdict, dg.RunRequest):
            requests.append(verdict)
        else:
            reasons.append(verdict)
    if requests:
        return dg.SensorResult(run_requests=requests)
    return dg.SensorResult(skip_reason="; ".join(reasons) or nothing)


def _compacting(instance: dg.DagsterInstance, table: str, ids: str) -> dg.RunRequest | str:
    """A run for the queued tasks of a table, or why there is none."""
    tags = {TABLE_TAG: table}
    if under_way := _under_way(instance, compaction_job.name, tags):
        return f"{under_way}, which compacts {table}"
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
    description="Launches the Cleaner when there is something to remove.",
)
def cleaner_sensor(
    context: dg.SensorEvaluationContext, warehouse: dg.ResourceParam[WarehouseResource]
) -> dg.SensorResult:
    """Launches the Cleaner, or reports which transactions a cleaning waits for."""
    if under_way := _under_way(context.instance, cleaning_job.name, {}):
        return dg.SensorResult(skip_reason=f"{under_way}, which cleans")
    with warehouse.open(branch="") as opened:
        if not opened.metastore.in_force.flag("hive.compactor.cleaner.on"):
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
    context: dg.SensorEvaluationContext, warehouse: dg.ResourceParam[WarehouseResource]
) -> dg.SensorResult:
    """Launches a run for each request whose blocking transactions have ended."""
    with warehouse.open(branch="") as opened:
        tasks = [task for task in opened.metastore.call(GetErasures()) if task.state.open]
        states = opened.metastore.call(
            GetTxnStates(tuple({txn for task in tasks for txn in task.waits_for}))
        )
    open_txns = {txn for txn, state in states.items() if state == "o"}
    return _result(
        (_erasing(context.instance, task, open_txns) for task in tasks),
        "there are no erasure requests",
    )


def _erasing(
    instance: dg.DagsterInstance, task: ErasureTask, open_txns: Set[int]
) -> dg.RunRequest | str:
    """A run for a recorded request, or why there is none."""
    request = f"request {task.id} of {task.table}"
    if holding := [txn for txn in task.waits_for if txn in open_txns]:
        return f"{request}: waits for transactions {holding}"
    tags = {REQUEST_TAG: str(task.id)}
    if under_way := _under_way(instance, erase.name, tags):
        return f"{request}: {under_way}"
    asked = datetime.fromtimestamp(task.requested / 1000, UTC)
    earlier = instance.get_runs_count(
        dg.RunsFilter(job_name=erase.name, tags=tags, created_after=asked)
    )
    if earlier - task.waits >= MOST_ATTEMPTS:
        return (
            f"{request}: {earlier} runs have not erased it,"
            f" {task.answer or 'for an unknown reason'}; look at the runs, then launch one of them"
            " again"
        )
    return dg.RunRequest(
        run_key=f"{task.id}:{task.requested}:{earlier + 1}",
        tags={**tags, TABLE_TAG: task.table},
        run_config={
            "ops": {"delete_rows": {"config": {"table": task.table, "where": task.condition}}}
        },
    )


def _under_way(instance: dg.DagsterInstance, job: str | None, tags: Mapping[str, str]) -> str:
    """What a run with these tags does, of any job without `job`; '' if there is none."""
    unfinished = dg.RunsFilter(job_name=job, statuses=UNFINISHED, tags=dict(tags))
    for run in instance.get_runs(unfinished, limit=1):
        waits = run.status is dg.DagsterRunStatus.QUEUED
        return f"run {run.run_id} {'waits in the queue' if waits else 'is under way'}"
    return ""


# --- assets ---------------------------------------------------------------------------------------


def upstream_changed() -> dg.AutomationCondition[dg.AssetKey | dg.AssetCheckKey]:
    """AutomationCondition.eager, but only if the data version of an upstream has changed.

    The data version of a table is its committed write id. A materialization that writes nothing
    keeps it, so nothing downstream is recomputed. Instead of a view (a virtual asset), what it
    reads counts.
    """
    changed = dg.AutomationCondition.any_deps_match(dg.AutomationCondition.data_version_changed())
    return (
        (changed | dg.AutomationCondition.newly_missing()).since_last_handled()
        & ~dg.AutomationCondition.any_deps_missing()
        & ~dg.AutomationCondition.any_deps_in_progress()
        & ~dg.AutomationCondition.in_progress()
    ).resolve_through_virtual()


def change_sensor(
    assets: Sequence[dg.AssetsDefinition],
    name: str | None = None,
    minimum_interval_seconds: int = 30,
) -> dg.SensorDefinition:
    """A sensor, shipped STOPPED, for assets with `TableInput(changes=True)`.

    It starts a run of an asset when a table whose changes it consumes has commits that it has not
    seen, and no such run is under way. After MOST_ATTEMPTS runs that did not consume the same
    changes, it waits for a person, or for another commit. Needs no JVM. Raises InvalidDefinition
    for an asset that consumes no changes. Without `name`, it is named after the assets.
    """
    for asset in assets:
        if not isinstance(asset, dg.AssetsDefinition):
            raise InvalidDefinition(f"change_sensor takes assets, not {asset!r}: import the asset")
    consumed = {consumer_of(asset.keys): (sorted(asset.keys), _tables(asset)) for asset in assets}

    @dg.sensor(
        name=name or _sensor_name(assets),
        target=list(assets),
        minimum_interval_seconds=minimum_interval_seconds,
        description="Materializes assets that consume changes when there are some.",
    )
    def sensor(
        context: dg.SensorEvaluationContext, warehouse: dg.ResourceParam[WarehouseResource]
    ) -> dg.SensorResult:
        with warehouse.open(branch="") as opened:
            verdicts = [
                _consuming(context.instance, opened, consumer, keys, tables)
                for consumer, (keys, tables) in consumed.items()
            ]
        return _result(verdicts, "no asset consumes changes")

    return sensor


def _sensor_name(assets: Sequence[dg.AssetsDefinition]) -> str:
    """A name that no sensor of other assets has, of letters that Dagster takes."""
    text = "__".join(consumer_of(asset.keys) for asset in assets)
    plain = re.sub(r"\W", "_", text, flags=re.ASCII)
    if len(plain) > _LONGEST_NAME:
        digest = hashlib.sha256(text.encode()).hexdigest()
        plain = f"{plain[:_LONGEST_NAME]}_{digest[:8]}"
    return f"change_sensor__{plain}"


def _tables(asset: dg.AssetsDefinition) -> list[str]:
    for spec in asset.specs:
        tables = spec.metadata.get(CONSUMES)
        if tables is not None:
            return [str(table) for table in getattr(tables, "value", tables)]
    raise InvalidDefinition(
        f"{consumer_of(asset.keys)} consumes no changes: give it an input"
        " TableInput(table, changes=True), or leave it out of change_sensor"
    )


@dataclass(frozen=True, slots=True)
class _News:
    """What a consumer has not read of a table: its cursor and the last commit, '' if nothing.
    `refused`: why it can't read that."""

    commits: str = ""
    refused: str = ""


def _news(warehouse: Warehouse, consumer: str, table: str) -> _News:
    """Raises NoSuchTable."""
    rows = warehouse.metastore.call(GetCursors(table))
    mine = next((row for row in rows if row.cursor.consumer == consumer), None)
    if mine is None:
        last = warehouse.metastore.call(GetLastWriteId(warehouse.table(table).record.table_id))
        return _News(f"{table}:new-{last}" if last else "")
    if not mine.behind:
        return _News()
    return _News(f"{table}:{mine.cursor.moment}-{mine.last}", mine.refused)


def _consuming(
    instance: dg.DagsterInstance,
    warehouse: Warehouse,
    consumer: str,
    keys: list[dg.AssetKey],
    tables: Sequence[str],
) -> dg.RunRequest | str:
    """A run of the consumer, or why there is none."""
    try:
        news = [_news(warehouse, consumer, table) for table in tables]
    except NoSuchTable as error:
        return f"{consumer}: {error}; it was dropped or renamed, or is not made yet"
    commits = ",".join(each.commits for each in news if each.commits)
    if not commits:
        return f"{consumer}: it has seen every change"
    refused = "; ".join(each.refused for each in news if each.refused)
    tags = {CONSUMER_TAG: consumer}
    if under_way := _under_way(instance, None, tags):
        return f"{consumer}: {under_way}"
    tags |= {CHANGES_TAG: commits}
    earlier = instance.get_runs_count(dg.RunsFilter(tags=tags))
    if refused and earlier:  # the first shows the error on the asset's page, others would repeat it
        return f"{consumer}: {refused}"
    if earlier >= MOST_ATTEMPTS:
        failure = f"{earlier} runs have not consumed {commits}"
        return f"{consumer}: {failure}; look at the runs, then launch one"
    return dg.RunRequest(
        run_key=f"{consumer}:{commits}:{earlier + 1}", tags=tags, asset_selection=keys
    )


@dg.run_failure_sensor(
    monitor_all_code_locations=True,
    minimum_interval_seconds=5,
    description="Aborts the open transactions of a failed run, and requeues its compactions.",
)
def abort_failed_runs(
    context: dg.RunFailureSensorContext, warehouse: dg.ResourceParam[WarehouseResource]
) -> dg.SkipReason | None:
    return _abort(context, warehouse, dg.DagsterRunStatus.FAILURE)


@dg.run_status_sensor(
    run_status=dg.DagsterRunStatus.CANCELED,
    monitor_all_code_locations=True,
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
    with warehouse.open(branch="") as opened:
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
    left = [txn for txn, run in _running_txns(metastore) if run == run_id]
    ended = [f"compactions {revoked} are initiated again"] if revoked else []
    if left:
        ended.append(
            f"{metastore.call(AbortMany(tuple(left), reason)).message} transactions: {left}"
        )
    return "; ".join(ended)


def _running_txns(metastore: Metastore) -> Iterator[tuple[int, str]]:
    """The transactions that a client keeps alive, with their runs: not a branch, nor what is
    committed on one, which stay open until the branch ends."""
    _, rows = metastore.query(
        "SELECT txn_id, run_id FROM v_open_txns WHERE NOT joined AND branch <> txn_id"
    )
    return ((txn, run_id) for txn, run_id in rows)


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
    with warehouse.open(branch="") as opened:
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
    alive = {run_id for _, run_id in _running_txns(metastore)}
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
