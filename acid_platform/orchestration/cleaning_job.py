"""The Cleaner as a Dagster job; it only deletes files and needs no JVM (C37 to C55)."""

# No `from __future__ import annotations`: Dagster reads the annotations of its functions.
from collections import defaultdict

import dagster as dg

from acid_platform.orchestration import markdown
from acid_platform.orchestration.metadata import asset_key
from acid_platform.orchestration.resources import WarehouseResource
from acid_platform.services import cleaner, removals
from acid_platform.services.cleaner import CleaningResult


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
