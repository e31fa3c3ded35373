"""The composition root: what Dagster loads (workspace.yaml)."""

from __future__ import annotations

import importlib
import pkgutil
import warnings
from typing import Any

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
from acid_platform.orchestration.sensors import (  # noqa: E402
    cleaner_sensor,
    erasure_sensor,
    initiator_sensor,
)
from resources import SparkResource, WarehouseResource  # noqa: E402


@dg.definitions
def defs() -> dg.Definitions:
    """The services, and everything in the package `assets` if it exists.

    A run uses one process, and so one JVM, for all of its steps.
    """
    assets, checks, jobs = _project()
    return dg.Definitions(
        assets=assets,
        asset_checks=checks,
        jobs=[*jobs, compaction_job, cleaning_job, erase],
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


def _project() -> tuple[Any, Any, list[Any]]:
    """The assets, the checks, and the modules' JOBS."""
    try:
        import assets
    except ModuleNotFoundError as missing:
        if missing.name != "assets":  # assets exists, but one of its imports failed
            raise
        return [], [], []
    modules = [
        importlib.import_module(f"assets.{module.name}")
        for module in pkgutil.iter_modules(assets.__path__)
    ]
    return (
        dg.load_assets_from_modules(modules),
        dg.load_asset_checks_from_modules(modules),
        [job for module in modules for job in getattr(module, "JOBS", ())],
    )
