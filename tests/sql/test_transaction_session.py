"""SQL inside of a transaction that Python began and ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from acid_platform import (
    NoSuchTable,
    UnknownColumn,
    UnsupportedStatement,
    Warehouse,
)
from tests.conftest import temporary_warehouse


@pytest.fixture(params=["local", pytest.param("spark", marks=pytest.mark.spark)])
def warehouse(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Warehouse]:
    spark = request.getfixturevalue("spark") if request.param == "spark" else None
    with temporary_warehouse(tmp_path, spark, request.param) as opened:
        opened.create_table("shop.orders", "id int, v string").insert([{"id": 1, "v": "a"}])
        yield opened


def values(warehouse: Warehouse) -> list[tuple[object, ...]]:
    rows = warehouse.table("shop.orders").to_arrow().to_pylist()
    return sorted(tuple(row.values()) for row in rows)


def test_statements_see_the_transaction_and_commit_with_it(warehouse: Warehouse) -> None:
    with warehouse.transaction() as txn:
        assert txn.sql("INSERT INTO shop.orders VALUES (2, 'b')").rows == 1  # type: ignore[union-attr]
        txn.table("shop.orders").insert([{"id": 3, "v": "c"}])
        txn.sql("USE shop")
        assert txn.sql("SELECT count(*) AS n FROM orders").collect() == [(3,)]  # type: ignore[union-attr]
        txn.sql("UPDATE orders SET v = upper(v) WHERE id < 3; DELETE FROM orders WHERE id = 3")
        assert values(warehouse) == [(1, "a")]  # others see nothing yet
        assert txn.row_counts("shop.orders") == {"inserted": 2, "updated": 2, "deleted": 1}
    assert values(warehouse) == [(1, "A"), (2, "B")]
    with pytest.raises(NoSuchTable, match=r"default\.orders"):
        warehouse.sql("SELECT * FROM orders")  # USE stayed in the transaction


def test_an_error_rolls_everything_back_if_the_block_does_not_catch_it(
    warehouse: Warehouse,
) -> None:
    with pytest.raises(UnknownColumn), warehouse.transaction() as txn:
        txn.sql("INSERT INTO shop.orders VALUES (2, 'b')")
        txn.sql("UPDATE shop.orders SET nosuch = 1")
    assert values(warehouse) == [(1, "a")]
    with warehouse.transaction() as txn:
        txn.sql("INSERT INTO shop.orders VALUES (2, 'b')")
        with pytest.raises(UnknownColumn, match="no column 'nosuch'"):
            txn.sql("DELETE FROM shop.orders WHERE nosuch = 1")
    assert values(warehouse) == [(1, "a"), (2, "b")]


@pytest.mark.more
@pytest.mark.parametrize("statement", ["COMMIT", "ROLLBACK", "START TRANSACTION", "BEGIN"])
def test_the_transaction_is_not_ended_by_sql(warehouse: Warehouse, statement: str) -> None:
    with warehouse.transaction() as txn:
        txn.sql("INSERT INTO shop.orders VALUES (2, 'b')")
        for txn.lent in (False, True):
            with pytest.raises(UnsupportedStatement, match="the block that began the transaction"):
                txn.sql(statement)
        with pytest.raises(UnsupportedStatement, match="can't be part of a transaction"):
            txn.sql("CREATE TABLE shop.other (id int)")
    assert values(warehouse) == [(1, "a"), (2, "b")]


@pytest.mark.parametrize(
    "statement", ["COMPACT 'major'", "COMPACT 'minor' AND WAIT", "CONCATENATE"]
)
def test_no_compaction_outlives_a_transaction_that_is_rolled_back(
    warehouse: Warehouse, statement: str
) -> None:
    refused = r"ALTER TABLE \w+ can't be part of a transaction; COMMIT first"
    with pytest.raises(UnsupportedStatement, match=refused), warehouse.transaction() as txn:
        txn.sql("INSERT INTO shop.orders VALUES (2, 'b')")
        txn.sql(f"ALTER TABLE shop.orders {statement}")
    assert values(warehouse) == [(1, "a")]
    assert not warehouse.sql("SHOW COMPACTIONS").to_arrow().num_rows
