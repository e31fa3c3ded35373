"""Commits and overwrites that are refused: nothing is lost, and nothing stays open (P6, P30)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from acid_platform import (
    DeclarationChanged,
    InvalidDefinition,
    MetastoreUnavailable,
    NoSuchTable,
    NoSuchTxn,
    OverwriteThenWrite,
    Terminal,
    Transaction,
    TxnAborted,
    Warehouse,
    WriteConflict,
)
from acid_platform.handles.transaction import autocommit
from acid_platform.metastore.operations.tables import RegisterPartitions
from acid_platform.metastore.operations.transactions import CommitContents
from acid_platform.metastore.records import WriteReport
from acid_platform.transactions import RowOperation
from tests.conftest import a_warehouse, temporary_warehouse
from tests.contents import counts
from tests.orchestration.local_writes import insert, publish, stage


def assert_over(warehouse: Warehouse, txn: Transaction) -> None:
    """The transaction is aborted in the metastore, holds no lock and can't be used."""
    assert warehouse.metastore.outcome(txn.id)["state"] == "a"
    assert warehouse.metastore.locks() == []
    with pytest.raises(TxnAborted):
        txn.heartbeat()


@pytest.mark.spark
def test_P6_a_commit_of_sql_that_is_refused(tmp_path: Path, spark: SparkSession) -> None:
    with temporary_warehouse(tmp_path / "wh", spark) as warehouse:
        table = warehouse.create_table("db.x", "id int")
        with pytest.raises(OverwriteThenWrite, match=r"has written db\.x, and now") as refused:
            warehouse.sql(
                "START TRANSACTION; INSERT INTO db.x VALUES (2); TRUNCATE TABLE db.x; COMMIT"
            )
        assert refused.value.__notes__[0].endswith("was rolled back")
        assert not warehouse.session.in_transaction
        assert warehouse.metastore.locks() == []
        assert set(warehouse.show_transactions()["state"]) == {"ABORTED"}
        assert table.to_arrow().num_rows == 0
        with pytest.raises(NoSuchTxn):
            warehouse.sql("COMMIT")


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    """No JVM is started for it."""
    with temporary_warehouse(tmp_path_factory.mktemp("local")) as opened:
        yield opened


@pytest.fixture
def warehouse(local: Warehouse) -> Iterator[Warehouse]:
    """With an empty table."""
    local.create_table("db.t", "v string")
    yield local
    local.abort_transactions(
        [int(transaction) for transaction in local.show_transactions()["txnid"]]
    )
    local.drop_table("db.t")


def test_P6_a_commit_by_hand_that_is_refused(warehouse: Warehouse) -> None:
    txn = warehouse.transaction()
    txn.table("db.t").truncate()
    (base,) = txn.reports
    delta = replace(base, directory="delta_0000001_0000001_0001", overwrite=False)
    txn.view.reports.append(delta)  # as a client that does not know the rule
    with pytest.raises(OverwriteThenWrite, match=f"transaction {txn.id} was aborted"):
        txn.commit()
    assert_over(warehouse, txn)


def test_P6_a_report_that_is_refused(warehouse: Warehouse) -> None:
    for report, error in (
        (
            WriteReport(
                "db.t", None, RowOperation.INSERT, "delta_0000001_0000001_0000", counts(1, 1)
            ),
            InvalidDefinition,
        ),
        (
            WriteReport(
                "db.nope", None, RowOperation.INSERT, "delta_0000001_0000001_0000", counts(1, 1)
            ),
            NoSuchTable,
        ),
    ):
        txn = warehouse.metastore.begin()
        with pytest.raises(error, match=f"transaction {txn.id} was aborted"):
            txn.commit(CommitContents((report,)))
        assert txn.ended
        with pytest.raises(TxnAborted):
            txn.heartbeat()


def test_P6_columns_that_another_client_has_added(warehouse: Warehouse) -> None:
    txn = warehouse.transaction()
    insert(txn, "db.t", ["a"])
    txn.table("db.t").add_columns("c int")
    warehouse.table("db.t").add_columns("c string")
    with pytest.raises(DeclarationChanged, match=f"transaction {txn.id} was aborted, begin again"):
        txn.commit()
    assert_over(warehouse, txn)
    assert warehouse.table("db.t").to_arrow().num_rows == 0


