"""What a statement of the local engine asks the metastore for, and what its lease is good for."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from acid_platform import (
    AcidError,
    CorruptFile,
    NoSuchTable,
    SnapshotExpired,
    Table,
    Warehouse,
)
from acid_platform.base.first_use import Recent
from acid_platform.engine.choice import Engines
from acid_platform.handles import snapshot_views
from acid_platform.handles.snapshot_views import MOST_SCANS
from acid_platform.metastore.client.link import Link
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.records import LockRequest
from acid_platform.sql.catalog import Catalog
from acid_platform.sql.parse import parse
from acid_platform.sql.run_queries import plan
from acid_platform.sql.text import Query
from acid_platform.transactions.concurrency import LockType
from tests.conftest import temporary_warehouse
from tests.metastore.processes import until
from tests.storage.test_per_process import in_child


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    with temporary_warehouse(tmp_path_factory.mktemp("trips") / "wh") as opened:
        opened.engines.preference = "local"
        opened.create_table("db.t", "id int, v string").insert([{"id": 1, "v": "a"}])
        yield opened


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The operations that were sent, by name."""
    counted: Counter[str] = Counter()
    call = Link.call

    def counting(link: Link, operation: Any) -> Any:
        counted[operation.op] += 1
        return call(link, operation)

    monkeypatch.setattr(Link, "call", counting)
    return counted


@pytest.mark.parametrize(
    "text",
    [
        "SELECT sum(id) AS s FROM db.t",
        "INSERT INTO db.t VALUES (2, 'b')",
        "INSERT INTO db.t SELECT id + 10, v FROM db.t",
        "UPDATE db.t SET v = 'c' WHERE id = 2",
        "DELETE FROM db.t WHERE id = 2",
        "MERGE INTO db.t USING db.t AS s ON t.id = s.id WHEN MATCHED THEN DELETE",
    ],
)
def test_a_statement_gets_the_settings_with_its_transaction(
    warehouse: Warehouse, asked: Counter[str], text: str
) -> None:
    warehouse.sql(text)
    assert asked["begin"] and not asked["settings"]


def test_a_setting_that_a_session_changes_counts_in_its_transaction(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warehouse.engines, "on_cluster", lambda: True)
    monkeypatch.setattr(Engines, "spark", property(lambda _: pytest.fail("asks Spark")))
    name = "acid.local.max.bytes"
    warehouse.table("db.t").insert([{"id": 1, "v": "x"}])
    warehouse.sql("START TRANSACTION")
    try:
        warehouse.sql(f"SET {name}=10")
        for table in (
            warehouse.table("db.t"),
            warehouse.session.transaction.table("db.t"),  # type: ignore[union-attr]
        ):
            with warehouse.using("auto"), pytest.raises(pytest.fail.Exception, match="asks Spark"):
                table.update({"v": "'y'"}, "id = 1")
    finally:
        warehouse.sql("ROLLBACK")
        warehouse.metastore.set(name, str(256 << 20))


# --- a lease is used again while a new one would see the same -----------------------------------

SUM = "SELECT sum(id) AS s FROM db.r"


@pytest.fixture
def table(warehouse: Warehouse) -> Iterator[Table]:
    made = warehouse.create_table("db.r", "id int, v string")
    made.insert([{"id": number, "v": "a"} for number in range(10)])
    yield made
    warehouse.release()
    warehouse.drop_table("db.r")


def answer(warehouse: Warehouse, text: str) -> object:
    result: Any = warehouse.sql(text)
    return result.collect()[0][0]


def test_P11_a_read_of_what_has_not_changed_is_one_message(
    warehouse: Warehouse, table: Table, asked: Counter[str]
) -> None:
    assert answer(warehouse, SUM) == 45
    for text, expected in ((SUM, 45), ("SELECT count(*) AS n FROM db.r", 10)):
        asked.clear()
        assert answer(warehouse, text) == expected
        assert asked == {"is_newest": 1}
    assert answer(warehouse, "SELECT count(id) AS n FROM db.r WHERE id < 3") == 3
    table.insert([{"id": 100, "v": "b"}])
    assert answer(warehouse, SUM) == 145


