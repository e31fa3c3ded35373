"""A commit that was refused left its transaction open, with its locks (P6)."""

from __future__ import annotations

from collections.abc import Iterator
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
)
from acid_platform.metastore.operations.transactions import CommitContents
from acid_platform.metastore.records import WriteReport
from acid_platform.transactions import RowOperation
from tests.conftest import temporary_warehouse
from tests.contents import counts
from tests.orchestration.local_writes import insert


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
