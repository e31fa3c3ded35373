"""The Cleaner as a Dagster job (C37 to C55), and erasure: delete → compact → clean and prove.

An erasure fails if an old snapshot still needs the rows, and names the snapshot's holder. Launch it
again when that transaction has ended: it continues where it had to stop. `erasure_sensor` does so
for recorded requests. Spark starts only for the steps that need it.
"""

# No `from __future__ import annotations`: Dagster reads the annotations of its functions.
from collections import defaultdict
from dataclasses import dataclass, replace

import dagster as dg

from acid_platform.orchestration import markdown
from acid_platform.orchestration.compaction_job import IN_MEMORY, POOL, TABLE_TAG
from acid_platform.orchestration.metadata import asset_key
from acid_platform.orchestration.resources import SparkResource, WarehouseResource
from acid_platform.services import cleaner, erasure, removals
from acid_platform.services.cleaner import CleaningResult
from acid_platform.services.erasure import ErasureRequest
from acid_platform.services.worker import CompactionOutcome


@dg.op(description="Removes what no open snapshot needs; logs each path with the rule.")
def clean(context: dg.OpExecutionContext, warehouse: dg.ResourceParam[WarehouseResource]) -> None:
    with warehouse.open(context.run_id) as opened:
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
                    "removed": dg.MetadataValue.md(markdown.items(removed) or "nothing"),
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
    description="Removes obsolete and aborted directories that no snapshot reads.",
)
def cleaning_job() -> None:
    clean()


REQUEST_TAG = "acid/erasure"
"""Run tag: the id of the recorded request that the run works on and answers."""

_OUT = dg.Out(io_manager_key=IN_MEMORY)


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


@dg.op(out=_OUT, description="Deletes the visible rows in one transaction.")
def delete_rows(
    context: dg.OpExecutionContext,
    config: ErasureConfig,
    warehouse: dg.ResourceParam[WarehouseResource],
    spark: dg.ResourceParam[SparkResource],
) -> Progress:
    with warehouse.open(context.run_id) as opened:
        request = ErasureRequest.of(opened.metastore, config.table, config.where, config.partition)
        visible = opened.table(request.table).count(request.condition)
    context.instance.add_run_tags(context.run_id, {TABLE_TAG: request.table})
    context.log.info(f"{visible} rows of {request.table} are visible")
    if not visible:
        return Progress(request, 0, (), config.end_history)
    with warehouse.open(context.run_id, lambda: spark.spark_session) as opened:
        deleted = opened.table(request.table).delete(request.condition)
    return Progress(request, deleted, (), config.end_history)


@dg.op(
    out=_OUT,
    pool=POOL,
    description="Runs major compactions of the partitions whose files still hold the rows.",
)
def compact_files(
    context: dg.OpExecutionContext,
    deleted: Progress,
    warehouse: dg.ResourceParam[WarehouseResource],
    spark: dg.ResourceParam[SparkResource],
) -> Progress:
    with warehouse.open(context.run_id) as opened:
        waiting = erasure.queue(opened.metastore, deleted.request)
    if not waiting:
        return deleted
    with warehouse.open(context.run_id, lambda: spark.spark_session) as opened:
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
    with warehouse.open(context.run_id) as opened:
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
        metadata["what holds them"] = dg.MetadataValue.md(markdown.items([*result.reasons()]))
    # An observation, not a materialization: nothing downstream has to start.
    context.log_event(dg.AssetObservation(asset_key(result.request.table), metadata=metadata))
    if not result.erased:
        raise dg.Failure(str(result), metadata=metadata, allow_retries=False)
    context.add_output_metadata(metadata)


@dg.job(
    executor_def=dg.in_process_executor,
    description="Erases rows: once it succeeds, no file holds them any more.",
)
def erase() -> None:
    clean_and_prove(compact_files(delete_rows()))
