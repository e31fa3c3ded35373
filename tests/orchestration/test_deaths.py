"""The transaction of a run ends as the rules say, whichever process dies (P2, P4, P7, P19).

One daemon, two code servers and one warehouse with short timeouts. In each round all runs of the
table below enter their transactions, then each dies in its own way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from dagster import DagsterRunStatus as Status

from acid_platform import Warehouse
from acid_platform.orchestration.sensors import (
    abort_canceled_runs,
    abort_failed_runs,
    fail_lost_runs,
)
from acid_platform.services import cleaner, initiator
from tests.conftest import slow_then_soak, temporary_warehouse
from tests.metastore.processes import gone, until
from tests.orchestration import mortal
from tests.orchestration.local_writes import insert
from tests.orchestration.mortal import COMPACTED, COMPACTION, IN_PROCESS, STEPS, TABLE, Scene
from tests.orchestration.processes import PAUSE, DagsterProcesses, kill

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),  # of a busy machine; it takes a tenth
    pytest.mark.filterwarnings("ignore:Error:UserWarning"),  # Dagster's, about the killed server
]
LONGEST = 120.0
"""Seconds of a wait for Dagster's daemon on a busy machine."""
TIMEOUT = 20
SETTINGS = {
    "hive.txn.timeout": f"{TIMEOUT}s",
    "acid.heartbeat.interval": "5s",
    "hive.timedout.txn.reaper.start": "0s",
    "hive.timedout.txn.reaper.interval": "500ms",
    "hive.compactor.abortedtxn.threshold": "0",
}
STEADY, FRAGILE = "steady", "fragile"


@dataclass(frozen=True, slots=True)
class Life:
    """A run in mid-transaction."""

    run: str
    scene: Scene

    @property
    def step(self) -> int:
        return self._held("pid")

    @property
    def parent(self) -> int:
        """The run's process, if its steps have processes of their own."""
        return self._held("parent")

    @property
    def txn(self) -> int:
        return self._held("txn")

    def holds(self) -> bool:
        return self.scene.told("holding") is not None

    def _held(self, name: str) -> int:
        value: int = (self.scene.told("holding") or {})[name]
        return value


@dataclass(frozen=True, slots=True)
class World:
    """The lives of one round."""

    dagster: DagsterProcesses
    warehouse: Warehouse
    lives: dict[str, Life]

    def status(self, name: str) -> Status:
        run = self.dagster.instance.get_run_by_id(self.lives[name].run)
        assert run
        return run.status

    def told(self, name: str) -> str:
        """The events that the page of the run lists."""
        logs = self.dagster.instance.all_logs(self.lives[name].run)
        return "\n".join(one.message or "" for one in logs)

    def outcome(self, name: str) -> tuple[str, str]:
        """State (o, c or a) and the reason of an abort."""
        found = self.warehouse.metastore.outcome(self.lives[name].txn)
        return found["state"], found["reason"]

    def open_transactions(self) -> list[int]:
        return [
            one["txnid"]
            for one in self.warehouse.metastore.transactions()
            if one["state"] == "OPEN"
        ]


@dataclass(frozen=True, slots=True)
class Death:
    """How a run dies, and what has to be true afterwards. `reason` None: it commits."""

    deal: Callable[[DagsterProcesses, Life], None]
    status: Status
    reason: str | None
    job: str = IN_PROCESS
    location: str = STEADY
    fails: bool = False


def go(dagster: DagsterProcesses, life: Life) -> None:
    life.scene.tell("go")


def cancel(dagster: DagsterProcesses, life: Life) -> None:
    dagster.terminate(life.run)


def kill_step(dagster: DagsterProcesses, life: Life) -> None:
    kill(life.step)


def kill_parent(dagster: DagsterProcesses, life: Life) -> None:
    kill(life.parent)


