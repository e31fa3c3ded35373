"""A read returns exactly the files that its commits recorded, or raises (P26)."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from acid_platform import CorruptFile, Table, Warehouse
from acid_platform.metastore.operations.transactions import CommitContents
from acid_platform.metastore.records import LockRequest, WriteReport
from acid_platform.services import cleaner
from acid_platform.transactions import RowOperation
from acid_platform.transactions.concurrency import LockType
from tests.acid_files import AcidTable, P, contents_of
from tests.conftest import temporary_warehouse

LEFT = [("b",), ("c",)]
"""The rows that are left: a to c were inserted, a was deleted."""


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Warehouse]:
    with temporary_warehouse(tmp_path / "wh") as opened:
        table = opened.create_table("db.t", "v string")
        files = AcidTable(Path(table.location))
        commit(
            opened,
            files,
            RowOperation.INSERT,
            lambda w: files.inserts(f"d{w}", [(w, P, 0, "a"), (w, P, 1, "b"), (w, P, 2, "c")]),
        )
        commit(opened, files, RowOperation.DELETE, lambda w: files.deletes(f"D{w}", [(1, P, 0)], w))
        yield opened


def commit(
    warehouse: Warehouse,
    files: AcidTable,
    operation: RowOperation,
    write: Callable[[int], AcidTable],
) -> int:
    kind = "delete_delta" if operation is RowOperation.DELETE else "delta"
    with warehouse.metastore.begin() as txn:
        txn.lock([LockRequest("db.t", LockType.SHARED_WRITE, operation)])
        w = txn.write_ids["db.t"]
        write(w)
        name = f"{kind}_{w:07d}_{w:07d}_0000"
        txn.commit(
            CommitContents(
                (WriteReport("db.t", None, operation, name, contents_of(files.root / name)),)
            )
        )
    return w


def values(table: Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.to_arrow().to_pylist())


DAMAGES: dict[str, Callable[[Path], object]] = {
    "gone": Path.unlink,
    "empty": lambda file: file.write_bytes(b""),
    "shorter": lambda file: file.write_bytes(file.read_bytes()[:-7]),
    "longer": lambda file: file.write_bytes(file.read_bytes() + b"x"),
    "with its directory": lambda file: shutil.rmtree(file.parent),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(
    ("directory", "write_id"),
    [("delta_0000001_0000001_0000", 1), ("delete_delta_0000002_0000002_0000", 2)],
)
def test_P26_a_committed_file_that_is_not_what_it_was_is_an_error_and_no_missing_row(
    warehouse: Warehouse, directory: str, write_id: int, damage: str
) -> None:
    table = warehouse.table("db.t")
    assert values(table) == LEFT
    file = Path(table.location, directory, "bucket_00000")
    DAMAGES[damage](file)
    said = rf"db\.t: .*{directory}/bucket_00000.* write id {write_id} committed"
    with warehouse.snapshot() as held, warehouse.transaction() as txn:
        reads: list[Callable[[], object]] = [
            table.to_arrow,
            table.count,
            lambda: table.to_arrow(where="v = 'b'"),
            lambda: table.count("v = 'b'"),
            lambda: held.table("db.t").to_arrow(),
            lambda: txn.table("db.t").to_arrow(),
        ]
        for read in reads:
            with pytest.raises(CorruptFile, match=said):
                read()


@pytest.mark.spark
def test_P26_a_frame_over_a_file_that_is_not_what_it_was_is_an_error(
    warehouse: Warehouse, spark: SparkSession
) -> None:
    warehouse._given = spark
    table = warehouse.table("db.t")
    assert sorted(row.v for row in table.read().collect()) == ["b", "c"]
    file = Path(table.location, "delete_delta_0000002_0000002_0000", "bucket_00000")
    kept = file.read_bytes()
    for content in (b"", kept[:-1], None):
        if content is None:
            file.unlink()
        else:
            file.write_bytes(content)
        for read in (table.read, lambda: warehouse.sql("SELECT v FROM db.t")):
            with pytest.raises(CorruptFile, match="write id 2 committed"):
                read()
    file.write_bytes(kept)
    assert table.read().count() == 2


def test_P26_what_no_commit_named_is_not_read(warehouse: Warehouse) -> None:
    table = warehouse.table("db.t")
    files = AcidTable(Path(table.location))
    files.inserts("d1/bucket_00001", [(1, P, 7, "in a committed directory")])
    files.inserts("d1.3", [(1, P + 3, 0, "another statement of a committed transaction")])
    files.inserts("b2", [(2, P, 0, "a base of a committed write id")])
    files.deletes("D1.4", [(1, P, 1), (1, P, 2)], 1)
    files.raw("o", ["an original file"])
    assert values(table) == LEFT and table.count() == 2


def test_P26_what_no_commit_named_makes_nothing_obsolete(warehouse: Warehouse) -> None:
    """The Cleaner used to select a base that somebody had put there."""
    table = warehouse.table("db.t")
    root = Path(table.location)
    files = AcidTable(root)
    files.inserts("b2", [(2, P, 0, "a stranger's base")])
    files.inserts("d1-2", [(1, P, 0, "a stranger's merged delta")])
    warehouse.metastore.set("hive.compactor.abortedtxn.threshold", "0")
    txn = warehouse.metastore.begin()
    txn.lock([LockRequest("db.t", LockType.SHARED_WRITE, RowOperation.INSERT)])
    w = txn.write_ids["db.t"]
    files.inserts(f"d{w}", [(w, P, 0, "aborted")])
    txn.abort()
    (done,) = cleaner.run(warehouse.metastore)
    assert [line.split()[0].rpartition("/")[2] for line in done.removed] == [
        f"delta_{w:07d}_{w:07d}_0000"
    ]
    assert sorted(info.name for info in root.iterdir()) == [
        "base_0000002",
        "delete_delta_0000002_0000002_0000",
        "delta_0000001_0000001_0000",
        "delta_0000001_0000002",
    ]
    assert values(table) == LEFT


def test_P26_the_number_of_rows_needs_no_file_to_be_opened(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = warehouse.create_table("db.u", "v string")
    files = AcidTable(Path(table.location))
    with warehouse.metastore.begin() as txn:
        txn.lock([LockRequest("db.u", LockType.SHARED_WRITE, RowOperation.INSERT)])
        files.inserts("d1", [(1, P, number, "x") for number in range(5)])
        txn.commit(
            CommitContents(
                (
                    WriteReport(
                        "db.u",
                        None,
                        RowOperation.INSERT,
                        "delta_0000001_0000001_0000",
                        contents_of(files.root / "delta_0000001_0000001_0000"),
                    ),
                )
            )
        )
    from acid_platform.formats.orc import orc_file

    def refuse(*_: object) -> None:
        raise AssertionError("a file was opened")

    monkeypatch.setattr(orc_file, "_content", refuse)
    assert table.count() == 5
