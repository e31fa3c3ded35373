"""Erasure: no file has the rows any more, or the obstacles are named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from acid_platform import CorruptFile, Table, Warehouse
from tests.acid_files import stored_rows
from tests.conftest import temporary_warehouse

pytestmark = pytest.mark.spark
ANN = "v = 'Ann' OR v = 'ANN'"
Row = tuple[int, str, int, int]


@pytest.fixture
def people(tmp_path: Path, spark: SparkSession) -> Iterator[Table]:
    """Two partitions with several directories; month=2 has a base whose inputs are obsolete."""
    with temporary_warehouse(tmp_path / "wh", spark) as warehouse:
        table = warehouse.create_table("db.people", "id int, v string", ["month int"])
        table.insert(
            [
                {"id": n, "v": v, "month": month}
                for month in (1, 2)
                for n, v in enumerate(("Ann", "Bob", "Cy", "Ann"))
            ]
        )
        table.compact("major", "month=2")
        table.update({"v": "upper(v)"}, "id = 3 AND month = 1")
        yield table


def on_disk(table: Table) -> dict[str, int]:
    """Rows of Ann by file, by another reader."""
    found = {}
    for path in Path(table.location).rglob("bucket_*"):
        count = sum(row[1].upper() == "ANN" for row in stored_rows(path))
        if count:
            found[str(path.relative_to(table.location))] = count
    return found


def kept(table: Table) -> list[tuple[object, ...]]:
    """The other rows with their ids."""
    found = table.to_arrow(where=f"NOT ({ANN})", row_id=True).to_pylist()
    return sorted((row["id"], row["month"], row["v"], *row["row__id"].values()) for row in found)


def test_erased_rows_are_in_no_file_and_the_others_keep_their_ids(people: Table) -> None:
    before = kept(people)
    assert len(before) == 4 and len(on_disk(people)) > 2
    result = people.erase(ANN)
    assert result.erased and result.remaining == ()
    assert result.deleted == 4 and len(result.rewritten) == 2 and result.removed
    assert on_disk(people) == {}
    assert kept(people) == before
    again = people.erase(ANN)
    assert again.erased and (again.deleted, again.rewritten, again.removed) == (0, (), ())


def test_of_one_partition_the_others_stay(people: Table) -> None:
    result = people.erase(ANN, "month=2")
    assert result.erased and result.deleted == 2
    assert set(on_disk(people)) and all(one.startswith("month=1/") for one in on_disk(people))
    assert people.count(ANN) == 2


def test_a_held_snapshot_is_named_and_a_second_request_finishes(
    people: Table, tmp_path: Path, spark: SparkSession
) -> None:
    with Warehouse.open(tmp_path / "wh", run_id="a-long-report") as reader:
        held = reader.snapshot()
        old = held.table("db.people").to_arrow().num_rows
        result = people.erase(ANN, report=True)
        assert not result.erased and result.deleted == 4
        assert {file.path: file.rows for file in result.remaining} == on_disk(people) != {}
        for one in result.remaining:
            [holder] = one.holders
            assert holder.run_id == "a-long-report" and "opened before its commit" in one.reason
        assert "not erased" in str(result) and "run a-long-report" in str(result)
        assert held.table("db.people").to_arrow().num_rows == old  # it still has its rows
        held.close()
    finished = people.erase(ANN)
    assert finished.erased and on_disk(people) == {}
    assert finished.deleted == 0 and finished.rewritten == () and finished.removed


def test_an_open_writer_below_the_delete_is_named(people: Table) -> None:
    metastore = people._warehouse.metastore
    with metastore.begin() as writer:
        writer.lock("db.people", "SHARED_WRITE")
        result = people.erase(ANN, "month=1", report=True)
        assert not result.erased
        live = [file for file in result.remaining if "write ids that are open" in file.reason]
        assert live and [holder.txn for holder in live[0].holders] == [writer.id]
        writer.abort()
    assert people.erase(ANN, "month=1").erased


def test_a_file_that_cant_be_judged_is_no_success(people: Table) -> None:
    torn = Path(people.location, "month=1", "delta_0000099_0000099_0000", "bucket_00000")
    torn.parent.mkdir()
    torn.write_bytes(b"ORC")
    with pytest.raises(CorruptFile, match="can't be proven"):
        people.erase(ANN)
