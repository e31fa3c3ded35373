"""The Cleaner as a Dagster job: file deletes only, no JVM (C37 to C55)."""

# No `from __future__ import annotations`: Dagster reads the annotations of its functions.
from collections import defaultdict

import dagster as dg

from acid_platform.orchestration.access import WarehouseAccess
from acid_platform.orchestration.metadata import asset_key
from acid_platform.services import cleaner
from acid_platform.services.cleaner import Cleaned


@dg.op(description="Removes what no open snapshot can need; logs each path with its rule.")
def clean(context: dg.OpExecutionContext, warehouse: dg.ResourceParam[WarehouseAccess]) -> None:
    with warehouse.open(context.run_id) as opened:
        done = cleaner.run(opened.metastore)
    by_table: defaultdict[str, list[Cleaned]] = defaultdict(list)
    for one in done:
        by_table[one.task.table].append(one)
        for line in one.removed:
            context.log.info(f"removed {line}")
    for table, cleanings in by_table.items():
        removed = [line for one in cleanings for line in one.removed]
        context.log_event(
            dg.AssetObservation(
                asset_key(table),
                metadata={
                    "cleaned": len(cleanings),
                    "removed directories and files": len(removed),
                    "removed": dg.MetadataValue.md(
                        "\n".join(f"- {line}" for line in removed) or "nothing"
                    ),
                },
            )
        )
    failed = [one for one in done if one.error]
    if failed:
        raise dg.Failure(
            "; ".join(f"{one.task.table} {one.task.partition or ''}: {one.error}" for one in failed)
            + "; each is tried again after its retry time, see SHOW COMPACTIONS"
        )


@dg.job(
    executor_def=dg.in_process_executor,
    description="Removes obsolete and aborted directories that nobody reads.",
)
def cleaning_job() -> None:
    clean()
