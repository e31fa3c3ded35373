"""The composition root: what Dagster loads (workspace.yaml)."""

from __future__ import annotations

import warnings

import dagster as dg

# Dagster copies each sensor with an empty list of owners, and warns that owners are beta.
warnings.filterwarnings("ignore", message="Parameter `owners`", category=dg.BetaWarning)

from acid_platform.orchestration.cleaning_job import cleaning_job  # noqa: E402
from acid_platform.orchestration.compaction_job import IN_MEMORY, compaction_job  # noqa: E402
from acid_platform.orchestration.ended_runs import (  # noqa: E402
    abort_canceled_runs,
    abort_failed_runs,
    fail_lost_runs,
)
from acid_platform.orchestration.erasure_job import erase  # noqa: E402
from acid_platform.orchestration.project_modules import collected, modules_of  # noqa: E402
from acid_platform.orchestration.sensors import (  # noqa: E402
    cleaner_sensor,
    erasure_sensor,
    initiator_sensor,
)
from resources import SparkResource, WarehouseResource  # noqa: E402


@dg.definitions
def defs() -> dg.Definitions:
    """The services, and what stands at the top of each module of `assets`, in subfolders too.

    A run uses one process, and so one JVM, for all of its steps.
    """
    services = dg.Definitions(
        jobs=[compaction_job, cleaning_job, erase],
        sensors=[
            initiator_sensor,
            cleaner_sensor,
            erasure_sensor,
            abort_failed_runs,
            abort_canceled_runs,
            fail_lost_runs,
        ],
        resources={
            "warehouse": WarehouseResource(),
            "spark": SparkResource(),
            IN_MEMORY: dg.mem_io_manager,
        },
        executor=dg.in_process_executor,
    )
    return collected(modules_of("assets"), services)
