"""Dagster's daemon and code servers as processes of their own, each of which may be killed.

Actions of a person in the UI are done by the UI's GraphQL mutations, in this process.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import WorkspaceFileTarget
from dagster_graphql.schema import create_schema

from tests.metastore.processes import free_port, listens, until
from tests.orchestration import code_server

PAUSE = 0.5
"""Seconds between two queries to Dagster, which cost it CPU time."""
ROOT = Path(__file__).resolve().parents[2]

INSTANCE = """
telemetry: {enabled: false}
# Nobody reads what runs print.
run_monitoring: {enabled: true, poll_interval_seconds: 2, cancel_timeout_seconds: 60}
compute_logs:
  module: dagster._core.storage.noop_compute_log_manager
  class: NoOpComputeLogManager
"""
# Runs begin at once, without the daemon's queue; or so many at a time, from the queue.
AT_ONCE = "run_coordinator: {module: dagster._core.run_coordinator, class: DefaultRunCoordinator}"
QUEUED = """run_coordinator:
  module: dagster._core.run_coordinator
  class: QueuedRunCoordinator
  config: {{max_concurrent_runs: {runs}, dequeue_interval_seconds: 1}}"""
LOCATION = """  - grpc_server: {{host: localhost, port: {port}, location_name: {name}}}
"""

LAUNCH = """mutation($params: ExecutionParams!) { launchRun(executionParams: $params) {
  __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"""
REPEAT = """mutation($params: ReexecutionParams!) {
  launchRunReexecution(reexecutionParams: $params) {
    __typename ... on PythonError { message } } }"""
TERMINATE = """mutation($run: String!) { terminateRun(runId: $run) {
  __typename ... on TerminateRunFailure { message } ... on PythonError { message } } }"""
BACKFILL = """mutation($params: LaunchBackfillParams!) {
  launchPartitionBackfill(backfillParams: $params) {
    __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }"""
START_SENSOR = """mutation($sensor: SensorSelector!) { startSensor(sensorSelector: $sensor) {
  __typename ... on PythonError { message } } }"""
TICKS = """query($sensor: SensorSelector!) { sensorOrError(sensorSelector: $sensor) {
  ... on Sensor { sensorState { ticks(limit: 1) { status } } } } }"""


@dataclass
class DagsterProcesses:
    """A workspace of code locations, each an attribute of one module. A context manager."""

    home: Path
    module: str
    locations: tuple[str, ...]
    environment: Mapping[str, str]
    runs_at_a_time: int | None = None
    """None: a run begins when it is launched."""
    forks: bool = True
    """Runs are forks of the code server, which is faster than Dagster's own way."""
    instance: dg.DagsterInstance = field(init=False)
    _workspace: WorkspaceProcessContext = field(init=False)
    _running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _ports: dict[str, int] = field(default_factory=dict)
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> DagsterProcesses:
        self.home.mkdir()
        (self.home / "dagster.yaml").write_text(
            INSTANCE + (QUEUED.format(runs=self.runs_at_a_time) if self.runs_at_a_time else AT_ONCE)
        )
        self._ports = {name: free_port() for name in self.locations}
        workspace = self.home / "workspace.yaml"
        workspace.write_text(
            "load_from:\n"
            + "".join(LOCATION.format(name=name, port=port) for name, port in self._ports.items())
        )
        # Creates the storage before several processes would do so at once.
        self.instance = self._stack.enter_context(dg.DagsterInstance.from_config(str(self.home)))
        self._stack.callback(self._kill_all)
        for name in self.locations:
            self.serve(name)
        for name in self.locations:
            self._wait_for(name)
        self._run("daemon", "dagster._daemon", "run", "-w", str(workspace))
        self._workspace = self._stack.enter_context(
            WorkspaceProcessContext(self.instance, WorkspaceFileTarget([str(workspace)]))
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def serve(self, location: str) -> None:
        """Starts the location's code server."""
        command = code_server.__name__ if self.forks else "dagster"
        self._run(
            location,
            command,
            "api",
            "grpc",
            "-p",
            str(self._ports[location]),
            "-m",
            self.module,
            "-a",
            location,
            "-d",
            str(ROOT),
        )

    def serve_again(self, location: str) -> None:
        """Restarts the code server if it was killed."""
        if location in self._running:
            return  # a second one would share its port, and its runs
        self.serve(location)
        self._wait_for(location)
        self._workspace.reload_workspace()

    def kill(self, name: str) -> None:
        """Kills only this process, as the system would; its children live on."""
        process = self._running.pop(name)
        process.kill()
        process.wait()

    # --- what a person does on the pages -------------------------------------------------------

    def launch(self, location: str, job: str, config: Mapping[str, Any]) -> str:
        """Launches a run and returns its id."""
        answer = self._ask(
            LAUNCH,
            params={"selector": {**_repository(location), "jobName": job}, "runConfigData": config},
        )
        assert answer["launchRun"]["__typename"] == "LaunchRunSuccess", answer
        run_id: str = answer["launchRun"]["run"]["runId"]
        return run_id

    def backfill(
        self, asset: dg.AssetKey, keys: Sequence[str], tags: Mapping[str, str] | None = None
    ) -> str:
        """Starts a backfill and returns its id; the daemon creates its runs."""
        answer = self._ask(
            BACKFILL,
            params={
                "assetSelection": [{"path": list(asset.path)}],
                "partitionNames": list(keys),
                "tags": [{"key": key, "value": value} for key, value in (tags or {}).items()],
            },
        )
        assert answer["launchPartitionBackfill"]["__typename"] == "LaunchBackfillSuccess", answer
        backfill_id: str = answer["launchPartitionBackfill"]["backfillId"]
        return backfill_id

    def repeat(self, run_id: str) -> None:
        """Executes all steps of a run again."""
        answer = self._ask(REPEAT, params={"parentRunId": run_id, "strategy": "ALL_STEPS"})
        assert answer["launchRunReexecution"]["__typename"] == "LaunchRunSuccess", answer

    def terminate(self, run_id: str) -> None:
        answer = self._ask(TERMINATE, run=run_id)
        assert answer["terminateRun"]["__typename"] == "TerminateRunSuccess", answer

    def switch_on(self, location: str, *sensors: str) -> None:
        """Returns when they have ticked once: a run status sensor looks at later runs only."""
        selectors = [{**_repository(location), "sensorName": name} for name in sensors]
        for selector in selectors:
            answer = self._ask(START_SENSOR, sensor=selector)
            assert answer["startSensor"]["__typename"] == "Sensor", answer
        for selector in selectors:
            until(lambda one=selector: self._ticks(one), 60, PAUSE)  # type: ignore[misc]

    def _ticks(self, sensor: Mapping[str, str]) -> list[Any]:
        found = self._ask(TICKS, sensor=sensor)["sensorOrError"]["sensorState"]["ticks"]
        return list(found)

    def _ask(self, query: str, **variables: Any) -> dict[str, Any]:
        for name, process in self._running.items():
            assert process.poll() is None, f"{name} has ended: {self.home / name}.log"
        done = asyncio.run(
            _SCHEMA.execute_async(
                query,
                context_value=self._workspace.create_request_context(),
                variable_values=variables,
            )
        )
        assert not done.errors, done.errors
        data: dict[str, Any] = done.data
        return data

    def _wait_for(self, location: str) -> None:
        until(lambda: listens("localhost", self._ports[location]), 60, PAUSE)

    def _run(self, name: str, *module: str) -> None:
        with (self.home / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                [sys.executable, "-m", *module],
                cwd=self.home,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={
                    **os.environ,
                    **self.environment,
                    "DAGSTER_HOME": str(self.home),
                    "PYTHONPATH": str(ROOT),
                },
            )

    def _kill_all(self) -> None:
        """Kills all processes, including runs and their steps."""
        for pid in psutil.pids():  # process_iter remembers an ended one whose number is used again
            with suppress(psutil.Error):
                one = psutil.Process(pid)
                if one.environ().get("DAGSTER_HOME") == str(self.home):
                    one.kill()
        for process in self._running.values():
            process.wait()


_SCHEMA = create_schema()


def _repository(location: str) -> dict[str, str]:
    return {"repositoryLocationName": location, "repositoryName": "__repository__"}


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
