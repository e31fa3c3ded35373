"""A local write that dies at any point: nothing half-visible, and no leftovers after a cleaning."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from acid_platform import Table, Warehouse
from acid_platform.metastore.operations.transactions import AbortMany
from acid_platform.services import cleaner
from acid_platform.services.fsck import examine
from tests.conftest import a_warehouse
from tests.engine.local.killed_writer import PHASES

ROOT = Path(__file__).resolve().parents[3]

warehouse = a_warehouse("local", scope="function")


def rows(table: Table) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in table.to_arrow().to_pylist())


def on_disk(table: Table) -> set[str]:
    root = Path(table.location)
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_dir()}


@pytest.mark.slow
def test_P19_a_local_write_that_is_killed_at_any_phase_is_whole_or_nothing(
    warehouse: Warehouse,
) -> None:
    tables = {}
    for number, phase in enumerate(PHASES):
        made = warehouse.create_table(f"db.t{number}", "id int, v string", ["p int"])
        made.insert([{"id": i, "v": "a", "p": i % 2} for i in range(6)])
        tables[phase] = made
    before = {phase: on_disk(table) for phase, table in tables.items()}
    ended = subprocess.run(
        [sys.executable, "-m", "tests.engine.local.killed_writer", warehouse.path],
        cwd=ROOT,
        input="".join(f"{table.name} {phase}\n" for phase, table in tables.items()),
        text=True,
        capture_output=True,
        timeout=240,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
    )
    assert ended.stdout.splitlines() == [f"{phase}: -9" for phase in PHASES], ended.stderr
    old = [(i, "a", i % 2) for i in range(6)]
    new = [(i, "a!", i % 2) for i in range(6)]
    seen = {phase: rows(table) for phase, table in tables.items()}
    assert seen == {phase: new if phase == "committed" else old for phase in PHASES}
    # Staged files are left, and directories that were renamed.
    assert len(on_disk(tables["torn file"])) > len(before["torn file"])
    assert len(on_disk(tables["one published"])) > len(before["one published"])
    warehouse.release()
    metastore = warehouse.metastore
    lost = [int(row["txnid"]) for row in metastore.transactions() if row["state"] == "OPEN"]
    assert len(lost) == len(PHASES) - 1
    metastore.set("hive.compactor.abortedtxn.threshold", "0")
    metastore.call(AbortMany(tuple(lost), "killed"))
    assert not any(task.error for task in cleaner.run(metastore))
    for phase, table in tables.items():
        if phase != "committed":
            assert on_disk(table) == before[phase], phase
        assert rows(table) == (new if phase == "committed" else old), phase
        assert table.update({"v": "'b'"}) == 6, phase
    warehouse.release()
    report = examine(metastore, warehouse=warehouse.path)
    assert report.findings == ()
