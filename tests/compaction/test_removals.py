"""What the Cleaner removes, wherever it removes something, and what it leaves alone (P49)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from acid_platform import LockNotAcquired, Table, Warehouse
from acid_platform.base.clock import wall_ms
from acid_platform.cli.doctor import stuck
from acid_platform.compaction.states import CompactionKind
from acid_platform.metastore.operations.compaction import GetQueue
from acid_platform.metastore.operations.tables import RegisterPartitions
from acid_platform.services import cleaner
from acid_platform.services.cleaner import CleaningResult
from tests.conftest import few_then_more, temporary_warehouse

SETTINGS = {
    "hive.compactor.aborted.txn.time.threshold": "0s",
    "hive.compactor.abortedtxn.threshold": "0",
}


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Warehouse]:
    with temporary_warehouse(tmp_path / "wh", engine="local") as opened:
        for name, value in SETTINGS.items():
            opened.metastore.set(name, value)
        yield opened


def sown(place: Path, elsewhere: Path) -> dict[str, str]:
    """Puts files of somebody else beside and into everything there; returns them with their text.

    A link must stay as it is, and what it leads to too.
    """
    elsewhere.mkdir(parents=True, exist_ok=True)
    (elsewhere / "bucket_00000").write_text("elsewhere")
    directories = [place, *(path for path in place.rglob("*") if path.is_dir())]
    files: dict[str, str] = {str(elsewhere / "bucket_00000"): "elsewhere"}
    for number, directory in enumerate(directories):
        if any(part.startswith("_tmp_") for part in directory.relative_to(place).parts):
            continue  # a hidden directory of a transaction
        for name in (".ssh/id", ".git/objects/00/1", "notes.txt", "_work/part-0", "sub/bucket_0"):
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{number} {name}")
            files[str(path)] = f"{number} {name}"
        (directory / "link").symlink_to(elsewhere)
    (place / "delta_0000001_0000001_0099").symlink_to(elsewhere)
    (place / "000000_0").write_text("not recorded")
    files[str(place / "000000_0")] = "not recorded"
    return files


def clean(warehouse: Warehouse) -> list[CleaningResult]:
    """Cycles until nothing is left to do; fails if that takes more than a few."""
    warehouse.release()
    results: list[CleaningResult] = []
    for _ in range(6):
        done = cleaner.run(warehouse.metastore)
        results += done
        if not done:
            return results
    raise AssertionError(f"the Cleaner does not come to an end: {done}")


def aborted(table: Table, warehouse: Warehouse) -> None:
    txn = warehouse.transaction()
    txn.table(table.name).insert([{"id": 9, "p": "x"}])
    txn.abort("test")


def compact(table: Table, warehouse: Warehouse) -> None:
    partition = "p=x" if table.partition_columns else None
    warehouse.compact(table.name, [partition], CompactionKind.MAJOR, wait=True)


DEEDS: dict[str, Callable[[Table, Warehouse], object]] = {
    "drop table": lambda table, warehouse: warehouse.drop_table(table.name),
    "drop database": lambda table, warehouse: warehouse.sql("DROP DATABASE db CASCADE"),
    "drop partition": lambda table, _: table.drop_partition("p=x"),
    "compaction": compact,
    "abort": aborted,
    "truncate and compact": lambda table, warehouse: (table.truncate(), compact(table, warehouse)),
}


def in_sight(place: Path) -> set[str]:
    return {str(path) for path in place.rglob("*") if not path.is_dir()}


@pytest.mark.parametrize("deed", few_then_more(DEEDS, 2))
@pytest.mark.parametrize("partitioned", few_then_more([True, False], 1))
@pytest.mark.parametrize("external", few_then_more([True, False], 1))
def test_P49_only_what_the_platform_wrote_is_removed(
    warehouse: Warehouse, tmp_path: Path, deed: str, partitioned: bool, external: bool
) -> None:
    if deed == "drop partition" and not partitioned:
        pytest.skip("there is no partition")
    location = str(tmp_path / "home") if external else None
    keys = ["p string"] if partitioned else []
    columns = "id int" if partitioned else "id int, p string"
    table = warehouse.create_table("db.t", columns, partitioned_by=keys, location=location)
    for number in (1, 2, 3):
        table.insert([{"id": number, "p": "x"}, {"id": number, "p": "y"}])
    table.delete("id = 2")
    place = Path(table.location)
    DEEDS[deed](table, warehouse)
    ours = in_sight(place)
    foreign = sown(place, tmp_path / "elsewhere")
    results = clean(warehouse)
    assert {path: Path(path).read_text() for path in foreign} == foreign
    assert (place / "link").is_symlink() and (place / "delta_0000001_0000001_0099").is_symlink()
    assert not [result.error for result in results if result.error]
    assert warehouse.metastore.call(GetQueue()) == []
    kept = in_sight(place) & ours
    if deed.startswith("drop ") and deed != "drop partition":
        assert kept == set()
        assert all(result.left for result in results)
        assert any("did not write" in thing.why for thing in stuck(warehouse.metastore, wall_ms()))
    else:
        assert kept < ours
        left = 0 if deed.startswith("truncate") else 2 if deed == "drop partition" else 4
        assert table.count() == left
        table.insert([{"id": 7, "p": "x"}])
        assert table.count() == left + 1


@pytest.mark.more
@pytest.mark.parametrize("partitioned", [True, False])
def test_P22_nothing_is_left_of_what_was_dropped(warehouse: Warehouse, partitioned: bool) -> None:
    keys = ["p string", "q int"] if partitioned else []
    table = warehouse.create_table("db.t", "id int", partitioned_by=keys)
    place = Path(table.location)
    if partitioned:
        table.insert(
            [
                {"id": 1, "p": "x", "q": 1},
                {"id": 1, "p": "x", "q": 2},
                {"id": 1, "p": "y", "q": None},
            ]
        )
        table.drop_partition("p=x/q=1")
        clean(warehouse)
        assert sorted(os.listdir(place / "p=x")) == ["q=2"]
        table.drop_partition("p=x/q=2")
        clean(warehouse)
        assert [name for name in os.listdir(place) if "=" in name] == ["p=y"]
        table.insert([{"id": 2, "p": "x", "q": 1}])
        assert table.count() == 2
    else:
        table.insert([{"id": 1}])
    warehouse.drop_table("db.t")
    clean(warehouse)
    assert not place.exists()


@pytest.mark.more
def test_P22_a_partition_that_was_added_again_keeps_its_directory(warehouse: Warehouse) -> None:
    table = warehouse.create_table("db.t", "id int", partitioned_by=["p string"])
    table.insert([{"id": 1, "p": "x"}])
    table.drop_partition("p=x")
    warehouse.metastore.call(RegisterPartitions("db.t", ("p=x",)))
    clean(warehouse)
    assert os.listdir(f"{table.location}/p=x") == []


def test_P49_files_of_an_adopted_table_go_if_they_were_recorded(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    """Other engines give their files names of their own."""
    kept = {"transactional_properties": "insert_only", "acid.format": "parquet"}
    made = warehouse.create_table("db.t", "id int", properties=kept, location=str(tmp_path / "t"))
    made.insert([{"id": 1}])
    (first,) = Path(made.location).glob("delta_*/0*")
    first.rename(first.parent / "a-b-c_0_data.0.parq")
    os.link(first.parent / "a-b-c_0_data.0.parq", Path(made.location) / "part-00000.parquet")
    warehouse.metastore.set("hive.compactor.cleaner.on", "true")
    other = temporary_warehouse(tmp_path / "other", engine="local")
    with other as opened:
        adopted = opened.adopt_table("db.a", made.location, "id int", properties=kept)
        assert adopted.count() == 2
        (Path(made.location) / "later.parquet").write_text("not recorded")
        opened.drop_table("db.a")
        clean(opened)
        assert os.listdir(made.location) == ["later.parquet"]


@pytest.mark.more
def test_P49_a_table_below_a_dropped_one_keeps_its_files(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    """Only an older version could make it; the Cleaner leaves it alone all the same."""
    outer = warehouse.create_table("db.outer", "id int", location=str(tmp_path / "x"))
    outer.insert([{"id": 1}])
    inner = tmp_path / "x" / "p=1"
    task = warehouse.metastore.table("db.outer")
    warehouse.drop_table("db.outer")
    with pytest.raises(LockNotAcquired, match="enclose"):
        warehouse.create_table("db.inner", "id int", location=str(inner))
    assert task.location == str(tmp_path / "x")
    clean(warehouse)
    warehouse.create_table("db.inner", "id int", location=str(inner)).insert([{"id": 1}])