def test_P6_P29_a_change_of_rows_is_three_messages(table: Table, asked: Counter[str]) -> None:
    for change in (
        lambda: table.delete("id = 1"),
        lambda: table.update({"v": "'b'"}, "id % 2 = 0"),
        lambda: table.merge([{"id": 2, "v": "c"}], "t.id = s.id", "*", None, "*"),
        lambda: table.insert([{"id": 1, "v": "c"}]),
    ):
        asked.clear()
        change()
        assert asked == {"begin": 1, "heartbeat_one": 1, "commit": 1}


def test_T34_a_statement_that_is_wrong_takes_no_lock(
    warehouse: Warehouse, table: Table, asked: Counter[str]
) -> None:
    for change in (
        lambda: table.delete("nosuch = 1"),
        lambda: table.update({"v": "nosuch"}),
        lambda: table.insert([{"nosuch": 1}]),
        lambda: table.merge([{"id": 2}], "t.id = s.id"),
    ):
        with pytest.raises(AcidError):
            change()
    assert asked["begin"] == asked["abort"] == 4 and not asked["lock"]
    before, after = (warehouse.table("db.r").insert([{"id": 1}]) for _ in range(2))
    assert before == after == 1
    ids = [row["write_id"] for row in table.history()]
    assert ids == [*range(ids[0], ids[0] + 3)]


def test_L15_an_interrupted_statement_that_waits_for_its_lock_leaves_no_transaction(
    warehouse: Warehouse, table: Table
) -> None:
    metastore = warehouse.metastore
    table.delete("id = 1")  # imports what takes long
    with metastore.begin(locks=[LockRequest("db.r", LockType.EXCLUSIVE)]):
        before = metastore.transactions()
        with ThreadPoolExecutor(1) as thread:
            waited = thread.submit(_interrupt_when_a_lock_waits, metastore)
            with pytest.raises(KeyboardInterrupt), interrupts():
                table.delete("id = 2")
            waited.result()
        assert len(metastore.locks()) == 1 and len(metastore.transactions()) == len(before)
    assert not metastore.locks() and table.count("id = 2") == 1


