"""The Worker and the Cleaner as jobs of Dagster (C32 to C55), and the erasure of rows.

The Worker (queued → plan → merge → validate → publish): a run costs a process, and a JVM if one of
its tasks needs Spark, so it handles the whole queue of its table. Each task is mapped, so the run's
page shows the progress of each partition. Priorities make the steps of a task follow each other, so
only one compaction transaction is open at a time. A failure at any step fails the task in the
metastore and aborts its transaction (C32); the other tasks continue.

An erasure (delete → compact → clean and prove) fails if an old snapshot still needs the rows, and
names the snapshot's holder. Launch it again when that transaction has ended: it continues where it
had to stop. `erasure_sensor` does so for recorded requests.
"""

# No `from __future__ import annotations`: Dagster reads the annotations of its functions.

import re
import socket
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import dagster as dg

from acid_platform.compaction.plan import NothingToDo
from acid_platform.compaction.profiles import Invariant, Measure, measures
from acid_platform.compaction.states import CompactionState
from acid_platform.display.markdown_text import escaped_items
from acid_platform.errors import AcidError, CompactionLost, CompactionRefused, NoSuchTable
from acid_platform.handles.warehouse import Warehouse
from acid_platform.layout.names import table_name
from acid_platform.metastore.operations.compaction import CompactionTask, GetQueue
from acid_platform.metastore.operations.tables import GetDropped
from acid_platform.orchestration.check_results import Finding, data_docs
from acid_platform.orchestration.metadata import TableStats, asset_key
from acid_platform.orchestration.resources import (
    SparkResource,
    WarehouseResource,
    progress_in,
)
from acid_platform.services import cleaner, erasure, removals, worker_id
from acid_platform.services.cleaner import CleaningResult
from acid_platform.services.erasure import ErasureRequest
from acid_platform.services.worker import CompactionOutcome, CompactionRun, job_entity

POOL = "acid_compaction"
IN_MEMORY = "in_memory"
"""Resource key of an IO manager that keeps values in memory: an Attempt holds an open transaction,
which can't be stored."""

_OUT = dg.Out(is_required=False, io_manager_key=IN_MEMORY)
TABLE_TAG = "acid/table"
_FIRST = {"dagster/priority": "10"}
"""Tags of a run that takes the next free place before the runs of a backfill, which have 0."""


class QueueConfig(dg.Config):
    """Which part of the compaction queue a run handles."""

    table: str
    """`db.table`."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A task that this run has taken, its warehouse handle, and the table's size before it."""

    warehouse: Warehouse
    run: CompactionRun
    before: TableStats


def worker_prefix(run_id: str) -> str:
    """The prefix of a run's worker ids, by which the tasks of a dead run are revoked (C25)."""
    return f"{socket.gethostname()}-{run_id[:8]}"


@dg.op(
    out=dg.DynamicOut(io_manager_key=IN_MEMORY), description="Lists the queued tasks of the table."
)
def queued(
    context: dg.OpExecutionContext,
    config: QueueConfig,
    warehouse: dg.ResourceParam[WarehouseResource],
) -> Iterator[dg.DynamicOutput[CompactionTask]]:
    """Another Worker may take a task first. The tasks of a table go when it is dropped."""
    with warehouse.open(context.run_id, branch="") as opened:
        try:
            table = opened.table(config.table).name
        except NoSuchTable as error:
            if TABLE_TAG not in context.run.tags and not _dropped(opened, config.table):
                raise  # as for a name that is misspelt in the run's configuration
            context.log.warning(
                f"there is nothing to compact: {error}. If it was dropped or renamed since this run"
                " was requested, its queued compactions went with it, or have its new name"
            )
            return
        waiting = [task for task in initiated(opened) if task.table == table]
    if not waiting:
        context.log.warning(
            f"there is nothing to compact: the queue has no compaction of {table}; request one with"
            f" `acid compact {table} major`, or turn on initiator_sensor, which requests"
            " compactions when deltas exceed their thresholds"
        )
    for task in waiting:
        where = re.sub(r"\W", "_", task.partition or "table")
        yield dg.DynamicOutput(task, mapping_key=f"{task.id}_{where}")