BY_SENSOR = "is FAILURE"
BY_REAPER = f"no heartbeat for {TIMEOUT} s"
LOST = "its code server and it are killed"
ORPHAN = "its process is killed and its step lives on"
# The metastore and the code server FRAGILE are killed while all runs are in mid-transaction.
DEATHS = {
    "it fails": Death(go, Status.FAILURE, "RuntimeError: the body fails", fails=True),
    "it is canceled": Death(cancel, Status.CANCELED, "DagsterExecutionInterruptedError"),
    "its step is killed": Death(kill_step, Status.FAILURE, BY_SENSOR, STEPS),
    ORPHAN: Death(kill_parent, Status.FAILURE, BY_SENSOR, STEPS),
    "the metastore and its code server are killed": Death(
        go, Status.SUCCESS, None, location=FRAGILE
    ),
    # No process is left that could tell Dagster, except the sensor that asks the metastore.
    LOST: Death(kill_step, Status.FAILURE, BY_REAPER, location=FRAGILE),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """All processes, before any run."""
    root = tmp_path_factory.mktemp("deaths")
    environment = {"ACID_WAREHOUSE": str(root / "wh"), mortal.SCENES: str(root / "scenes")}
    dagster = DagsterProcesses(root / "dagster", mortal.__name__, (STEADY, FRAGILE), environment)
    with pytest.MonkeyPatch.context() as patch, temporary_warehouse(root / "wh") as warehouse:
        patch.setenv(mortal.SCENES, environment[mortal.SCENES])
        for name, value in SETTINGS.items():
            warehouse.metastore.set(name, value)
        warehouse.create_table(COMPACTED.name, COMPACTED.columns)
        for value in ("a", "b"):
            with warehouse.transaction() as txn:
                insert(txn, COMPACTED.name, [value])
        warehouse.metastore.request_compaction(COMPACTED.name, None, "major")
        with dagster:
            dagster.switch_on(
                STEADY, abort_failed_runs.name, abort_canceled_runs.name, fail_lost_runs.name
            )
            yield World(dagster, warehouse, {})


def config(scene: Scene, ops: Mapping[str, Mapping[str, object]]) -> dict[str, Any]:
    """Run config: the run pauses in the scene, also where it asks Spark for something."""
    return {
        "ops": {name: {"config": one} for name, one in ops.items()},
        "resources": {"spark": {"config": {"scene": scene.name}}},
    }


@pytest.fixture(scope="module", params=slow_then_soak(range(5), 3))
def world(request: pytest.FixtureRequest, place: World) -> World:
    """One round: every run enters its transaction, then each is killed in its own way."""
    dagster, metastore = place.dagster, place.warehouse.metastore
    dagster.serve_again(FRAGILE)
    lives = {}
    for name, death in DEATHS.items():
        scene = Scene(f"{request.param} {name}")
        plot = {"scene": scene.name, "fails": death.fails}
        lives[name] = Life(
            dagster.launch(death.location, death.job, config(scene, {"db__t": plot})), scene
        )
    scene = Scene(f"{request.param} {COMPACTION}")
    lives[COMPACTION] = Life(
        dagster.launch(STEADY, COMPACTION, config(scene, {"queued": {"table": COMPACTED.name}})),
        scene,
    )
    until(lambda: all(one.holds() for one in lives.values()), 240, PAUSE)
    kill(metastore.status()["pid"])
    dagster.kill(FRAGILE)
    for name, death in DEATHS.items():
        death.deal(dagster, lives[name])
    kill(lives[COMPACTION].step)
    return World(dagster, place.warehouse, lives)


def compaction_states(world: World) -> list[str]:
    return [one["state"] for one in world.warehouse.metastore.compactions()]


@pytest.mark.parametrize("name", DEATHS)
def test_P2_the_transaction_of_a_dead_run_is_aborted_and_that_of_a_living_one_is_not(
    world: World, name: str
) -> None:
    death = DEATHS[name]
    until(lambda: world.outcome(name)[0] != "o", LONGEST, PAUSE)
    state, reason = world.outcome(name)
    assert state == ("c" if death.reason is None else "a"), reason
    assert (death.reason or "") in reason
    until(lambda: world.status(name) is death.status, LONGEST, PAUSE)


def test_P4_a_writer_that_outlived_its_run_can_neither_publish_nor_commit(world: World) -> None:
    until(lambda: world.outcome(ORPHAN)[0] == "a", LONGEST, PAUSE)
    life = world.lives[ORPHAN]
    assert not gone(life.step)
    go(world.dagster, life)
    until(lambda: gone(life.step), LONGEST, PAUSE)
    refused = life.scene.told("refused")
    assert refused and BY_SENSOR in refused["reason"]
    assert world.outcome(ORPHAN)[0] == "a"


def test_C25_the_compaction_of_a_killed_run_is_initiated_again(world: World) -> None:
    until(lambda: compaction_states(world) == ["initiated"], LONGEST, PAUSE)


def test_the_page_of_a_run_tells_what_was_aborted(world: World) -> None:
    aborted = f"aborted 1 of 1 transactions: [{world.lives[ORPHAN].txn}]"
    until(lambda: aborted in world.told(ORPHAN), LONGEST, PAUSE)
    until(lambda: "compactions [1] are initiated again" in world.told(COMPACTION), LONGEST, PAUSE)
    silent = f"transaction {world.lives[LOST].txn} of this run was aborted, {BY_REAPER}"
    until(lambda: silent in world.told(LOST), LONGEST, PAUSE)


def test_P19_nothing_is_left_behind(world: World) -> None:
    until(lambda: not world.open_transactions(), LONGEST, PAUSE)
    until(lambda: compaction_states(world) == ["initiated"], LONGEST, PAUSE)
    go(world.dagster, world.lives[ORPHAN])
    until(lambda: gone(world.lives[ORPHAN].step), LONGEST, PAUSE)
    metastore = world.warehouse.metastore
    assert metastore.locks() == []
    initiator.run(metastore, time.time_ns() // 1_000_000)
    assert {one.error for one in cleaner.run(metastore)} == {""}
    table = world.warehouse.table(TABLE.name)
    on_disk = sorted(one.name for one in Path(table.location).iterdir())
    assert on_disk == sorted(one["directory"] for one in table.history())
    found = set(table.to_arrow().column("v").to_pylist())
    for name, death in DEATHS.items():
        written = {f"{world.lives[name].scene.name} {number}" for number in (1, 2)}
        assert written & found == (written if death.reason is None else set()), name
