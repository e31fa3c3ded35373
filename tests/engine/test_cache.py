"""Frames are cached for the next read: only equal files give the same frame."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from acid_platform import CorruptFile, Table, Warehouse
from acid_platform.base.recent import Recent
from acid_platform.engine.spark import few_calls
from acid_platform.services import cleaner
from acid_platform.transactions import NONE_OPEN
from tests.acid_files import AcidTable, P
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
    monkeypatch.setattr(few_calls, "_parts", Recent(few_calls.MAX_ENTRIES, few_calls.MAX_BYTES))
    table = filled(warehouse, 10)
    assert values(table) == values(table) == [10, 10]
    assert len(few_calls._parts._values) == 1
    table.insert(warehouse.spark.createDataFrame([(3, 30)], "id int, v int"))
    assert values(table) == [10, 10, 30]
    assert len(few_calls._parts._values) == 2
    table.delete("id = 1")
    assert values(table) == [10, 30]
    before = list(few_calls._parts._values)
    assert values(table) == [10, 30]
    assert list(few_calls._parts._values) == before
    table.delete("id = 2")
    assert values(table) == [30]
    most = 10 * few_calls.FILE_BYTES
    monkeypatch.setattr(few_calls, "_parts", Recent(few_calls.MAX_ENTRIES, most))
    assert table.update({"v": "v + 1"}, "id = 3") == 1
    assert values(table) == [31]
    assert (
        0
        < sum(size for _, size in few_calls._parts._values.values())
        == few_calls._parts._bytes
        <= most
    )


def test_reads_of_other_columns_use_the_same_frame(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(few_calls, "_parts", Recent(few_calls.MAX_ENTRIES, few_calls.MAX_BYTES))
    table = filled(warehouse, 10)
    table.delete("id = 1")
    assert values(table) == [10]
    before = list(few_calls._parts._values)
    for columns, row in ((["v", "ID"], (10, 2)), (["id"], (2,)), (["v"], (10,)), ([], ())):
        frame = table.read(columns=columns)
        assert [tuple(found) for found in frame.collect()] == [row]
        assert frame.columns == [name.lower() for name in columns]
        leaf = frame._jdf.queryExecution().sparkPlan().collectLeaves().apply(0)
        assert {*leaf.requiredSchema().fieldNames()} == {*frame.columns}
    assert list(few_calls._parts._values) == before
    assert table.read(columns=["v"], row_id=True).columns == ["v", "row__id"]
    names = [f"c{number}" for number in range(70)]
    wide = warehouse.create_table("db.wide", ", ".join(f"{name} int" for name in names))
    wide.insert([{name: number for number, name in enumerate(names)}])
    assert [tuple(row) for row in wide.read(columns=["c7", "c1"]).collect()] == [(7, 1)]


def test_a_table_made_anew_has_its_own_rows(warehouse: Warehouse) -> None:
    table = filled(warehouse, 10)
    assert values(table) == [10, 10]
    warehouse.drop_table("db.t")
    assert values(filled(warehouse, 11)) == [11, 11]


def test_a_file_of_another_size_is_another_file(warehouse: Warehouse, tmp_path: Path) -> None:
    """A restored backup puts files under names that had been taken by others; a table that knows
    the name with another size refuses the file (P26)."""
    files = AcidTable(tmp_path / "t", "id int, v int")
    files.inserts("d1", [(1, P, number, number, 10) for number in range(2)])
    old, size = files.file("d1"), files.file("d1").stat().st_size
    snapshot = f"db.t:1:{NONE_OPEN}::"
    table = warehouse.adopt_table("db.t", files.root, snapshot=snapshot)
    assert values(table) == [10, 10]
    files.inserts("d1", [(1, P, number, number, 7) for number in range(1000)])
    assert old.stat().st_size != size
    wrong = rf"db\.t: {old} has .* write id 1 committed it with {size}"
    with pytest.raises(CorruptFile, match=wrong):
        values(table)
    content = old.read_bytes()
    warehouse.drop_table("db.t")
    warehouse.release()
    cleaner.run(warehouse.metastore)
    assert not old.exists()
    old.parent.mkdir(parents=True)
    old.write_bytes(content)
    table = warehouse.adopt_table("db.t", files.root, snapshot=snapshot)
    assert values(table) == [7] * 1000


def test_two_reads_can_be_joined(warehouse: Warehouse) -> None:
    table = filled(warehouse, 10)
    left, right = table.read(), table.read()
    joined = left.join(right, left["id"] == right["id"] + 1).select(left["id"], right["v"])
    assert [tuple(row) for row in joined.collect()] == [(2, 10)]


def test_a_predicate_with_a_function_is_evaluated_anew(warehouse: Warehouse) -> None:
    table = filled(warehouse, 10)
    seeds = {str(table.read(where="rand() < 2")._jdf.queryExecution().analyzed()) for _ in "ab"}
    assert len({plan.partition("rand(")[2].partition(")")[0] for plan in seeds}) == 2


def test_a_setting_that_changes_comparisons_makes_another_frame(
    warehouse: Warehouse, spark: SparkSession
) -> None:
    table = warehouse.create_table("db.t", "s string")
    table.insert([{"s": "x"}, {"s": "1"}])
    assert warehouse.spark is spark, "a session that has another value from the start is refused"
    ansi = spark.conf.get("spark.sql.ansi.enabled")
    try:
        spark.conf.set("spark.sql.ansi.enabled", "false")
        assert [row.s for row in table.read(where="s = 1").collect()] == ["1"]
        spark.conf.set("spark.sql.ansi.enabled", "true")
        with pytest.raises(Exception, match="CAST_INVALID_INPUT"):
            table.read(where="s = 1").collect()
    finally:
        spark.conf.set("spark.sql.ansi.enabled", str(ansi))


def test_files_with_and_without_deletes_are_one_scan(warehouse: Warehouse) -> None:
    """A union would make Spark write and read every row once more."""
    table = filled(warehouse, 10)
    table.insert(warehouse.spark.createDataFrame([(3, 30), (4, 40)], "id int, v int"))
    table.delete("id = 4")
    table.insert(warehouse.spark.createDataFrame([(5, 50)], "id int, v int"))
    frame = table.read(where="v > 10")
    assert sorted(row.id for row in frame.collect()) == [3, 5]
    plan = frame._jdf.queryExecution().optimizedPlan().toString()  # type: ignore[operator]
    assert "Union" not in plan and plan.count("Relation [") == 1