def _dropped(warehouse: Warehouse, table: str) -> bool:
    """Whether a table of this name was dropped, and its files wait for the Cleaner."""
    database, _, short = table_name(table).rpartition(".")
    places = warehouse.metastore.places
    location = places.inward(f"{places.root}/{database}.db/{short}")
    return warehouse.metastore.call(GetDropped(location)) is not None


def initiated(warehouse: Warehouse) -> list[CompactionTask]:
    """All tasks that wait for a Worker, in queue order."""
    queue = warehouse.metastore.call(GetQueue())
    return [task for task in queue if task.state is CompactionState.INITIATED]


@dg.op(
    out=_OUT,
    tags={"dagster/priority": "1"},
    description="Takes the next task, opens its transaction, and chooses inputs and outputs.",
)
def plan(
    context: dg.OpExecutionContext,
    task: CompactionTask,
    warehouse: dg.ResourceParam[WarehouseResource],
    spark: dg.ResourceParam[SparkResource],
) -> Iterator[dg.Output[Attempt]]:
    opened = warehouse.open(context.run_id, spark, branch="")
    worker = f"{worker_prefix(context.run_id)}-{worker_id().rpartition('-')[2]}"
    run = CompactionRun.take(opened, worker, task.table)
    if run is None:
        context.log.info(f"another Worker has already taken task {task.id}")
        opened.close()
        return
    before = TableStats.of(opened.metastore.entities(run.task.table), run.task.partition)
    attempt = Attempt(opened, run, before)
    try:
        with _failing(attempt):
            context.instance.add_run_tags(
                context.run_id, {f"acid/compaction-{run.task.id}": run.task.job}
            )
            chosen = run.prepare()
    except TableDropped as dropped:
        context.log.warning(str(dropped))
        return
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
            "job": run.task.job,
        },
    )


@dg.op(
    out=_OUT,
    pool=POOL,
    tags={"dagster/priority": "2"},
    description="Writes the output, where no reader sees it: small ones without Spark.",
)
def merge(context: dg.OpExecutionContext, attempt: Attempt) -> Iterator[dg.Output[Attempt]]:
    try:
        with _failing(attempt), progress_in(context.log):
            staged = attempt.run.merge()
    except CompactionRefused as refused:
        context.log.warning(f"refused: {refused}")
        return
    except TableDropped as dropped:
        context.log.warning(str(dropped))
        return
    assert attempt.run.choice, "merge has chosen an engine"
    yield dg.Output(
        attempt,
        metadata={
            "engine": attempt.run.choice.engine.name,
            "engine chosen because": attempt.run.choice.reason,
            "rows": sum(output.rows for output in staged.outputs),
            "bytes": sum(output.contents.bytes for output in staged.outputs),
        },
    )


@dg.op(
    out=dg.Out(io_manager_key=IN_MEMORY),
    tags={"dagster/priority": "3"},
    description="Checks that the output holds what the inputs held.",
)
def validate(context: dg.OpExecutionContext, attempt: Attempt) -> dg.Output[Attempt]:
    task = attempt.run.task
    with _failing(attempt):
        staged = attempt.run.staged
        assert staged, "merge comes first"
        compared = measures(staged.expected, staged.actual)
        findings = kept(compared)
        metadata: dict[str, dg.MetadataValue] = {
            "invariants": dg.MetadataValue.table(
                [
                    dg.TableRecord({"expectation": finding.name, "passed": finding.passed})
                    for finding in findings
                ]
            ),
            "measures": dg.MetadataValue.table(
                [
                    dg.TableRecord(
                        {
                            "invariant": measure.invariant.value,
                            "measure": measure.what,
                            "before": _shown(measure.expected),
                            "after": _shown(measure.actual),
                        }
                    )
                    for measure in compared
                ]
            ),
            "data docs": dg.MetadataValue.md(data_docs(findings)),
        }
        if any(finding.blocks for finding in findings):
            differing = "; ".join(map(str, attempt.run.differences()))
            raise dg.Failure(
                f"compaction {task.id} of {job_entity(task)} would change the data: {differing};"
                " its inputs were kept",
                metadata=metadata,
                allow_retries=False,
            )
    context.log.info(f"all {len(compared)} measures are equal")
    return dg.Output(attempt, metadata=metadata)


