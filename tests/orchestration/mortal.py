"""A Dagster workspace whose runs pause inside their transactions, for tests that kill processes.

Materialization, compaction job and sensors are the platform's own. Only the rows are written by
the tests' writer, which needs no JVM, so a run is in its transaction within seconds.
"""

# No `from __future__ import annotations`: Dagster reads the annotations of its functions.
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg

from acid_platform import TxnAborted
from acid_platform.orchestration import TableDeclaration, Transaction, acid_asset
from acid_platform.orchestration.resources import WarehouseResource
from acid_platform.orchestration.sensors import (
    abort_canceled_runs,
    abort_failed_runs,
    fail_lost_runs,
)
from acid_platform.orchestration.service_jobs import IN_MEMORY, compaction_job
from tests.orchestration.local_writes import publish, stage

TABLE = TableDeclaration("db.t", "v string")
COMPACTED = TableDeclaration("db.c", "v string")
SCENES = "ACID_TEST_SCENES"
"""Environment variable: the directory of all scenes."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A directory of files through which a run and its test communicate."""

    name: str

    @property
    def path(self) -> Path:
        return Path(os.environ[SCENES], self.name)

    def tell(self, what: str, **values: Any) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        draft = self.path / f".{what}.{os.getpid()}"
        draft.write_text(json.dumps(values))
        draft.rename(self.path / what)

    def told(self, what: str) -> dict[str, Any] | None:
        try:
            values: dict[str, Any] = json.loads((self.path / what).read_text())
        except FileNotFoundError:
            return None
        return values

    def hold(self, **values: Any) -> None:
        """Reports its process, and waits until the test says `go`."""
        self.tell("holding", pid=os.getpid(), parent=os.getppid(), **values)
        deadline = time.monotonic() + 600
        while self.told("go") is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"nobody told scene {self.name} to go on")
            time.sleep(0.05)


class Plot(dg.Config):
    scene: str
    fails: bool = False


@acid_asset(table=TABLE)
def rows(config: Plot, txn: Transaction) -> None:
    scene = Scene(config.scene)
    publish(stage(txn, TABLE.name, 0, [f"{config.scene} 1"]))
    second = stage(txn, TABLE.name, 1, [f"{config.scene} 2"])
    scene.hold(txn=txn.id)
    if config.fails:
        raise RuntimeError("the body fails")
    try:
        txn.heartbeat()  # before each publication (P4)
    except TxnAborted as refused:
        scene.tell("refused", reason=str(refused))
    publish(second)  # all the same, as a writer does that slept after its heartbeat


@dataclass(frozen=True, slots=True)
class NeverAnswers:
    """Stands for a SparkSession; every call to it blocks for ever."""

    scene: Scene

    @property
    def conf(self) -> None:
        self.scene.hold()


class SilentSpark(dg.ConfigurableResource[Any]):
    scene: str

    @property
    def spark_session(self) -> NeverAnswers:
        return NeverAnswers(Scene(self.scene))


IN_PROCESS, STEPS, COMPACTION = "in_process_job", "steps_job", compaction_job.name

_JOBS = [
    dg.define_asset_job(IN_PROCESS, [rows], executor_def=dg.in_process_executor),
    dg.define_asset_job(STEPS, [rows], executor_def=dg.multiprocess_executor),
]
_RESOURCES = {
    "warehouse": WarehouseResource(engine="spark"),  # the compaction holds where it asks for Spark
    "spark": SilentSpark.configure_at_launch(),
    IN_MEMORY: dg.mem_io_manager,
}

steady = dg.Definitions(
    assets=[rows],
    jobs=[*_JOBS, compaction_job],
    resources=_RESOURCES,
    sensors=[abort_failed_runs, abort_canceled_runs, fail_lost_runs],
)
fragile = dg.Definitions(assets=[rows], jobs=_JOBS, resources=_RESOURCES)
"""The location of the code server that is killed. No sensor watches its runs."""
