"""Merges the branches of runs and backfills once all of their checks have passed (P81).

A branch whose run or check failed is kept for a person. The metastore knows which branches there
are, Dagster what became of their runs; the sensor's cursor only keeps which branches it has seen,
so that a merge is shown on the pages of the assets also if the daemon dies in between.
"""

# No `from __future__ import annotations`: Dagster reads the annotations of its functions.
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

import dagster as dg

from acid_platform.errors import (
    BranchInUse,
    DeclarationChanged,
    NoSuchBranch,
    NoSuchTable,
    WriteConflict,
)
from acid_platform.handles.warehouse import Warehouse
from acid_platform.metastore.branches import BranchRow
from acid_platform.metastore.operations.transactions import GetTxnStates
from acid_platform.orchestration.outside_commits import DATA_VERSION
from acid_platform.orchestration.resources import WarehouseResource
from acid_platform.orchestration.run_branches import (
    BRANCH_TAG,
    NOTHING,
    OF_BACKFILL,
    START_TAG,
    is_own,
    process_branch,
)

_PAGE = 1000
_KIND = dg.DagsterEventType
_EVENTS = {
    _KIND.ASSET_MATERIALIZATION_PLANNED,
    _KIND.ASSET_MATERIALIZATION,
    _KIND.ASSET_CHECK_EVALUATION_PLANNED,
    _KIND.ASSET_CHECK_EVALUATION,
}

Part = tuple[str, str, str]
"""What a run plans: `asset` and its key, `check` and its name with that of the asset, or `run` and
the first of the runs that repeat each other; and the partitions of the run."""


class Seen(NamedTuple):
    """A branch that runs have used, by its transaction."""

    txn: int
    judged: int = 0
    """The number of its runs when it was said why they are not merged."""


@dg.sensor(
    minimum_interval_seconds=15,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Merges the branch of a run or backfill with the tag acid/branch=run when all of"
    " its checks have passed.",
)
def merge_branches(
    context: dg.SensorEvaluationContext, warehouse: dg.ResourceParam[WarehouseResource]
) -> dg.SensorResult:
    """Merges what is complete, drops what is empty, and says on the run's page why it keeps a
    branch. It asks the metastore nothing until a run has used a branch."""
    instance = context.instance
    if branch := process_branch():
        return dg.SensorResult(skip_reason=f"this process works on branch {branch} (ACID_BRANCH)")
    if START_TAG not in instance.get_run_tag_keys():
        return dg.SensorResult(skip_reason="no run has used a branch")
    before = _cursor(context.cursor)
    after: dict[str, Seen] = {}
    said: list[str] = []
    with warehouse.open(branch="") as opened:
        there = {row.name: row for row in opened.branches.list(judged=False)}
        runs = _runs(instance, there)
        for name, row in there.items():
            if not runs[name]:
                continue
            after[name] = seen = before.get(name, Seen(row.txn))
            if seen.txn != row.txn:
                after[name] = Seen(row.txn)
            elif name in before and is_own(name):
                told = _decided(instance, opened, row, runs[name], seen)
                after[name] = Seen(row.txn, len(runs[name]) if told.kept else 0)
                if told.ended:
                    del after[name]
                if told.text:
                    context.log.info(told.text)
                    instance.report_engine_event(told.text, runs[name][-1])
                    said.append(told.text)
        shown = _keys(context)
        events = [
            event
            for name, seen in before.items()
            if name not in after or after[name].txn != seen.txn
            for event in _merged(instance, opened, name, seen.txn)
            if event.asset_key in shown
        ]
    return dg.SensorResult(
        asset_events=events,
        cursor=json.dumps(after),
        skip_reason="; ".join(said) or f"{len(after)} branches of runs wait for their runs, or you",
    )


def _cursor(text: str | None) -> dict[str, Seen]:
    try:
        return {name: Seen(*map(int, seen)) for name, seen in json.loads(text or "{}").items()}
    except (ValueError, TypeError, AttributeError):
        return {}


def _keys(context: dg.SensorEvaluationContext) -> set[dg.AssetKey]:
    """The assets of this code location."""
    assert context.repository_def
    return set(context.repository_def.asset_graph.get_all_asset_keys())


