"""The benchmark `launch`: seconds from the click on "Materialize" to the committed materialization.

Code servers run, as in `make dev`. Each launch sends the same mutation as the page and starts a
process. A small asset with a check on a decimal is materialized by the local engine, by Spark in a
JVM of the run's own and, with --remote, by a running Spark Connect server; in turns with an empty
Dagster asset, whose time is that of Dagster itself.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg

from benchmarks import empty_asset, small_assets
from benchmarks.results import options, saved
from tests.metastore.processes import until
from tests.orchestration.processes import DagsterProcesses


@dataclass(frozen=True, slots=True)
class Launched:
    """A job, its definitions' module, and the environment of its processes."""

    module: str
    job: str
    environment: Mapping[str, str]

    def processes(self, home: Path, name: str) -> DagsterProcesses:
        environment = {"ACID_WAREHOUSE": str(home / "warehouse"), **self.environment}
        return DagsterProcesses(home / name, self.module, ("defs",), environment, forks=False)

    def seconds(self, dagster: DagsterProcesses) -> float:
        """From the click to the materialization event."""
        clicked = time.time()
        run = dagster.launch("defs", self.job, {})
        done = {dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE}
        until(lambda: _run(dagster, run).status in done, 300, 0.25)
        [event] = dagster.instance.all_logs(run, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION)
        return round(event.timestamp - clicked, 2)


def _run(dagster: DagsterProcesses, run_id: str) -> dg.DagsterRun:
    run = dagster.instance.get_run_by_id(run_id)
    assert run
    return run


def measure(home: Path, remote: str, times: int) -> dict[str, Any]:
    """Rounds of one launch of each kind. The first round is apart: it makes the warehouse."""

    def small(engine: str, remote: str = "") -> Launched:
        environment = {"ACID_ENGINE": engine, "ACID_SPARK_REMOTE": remote}
        return Launched(small_assets.__name__, small_assets.JOB, environment)

    kinds = {
        "empty": Launched(empty_asset.__name__, empty_asset.JOB, {}),
        "local": small("local"),
        "spark": small("spark"),
        **({"connect": small("spark", remote)} if remote else {}),
    }
    with ExitStack() as stack:
        running = {
            name: stack.enter_context(kind.processes(home, name)) for name, kind in kinds.items()
        }
        seconds: dict[str, list[float]] = {name: [] for name in kinds}
        for _ in range(times):
            for name, kind in kinds.items():
                seconds[name].append(kind.seconds(running[name]))
                print(name, seconds[name][-1], flush=True)
    medians = {name: statistics.median(every[1:]) for name, every in seconds.items()}
    return {
        name: {
            "first": every[0],
            "median of the others": medians[name],
            "more than an empty asset": round(medians[name] - medians["empty"], 2),
            "all": every,
        }
        for name, every in seconds.items()
    }


def main() -> None:
    # --remote: the address of a running `make lab-spark-connect`, to be measured too.
    given = options(__doc__, times=4, remote=os.environ.get("ACID_SPARK_REMOTE", ""))
    with tempfile.TemporaryDirectory() as root:
        results = measure(Path(root), given.remote, given.times)
    saved(given, "launching", seconds=results)
