"""Verbs of a transaction that an asset's materialization relies on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from acid_platform import TxnAborted, Warehouse, WrongType
from acid_platform.metastore.operations.transactions import AbortMany
from tests.conftest import temporary_warehouse

pytestmark = pytest.mark.spark

ROWS = [{"id": 1, "p": 1}, {"id": 2, "p": 2}]


@pytest.fixture(params=["spark", "local"])
def warehouse(
    tmp_path: Path, spark: SparkSession, request: pytest.FixtureRequest
) -> Iterator[Warehouse]:
    with temporary_warehouse(tmp_path / "wh", spark, request.param) as opened:
        opened.create_table("db.t", "id int", partitioned_by=["p int"]).insert(ROWS)
        yield opened


def rows(warehouse: Warehouse) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in warehouse.table("db.t").to_arrow().to_pylist())


def test_overwrites_of_two_partitions_do_not_wait_for_each_other(warehouse: Warehouse) -> None:
    with warehouse.transaction() as one, warehouse.transaction() as other:
        one.table("db.t").overwrite([{"id": 10}], partition="p=1")
        other.table("db.t").overwrite([{"id": 20}, {"id": 21}], partition="p=3")  # a new one
        held = {row["partition"] for row in warehouse.metastore.locks()}
        assert held == {"p=1", "p=3"}
        assert (one.row_counts("db.t"), other.row_counts("db.t")) == (
            {"overwritten": 1},
            {"overwritten": 2},
        )
    assert rows(warehouse) == [(2, 2), (10, 1), (20, 3), (21, 3)]


def test_a_row_that_contradicts_its_partition_is_refused(warehouse: Warehouse) -> None:
    with pytest.raises(WrongType, match=r"a row for db\.t has p=2, the partition has 1"):
        warehouse.table("db.t").overwrite(ROWS, partition="p=1")
    with pytest.raises(WrongType, match="has p=NULL, the partition has 1"):
        warehouse.table("db.t").overwrite([{"id": 1, "p": None}], partition={"p": 1})
    assert rows(warehouse) == [(1, 1), (2, 2)]


def test_columns_added_in_a_transaction_are_seen_at_its_commit(warehouse: Warehouse) -> None:
    def columns() -> list[str]:
        return [column.name for column in warehouse.table("db.t").columns]

    with warehouse.transaction() as txn:
        table = txn.table("db.t")
        table.add_columns("note string")
        table.insert([{"id": 3, "p": 1, "note": "new"}])
        assert sorted(txn.table("db.t").to_arrow(["note"])["note"].to_pylist(), key=str) == [
            None,
            None,
            "new",
        ]
        assert columns() == ["id"]
    assert columns() == ["id", "note"]
    with pytest.raises(RuntimeError), warehouse.transaction() as txn:
        txn.table("db.t").add_columns("gone int")
        raise RuntimeError
    assert columns() == ["id", "note"]


def test_a_block_whose_transaction_was_aborted_ends_without_a_commit(warehouse: Warehouse) -> None:
    with warehouse.transaction() as txn:
        txn.table("db.t").delete()
        assert txn.table("db.t").to_arrow().num_rows == 0
        txn.abort("only tried")
    assert rows(warehouse) == [(1, 1), (2, 2)]
    with pytest.raises(TxnAborted, match="only tried"), warehouse.transaction() as txn:
        txn.abort("only tried")
        txn.table("db.t").delete()
    with pytest.raises(TxnAborted, match="ended by another"), warehouse.transaction() as txn:
        warehouse.metastore.call(AbortMany((txn.id,), "ended by another"))
    assert rows(warehouse) == [(1, 1), (2, 2)]
