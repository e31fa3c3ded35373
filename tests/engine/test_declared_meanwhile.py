"""What others declare changes nothing for an older snapshot or an open transaction (P28).

Readers once saw 1 row instead of 2 after somebody's DROP PARTITION, and 40 of 60 columns were lost
that four clients had added at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from acid_platform import (
    DeclarationChanged,
    NoSuchTable,
    SnapshotExpired,
    UnknownColumn,
)
from acid_platform.metastore.operations.tables import DeclareView
from acid_platform.metastore.records import ViewRecord
from acid_platform.services import cleaner
from acid_platform.transactions import RowOperation
from acid_platform.transactions.concurrency import Statement
from acid_platform.write.publishing import WrittenDirectory
from tests.acid_files import AcidTable, P, contents_of, full
from tests.conftest import temporary_warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from acid_platform import Table, Warehouse
    from acid_platform.handles.read_verbs import SnapshotTable
    from acid_platform.handles.transaction import TransactionTable


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Warehouse]:
    with temporary_warehouse(tmp_path) as opened:
        yield opened


@pytest.mark.parametrize("meanwhile", [True, False])
def test_a_table_that_a_query_could_not_fill_goes_unless_others_have_written_it(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, meanwhile: bool
) -> None:
    """It is declared empty first; what others had committed by then was lost with it."""
    from acid_platform import Table

    insert = Table.insert

    def insert_and_fail(table: Table, rows: object) -> None:
        if meanwhile:
            insert(table, [{"id": 7}])
        raise UnknownColumn("no such column")

    monkeypatch.setattr(Table, "insert", insert_and_fail)
    with pytest.raises(UnknownColumn):
        warehouse.sql("CREATE TABLE made AS SELECT 1 AS id")
    assert warehouse.tables() == ["default.made"] * meanwhile
    if meanwhile:
        assert warehouse.table("made").to_arrow().to_pylist() == [{"id": 7}]


def test_P28_concurrent_add_columns_all_arrive(warehouse: Warehouse) -> None:
    """Each client read the columns, added its own and wrote all of them back."""
    from acid_platform import Warehouse

    warehouse.create_table("db.t", "id int")
    with ExitStack() as closing, ThreadPoolExecutor(4) as pool:
        handles = [closing.enter_context(Warehouse.open(warehouse.path)) for _ in range(4)]

        def add(number: int) -> None:
            for day in range(15):
                handles[number].table("db.t").add_columns(f"c{number}_{day} int")

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
    assert all("has a column 'note'" in message for message in told if message)


def test_P28_a_change_of_a_column_keeps_what_others_add(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ADD COLUMNS takes no lock, so it may happen between the read and the change."""
    table = warehouse.create_table("db.t", "id int")
    alter, others = warehouse.metastore.alter_table, ["late int"]

    def after_another(name: str, **change: object) -> object:
        if others:
            warehouse.table(name).add_columns(others.pop())
        return alter(name, **change)  # type: ignore[arg-type]

    monkeypatch.setattr(warehouse.metastore, "alter_table", after_another)
    table.change_column("id", "id bigint")
    assert [str(column) for column in table.columns] == ["id bigint", "late int"]


def put(warehouse: Warehouse, table: str, *ids: int, partition: str = "") -> None:
    """Commits an insert without Spark."""
    with warehouse.transaction() as txn:
        record = txn.table(table).record
        txn.lock(record, Statement.INSERT)
        write_id = txn.write_ids[table]
        AcidTable(Path(record.location, partition), "id int").inserts(
            f"d{write_id}.0", [(write_id, P, number, value) for number, value in enumerate(ids)]
        )
        directory = full(f"d{write_id}.0").partition("/")[0]
        txn.report(
            record,
            RowOperation.INSERT,
            [
                WrittenDirectory(
                    partition,
                    directory,
                    False,
                    contents_of(Path(record.location, partition, directory)),
                )
            ],
        )


def ids(table: SnapshotTable | TransactionTable | Table) -> list[int]:
    return sorted(table.to_arrow()["id"].to_pylist())


@pytest.fixture
def filled(warehouse: Warehouse) -> Warehouse:
    warehouse.create_table("db.t", "id int", partitioned_by=["p int"])
    for write_id in (1, 2):
        put(warehouse, "db.t", write_id, partition=f"p={write_id}")
    for name in ("db.u", "db.r"):
        warehouse.create_table(name, "id int")
        put(warehouse, name, 7)
    return warehouse


