"""Frames that are kept for the next read: equal files give the same frame, others never do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from acid_platform.engine import relations
from acid_platform.table import Table
from acid_platform.warehouse import Warehouse
from tests.conftest import temporary_warehouse

pytestmark = pytest.mark.spark


@pytest.fixture
def warehouse(tmp_path: Path, spark: SparkSession) -> Iterator[Warehouse]:
    with temporary_warehouse(tmp_path / "wh", spark) as opened:
        yield opened


def values(table: Table) -> list[int]:
    return sorted(row.v for row in table.read().collect())


def filled(warehouse: Warehouse, number: int) -> Table:
    table = warehouse.create_table("db.t", "id int, v int")
    rows = warehouse.spark.createDataFrame([(1, number), (2, number)], "id int, v int")
    table.insert(rows.coalesce(1))
    return table


def test_files_are_resolved_once(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relations, "_kept", type(relations._kept)())
    table = filled(warehouse, 10)
    assert values(table) == values(table) == [10, 10]
    assert len(relations._kept) == 1
    table.insert(warehouse.spark.createDataFrame([(3, 30)], "id int, v int"))
    assert values(table) == [10, 10, 30]
    assert len(relations._kept) == 2
    table.delete("id = 1")
    before = len(relations._kept)
    assert values(table) == values(table) == [10, 30]
    assert len(relations._kept) == before + 1, "the frame is known, the test for deletes is new"
    table.delete("id = 2")
    assert values(table) == [30]
    monkeypatch.setattr(relations, "MAX_BYTES", 2 * relations.FILE_BYTES)
    assert table.update({"v": "v + 1"}, "id = 3") == 1
    assert values(table) == [31]
    assert sum(size for _, size in relations._kept.values()) <= relations.MAX_BYTES


def test_a_table_made_anew_has_its_own_rows(warehouse: Warehouse) -> None:
    table = filled(warehouse, 10)
    assert values(table) == [10, 10]
    warehouse.drop_table("db.t")
    assert values(filled(warehouse, 11)) == [11, 11]


def test_a_file_of_another_size_is_another_file(warehouse: Warehouse) -> None:
    """A restored backup puts files under names that had been taken by others."""
    table = filled(warehouse, 10)
    assert values(table) == [10, 10]
    (old,) = Path(table.location).rglob("bucket_*")
    other = warehouse.create_table("db.other", "id int, v int")
    other.insert(warehouse.spark.range(1000).selectExpr(
        "CAST(id AS int) AS id", "7 AS v").coalesce(1))
    (new,) = Path(other.location).rglob("bucket_*")
    assert new.stat().st_size != old.stat().st_size
    old.write_bytes(new.read_bytes())
    assert values(table) == [7] * 1000


def test_two_reads_can_be_joined(warehouse: Warehouse) -> None:
    table = filled(warehouse, 10)
    left, right = table.read(), table.read()
    joined = left.join(right, left["id"] == right["id"] + 1).select(left["id"], right["v"])
    assert [tuple(row) for row in joined.collect()] == [(2, 10)]


def test_files_with_and_without_deletes_are_one_scan(warehouse: Warehouse) -> None:
    """After a union Spark would write and read every row once more."""
    table = filled(warehouse, 10)
    table.insert(warehouse.spark.createDataFrame([(3, 30), (4, 40)], "id int, v int"))
    table.delete("id = 4")
    table.insert(warehouse.spark.createDataFrame([(5, 50)], "id int, v int"))
    frame = table.read(where="v > 10")
    assert sorted(row.id for row in frame.collect()) == [3, 5]
    plan = frame._jdf.queryExecution().optimizedPlan().toString()  # type: ignore[operator]
    assert "Union" not in plan and plan.count("Relation [operation") == 1
    assert plan.index("> 10") < plan.index("shiftrightunsigned"), "the predicate comes first"
