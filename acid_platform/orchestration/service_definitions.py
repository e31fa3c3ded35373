"""The platform's jobs and sensors, for the definitions of a project."""

from __future__ import annotations

import warnings

import dagster as dg

from acid_platform.orchestration.cleaning_job import cleaning_job
from acid_platform.orchestration.compaction_job import IN_MEMORY, compaction_job
from acid_platform.orchestration.ended_runs import (
    abort_canceled_runs,
    abort_failed_runs,
    fail_lost_runs,
)
from acid_platform.orchestration.erasure_job import erase
from acid_platform.orchestration.outside_commits import commit_sensor
from acid_platform.orchestration.sensors import cleaner_sensor, erasure_sensor, initiator_sensor


def services() -> dg.Definitions:
    """Compaction, cleaning, erasure, the ends of runs that died, and the commits of others; all
    sensors are off at first.

    They use the resources `warehouse` and `spark` of the project.
    """
    # Dagster copies each sensor with an empty list of owners, and warns that owners are beta.
    warnings.filterwarnings("ignore", message="Parameter `owners`", category=dg.BetaWarning)
    return dg.Definitions(
        jobs=[compaction_job, cleaning_job, erase],
        sensors=[
            initiator_sensor,
            cleaner_sensor,
            erasure_sensor,
            abort_failed_runs,
            abort_canceled_runs,
            fail_lost_runs,
            commit_sensor,
        ],
        resources={IN_MEMORY: dg.mem_io_manager},
    )