def _runs(
    instance: dg.DagsterInstance, names: Iterable[str]
) -> defaultdict[str, list[dg.DagsterRun]]:
    """The runs on each branch, in the order in which they were made."""
    found: defaultdict[str, list[dg.DagsterRun]] = defaultdict(list)
    if listed := [*names]:
        records = instance.get_run_records(dg.RunsFilter(tags={BRANCH_TAG: listed}))
        for record in sorted(records, key=lambda each: each.storage_id):
            found[record.dagster_run.tags[BRANCH_TAG]].append(record.dagster_run)
    return found


# --- what becomes of a branch -------------------------------------------------------------------


class _Decided(NamedTuple):
    text: str = ""
    ended: bool = False
    kept: bool = False


def _decided(
    instance: dg.DagsterInstance,
    opened: Warehouse,
    row: BranchRow,
    runs: Sequence[dg.DagsterRun],
    seen: Seen,
) -> _Decided:
    """Merges or drops the branch, or says why neither; says nothing while its runs go on, and
    nothing twice."""
    name = row.name
    if not _over(instance, name, runs):
        return _Decided()
    if seen.judged == len(runs):
        return _Decided(kept=True)
    why = _refusal(instance, row, runs)
    try:
        if not why:
            opened.branches.merge(name)
            tables = ", ".join(row.write_ids) or "it had written nothing"
            return _Decided(f"branch {name} is merged: {tables}", ended=True)
        if not row.commits:
            for run in runs:
                instance.add_run_tags(run.run_id, {START_TAG: NOTHING})
            opened.branches.drop(name)
            return _Decided(f"branch {name} is dropped, it had written nothing: {why}", ended=True)
    except (BranchInUse, NoSuchBranch):  # the next tick sees what came of it
        return _Decided()
    except (WriteConflict, DeclarationChanged, NoSuchTable) as error:
        return _Decided(
            f"{error} (drop this one by `acid branch drop {name}`, then launch the run anew)",
            kept=True,
        )
    until = datetime.fromtimestamp(row.until / 1000, UTC)
    ends = f"; it ends {until:%Y-%m-%d %H:%M} UTC" if row.until else ""
    return _Decided(
        f"branch {name} is kept, and nobody else sees what is on it: {why}; re-execute what failed,"
        f" or mend it (ACID_BRANCH={name} acid sql ...) and `acid branch merge {name}`, or"
        f" `acid branch drop {name}`{ends}",
        kept=True,
    )


def _over(instance: dg.DagsterInstance, name: str, runs: Sequence[dg.DagsterRun]) -> bool:
    """Whether no run on the branch goes on, or is to come."""
    if any(not run.is_finished or run.is_complete_and_waiting_to_retry for run in runs):
        return False
    if not name.startswith(OF_BACKFILL):
        return True
    return all(status in _ENDED for status in _backfills(instance, name, runs))


def _refusal(instance: dg.DagsterInstance, row: BranchRow, runs: Sequence[dg.DagsterRun]) -> str:
    """Why it is not merged, empty if all is complete and has passed."""
    if row.name.startswith(OF_BACKFILL):
        statuses = _backfills(instance, row.name, runs)
        if not statuses or statuses[-1] != "COMPLETED_SUCCESS":
            return f"its backfill is {statuses[-1] if statuses else 'not known here'}"
    for run in runs:
        if run.tags.get(START_TAG) not in (str(row.txn), NOTHING):
            return f"run {run.run_id} began on an earlier branch of this name"
    left = _left(instance, runs)
    return "; ".join(list(left.values())[:5]) + (f" and {len(left) - 5} more" * (len(left) > 5))


