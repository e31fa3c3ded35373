"""Statements over damaged files, and statements that fail half-way, through Spark.

Each has its error, which names the thing and the next step; no byte of the table changes, no
transaction, lock or `_tmp_` directory is left, and once the damage is undone the same statement
works. The kinds of damage are those of the JVM-free reader (tests/scan/test_bad_files.py). Here
they come about after the table was adopted, or before; which of them adoption itself refuses is in
tests/engine/test_damaged_adoption.py.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pyspark.sql import SparkSession

from acid_platform import (
    AcidError,
    CompactionFailed,
    CorruptFile,
    PublicationFailed,
    Table,
    TxnAborted,
    Warehouse,
)
from acid_platform.compaction import execution as compaction
from acid_platform.engine.spark import write
from acid_platform.storage.files import Files
from acid_platform.transactions import NONE_OPEN
from tests.acid_files import AcidTable
from tests.conftest import COMPACTORS, compact_with, temporary_warehouse
from tests.full_disk import full_outputs
from tests.scan.test_bad_files import D1, D2, GOOD, IN_ROWS, KINDS, NEXT_STEP, good

pytestmark = pytest.mark.spark

NO_DAMAGE = {"a column of another type", "the six columns in another order"}
"""Spark's reader turns numbers into text, and takes columns by their names."""
CHANGED = list(KINDS)[: list(KINDS).index("a directory name that is none")]
"""A data file has other bytes."""
PLANTED = [kind for kind in KINDS if kind not in CHANGED]
"""Files lie there that a directory did not have."""


def contents(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and not path.name.startswith(".")
    }


@dataclass(frozen=True)
class Subject:
    """A table below `root`, its warehouse, and a copy of its files as they were adopted."""

    warehouse: Warehouse
    table: Table
    root: Path
    kept: Path

    def restore(self) -> None:
        shutil.rmtree(self.root)
        shutil.copytree(self.kept, self.root)

    def nothing_is_left(self) -> None:
        self.warehouse.release()
        assert [
            row for row in self.warehouse.metastore.transactions() if row["state"] == "OPEN"
        ] == []
        assert self.warehouse.metastore.locks() == []


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Warehouse]:
    with temporary_warehouse(tmp_path_factory.mktemp("damage"), spark) as opened:
        for _ in range(10):  # so that the `_v` of some kinds are committed
            opened.metastore.begin().commit()
        yield opened


def adopted(warehouse: Warehouse, root: Path) -> Subject:
    table = warehouse.adopt_table("db.t", root, "v string", snapshot=f"db.t:99:{NONE_OPEN}::")
    return Subject(warehouse, table, root, Path(shutil.copytree(root, root.parent / "kept")))


@pytest.fixture
def subject(warehouse: Warehouse, tmp_path: Path) -> Iterator[Subject]:
    yield adopted(warehouse, good(tmp_path / "t").root)
    warehouse.drop_table("db.t")


def refused(subject: Subject, error: type[AcidError], named: str) -> None:
    before = contents(subject.root)
    with pytest.raises(AcidError) as raised:
        subject.table.update({"v": "concat(v, '!')"}, "v >= '0000'")
    assert type(raised.value) is error, raised.value
    assert named in str(raised.value)
    assert NEXT_STEP.search(str(raised.value)), raised.value
    assert contents(subject.root) == before
    subject.nothing_is_left()


@pytest.mark.parametrize("kind", CHANGED)
def test_P26_a_statement_over_changed_files_names_them_and_changes_nothing(
    subject: Subject, kind: str
) -> None:
    """A recorded file of another size is not looked into; one of the same size is read."""
    damage, error, named = KINDS[kind]
    recorded = contents(subject.root)
    damage(AcidTable(subject.root))
    (path,) = (
        path for path, content in contents(subject.root).items() if content != recorded.get(path)
    )
    write_id, size = {D1: 1, D2: 2}[path], (subject.root / path).stat().st_size
    if size == len(recorded[path]):
        refused(subject, error, named)
    else:
        refused(
            subject,
            CorruptFile,
            f"db.t: {subject.root}/{path} has {size} bytes, but write id"
            f" {write_id} committed it with {len(recorded[path])};",
        )
    subject.restore()
    assert subject.table.delete("v = 'no such value'") == 0
    assert sorted(subject.table.to_arrow()["v"].to_pylist()) == GOOD


@pytest.mark.parametrize("kind", PLANTED)
def test_P26_a_statement_sees_nothing_of_what_no_commit_named(subject: Subject, kind: str) -> None:
    KINDS[kind][0](AcidTable(subject.root))
    before = contents(subject.root)
    assert before != contents(subject.kept)
    assert subject.table.delete("v = 'no such value'") == 0
    assert sorted(row.v for row in subject.table.read().collect()) == GOOD
    assert sorted(subject.table.to_arrow()["v"].to_pylist()) == GOOD
    assert contents(subject.root) == before
    subject.nothing_is_left()


@pytest.mark.parametrize("kind", [kind for kind in IN_ROWS if kind not in NO_DAMAGE])
def test_a_statement_over_damaged_rows_names_their_file_and_changes_nothing(
    warehouse: Warehouse, tmp_path: Path, kind: str
) -> None:
    """The damage was there when the table was adopted, and only who reads the rows finds it."""
    damage, error, named = KINDS[kind]
    files = good(tmp_path / "t")
    damage(files)
    subject = adopted(warehouse, files.root)
    refused(subject, error, named)
    warehouse.drop_table("db.t")


