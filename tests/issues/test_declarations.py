"""Issue 15: what others declare changes nothing for an older snapshot or an open transaction (P28).

Found by scripts that printed 1 row instead of 2 after somebody's DROP PARTITION, and lost 40 of 60
columns that four clients had added at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from acid_platform.errors import DeclarationChanged, NoSuchTable, UnknownColumn
from tests.conftest import temporary_warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from acid_platform.snapshots import SnapshotTable
    from acid_platform.transaction import TransactionTable
    from acid_platform.warehouse import Warehouse


@pytest.fixture(autouse=True)
def both_readers() -> None:
    """These tests read with one reader each."""


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Warehouse]:
    with temporary_warehouse(tmp_path) as opened:
        yield opened


def test_P28_concurrent_add_columns_all_arrive(warehouse: Warehouse) -> None:
    """repro_06: each read the columns, added its own and wrote all of them back."""
    from acid_platform.warehouse import Warehouse

    warehouse.create_table("db.t", "id int")
    with ExitStack() as closing, ThreadPoolExecutor(4) as pool:
        handles = [closing.enter_context(Warehouse.open(warehouse.path)) for _ in range(4)]

        def add(number: int) -> None:
            for one in range(15):
                handles[number].table("db.t").add_columns(f"c{number}_{one} int")

        list(pool.map(add, range(4)))
    names = [column.name for column in warehouse.table("db.t").columns]
    assert sorted(names) == sorted(["id", *(f"c{a}_{b}" for a in range(4) for b in range(15))])


def test_P28_the_same_column_is_added_once(warehouse: Warehouse) -> None:
    table = warehouse.create_table("db.t", "id int")

    def add(kind: str) -> str | None:
        try:
            warehouse.table("db.t").add_columns(f"note {kind}")
        except UnknownColumn as error:
            return str(error)
        return None

    with ThreadPoolExecutor(4) as pool:
        told = list(pool.map(add, ("int", "string", "int", "string")))
    assert told.count(None) == 1 and len(table.columns) == 2
    assert all("has a column 'note'" in one for one in told if one)


def test_P28_a_change_of_a_column_keeps_what_others_add(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ADD COLUMNS takes no lock, so that it may come between the reading and the change."""
    table = warehouse.create_table("db.t", "id int")
    alter, others = warehouse.metastore.alter_table, ["late int"]

    def after_another(name: str, **change: object) -> object:
        if others:
            warehouse.table(name).add_columns(others.pop())
        return alter(name, **change)  # type: ignore[arg-type]

    monkeypatch.setattr(warehouse.metastore, "alter_table", after_another)
    table.change_column("id", "id bigint")
    assert [str(one) for one in table.columns] == ["id bigint", "late int"]


def rows(table: SnapshotTable | TransactionTable) -> int:
    return int(table.to_arrow().num_rows)


@pytest.mark.spark
def test_P28_what_others_drop_and_make_anew_changes_no_snapshot(
    spark: SparkSession, tmp_path: Path
) -> None:
    """repro_01, with RENAME, ADD COLUMNS, SQL and writes."""
    with temporary_warehouse(tmp_path, spark) as warehouse, \
            temporary_warehouse(tmp_path, spark) as other:
        warehouse.create_table("db.t", "id int", partitioned_by=["p int"]).insert(
            [{"id": 1, "p": 1}, {"id": 2, "p": 2}])
        for name in ("db.u", "db.r"):
            warehouse.create_table(name, "id int").insert([{"id": 1}])
        frame = warehouse.table("db.t").read()
        session = warehouse.session
        session.run("START TRANSACTION")
        with warehouse.snapshot() as seen, warehouse.transaction() as txn:
            assert rows(txn.table("db.t")) == 2 and rows(txn.table("db.u")) == 1
            other.table("db.t").drop_partition("p=1")
            other.drop_table("db.u")
            other.create_table("db.u", "other string")
            other.table("db.r").rename("db.s")
            other.table("db.s").add_columns("note string")
            for view in (seen, txn):
                assert rows(view.table("db.t")) == 2
                assert view.table("db.u").to_arrow().to_pylist() == [{"id": 1}]
                assert view.table("db.r").to_arrow().to_pylist() == [{"id": 1}]
            with pytest.raises(NoSuchTable, match=r"no table db\.s when"):
                seen.table("db.s")
            answer = session.run("SELECT count(*), max(u.id) FROM db.t, db.u JOIN db.r ON true")
            assert [tuple(row) for row in answer.collect()] == [(2, 1)]
            with pytest.raises(DeclarationChanged, match="dropped and made again"):
                txn.table("db.u").insert([{"id": 2}])
            with pytest.raises(DeclarationChanged, match=r"renamed to db\.s"):
                txn.table("db.r").insert([{"id": 2}])
        session.run("ROLLBACK")
        assert frame.count() == 2 and warehouse.table("db.t").count() == 1
        assert warehouse.table("db.u").count() == 0
        assert warehouse.table("db.s").to_arrow().to_pylist() == [{"id": 1, "note": None}]


@pytest.mark.spark
def test_P28_backfills_add_columns_side_by_side(spark: SparkSession, tmp_path: Path) -> None:
    """Columns and the rows that have them come with one commit; none of them gets lost."""
    with temporary_warehouse(tmp_path, spark) as warehouse:
        table = warehouse.create_table("db.t", "id int")
        with warehouse.transaction() as one, warehouse.transaction() as two:
            for txn, column in ((one, "a"), (two, "b")):
                wide = txn.table("db.t")
                wide.add_columns(f"{column} int, both int")
                wide.insert([{"id": 1, column: 2, "both": 3}])
            assert [column.name for column in table.columns] == ["id"]
        assert [column.name for column in table.columns] == ["id", "b", "both", "a"]
        found = table.to_arrow(["a", "b", "both"]).to_pylist()
        assert sorted(found, key=str) == [
            {"a": 2, "b": None, "both": 3}, {"a": None, "b": 2, "both": 3}]
