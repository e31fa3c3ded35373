"""`make bench-launch`: seconds from the click on "Materialize" to the committed materialization.

Code servers run, as in `make dev`. Each launch sends the same mutation as the page and starts a
process. A small pandas asset is materialized by the local engine, by Spark in a JVM of the run's
own and, with --remote, by a running Spark Connect server; in turns with an empty Dagster asset,
whose time is that of Dagster itself.
"""

from __future__ import annotations

import argparse
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

from benchmarks import empty_asset, small_asset
from benchmarks.results import machine, save
from tests.metastore.processes import until
from tests.orchestration.processes import DagsterProcesses

RESULT = Path("benchmarks/results/launching.json")


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


def measure(home: Path, spark: bool, remote: str | None, times: int) -> dict[str, Any]:
    """Rounds of one launch of each kind. The first round is apart: it makes the warehouse."""

    def small(engine: str, remote: str = "") -> Launched:
        environment = {"ACID_ENGINE": engine, "ACID_SPARK_REMOTE": remote}
        return Launched(small_asset.__name__, small_asset.JOB, environment)

    kinds = {
        "empty": Launched(empty_asset.__name__, empty_asset.JOB, {}),
        "local": small("local"),
        **({"spark": small("spark")} if spark else {}),
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
    parser = argparse.ArgumentParser(prog="python -m benchmarks.launching", description=__doc__)
    parser.add_argument("--times", type=int, default=4)
    parser.add_argument(
        "--spark",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="whether to measure a JVM of the run's own too",
    )
    parser.add_argument(
        "--remote",
        default=os.environ.get("ACID_SPARK_REMOTE"),
        help="address of a running `make spark-connect`, to be measured too",
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        results = measure(Path(root), options.spark, options.remote, options.times)
    save(RESULT, {"seconds": results, "machine": machine()})


if __name__ == "__main__":
    main()
