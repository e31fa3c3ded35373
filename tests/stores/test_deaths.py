"""Processes that are killed at any point while they write into a store: whole or nothing, and no
leftovers (P19, P21, P41).

What they have uploaded stands under its final name at once, so only the commit makes it visible.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from acid_platform import Table, Warehouse
from acid_platform.metastore.operations.transactions import AbortMany
from acid_platform.services import cleaner
from acid_platform.services.fsck import examine
from acid_platform.services.worker import revoke_dead
from tests.compaction import killed_worker
from tests.compaction.killed_worker import work
from tests.engine.local import killed_writer
from tests.stores.conftest import Bucket

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

# Nothing is renamed in a store, and nothing synced.
STATEMENT_PHASES = [
    phase for phase in killed_writer.PHASES if phase not in ("synced", "one published")
]
COMPACTION_PHASES = [phase for phase in killed_worker.PHASES if phase != "one published"]

Rows = list[tuple[int, str, int]]


def made(warehouse: Warehouse, number: int) -> Table:
    """A table with two deltas and a delete delta in each of two partitions."""
    table = warehouse.create_table(f"db.t{number}", "id int, v string", partitioned_by=["p int"])
    for first in (0, 6):
        table.insert([{"id": i, "v": "a", "p": i % 2} for i in range(first, first + 6)])
    table.delete("id IN (4, 5)")
    return table


def rows(table: Table) -> Rows:
    return sorted(tuple(row.values()) for row in table.to_arrow().to_pylist())


def files(bucket: Bucket, table: Table) -> set[str]:
    return {key for key in bucket.keys(table.name) if not key.endswith("/")}


BEFORE: Rows = [(i, "a", i % 2) for i in range(12) if i not in (4, 5)]
AFTER: Rows = [(i, "a!", p) for i, _, p in BEFORE]


def killed(module: str, *words: str, lines: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module, *words],
        input=lines,
        text=True,
        capture_output=True,
        env=dict(os.environ),
        timeout=300,
    )


def test_P19_a_statement_that_is_killed_at_any_phase_is_whole_or_nothing(
    warehouse: Warehouse, bucket: Bucket
) -> None:
    tables = {phase: made(warehouse, n) for n, phase in enumerate(STATEMENT_PHASES)}
    before = {phase: files(bucket, table) for phase, table in tables.items()}
    lines = "".join(f"{table.name} {phase}\n" for phase, table in tables.items())
    ended = killed(killed_writer.__name__, bucket.uri, lines=lines)
    assert ended.stdout.splitlines() == [f"{phase}: -9" for phase in tables], ended.stderr
    for phase, table in tables.items():
        assert rows(table) == (AFTER if phase == "committed" else BEFORE), phase
    for phase in ("one file", "all files", "all published", "committing"):
        assert files(bucket, tables[phase]) > before[phase], f"{phase}: it was to leave files"

    warehouse.release()
    metastore = warehouse.metastore
    lost = [int(row["txnid"]) for row in metastore.transactions() if row["state"] == "OPEN"]
    assert len(lost) == len(tables) - 1
    metastore.set("hive.compactor.abortedtxn.threshold", "0")
    metastore.call(AbortMany(tuple(lost), "killed"))
    assert not any(task.error for task in cleaner.run(metastore))
    for phase, table in tables.items():
        if phase != "committed":
            assert files(bucket, table) == before[phase], phase
        assert table.update({"v": "'b'"}) == len(BEFORE), phase
    warehouse.release()
    assert examine(metastore, warehouse=bucket.uri).findings == ()


def test_P21_a_worker_that_is_killed_at_any_phase_loses_and_doubles_nothing(
    warehouse: Warehouse, bucket: Bucket
) -> None:
    tables = {phase: made(warehouse, n) for n, phase in enumerate(COMPACTION_PHASES)}
    kinds = {phase: ("minor", "major")[n % 2] for n, phase in enumerate(tables)}
    kinds["some files"] = "minor"  # it has two outputs
    before = {phase: files(bucket, table) for phase, table in tables.items()}
    metastore = warehouse.metastore
    for phase, table in tables.items():
        metastore.request_compaction(table.name, "p=1", kinds[phase])
        ended = killed(killed_worker.__name__, bucket.uri, table.name, phase, "local")
        assert ended.returncode == -9, f"{phase}: {ended.stdout} {ended.stderr}"
        assert rows(table) == BEFORE, phase
        assert files(bucket, table) >= before[phase], phase
    for phase in ("merged", "all published"):
        assert files(bucket, tables[phase]) > before[phase], f"{phase}: it was to leave files"
    warehouse.release()
    assert len(revoke_dead(metastore)) == len(tables) - 1
    for phase, table in tables.items():
        done = phase == "committed"
        assert work(warehouse, table.name) == ("nothing to do" if done else "published"), phase
    warehouse.release()
    metastore.set("hive.compactor.abortedtxn.threshold", "0")
    for _ in range(2):
        assert not [task.error for task in cleaner.run(metastore) if task.error]
    for phase, table in tables.items():
        left = {key.split("/")[1] for key in files(bucket, table) if key.startswith("p=1/")}
        wanted = ["base_"] if kinds[phase] == "major" else ["delete_delta_", "delta_"]
        found = [name[: len(start)] for name, start in zip(sorted(left), wanted, strict=True)]
        assert found == wanted, phase
        assert rows(table) == BEFORE, phase
    warehouse.release()
    assert examine(metastore, warehouse=bucket.uri).findings == ()
