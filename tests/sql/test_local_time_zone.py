"""`timestamp with local time zone` in statements: an instant, under Hive's and Spark's names."""

from __future__ import annotations

import datetime

import pytest

from acid_platform import Warehouse
from acid_platform.layout.types import LOCAL_ZONE

NOON = datetime.datetime(2020, 7, 1, 12, tzinfo=datetime.UTC)


@pytest.fixture(scope="module")
def warehouse(warehouse: Warehouse) -> Warehouse:
    warehouse.sql("CREATE DATABASE db")
    return warehouse


def types(warehouse: Warehouse, table: str) -> dict[str, str]:
    described = warehouse.sql(f"DESCRIBE {table}").to_dict("records")
    return {one["col_name"]: one["data_type"] for one in described}


def test_create_table_as_keeps_it(warehouse: Warehouse) -> None:
    warehouse.create_table("db.src", f"id int, z {LOCAL_ZONE}, t timestamp").insert(
        [{"id": 1, "z": NOON, "t": NOON.replace(tzinfo=None)}]
    )
    warehouse.sql("CREATE TABLE db.made AS SELECT z AS a, t, max(z) AS m FROM db.src GROUP BY z, t")
    assert types(warehouse, "db.made") == {"a": LOCAL_ZONE, "t": "timestamp", "m": "timestamp"}
    assert warehouse.table("db.made").to_arrow()["a"].to_pylist() == [NOON]