# --- statements that fail half-way --------------------------------------------------------------


@contextmanager
def full_disk(subject: Subject) -> Iterator[None]:
    """The Python processes of Spark's tasks may write files of 64 KiB: the next byte fails."""
    limited = {pid: resource.prlimit(pid, resource.RLIMIT_FSIZE) for pid in workers(subject)}
    for pid, (_, hard) in limited.items():
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (1 << 16, hard))
    try:
        yield
    finally:
        for pid, limits in limited.items():
            with suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)


def workers(subject: Subject) -> list[int]:
    """The processes below Spark's that run Python, and fork others for tasks to come."""
    spark = subject.warehouse.spark
    spark.range(1).mapInArrow(lambda batches: batches, "id long").collect()  # starts the first
    jvm = spark._jvm
    assert jvm is not None
    of_jvm = int(jvm.java.lang.ProcessHandle.current().pid())
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found = [of_jvm]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found[1:]


def failing(what: str) -> Callable[[Subject], AbstractContextManager[object]]:
    """That method of `Files` meets a full disk."""
    return lambda _: mock.patch.object(
        Files, what, side_effect=OSError(28, "No space left on device")
    )


@contextmanager
def taken(subject: Subject) -> Iterator[None]:
    """The directory that the next statement will publish is there."""
    write_id = subject.table.snapshot().write_ids.high_watermark + 1
    (subject.root / f"delta_{write_id:07d}_{write_id:07d}_0000").mkdir()
    yield


@contextmanager
def aborted(subject: Subject) -> Iterator[None]:
    """ABORT TRANSACTIONS by another while Spark writes."""
    run = write._written

    def meanwhile(*args: Any) -> Any:
        done = run(*args)
        subject.warehouse.abort_transactions([args[1].txn_id])
        return done

    with mock.patch.object(write, "_written", meanwhile):
        yield


@contextmanager
def reaped(subject: Subject) -> Iterator[None]:
    """The writer was stopped for so long that the Cleaner has removed what it staged."""
    run = write._written

    def meanwhile(*args: Any) -> Any:
        done = run(*args)
        subject.warehouse.abort_transactions([args[1].txn_id])
        for staged in subject.root.glob("_tmp_*"):
            shutil.rmtree(staged)
        return done

    with mock.patch.object(write, "_written", meanwhile):
        yield


LONG = "sha2(CAST(id AS string), 512)"
HALF_WAY: dict[
    str, tuple[Callable[[Subject], AbstractContextManager[object]], type[AcidError], str]
] = {
    "the disk is full while tasks write": (full_disk, PublicationFailed, "File too large"),
    "the disk is full while a marker is written": (
        failing("write"),
        PublicationFailed,
        "No space left",
    ),
    "the directory of the statement is there": (taken, PublicationFailed, "already exists"),
    "the transaction is aborted while Spark writes": (aborted, TxnAborted, "abort"),
    "the transaction was reaped and cleaned meanwhile": (reaped, TxnAborted, "abort"),
}


@pytest.mark.parametrize("kind", HALF_WAY)
def test_a_statement_that_fails_half_way_leaves_nothing(subject: Subject, kind: str) -> None:
    around, error, named = HALF_WAY[kind]
    rows = subject.warehouse.spark.range(0, 5000, 1, 1).selectExpr(f"{LONG} AS v")
    with around(subject):
        before = contents(subject.root)
        with pytest.raises(AcidError, match=named) as raised:
            subject.table.insert(rows)
    assert type(raised.value) is error, raised.value
    assert re.search("again|begin", str(raised.value)), raised.value
    assert contents(subject.root) == before
    assert not [name for name in os.listdir(subject.root) if name.startswith("_tmp")]
    subject.nothing_is_left()
    assert subject.table.count() == len(GOOD)
    assert subject.table.insert(rows) == 5000
    assert subject.table.count() == len(GOOD) + 5000


@COMPACTORS
def test_a_compaction_on_a_full_disk_fails_by_name_and_the_next_one_works(
    subject: Subject, compactor: str
) -> None:
    compact_with(subject.warehouse, compactor)
    before = contents(subject.root)
    with (
        failing("write")(subject),
        pytest.raises(CompactionFailed, match=r"compaction \d+ of db\.t failed: .*No space left"),
    ):
        subject.table.compact("major")
    assert contents(subject.root) == before
    subject.nothing_is_left()
    (failed,) = [
        row for row in subject.warehouse.metastore.compactions() if row["state"] == "failed"
    ]
    assert "No space left" in failed["errormessage"]
    with (
        mock.patch.object(compaction, "make_outputs", full_outputs),
        pytest.raises(
            CompactionFailed, match=r"/t can't be written: .*No space left.*inputs were kept"
        ) as raised,
    ):
        subject.table.compact("major")
    assert "Traceback" not in str(raised.value)
    assert contents(subject.root) == before
    subject.nothing_is_left()
    subject.table.compact("major")
    assert sorted(subject.table.to_arrow()["v"].to_pylist()) == GOOD
