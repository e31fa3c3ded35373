"""`make bench-launch`: seconds from the click on "Materialize" to the committed materialization.

A code server runs, as in `make dev`. Each launch sends the same mutation as the page and starts a
process. In classic mode that process starts a JVM; with Connect it joins a running server.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import dagster as dg

from benchmarks import small_asset
from benchmarks.results import machine, save
from tests.metastore.processes import until
from tests.orchestration.processes import DagsterProcesses

RESULT = Path("benchmarks/results/launching.json")


def launch(dagster: DagsterProcesses) -> float:
    """Seconds from the click to the materialization event."""
    clicked = time.time()
    run = dagster.launch("defs", small_asset.JOB, {})
    done = {dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE}
    until(lambda: _run(dagster, run).status in done, 300, 0.25)
    [event] = dagster.instance.all_logs(run, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION)
    return round(event.timestamp - clicked, 1)


def _run(dagster: DagsterProcesses, run_id: str) -> dg.DagsterRun:
    run = dagster.instance.get_run_by_id(run_id)
    assert run
    return run


def measure(home: Path, remote: str, times: int) -> dict[str, Any]:
    environment = {"ACID_WAREHOUSE": str(home / "warehouse"), "ACID_SPARK_REMOTE": remote}
    module = small_asset.__name__
    with DagsterProcesses(home / "dagster", module, ("defs",), environment, forks=False) as dagster:
        seconds = [launch(dagster) for _ in range(times)]
    return {
        "first": seconds[0],
        "median of the others": statistics.median(seconds[1:]),
        "all": seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.launching", description=__doc__)
    parser.add_argument("--times", type=int, default=4)
    parser.add_argument(
        "--remote",
        default=os.environ.get("ACID_SPARK_REMOTE"),
        help="address of a running `make spark-connect`; without it, classic only",
    )
    options = parser.parse_args()
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as root:
        for name, remote in (("classic", ""), ("connect", options.remote)):
            if remote is not None:
                home = Path(root, name)
                home.mkdir()
                results[name] = measure(home, remote, options.times)
                print(name, results[name], flush=True)
    save(RESULT, {"seconds": results, "machine": machine()})


if __name__ == "__main__":
    main()
