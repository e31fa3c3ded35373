"""The platform's jobs and sensors, for the definitions of a project."""

from __future__ import annotations

import types
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import dagster as dg

from acid_platform.errors import AcidError
from acid_platform.orchestration.compaction_job import IN_MEMORY, compaction_job
from acid_platform.orchestration.ended_runs import (
    abort_canceled_runs,
    abort_failed_runs,
    fail_lost_runs,
)
from acid_platform.orchestration.erasure_job import cleaning_job, erase
from acid_platform.orchestration.outside_commits import commit_sensor
from acid_platform.orchestration.sensors import cleaner_sensor, erasure_sensor, initiator_sensor

_PLATFORM = Path(__file__).parents[1]


def load_defs(folder: Path) -> dg.Definitions:
    """As dg.load_from_defs_folder, which shows an error of ours three times, with all frames: here
    it is shown once, with the line of the project that it is about."""
    try:
        return dg.load_from_defs_folder(path_within_project=folder)
    except AcidError as error:
        frames = filter(partial(_is_of, folder), _frames(error))
        last = next(reversed(list(frames)), None)
        told = type(error)(*error.args)
    raise told.with_traceback(
        last and types.TracebackType(None, last.tb_frame, last.tb_lasti, last.tb_lineno)
    )


def _frames(error: BaseException | None) -> Iterator[types.TracebackType]:
    """Those of the error and of what it came from."""
    while error is not None:
        at = error.__traceback__
        while at is not None:
            yield at
            at = at.tb_next
        error = error.__cause__ or error.__context__


def _is_of(folder: Path, frame: types.TracebackType) -> bool:
    """Whether the frame is one of the project, which may have the platform and packages below."""
    file = Path(frame.tb_frame.f_code.co_filename)
    return file.is_relative_to(folder) and not (
        file.is_relative_to(_PLATFORM) or "site-packages" in file.parts
    )


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
