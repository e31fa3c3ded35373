"""The services as definitions of Dagster: with the assets, or in a code location of their own."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence

import dagster as dg

from acid_platform.orchestration.branch_merges import merge_branches
from acid_platform.orchestration.outside_commits import commit_sensor
from acid_platform.orchestration.sensors import (
    abort_canceled_runs,
    abort_failed_runs,
    cleaner_sensor,
    erasure_sensor,
    fail_lost_runs,
    initiator_sensor,
)
from acid_platform.orchestration.service_jobs import (
    IN_MEMORY,
    cleaning_job,
    compaction_job,
    erase,
)


def services(on: bool = False) -> dg.Definitions:
    """Compaction, cleaning, erasure, the ends of runs that died, and the commits of others.

    Unless they are `on`, all sensors but merge_branches are off until somebody switches them on.
    They use the resources `warehouse` and `spark` of the project.
    """
    return dg.Definitions.merge(
        warehouse_services(on),
        dg.Definitions(sensors=_switched([commit_sensor, merge_branches], on)),
    )


def warehouse_services(on: bool = False) -> dg.Definitions:
    """What `services` has for a warehouse, whatever its assets: without commit_sensor and
    merge_branches, whose place is where the assets are defined."""
    # Dagster copies each sensor with an empty list of owners, and warns that owners are beta.
    warnings.filterwarnings("ignore", message="Parameter `owners`", category=dg.BetaWarning)
    sensors = [
        initiator_sensor,
        cleaner_sensor,
        erasure_sensor,
        abort_failed_runs,
        abort_canceled_runs,
        fail_lost_runs,
    ]
    return dg.Definitions(
        jobs=[compaction_job, cleaning_job, erase],
        sensors=_switched(sensors, on),
        resources={IN_MEMORY: dg.mem_io_manager},
    )


def _switched(sensors: Sequence[dg.SensorDefinition], on: bool) -> list[dg.SensorDefinition]:
    """The sensors as they are, or copies that are on by default."""
    if not on:
        return list(sensors)
    running = [copy.copy(sensor) for sensor in sensors]
    for sensor in running:
        sensor._default_status = dg.DefaultSensorStatus.RUNNING
    return running
