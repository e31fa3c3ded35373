"""The services, each a process of its own, while a table is written: it stays short, nothing that
may go stays, the rows are those of the model, and no log has an error."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from acid_platform import Warehouse
from tests.conftest import slow_then_soak, temporary_warehouse
from tests.history.model import WRITES, History

SETTINGS = {
    "hive.compactor.check.interval": "1s",
    "hive.compactor.worker.sleep.time": "200ms",
    "hive.compactor.worker.max.sleep.time": "1s",
    "hive.compactor.abortedtxn.threshold": "5",
    "hive.compactor.cleaner.run.interval": "1s",
}
MANY_DELTAS = 50
"""The most of one partition, while a Worker starts or works elsewhere."""
LEFT_SECONDS = 120
WRONG = ("error", "Error", "Traceback", "failed", "lost")
"""Words that no log may contain."""


@contextmanager
def services(path: Path, logs: dict[str, Path]) -> Iterator[None]:
    """`acid run` of each of these, with its own log."""
    with ExitStack() as stack:
        for name, log in logs.items():
            child = subprocess.Popen(
                [sys.executable, "-u", "-m", "acid_platform", "run", name, "--warehouse", path],
                stdout=stack.enter_context(log.open("wb")),
                stderr=subprocess.STDOUT,
            )
            stack.callback(child.wait, 120)
            stack.callback(child.terminate)
        yield


def deltas(warehouse: Warehouse, table: str) -> int:
    """The live deltas and delete_deltas of the worst partition."""
    return max(
        sum(not (each.base or each.obsolete) for each in entity.directories)
        for entity in warehouse.metastore.entities(table)
    )


def left(warehouse: Warehouse, table: str) -> list[str]:
    """What waits for a Worker or the Cleaner."""
    states = {"initiated", "working", "ready for cleaning"}
    queued = [row for row in warehouse.metastore.compactions() if row["state"] in states]
    entities = warehouse.metastore.entities(table)
    old = [each.name for one in entities for each in one.directories if each.obsolete]
    return [*map(str, queued), *old]


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("steps", slow_then_soak([60, 3000], 1))
def test_P9_services_keep_a_table_short_while_it_is_written(tmp_path: Path, steps: int) -> None:
    logs = {name: tmp_path / f"{name}.log" for name in ("initiator", "worker", "cleaner")}
    with temporary_warehouse(tmp_path / "wh", engine="local") as warehouse:
        for name, value in SETTINGS.items():
            warehouse.metastore.set(name, value)
        history = History(warehouse, steps, "partitioned")
        history.step("insert")
        table, most = history.table.name, 0
        with services(tmp_path / "wh", logs):
            for what in history.random.choices(WRITES, k=steps):
                history.step(what)
                history.require(history.table.to_arrow().to_pylist())
                most = max(most, deltas(warehouse, table))
                time.sleep(0.1)
            history.play(["insert"] * 2)
            warehouse.release()
            deadline = time.monotonic() + LEFT_SECONDS
            while left(warehouse, table):
                assert time.monotonic() < deadline, left(warehouse, table)
                time.sleep(0.5)
        history.require(history.table.to_arrow().to_pylist())
    assert most < MANY_DELTAS
    told = {name: log.read_text() for name, log in logs.items()}
    lines = [line for text in told.values() for line in text.splitlines()]
    assert not [line for line in lines if any(word in line for word in WRONG)]
    assert "published" in told["worker"] and "removed " in told["cleaner"]
