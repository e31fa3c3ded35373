"""A Worker that dies at any point: nothing lost, nothing twice, the task done again, no leftovers.

Also two Workers on one request: exactly one result counts (HIVE-29210, P21).
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from acid_platform import CompactionLost, TxnAborted, Warehouse
from acid_platform.compaction import execution as compaction
from acid_platform.metastore.operations.compaction import RevokeWorkers
from acid_platform.metastore.operations.transactions import CommitContents
from acid_platform.metastore.records import WriteReport
from acid_platform.services import cleaner
from acid_platform.services.worker import CompactionRun, revoke_dead
from acid_platform.transactions import RowOperation
from tests.acid_files import B1, AcidTable, P, contents_of
from tests.compaction.killed_worker import PHASES, work
from tests.conftest import a_warehouse

ROOT = Path(__file__).resolve().parents[2]


def fill(warehouse: Warehouse, name: str, root: Path) -> None:
    """Two inserts in two buckets, and two transactions of deletes: a minor has two outputs."""
    files = AcidTable(root, "v string")
    metastore = warehouse.metastore
    for write_id in range(1, 5):
        deletes = write_id in (2, 4)
        with metastore.begin() as txn:
            txn.lock(
                name,
                "SHARED_WRITE",
                operation=RowOperation.DELETE if deletes else RowOperation.INSERT,
            )
            assert txn.write_ids[name] == write_id
            if deletes:
                files.deletes(f"D{write_id}", [(write_id - 1, P, 0)], write_id)
                files.deletes(f"D{write_id}/bucket_00001", [(write_id - 1, B1, 1)], write_id)
            else:
                for path, bucket in ((f"d{write_id}", P), (f"d{write_id}/bucket_00001", B1)):
                    files.inserts(
                        path,
                        [(write_id, bucket, row, f"{write_id}.{bucket}.{row}") for row in range(3)],
                    )
            kind = "delete_delta" if deletes else "delta"
            directory = f"{kind}_{write_id:07d}_{write_id:07d}_0000"
            files.marker(directory)
            operation = RowOperation.DELETE if deletes else RowOperation.INSERT
            txn.commit(
                CommitContents(
                    (WriteReport(name, None, operation, directory, contents_of(root / directory)),)
                )
            )


warehouse = a_warehouse(scope="function")


def made(warehouse: Warehouse, name: str) -> str:
    table = warehouse.create_table(name, "v string")
    fill(warehouse, table.name, Path(table.location))
    return table.name


def rows(warehouse: Warehouse, name: str) -> list[Any]:
    """Each value names its row, so that one that is lost or comes twice is seen."""
    found = warehouse.table(name).to_arrow()
    warehouse.release()
    return sorted(found.column("v").to_pylist())


def directories(warehouse: Warehouse, name: str) -> list[str]:
    where = Path(warehouse.table(name).location)
    return sorted(info.name for info in where.iterdir() if info.is_dir())


def killed(
    warehouse: Warehouse, name: str, phase: str, engine: str = "local"
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.compaction.killed_worker",
            warehouse.path,
            name,
            phase,
            engine,
        ],
        cwd=ROOT,
        text=True,
        capture_output=True,
        timeout=240,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


@pytest.mark.slow
def test_a_worker_that_is_killed_at_any_phase_loses_and_doubles_nothing(
    warehouse: Warehouse,
) -> None:
    """Ten tables, one per phase; half of them with a minor compaction, which has two outputs."""
    tables = {phase: made(warehouse, f"db.t{number}") for number, phase in enumerate(PHASES)}
    kinds = {phase: ("minor", "major")[number % 2] for number, phase in enumerate(PHASES)}
    kinds["one published"] = kinds["some files"] = "minor"
    before = {phase: rows(warehouse, name) for phase, name in tables.items()}
    inputs = {phase: directories(warehouse, name) for phase, name in tables.items()}
    for phase, name in tables.items():
        warehouse.metastore.request_compaction(name, None, kinds[phase])
    with ThreadPoolExecutor(2) as pool:
        ended = dict(
            zip(
                tables,
                pool.map(lambda phase: killed(warehouse, tables[phase], phase), tables),
                strict=True,
            )
        )
    assert {phase: one.returncode for phase, one in ended.items()} == dict.fromkeys(PHASES, -9), {
        phase: one.stderr for phase, one in ended.items()
    }
    states = {row["tabname"]: row["state"] for row in warehouse.metastore.compactions()}
    for phase, name in tables.items():
        short = name.removeprefix("db.")
        done = phase == "committed"
        assert states[short] == ("ready for cleaning" if done else "working"), phase
        assert rows(warehouse, name) == before[phase], phase
        assert set(inputs[phase]) <= set(directories(warehouse, name)), phase
    assert len(revoke_dead(warehouse.metastore)) == len(PHASES) - 1
    for phase, name in tables.items():
        assert work(warehouse, name) == ("nothing to do" if phase == "committed" else "published")
        assert rows(warehouse, name) == before[phase], phase
    cleaned = cleaner.run(warehouse.metastore)
    assert len(cleaned) == len(PHASES) and not any(cleaned_task.error for cleaned_task in cleaned)
    for phase, name in tables.items():
        left = directories(warehouse, name)
        prefixes = ["base_"] if kinds[phase] == "major" else ["delete_delta_", "delta_"]
        assert [one[: len(prefix)] for one, prefix in zip(left, prefixes, strict=True)] == prefixes
        assert rows(warehouse, name) == before[phase], phase
    assert {row["state"] for row in warehouse.metastore.compactions()} == {"succeeded"}


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("phase", ["one published", "all published"])
def test_a_spark_worker_that_is_killed_between_renames_and_commit(
    warehouse: Warehouse, phase: str
) -> None:
    """The real Worker, with its JVM and its validation, dies after it has renamed."""
    name = made(warehouse, "db.t")
    before, inputs = rows(warehouse, name), directories(warehouse, name)
    warehouse.metastore.request_compaction(name, None, "minor")
    ended = killed(warehouse, name, phase, "spark")
    assert ended.returncode == -9, ended.stderr
    assert len(set(directories(warehouse, name)) - set(inputs)) >= 1
    assert rows(warehouse, name) == before
    assert len(revoke_dead(warehouse.metastore)) == 1
    assert work(warehouse, name) == "published"
    assert rows(warehouse, name) == before
    assert [cleaned_task.error for cleaned_task in cleaner.run(warehouse.metastore)] == [""]
    assert len(directories(warehouse, name)) == 2
    assert rows(warehouse, name) == before


@pytest.mark.more
@pytest.mark.parametrize("late", [False, True], ids=["before it publishes", "before it commits"])
def test_P21_of_two_workers_on_one_request_exactly_one_counts(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    """HIVE-29210: the first is revoked, goes on all the same, and drops what it made."""
    name = made(warehouse, "db.t")
    before = rows(warehouse, name)
    warehouse.metastore.request_compaction(name, None, "major")
    slow = CompactionRun.take(warehouse, "slow-1", name)
    assert slow is not None
    slow.prepare()
    slow.merge()
    slow.check()
    publish = compaction.publish

    def taken_over() -> None:
        assert warehouse.metastore.call(RevokeWorkers("slow-1")) == [slow.task.id]
        assert work(warehouse, name, "quick-1") == "published"

    def renamed_then_taken_over(*args: Any) -> Any:
        outputs = publish(*args)
        monkeypatch.undo()
        taken_over()
        return outputs

    if late:
        monkeypatch.setattr(compaction, "publish", renamed_then_taken_over)
    else:
        taken_over()
    with pytest.raises(CompactionLost if late else TxnAborted) as lost:
        slow.commit()
    slow.fail(lost.value)
    [base] = [
        directory
        for directory in directories(warehouse, name)
        if directory.startswith(("base", "_tmp"))
    ]
    assert rows(warehouse, name) == before
    [row] = warehouse.metastore.compactions()
    assert (row["state"], row["txnid"]) == ("ready for cleaning", int(base.rpartition("_v")[2]))
    assert [cleaned_task.error for cleaned_task in cleaner.run(warehouse.metastore)] == [""]
    assert directories(warehouse, name) == [base]
