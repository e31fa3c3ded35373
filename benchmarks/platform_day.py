"""The benchmark `platform-day`: a day of a small platform, as processes of Dagster.

Code server and daemon run as in `make dev`, each run is a process, the sensors of the services are
on. Ten assets with checks are materialized, two of them for 30 days by backfills; then the Cleaner
has removed what the compactions have replaced, for which it does not wait five minutes here.

Shown: seconds, the JVMs that were started, and in how many processes which large packages were
imported. JAVA_HOME is a directory of links whose `java` notes down each start. `--spark 1` is the
same day with ACID_ENGINE=spark.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import dagster as dg

from acid_platform import Warehouse
from acid_platform.orchestration.sensors import UNFINISHED
from benchmarks import small_assets
from benchmarks.results import options, saved
from tests.conftest import temporary_warehouse
from tests.metastore.processes import until
from tests.orchestration.processes import PAUSE, DagsterProcesses

SENSORS = ("initiator_sensor", "cleaner_sensor")
PATIENCE = 3000
"""Seconds for a part of the day."""


def noting_java(home: Path) -> Path:
    """A JAVA_HOME whose `java` writes a line into `started` below it before it starts."""
    java = shutil.which("java", path=f"{os.environ['JAVA_HOME']}/bin")
    assert java
    real = Path(java).resolve().parents[1]
    (home / "bin").mkdir(parents=True)
    for entry in real.iterdir():
        if entry.name != "bin":
            (home / entry.name).symlink_to(entry)
    own = home / "bin" / "java"
    own.write_text(f'#!/bin/sh\necho "$0" >> {home}/started\nexec {real}/bin/java "$@"\n')
    own.chmod(0o755)
    return home


class Day:
    """The platform while its processes run."""

    def __init__(self, dagster: DagsterProcesses, warehouse: Warehouse) -> None:
        self.dagster, self.warehouse = dagster, warehouse
        self.seconds: dict[str, float] = {}

    def run(self, part: str, job: str) -> None:
        began = time.monotonic()
        run = self.dagster.launch("defs", job, {})
        until(lambda: self._run(run).is_finished, PATIENCE, PAUSE)
        assert self._run(run).is_success, f"{part}: run {run} has failed"
        self.seconds[part] = round(time.monotonic() - began, 1)

    def _run(self, run: str) -> dg.DagsterRun:
        found = self.dagster.instance.get_run_by_id(run)
        assert found
        return found

    def backfill(self, part: str, asset: dg.AssetsDefinition, days: int) -> None:
        began = time.monotonic()
        keys = small_assets.DAYS.get_partition_keys()[:days]
        wanted = self.dagster.backfill(asset.key, keys)

        def state() -> str:
            found = self.dagster.instance.get_backfill(wanted)
            assert found
            return found.status.name

        until(lambda: state().startswith(("COMPLETED", "FAILED", "CANCELED")), PATIENCE, PAUSE)
        assert state() == "COMPLETED_SUCCESS", f"{part}: {state()}"
        self.seconds[part] = round(time.monotonic() - began, 1)

    def cleaned(self, part: str) -> None:
        """Waits until nothing is to be compacted or cleaned, and no run is under way."""
        began = time.monotonic()

        def states() -> set[object]:
            return {row["state"] for row in self.warehouse.metastore.compactions()}

        unfinished = dg.RunsFilter(statuses=UNFINISHED)
        until(
            lambda: (
                states() == {"succeeded"} and not self.dagster.instance.get_runs_count(unfinished)
            ),
            PATIENCE,
            PAUSE,
        )
        self.seconds[part] = round(time.monotonic() - began, 1)

    def runs(self) -> dict[str, int]:
        """The successful runs by job; there must be no other."""
        runs = self.dagster.instance.get_runs()
        failed = [run.run_id for run in runs if not run.is_success]
        assert not failed, f"runs have failed: {failed}"
        return dict(Counter(run.job_name for run in runs))


def measure(home: Path, given: Any) -> dict[str, Any]:
    told, java = home / "told", noting_java(home / "java")
    told.mkdir()
    environment = {
        "ACID_WAREHOUSE": str(home / "warehouse"),
        "ACID_ENGINE": "spark" if given.spark else "auto",
        "ACID_SPARK_REMOTE": "",
        "JAVA_HOME": str(java),
        small_assets.TOLD: str(told),
    }
    processes = DagsterProcesses(
        home / "dagster", small_assets.__name__, ("defs",), environment, given.runs, forks=False
    )
    with temporary_warehouse(home / "warehouse") as warehouse:
        warehouse.metastore.set("hive.compactor.cleaner.retention.time.seconds", "0s")
        with processes as dagster:
            day = Day(dagster, warehouse)
            began = time.monotonic()
            dagster.switch_on("defs", *SENSORS)
            day.run("three assets that others read", small_assets.FIRST_JOB)
            day.backfill("a backfill by partition", small_assets.orders, given.days)
            day.backfill("a backfill by upserts into one table", small_assets.visits, given.days)
            day.run("the eight assets without partitions", small_assets.DAY_JOB)
            day.cleaned("until all is compacted and cleaned")
            seconds = {**day.seconds, "all": round(time.monotonic() - began, 1)}
            runs = day.runs()
        rows = {name: warehouse.table(name).count() for name in warehouse.tables()}
    started = java / "started"
    imported = Counter(name for each in told.iterdir() for name in each.read_text().split())
    return {
        "seconds": seconds,
        "runs": runs,
        "JVMs started": len(started.read_text().splitlines()) if started.exists() else 0,
        "processes that told": len(list(told.iterdir())),
        "imported in processes": {name: imported[name] for name in small_assets.LARGE},
        "rows": rows,
    }


def main() -> None:
    # --spark 1: ACID_ENGINE=spark. --runs: how many at a time. --days: more than 10, the deltas
    # that a table has without a compaction.
    given = options(__doc__, spark=0, runs=2, days=30)
    with tempfile.TemporaryDirectory() as root:
        results = measure(Path(root), given)
    print(results)
    saved(given, "platform-day", **results)