@dg.op(
    tags={"dagster/priority": "4"},
    description="Renames the output into place and commits; the inputs become obsolete.",
)
def publish(context: dg.OpExecutionContext, attempt: Attempt) -> None:
    task = attempt.run.task
    try:
        with _failing(attempt):
            outputs = attempt.run.commit()
    except CompactionRefused as refused:  # other engines read the table (P46)
        context.log.warning(f"refused: {refused}")
        return
    except TableDropped as dropped:
        context.log.warning(str(dropped))
        return
    after = TableStats.of(attempt.warehouse.metastore.entities(task.table), task.partition)
    attempt.warehouse.close()
    choice = attempt.run.choice
    assert choice, "merge has chosen an engine"
    # Not a materialization: the layout has changed, but not the data.
    context.log_event(
        dg.AssetObservation(
            asset_key(task.table),
            metadata={
                "compaction": task.id,
                "kind": task.kind.value,
                "engine": choice.engine.name,
                "partition": task.partition or "(unpartitioned)",
                "job": task.job,
                "outputs": ", ".join(output.directory for output in outputs),
                "rows": after.rows,
                **attempt.before.metadata("before: "),
                **after.metadata("after: "),
            },
        )
    )


@dg.job(
    executor_def=dg.in_process_executor,
    run_tags=_FIRST,
    description="Runs the queued compactions of a table.",
)
def compaction_job() -> None:
    queued().map(lambda task: publish(validate(merge(plan(task)))))


def kept(compared: Sequence[Measure]) -> list[Finding]:
    """For each invariant whether its measures are equal, with those that differ."""
    found = []
    for invariant in Invariant:
        differing = {
            measure.what: f"{_shown(measure.expected)} before, {_shown(measure.actual)} after"
            for measure in compared
            if measure.invariant is invariant and measure.expected != measure.actual
        }
        name = f"compaction_keeps_{invariant.value.replace(' ', '_')}"
        found.append(Finding(name, not differing, details=differing))
    return found


def _shown(value: int | None) -> str:
    return "absent" if value is None else str(value)


class TableDropped(Exception):
    """The table of a task was dropped while this run worked on it: nothing is left to do."""


@contextmanager
def _failing(attempt: Attempt) -> Iterator[None]:
    """On an error or cancellation, fails the task and aborts its transaction (C32).

    Raises TableDropped instead of the error if the task went with its table.
    """
    try:
        yield
    except BaseException as error:
        task, dropped = attempt.run.task, False
        try:
            if isinstance(error, AcidError):
                tables = attempt.warehouse.metastore.tables()
                dropped = task.table_id not in {table.table_id for table in tables}
            if not isinstance(error, CompactionLost) and not dropped:
                attempt.run.fail(error)
        finally:
            attempt.warehouse.close()
        if dropped:
            raise TableDropped(
                f"{job_entity(task)} was dropped meanwhile, so there is nothing to compact: {error}"
            ) from error
        raise


@dg.op(description="Removes what no open snapshot needs; logs each path with the rule.")
def clean(context: dg.OpExecutionContext, warehouse: dg.ResourceParam[WarehouseResource]) -> None:
    with warehouse.open(context.run_id, branch="") as opened:
        results = cleaner.run(opened.metastore)
    by_table: defaultdict[str, list[CleaningResult]] = defaultdict(list)
    for cleaned in results:
        by_table[cleaned.table].append(cleaned)
        for line in cleaned.removed:
            context.log.info(f"removed {line}")
        if left := removals.left_text(cleaned.left):
            context.log.warning(f"the cleaning of {cleaned.table} {left}")
    for table, cleanings in by_table.items():
        removed = [line for cleaned in cleanings for line in cleaned.removed]
        context.log_event(
            dg.AssetObservation(
                asset_key(table),
                metadata={
                    "cleaned": len(cleanings),
                    "removed directories and files": len(removed),
                    "removed": dg.MetadataValue.md(escaped_items(removed) or "nothing"),
                },
            )
        )
    failed = [cleaned for cleaned in results if cleaned.error]
    if failed:
        raise dg.Failure(
            "; ".join(
                f"{cleaned.table} {cleaned.partition or ''}: {cleaned.error}" for cleaned in failed
            )
            + "; each will be retried after its retry time, see SHOW COMPACTIONS"
        )


