"""SELECT over snapshots, listings, and the errors that people meet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from acid_platform import (
    Warehouse,
)
from acid_platform.engine.interface import Result
from acid_platform.metastore.operations import listings
from acid_platform.services import cleaner
from tests.conftest import temporary_warehouse

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Warehouse]:
    with temporary_warehouse(tmp_path_factory.mktemp("sql") / "wh", spark) as opened:
        months = opened.create_table(
            "db.t", "id int, v string, tags array<string>", partitioned_by=["month int"]
        )
        months.insert(
            [
                {"id": 1, "v": "{a}", "tags": ["x", "y"], "month": 1},
                {"id": 2, "v": "b", "tags": [], "month": 2},
                {"id": 3, "v": "c", "tags": None, "month": 3},
            ]
        )
        opened.create_table("u", "id int, w string").insert(
            [{"id": 1, "w": "one"}, {"id": 3, "w": "three"}]
        )
        yield opened


def rows(warehouse: Warehouse, text: str) -> list[tuple[object, ...]]:
    answer = warehouse.sql(text)
    assert isinstance(answer, Result)
    return sorted((tuple(row) for row in answer.collect()), key=str)


def test_a_where_on_one_table_prunes_partitions(warehouse: Warehouse) -> None:
    frame = warehouse.sql("SELECT v FROM db.t WHERE t.month = 2", engine="spark")
    assert isinstance(frame, Result)
    assert {Path(one).parent.parent.name for one in frame.to_spark().inputFiles()} == {"month=2"}


def test_P18_a_query_keeps_one_snapshot_of_all_its_tables(warehouse: Warehouse) -> None:
    a, b = (warehouse.create_table(name, "id int") for name in ("a", "b"))
    a.insert([{"id": 1}])
    b.insert([{"id": 1}])
    text = "SELECT a.id FROM a JOIN b ON a.id = b.id"
    old = warehouse.sql(text)
    assert isinstance(old, Result)
    with warehouse.transaction() as txn:
        txn.table("a").update({"id": "2"})
        txn.table("b").update({"id": "2"})
    a.compact("major")
    cleaner.run(warehouse.metastore)
    assert old.collect() == [(1,)]
    assert rows(warehouse, text) == [(2,)]
    assert old.collect() == [(1,)]


def test_P18_nothing_is_left_in_the_session(warehouse: Warehouse) -> None:
    warehouse.sql("SELECT * FROM u")
    assert warehouse.spark.catalog.listTables() == []


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("SHOW TRANSACTIONS", listings.TRANSACTIONS),
        ("SHOW LOCKS", listings.LOCKS),
        ("SHOW COMPACTIONS", listings.COMPACTIONS),
    ],
)
def test_C61_shows_have_their_columns_also_when_empty(
    warehouse: Warehouse, text: str, columns: tuple[str, ...]
) -> None:
    assert tuple(warehouse.sql(text).columns) == columns


def test_C61_the_columns_are_those_of_the_metastores_rows(warehouse: Warehouse) -> None:
    warehouse.table("u").compact("major", wait=False)
    with warehouse.metastore.begin() as txn:
        txn.lock("u", "SHARED_WRITE")
        metastore = warehouse.metastore
        assert tuple(metastore.transactions()[0]) == listings.TRANSACTIONS
        assert tuple(metastore.locks()[0]) == listings.LOCKS
        assert tuple(metastore.compactions()[0]) == listings.COMPACTIONS