@contextmanager
def interrupts() -> Iterator[None]:
    """Ctrl-C is a KeyboardInterrupt, also in a process of tests that ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _interrupt_when_a_lock_waits(metastore: Metastore) -> None:
    until(lambda: any(row["lock_state"] == "WAITING" for row in metastore.locks()))
    os.kill(os.getpid(), signal.SIGINT)


def test_T34_a_lock_follows_the_settings_and_the_declaration(
    warehouse: Warehouse, table: Table, asked: Counter[str]
) -> None:
    with Warehouse.open(warehouse.path, engine="local") as other:
        other.metastore.set("hive.txn.xlock.write", "true")
        asked.clear()
        try:
            assert table.delete("id = 1") == 1  # begins again with the stricter lock
            assert asked == {"begin": 2, "abort": 1, "heartbeat_one": 1, "commit": 1}
            asked.clear()
            assert table.delete("id = 2") == 1
            assert asked == {"begin": 1, "heartbeat_one": 1, "commit": 1}
        finally:
            other.metastore.set("hive.txn.xlock.write", "false")
        other.table("db.r").add_columns("w int")
        assert table.update({"w": "id"}, "id > 7") == 2
        other.drop_table("db.r")
        other.create_table("db.r", "id int", partitioned_by=["v string"]).insert(
            [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}]
        )
        assert table.delete("v = 'a'") == 1 and table.to_arrow()["id"].to_pylist() == [2]


def test_P11_each_read_sees_all_that_was_committed_before(
    warehouse: Warehouse, table: Table
) -> None:
    with Warehouse.open(warehouse.path, engine="local") as other:
        for number in range(3):
            other.table("db.r").insert([{"id": 1000, "v": "x"}])
            assert answer(warehouse, SUM) == 45 + 1000 * (number + 1) - sum(range(number))
            other.table("db.r").compact("major")
            other.table("db.r").delete(f"id = {number}")
            assert answer(warehouse, "SELECT count(*) AS n FROM db.r") == 10
        other.table("db.r").add_columns("w int")
        assert answer(warehouse, "SELECT count(w) AS n FROM db.r") == 0
        other.sql("CREATE VIEW db.big AS SELECT id FROM db.r WHERE id > 500")
        assert answer(warehouse, "SELECT count(*) AS n FROM db.big") == 3
        other.sql("CREATE OR REPLACE VIEW db.big AS SELECT id FROM db.r WHERE id < 5")
        assert answer(warehouse, "SELECT count(*) AS n FROM db.big") == 2
        other.sql("DROP VIEW db.big")
        other.create_table("db.big", "id int").insert([{"id": 7}])
        assert answer(warehouse, "SELECT sum(id) AS n FROM db.big") == 7
        warehouse.release()
        other.drop_table("db.big")
        with pytest.raises(NoSuchTable):
            warehouse.sql("SELECT sum(id) AS n FROM db.big")


def test_P26_a_file_that_goes_while_its_lease_holds_is_corrupt(
    warehouse: Warehouse, table: Table
) -> None:
    result: Any = warehouse.sql(SUM)
    files = Path(warehouse.metastore.table("db.r").location).glob("delta_*/bucket_*")
    file = max(files, key=lambda file: file.stat().st_mtime_ns)  # others are of dropped tables
    good = file.read_bytes()
    file.unlink()
    with pytest.raises(CorruptFile, match=r"bucket_.* is gone.*restore it"):
        result.collect()
    with pytest.raises(CorruptFile, match=r"bucket_.* is gone.*restore it"):
        warehouse.sql(SUM)
    file.write_bytes(good[:-1])
    with pytest.raises(CorruptFile, match=r"has \d+ bytes"):
        warehouse.sql(SUM)
    file.write_bytes(good)
    assert answer(warehouse, SUM) == 45 and result.collect() == [(45,)]
    file.unlink()
    warehouse.release()
    with pytest.raises(SnapshotExpired, match="run the query again"):
        result.collect()
    file.write_bytes(good)


def test_P29_a_process_that_slept_under_a_lease_that_is_used_again_asks_again(
    warehouse: Warehouse, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert answer(warehouse, SUM) == 45
    now = [0.0]
    monkeypatch.setattr(snapshot_views, "elapsed_seconds", lambda: now[0])
    with pytest.raises(SnapshotExpired), warehouse.leases.lasting(table.name) as read:
        warehouse.abort_transactions([read.transaction.id])  # as after its timeout
        now[0] = 3600.0


def test_P29_a_lease_that_has_ended_is_not_used_again(warehouse: Warehouse, table: Table) -> None:
    assert answer(warehouse, SUM) == 45
    held = warehouse.leases._held[-1]
    warehouse.abort_transactions([held.lease.id])
    assert answer(warehouse, SUM) == 45
    assert held not in warehouse.leases._held


def test_P12_the_child_of_a_fork_takes_a_lease_of_its_own(
    warehouse: Warehouse, table: Table
) -> None:
    assert answer(warehouse, SUM) == 45
    mine = [held.lease.id for held in warehouse.leases._held]

    def own() -> bool:
        return answer(warehouse, SUM) == 45 and warehouse.leases._held[-1].lease.id not in mine

    assert in_child(own)


def test_P18_a_result_keeps_its_snapshot_when_a_newer_read_replaces_its_lease(
    warehouse: Warehouse, table: Table
) -> None:
    old: Any = warehouse.sql(SUM)
    with warehouse.transaction() as txn:
        txn.table("db.t").insert([{"id": 50, "v": "b"}])
    with pytest.raises(AcidError), warehouse.transaction() as failing:
        failing.table("db.r").insert([{"id": 50, "v": "b"}])
        failing.abort()
        failing.commit()
    new: Any = warehouse.sql(SUM)
    table.insert([{"id": 1000, "v": "b"}])
    assert (old.collect(), new.collect(), answer(warehouse, SUM)) == ([(45,)], [(45,)], 1045)


def test_P12_many_different_reads_hold_one_lease_and_few_scans(
    warehouse: Warehouse, table: Table
) -> None:
    table.delete("id = 0")
    for number in range(2 * MOST_SCANS):
        text = f"SELECT count(id) AS n FROM db.r WHERE id > {number}"
        assert answer(warehouse, text) == max(0, 9 - number)
    (held,) = [held for held in warehouse.leases._held if "db.r" in held.tables]
    assert len(held.opened) == 1 and len(held.scans._values) == MOST_SCANS


# --- a plan is used again while the declarations are the same ------------------------------------


def test_P28_a_query_that_comes_again_is_planned_for_the_present_columns(
    warehouse: Warehouse, table: Table
) -> None:
    text = "SELECT max(id) AS m FROM db.r"
    assert [answer(warehouse, text) for _ in range(2)] == [9, 9]
    warehouse.release()
    warehouse.drop_table("db.r")
    warehouse.create_table("db.r", "v string, id string").insert([{"id": "x", "v": "y"}])
    assert [answer(warehouse, text) for _ in range(2)] == ["x", "x"]
    everything: Any = warehouse.sql("SELECT * FROM db.r")
    warehouse.table("db.r").add_columns("w int")
    again: Any = warehouse.sql("SELECT * FROM db.r")
    assert (everything.columns, again.columns) == (["v", "id"], ["v", "id", "w"])
    assert again.collect() == [("y", "x", None)]


def test_a_script_is_read_in_the_database_of_its_session(warehouse: Warehouse) -> None:
    for number, name in enumerate(("one", "two")):
        warehouse.sql(f"CREATE DATABASE IF NOT EXISTS {name}")
        warehouse.create_table(f"{name}.same", "id int").insert([{"id": number}])
    try:
        for number, name in enumerate(("one", "two")):
            warehouse.sql(f"USE {name}")
            assert answer(warehouse, "SELECT max(id) AS m FROM same") == number
    finally:
        warehouse.sql("USE default")


def test_P33_spark_gets_other_names_for_the_tables_of_a_plan_each_time(
    warehouse: Warehouse, table: Table
) -> None:
    with warehouse.leases.lasting("db.r", "db.t") as read:
        catalog = Catalog(warehouse.metastore, "default", read, read.tables)
        query = parse("SELECT r.id, 'acid_' AS a FROM db.r JOIN db.t ON r.id = t.id")
        assert isinstance(query, Query)
        planned, again = (plan(catalog, query) for _ in range(2))
    assert again.text == planned.text and [*again.reads] == [*planned.reads]
    other = planned.renamed()
    assert not set(other.reads) & set(planned.reads)
    assert [read.scan for read in other.reads.values()] == [
        read.scan for read in planned.reads.values()
    ]
    text = other.text
    for name, before in zip(other.reads, planned.reads, strict=True):
        assert name in text and before not in text
        text = text.replace(name, before)
    assert text == planned.text


def test_what_was_computed_last_is_kept_and_what_was_not_asked_for_makes_room() -> None:
    recent: Recent[int, str] = Recent(2)
    recent.put(1, "a")
    recent.put(2, "b")
    assert recent.get(1) == "a"
    recent.put(3, "c")
    assert [recent.get(key) for key in (1, 2, 3)] == ["a", None, "c"]