@dg.job(
    executor_def=dg.in_process_executor,
    run_tags=_FIRST,
    description="Removes obsolete and aborted directories that no snapshot reads.",
)
def cleaning_job() -> None:
    clean()


REQUEST_TAG = "acid/erasure"
"""Run tag: the id of the recorded request that the run works on and answers."""

_HELD = dg.Out(io_manager_key=IN_MEMORY)


class ErasureConfig(dg.Config):
    """Which rows to erase."""

    table: str
    """`db.table`."""
    where: str
    """A SQL predicate, such as `person_id = 42`."""
    partition: str | None = None
    """A partition such as `month=3`; None: the whole table."""
    end_history: bool = False
    """Whether to end the history of the partitions that held such rows."""


@dataclass(frozen=True, slots=True)
class Progress:
    request: ErasureRequest
    deleted: int
    outcomes: tuple[CompactionOutcome, ...] = ()
    end_history: bool = False


@dg.op(out=_HELD, description="Deletes the visible rows in one transaction.")
def delete_rows(
    context: dg.OpExecutionContext,
    config: ErasureConfig,
    warehouse: dg.ResourceParam[WarehouseResource],
    spark: dg.ResourceParam[SparkResource],
) -> Progress:
    with warehouse.open(context.run_id, branch="") as opened:
        request = ErasureRequest.of(opened.metastore, config.table, config.where, config.partition)
        visible = opened.table(request.table).count(request.condition)
    context.instance.add_run_tags(context.run_id, {TABLE_TAG: request.table})
    context.log.info(f"{visible} rows of {request.table} are visible")
    if not visible:
        return Progress(request, 0, (), config.end_history)
    with warehouse.open(context.run_id, spark, branch="") as opened:
        deleted = opened.table(request.table).delete(request.condition)
    return Progress(request, deleted, (), config.end_history)


@dg.op(
    out=_HELD,
    pool=POOL,
    description="Runs major compactions of the partitions whose files still hold the rows.",
)
def compact_files(
    context: dg.OpExecutionContext,
    deleted: Progress,
    warehouse: dg.ResourceParam[WarehouseResource],
    spark: dg.ResourceParam[SparkResource],
) -> Progress:
    with warehouse.open(context.run_id, branch="") as opened:
        waiting = erasure.queue(opened.metastore, deleted.request)
    if not waiting:
        return deleted
    with warehouse.open(context.run_id, spark, branch="") as opened, progress_in(context.log):
        outcomes = erasure.compact(opened, deleted.request)
    for outcome in outcomes:
        context.log.info(f"compaction {outcome.task.id}: {outcome.state}: {outcome.reason}")
    return replace(deleted, outcomes=outcomes)


@dg.op(description="Runs the Cleaner, then searches every file of the table for the rows.")
def clean_and_prove(
    context: dg.OpExecutionContext,
    rewritten: Progress,
    warehouse: dg.ResourceParam[WarehouseResource],
) -> None:
    with warehouse.open(context.run_id, branch="") as opened:
        if rewritten.end_history:
            for ended in erasure.end_history(opened.metastore, rewritten.request):
                context.log.info(f"ended the history of {rewritten.request.table} {ended}")
        removed = erasure.clean(opened.metastore, rewritten.request)
        for line in removed:
            context.log.info(f"removed {line}")
        result = erasure.prove(
            opened.metastore, rewritten.request, rewritten.deleted, rewritten.outcomes, removed
        )
        if recorded := context.run.tags.get(REQUEST_TAG):
            erasure.answer(opened.metastore, int(recorded), result, context.run_id)
    metadata: dict[str, dg.MetadataValue] = {
        name: dg.MetadataValue.int(value) for name, value in result.counts.items()
    }
    if result.remaining:
        metadata["what holds them"] = dg.MetadataValue.md(escaped_items([*result.reasons()]))
    # An observation, not a materialization: nothing downstream has to start.
    context.log_event(dg.AssetObservation(asset_key(result.request.table), metadata=metadata))
    if not result.erased:
        raise dg.Failure(str(result), metadata=metadata, allow_retries=False)
    context.add_output_metadata(metadata)


@dg.job(
    executor_def=dg.in_process_executor,
    run_tags=_FIRST,
    description="Erases rows: once it succeeds, no file holds them any more.",
)
def erase() -> None:
    clean_and_prove(compact_files(delete_rows()))