def test_P6_a_commit_that_is_too_large_to_send(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    txn = warehouse.transaction()
    insert(txn, "db.t", ["a"])
    with monkeypatch.context() as small:
        small.setattr("acid_platform.metastore.client.link.LARGEST_MESSAGE", 200)
        with pytest.raises(Terminal, match="report fewer things"):
            txn.commit()
    assert_over(warehouse, txn)


def test_P3_a_commit_that_was_not_decided_can_be_repeated(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    txn = warehouse.transaction()
    insert(txn, "db.t", ["a"])

    def gone(*arguments: object, **named: object) -> None:
        raise MetastoreUnavailable("gone")

    with monkeypatch.context() as broken:
        broken.setattr("acid_platform.metastore.client.link.Link.call", gone)
        with pytest.raises(MetastoreUnavailable):
            txn.commit()
    txn.commit()
    assert warehouse.table("db.t").to_arrow().num_rows == 1


def until(holds: Callable[[], bool]) -> None:
    for _ in range(3000):
        if holds():
            return
        time.sleep(0.01)
    raise AssertionError("the state that was waited for did not come")


def waiting(warehouse: Warehouse) -> set[int]:
    """Transactions whose lock is not granted."""
    return {
        lock["transaction_id"]
        for lock in warehouse.metastore.locks()
        if lock["lock_state"] == "WAITING"
    }


# --- with Spark ---------------------------------------------------------------------------------

lake = a_warehouse(in_spark=True)


def ids(lake: Warehouse, table: str) -> list[int]:
    return sorted(row["id"] for row in lake.table(table).to_arrow().to_pylist())


@pytest.mark.spark
def test_P30_a_statement_that_waited_for_an_insert_keeps_it(lake: Warehouse) -> None:
    lake.create_table("db.waits", "id int").insert([{"id": 1}, {"id": 1}])
    with Warehouse.open(lake.path, spark=lake.spark) as other, ThreadPoolExecutor(1) as pool:
        inserting = other.transaction()
        inserting.table("db.waits").insert([{"id": 2}])
        statement = "INSERT OVERWRITE TABLE db.waits SELECT DISTINCT id FROM db.waits"
        overwriting = pool.submit(lake.sql, statement)
        until(lambda: bool(waiting(lake)))
        inserting.commit()
        overwriting.result(timeout=300)
    assert ids(lake, "db.waits") == [1, 2]


@pytest.mark.spark
def test_P30_rows_that_the_transaction_has_read_before_the_insert(lake: Warehouse) -> None:
    lake.create_table("db.reads", "id int", partitioned_by=["m int"]).insert(
        [{"id": 1, "m": 1}, {"id": 2, "m": 2}]
    )
    told = r"db\.reads m=1: overwrite of .* overlaps the insert"
    with Warehouse.open(lake.path, spark=lake.spark) as other:
        with pytest.raises(WriteConflict, match=told), lake.transaction() as txn:
            rows = txn.table("db.reads").to_arrow(where="m = 1")
            beside = txn.table("db.reads").to_arrow(where="m = 2")
            other.table("db.reads").insert([{"id": 3, "m": 1}])
            txn.table("db.reads").overwrite(rows)
        assert lake.metastore.locks() == []
        # Only partitions that were written count, and nothing was inserted into this one.
        with lake.transaction() as txn:
            other.table("db.reads").insert([{"id": 4, "m": 1}])
            txn.table("db.reads").overwrite(beside)
    assert ids(lake, "db.reads") == [1, 2, 3, 4]


def test_P30_a_lost_overwrite_fails_at_its_lock_and_not_after_its_work(
    warehouse: Warehouse,
) -> None:
    txn = warehouse.transaction()
    with Warehouse.open(warehouse.path) as other, other.transaction() as inserting:
        insert(inserting, "db.t", ["a"])
    with pytest.raises(WriteConflict, match=rf"transaction {txn.id} was aborted, begin again"):
        txn.table("db.t").truncate()
    assert txn.reports == () and warehouse.metastore.locks() == []
    assert warehouse.table("db.t").to_arrow().num_rows == 1


def test_P30_T40_an_overwrite_succeeds_among_endless_inserts(warehouse: Warehouse) -> None:
    """Its second attempt is queued before it takes its snapshot; it begins without its lock, as an
    overwrite of one partition does."""
    warehouse.metastore.set("hive.txn.max.retrysnapshot.count", "2")  # of its attempts
    first, second = (Warehouse.open(warehouse.path).transaction() for _ in range(2))
    staged = stage(first, "db.t", 0, ["a"])
    with ThreadPoolExecutor(2) as pool:
        truncating = pool.submit(
            autocommit, warehouse, "db.t", lambda txn: txn.table("db.t").truncate()
        )
        until(lambda: len(waiting(warehouse)) == 1)
        later = pool.submit(stage, second, "db.t", 0, ["b"])
        until(lambda: len(waiting(warehouse)) == 2)
        publish(staged)
        first.commit()
        publish(later.result(timeout=60))
        until(lambda: len(waiting(warehouse)) == 1)
        second.commit()
        truncating.result(timeout=60)
    directories = [row["directory"] for row in warehouse.table("db.t").history()]
    assert [name.partition("_")[0] for name in directories] == ["delta", "delta", "base"]
    assert warehouse.table("db.t").to_arrow().num_rows == 0


def test_P30_L5_a_second_statement_does_not_wait_for_waiters_on_the_first(
    warehouse: Warehouse,
) -> None:
    txn = warehouse.transaction()
    publish(stage(txn, "db.t", 0, ["a"]))
    with ThreadPoolExecutor(1) as pool, Warehouse.open(warehouse.path) as other:
        truncating = pool.submit(other.table("db.t").truncate)
        until(lambda: bool(waiting(warehouse)))
        publish(stage(txn, "db.t", 1, ["b"]))
        txn.commit()
        truncating.result(timeout=60)
    assert warehouse.table("db.t").to_arrow().num_rows == 0


@pytest.mark.parametrize("first", ["m=1", None])
def test_P6_a_partition_that_was_overwritten_is_not_overwritten_again(
    local: Warehouse, first: str | None
) -> None:
    """`make lab-chaos` found it: TRUNCATE advised to move the new base away."""
    table = local.create_table(f"db.p_{first and 1}", "v string", partitioned_by=["m int"])
    local.metastore.call(RegisterPartitions(table.name, ("m=1", "m=2")))
    with local.transaction() as txn:
        txn.table(table.name).truncate(first)
        with pytest.raises(OverwriteThenWrite, match=r"overwrote db\.p_\w+ m=1"):
            txn.table(table.name).truncate("m=1")
        if first:
            txn.table(table.name).truncate("m=2")
    done = {(row["partition"], row["directory"]) for row in table.history()}
    assert done == {("m=1", "base_0000001"), ("m=2", "base_0000001")}