def change_everything(warehouse: Warehouse) -> None:
    """Changes all declarations, as another client."""
    from acid_platform import Warehouse

    with Warehouse.open(warehouse.path) as other:
        other.table("db.t").drop_partition("p=1")
        other.drop_table("db.u")
        other.create_table("db.u", "other string")
        other.table("db.r").rename("db.s")
        other.table("db.s").add_columns("note string")


def test_P28_tables_that_others_drop_and_recreate_change_no_snapshot(filled: Warehouse) -> None:
    """RENAME and ADD COLUMNS, and a transaction that asks for a table later."""
    with filled.snapshot() as seen, filled.transaction() as txn:
        change_everything(filled)
        for view in (seen, txn):
            assert ids(view.table("db.t")) == [1, 2]
            assert view.table("db.u").to_arrow().to_pylist() == [{"id": 7}]
            assert view.table("db.r").to_arrow().to_pylist() == [{"id": 7}]
        with pytest.raises(NoSuchTable, match="was no table"):
            seen.table("db.s")
    assert ids(filled.table("db.t")) == [2]
    assert filled.table("db.u").to_arrow().num_rows == 0
    assert filled.table("db.s").to_arrow().to_pylist() == [{"id": 7, "note": None}]


def test_P22_a_transaction_that_writes_into_a_dropped_partition_reads_only_its_own_rows(
    filled: Warehouse,
) -> None:
    """Found by `make lab-chaos`: 14 rows of the dropped partition were read again."""
    with filled.snapshot() as before:  # for which the dropped files are kept
        assert ids(before.table("db.t")) == [1, 2]
        filled.table("db.t").drop_partition("p=1")
        with filled.transaction() as txn:
            table = txn.table("db.t")
            table.insert(pa.table({"id": [9], "p": [1]}))
            assert ids(table) == [2, 9]
            assert table.to_arrow(where="p = 1")["id"].to_pylist() == [9]
            table.update({"id": "id + 1"}, "p = 1")
            assert ids(table) == [2, 10]
        assert ids(before.table("db.t")) == [1, 2]
    assert ids(filled.table("db.t")) == [2, 10]


def test_P28_a_write_into_a_changed_table_is_refused(filled: Warehouse) -> None:
    with filled.transaction() as txn:
        old, renamed = txn.table("db.u"), txn.table("db.r")
        change_everything(filled)
        with pytest.raises(DeclarationChanged, match="dropped and made again since"):
            old.insert([{"id": 8}])
        with pytest.raises(DeclarationChanged, match=r"renamed to db\.s since"):
            renamed.delete()


def test_P28_reading_removed_files_is_an_error(filled: Warehouse) -> None:
    """A transaction protects the files of the tables that it asked for, no others (P11)."""
    with filled.transaction() as txn:
        change_everything(filled)
        cleaner.run(filled.metastore)
        for name in ("db.t", "db.u"):
            with pytest.raises(SnapshotExpired, match="after the Cleaner removed"):
                txn.table(name).to_arrow()


@pytest.mark.spark
def test_P28_a_select_reads_the_declarations_of_its_transaction(
    spark: SparkSession, filled: Warehouse
) -> None:
    from acid_platform import Warehouse
    from acid_platform.sql import SqlSession

    with Warehouse.open(filled.path, spark=spark) as reader:
        session = SqlSession(reader)
        session.run("START TRANSACTION")
        reader.metastore.call(
            DeclareView(
                ViewRecord("db.v", "SELECT 1 AS x", (("x", "int"),), reads=()), False, False
            )
        )
        change_everything(filled)
        query = "SELECT count(*), max(u.id) FROM db.t, db.u JOIN db.r ON true"
        assert [tuple(row) for row in session.run(query).collect()] == [(2, 7)]
        with pytest.raises(NoSuchTable):
            session.run("SELECT * FROM db.v")


@pytest.mark.spark
def test_P28_backfills_add_columns_side_by_side(spark: SparkSession, tmp_path: Path) -> None:
    """One commit adds columns and the rows that have them; neither is lost."""
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
            {"a": 2, "b": None, "both": 3},
            {"a": None, "b": 2, "both": 3},
        ]
