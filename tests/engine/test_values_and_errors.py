"""What a statement stores is what it was given, or it fails by an error of the platform."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from acid_platform import Table, Warehouse, WrongType
from acid_platform.services import cleaner
from tests.conftest import temporary_warehouse

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module", params=["spark", "auto"])
def warehouse(
    tmp_path_factory: pytest.TempPathFactory, spark: SparkSession, request: pytest.FixtureRequest
) -> Iterator[Warehouse]:
    with temporary_warehouse(tmp_path_factory.mktemp("values"), spark, request.param) as opened:
        yield opened


@pytest.fixture(scope="module")
def table(warehouse: Warehouse) -> Table:
    made = warehouse.create_table("db.t", "id int, v string")
    made.insert([{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
    return made


LOST = datetime.datetime(1969, 12, 31, 23, 59, 59, 500_000)


@pytest.mark.parametrize(
    "write",
    [
        lambda table: table.insert([{"id": 9, "t": LOST}]),
        lambda table: table.insert([{"id": 9, "n": [{"t": LOST}]}]),
        lambda table: table.update({"t": "timestamp'1969-12-31 23:59:59.001'"}),
        lambda table: table.merge(
            [{"id": 9, "t": LOST}], "t.id = s.id", when_not_matched_insert="*"
        ),
    ],
    ids=["insert", "nested", "update", "merge"],
)
def test_a_timestamp_that_orc_can_not_hold_is_refused(
    warehouse: Warehouse, write: Callable[[Table], object]
) -> None:
    """Every writer of ORC would store the last second before 1970 as the first one after."""
    name = "db.moments"
    if name not in warehouse.tables():
        made = warehouse.create_table(name, "id int, t timestamp, n array<struct<t:timestamp>>")
        made.insert([{"id": i, "t": moment, "n": [{"t": moment}, None]} for i, moment in KEPT])
    table = warehouse.table(name)
    with pytest.raises(WrongType, match=r"1969-12-31 23:59:59\.\d+, which ORC files can't store"):
        write(table)
    for found in (table.to_arrow(), table.read().toArrow()):
        rows = sorted(found.to_pylist(), key=lambda row: row["id"])
        assert [(row["id"], row["t"].replace(tzinfo=None)) for row in rows] == KEPT


KEPT = list(
    enumerate(
        datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=one)
        for one in (-1_500_000, -1_000_001, -1_000_000, -999_001, 0, 500_000)
    )
)


def test_the_moments_around_1970_survive_a_compaction(warehouse: Warehouse) -> None:
    table = warehouse.create_table("db.around", "id int, t timestamp")
    table.insert([{"id": i, "t": moment} for i, moment in KEPT])
    table.delete("id = 99")
    table.insert([{"id": 99}])
    table.compact("major")
    table.delete("id = 99")
    for found in (table.to_arrow(), table.read().toArrow()):
        rows = sorted(found.to_pylist(), key=lambda row: row["id"])
        assert [(row["id"], row["t"].replace(tzinfo=None)) for row in rows] == KEPT


def test_an_overwrite_replaces_the_partition_however_its_value_is_written(
    warehouse: Warehouse,
) -> None:
    table = warehouse.create_table("db.p", "id int", partitioned_by=["p decimal(10,2)"])
    table.insert([{"id": 1, "p": Decimal("1.5")}])
    for number, partition in enumerate(["p=1.5", {"p": "1.500"}, {"p": Decimal("1.5")}]):
        assert table.overwrite([{"id": number}], partition) == 1
        assert table.to_arrow().to_pylist() == [{"id": number, "p": Decimal("1.50")}]
    warehouse.sql("INSERT OVERWRITE TABLE db.p PARTITION (p = 1.5) SELECT 7")
    assert table.to_arrow()["id"].to_pylist() == [7]
    assert table.partitions() == ["p=1.50"]
    warehouse.sql("TRUNCATE TABLE db.p PARTITION (p = 1.5)")
    assert table.count() == 0


def test_rows_that_name_no_column_are_rows_of_NULLs(warehouse: Warehouse) -> None:
    table = warehouse.create_table("db.nulls", "id int, v string")
    assert table.insert([]) == 0
    assert table.insert([{}]) == 1
    assert table.insert([{}, {"id": 1}]) == 2
    assert table.to_arrow().equals(
        pa.table({"id": pa.array([None, None, 1], pa.int32()), "v": pa.nulls(3, pa.string())})
    )


def test_P19_what_a_killed_statement_staged_is_gone_after_the_next_cleaning(
    warehouse: Warehouse,
) -> None:
    """No compaction and no abort asks for a cleaning of the table."""
    table = warehouse.create_table("db.staged", "id int")
    txn = warehouse.transaction()
    mine = Path(table.location) / f"_tmp_{txn.id:07d}_00000000"
    unknown = Path(table.location) / "_tmp_9999999_00000000"
    for staging in (mine, unknown):
        staging.mkdir(parents=True)
        (staging / "part-0").write_bytes(b"ORC")

    def staged() -> list[str]:
        return [
            Path(one.path).name for one in cleaner.explain(warehouse.metastore) if one.rule == "P19"
        ]

    assert staged() == [unknown.name]
    cleaner.run(warehouse.metastore)
    assert mine.exists() and not unknown.exists()
    txn.abort("killed")
    assert staged() == [mine.name]
    (done,) = [one for one in cleaner.run(warehouse.metastore) if one.table == "db.staged"]
    assert "aborted" in done.removed[0]
    assert not mine.exists()
