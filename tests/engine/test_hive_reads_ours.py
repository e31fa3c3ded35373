"""P23: Hive's own reader returns our rows, before and after compactions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from acid_platform import Table, Warehouse
from acid_platform.values.rows import Rows
from tests.conftest import COMPACTORS, MOSTLY_LOCAL, temporary_warehouse
from tests.hive import hive_rows, link_farm

pytestmark = pytest.mark.spark


@pytest.fixture(params=["spark", "local"])
def warehouse(
    tmp_path: Path, spark: SparkSession, request: pytest.FixtureRequest
) -> Iterator[Warehouse]:
    with temporary_warehouse(tmp_path / "wh", spark, request.param) as opened:
        yield opened


def _for_engine(warehouse: Warehouse, frame: DataFrame) -> Rows:
    """The rows of a frame, in this process for the local engine."""
    return frame.toArrow() if warehouse.engines.preference == "local" else frame


def _as_hive_prints(value: object) -> str:
    if value is None:
        return "null"
    return format(value.normalize(), "f") if isinstance(value, Decimal) else str(value)


def _agree(spark: SparkSession, table: Table, scratch: Path) -> int:
    """Hive and we see the same rows of each partition at the table's present snapshot."""
    seen = table.snapshot()
    columns = list(table.record.columns)
    total = 0
    for partition, directory in seen.directories.items():
        farm = link_farm(directory, scratch / (partition or "t"))
        hive = hive_rows(spark, farm, columns, seen.write_ids) if farm.is_dir() else []
        where = None if not partition else partition.replace("=", " = ")
        ours = sorted(
            "{" + ", ".join(map(_as_hive_prints, row)) + "}"
            for row in table.read(columns=[name for name, _ in columns], where=where).collect()
        )
        assert hive == ours, f"{table.name} {partition}"
        total += len(ours)
    return total


@pytest.mark.slow
@COMPACTORS
def test_P23_hive_reads_every_state_of_a_partitioned_table(
    warehouse: Warehouse, spark: SparkSession, tmp_path: Path, compactor: str
) -> None:
    table = warehouse.create_table(
        "db.t",
        "id bigint, name string, price decimal(7,2), at timestamp, day date",
        partitioned_by=["month int"],
    )
    source = spark.range(0, 900, 1, 3).selectExpr(
        "id",
        "if(id % 7 = 0, null, concat('n', id)) AS name",
        "cast(id / 7 AS decimal(7,2)) price",
        "timestamp_seconds(1700000000 + id * 3601) AS at",
        "date_add(DATE '2013-01-01', int(id)) day",
        "int(id % 3) AS month",
    )
    table.insert(_for_engine(warehouse, source))
    assert _agree(spark, table, tmp_path / "1") == 900
    table.update({"name": "upper(name)", "price": "price + 1"}, "id % 10 = 3")
    table.delete("id % 9 = 0 and month < 2")
    with warehouse.transaction() as txn:
        one = txn.table("db.t")
        one.delete("id between 100 and 110")
        one.insert(_for_engine(warehouse, source.filter("id between 100 and 105")))
    left = _agree(spark, table, tmp_path / "2")
    with warehouse.engines.using(compactor):
        table.compact("minor", partition="month=0")
        table.compact("major", partition="month=1")
    assert _agree(spark, table, tmp_path / "3") == left
    table.update({"name": "'after'"}, "id % 100 = 1")
    assert _agree(spark, table, tmp_path / "4") == left


@MOSTLY_LOCAL
def test_P4_hive_does_not_see_what_was_aborted(
    warehouse: Warehouse, spark: SparkSession, tmp_path: Path, compactor: str
) -> None:
    table = warehouse.create_table("db.t", "id int, v string")
    table.insert([{"id": i, "v": "kept"} for i in range(5)])
    with pytest.raises(ZeroDivisionError), warehouse.transaction() as txn:
        txn.table("db.t").insert([{"id": 99, "v": "aborted"}])
        txn.table("db.t").delete("id = 1")
        raise ZeroDivisionError
    table.delete("id = 3")
    assert _agree(spark, table, tmp_path / "1") == 4
    with warehouse.engines.using(compactor):
        table.compact("major")
    assert _agree(spark, table, tmp_path / "2") == 4


def test_P38_hive_reads_the_changes_of_two_writers_of_one_partition(
    warehouse: Warehouse, spark: SparkSession, tmp_path: Path
) -> None:
    table = warehouse.create_table("db.t", "id int, v string")
    table.insert([{"id": number, "v": "new"} for number in range(6)])
    with warehouse.transaction() as one, warehouse.transaction() as other:
        one.table("db.t").update({"v": "'one'"}, "id in (0, 3)")
        other.table("db.t").update({"v": "'other'"}, "id = 1")
        other.table("db.t").delete("id = 4")
    assert _agree(spark, table, tmp_path / "1") == 5


@MOSTLY_LOCAL
def test_P32_hive_reads_emptied_entities_and_finds_files_by_their_names(
    warehouse: Warehouse, spark: SparkSession, tmp_path: Path, compactor: str
) -> None:
    table = warehouse.create_table("db.t", "id int, v string", partitioned_by=["m int"])
    rows = [{"id": i, "v": f"v{i}", "m": i % 2} for i in range(6)]
    table.insert(rows)
    table.truncate("m=0")
    nothing = spark.createDataFrame([], "id int, v string, m int")
    table.overwrite(_for_engine(warehouse, nothing), "m=1")
    assert _agree(spark, table, tmp_path / "1") == 0
    reports = [committed for committed in table.history() if committed["operation"] == "update"]
    assert [(report["rows"], report["files"]) for report in reports] == [(0, 1), (0, 1)]
    table.insert(rows)
    table.update({"v": "upper(v)"}, "id < 4")
    table.delete("id = 5")
    assert _agree(spark, table, tmp_path / "2") == 5
    with warehouse.engines.using(compactor):
        table.compact("minor", partition="m=0")
        table.compact("major", partition="m=1")
    assert _agree(spark, table, tmp_path / "3") == 5
    found = {path.parent.name.split("_0")[0] for path in Path(table.location).rglob("bucket*")}
    assert found == {"base", "delta", "delete_delta"}
    # Trino ignores `bucket_N_0` in a delete delta.
    assert all(
        re.fullmatch(r"bucket_\d{5}|_orc_acid_version|_tmp_\w+", path.name)
        for path in Path(table.location).rglob("*")
        if path.is_file()
    )