def _left(instance: dg.DagsterInstance, runs: Sequence[dg.DagsterRun]) -> dict[Part, str]:
    """What a run planned and did not do, or a check found wrong, and no later run mended."""
    left: dict[Part, str] = {}
    for run in runs:
        of = partition_text(run)
        planned: dict[Part, None] = {}
        done: set[Part] = set()
        failed: dict[tuple[Part, str | None], bool] = {}
        for event in _events(instance, run.run_id):
            kind, data = event.event_type, cast(Any, event.event_specific_data)
            if kind in (_KIND.ASSET_CHECK_EVALUATION_PLANNED, _KIND.ASSET_CHECK_EVALUATION):
                key = data.asset_check_key
                part = ("check", f"{key.name} of {key.asset_key.to_user_string()}", of)
            else:
                assert event.asset_key
                part = ("asset", event.asset_key.to_user_string(), of)
            if kind in (_KIND.ASSET_CHECK_EVALUATION_PLANNED, _KIND.ASSET_MATERIALIZATION_PLANNED):
                planned[part] = None
                continue
            done.add(part)
            if isinstance(data, dg.AssetCheckEvaluation):
                error = data.severity is dg.AssetCheckSeverity.ERROR
                failed[part, data.partition] = error and not data.passed
        whole: Part = ("run", run.root_run_id or run.run_id, of)
        ended = f"run {run.run_id} has ended as {run.status.value}"
        if run.is_success:
            done |= {*planned, whole}  # it may yield less than it planned
        elif planned.keys() <= done:
            left[whole] = ended
        for part in done:
            left.pop(part, None)
        for part in planned.keys() - done:
            left[part] = f"{ended} without {part[0]} {part[1]}"
        for (part, _), is_wrong in failed.items():
            if is_wrong:
                left[part] = f"check {part[1]} failed in run {run.run_id}"
    return left


def partition_text(run: dg.DagsterRun) -> str:
    """The partitions of the run, as its tags say."""
    names = ("partition", "asset_partition_range_start", "asset_partition_range_end")
    return " ".join(filter(None, (run.tags.get(f"dagster/{name}") for name in names)))


def _events(instance: dg.DagsterInstance, run_id: str) -> Iterator[dg.DagsterEvent]:
    cursor, more = None, True
    while more:
        page = instance.get_records_for_run(run_id, cursor, _EVENTS, _PAGE, ascending=True)
        for record in page.records:
            if event := record.event_log_entry.dagster_event:
                yield event
        cursor, more = page.cursor, page.has_more


_ENDED = ("COMPLETED", "COMPLETED_SUCCESS", "COMPLETED_FAILED", "FAILED", "CANCELED")


def _backfills(instance: dg.DagsterInstance, name: str, runs: Sequence[dg.DagsterRun]) -> list[str]:
    """How the backfills of the branch stand, the last one last; some were started to repeat what
    failed in another."""
    ids = {run.tags["dagster/backfill"] for run in runs if "dagster/backfill" in run.tags}
    found = map(instance.get_backfill, sorted({*ids, name.removeprefix(OF_BACKFILL)}))
    in_order = sorted(filter(None, found), key=lambda each: each.backfill_timestamp)
    return [backfill.status.value for backfill in in_order]


# --- what a merge shows -------------------------------------------------------------------------


def _merged(
    instance: dg.DagsterInstance, opened: Warehouse, name: str, txn: int
) -> list[dg.AssetMaterialization]:
    """A materialization of each asset, or partition, whose rows everybody sees since the branch was
    merged, by this sensor or a person: what is downstream has to hear of it now."""
    tags = {BRANCH_TAG: name, START_TAG: str(txn)}
    last: dict[tuple[dg.AssetKey, str | None], dg.AssetMaterialization] = {}
    for run in reversed(instance.get_runs(dg.RunsFilter(tags=tags))):
        for event in _events(instance, run.run_id):
            if event.event_type is _KIND.ASSET_MATERIALIZATION:
                made = event.step_materialization_data.materialization
                last[made.asset_key, made.partition] = made
    by_txn = {key: _number(made, "transaction") for key, made in last.items()}
    states = opened.metastore.call(GetTxnStates(tuple({*by_txn.values()} - {0})))
    return [
        dg.AssetMaterialization(
            made.asset_key,
            f"branch {name} was merged",
            made.metadata,
            made.partition,
            {DATA_VERSION: str(_number(made, "write id"))},
        )
        for key, made in last.items()
        if states.get(by_txn[key]) == "c"
    ]


def _number(made: dg.AssetMaterialization, name: str) -> int:
    value = made.metadata.get(name)
    return int(value.value or 0) if isinstance(value, dg.IntMetadataValue) else 0
