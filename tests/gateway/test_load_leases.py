"""Who loads a table from the REST catalog can read its files for a while, whatever is cleaned."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from acid_platform import Warehouse
from acid_platform.cli.doctor import stuck
from acid_platform.gateway.load_leases import LoadLeases
from acid_platform.gateway.rest_catalog import RestCatalog
from acid_platform.gateway.rest_server import RestServer
from acid_platform.handles.iceberg_export import told_metadata
from acid_platform.services import cleaner
from tests.conftest import a_warehouse

pytest.importorskip("fastavro", reason="pip install 'acid-platform[export]'")
warehouse = a_warehouse("local")
SECONDS = 900.0


class Served:
    """A catalog whose clock the test sets."""

    def __init__(self, warehouse: Warehouse, seconds: float = SECONDS) -> None:
        self.now, self.warehouse = 1000.0, warehouse
        self.leases = LoadLeases(warehouse.metastore, seconds, lambda: self.now)
        catalog = RestCatalog(
            warehouse.metastore, lambda table, _: told_metadata(warehouse, table), None, self.leases
        )
        self.server = RestServer(catalog, "127.0.0.1", 0)

    def loaded(self, table: str) -> Any:
        rest = pytest.importorskip("pyiceberg.catalog.rest")
        return rest.RestCatalog("acid", uri=self.server.address).load_table(table)

    def open(self) -> list[str]:
        """What holds files, as SHOW TRANSACTIONS tells."""
        rows = self.warehouse.metastore.transactions()
        return [row["description"] for row in rows if row["agent"] == "acid serve"]

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.server.tidy()


@pytest.fixture
def served(warehouse: Warehouse) -> Iterator[Served]:
    running = Served(warehouse)
    thread = threading.Thread(target=running.server.serve)
    thread.start()
    try:
        yield running
    finally:
        running.server.stop()
        thread.join()
        assert not running.open()


@pytest.mark.more
def test_P84_who_loaded_a_table_before_a_cleaning_reads_it_to_the_end(
    warehouse: Warehouse, served: Served
) -> None:
    table = warehouse.create_table(
        "shop.orders", "id int, s string", properties={"acid.format": "parquet"}
    )
    for number in range(5):
        table.insert([{"id": number, "s": "a"}, {"id": 10 + number, "s": "b"}])
    served.loaded("shop.orders")
    table.delete("id = 3")  # what is loaded next is younger than the lease
    rows = sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"])
    scans = [served.loaded("shop.orders").scan() for _ in range(2)]
    warehouse.release()
    files = {*Path(table.location).rglob("*.parquet")} | {*Path(table.location).rglob("bucket_*")}
    table.compact("major")
    table.update({"s": "'c'"}, where="id > 3")
    cleaner.run(warehouse.metastore)
    warehouse.export_iceberg("shop.orders")
    assert all(path.exists() for path in files)
    waiting = [each.who for each in stuck(warehouse.metastore, 0) if "shop.orders" in each.what]
    assert waiting and all("acid serve" in who or "transaction" in who for who in waiting)
    found = scans[0].to_arrow().to_pylist()
    assert sorted(found, key=lambda row: row["id"]) == rows
    assert len(served.open()) == 1 and "shop.orders" in served.open()[0]
    served.wait(SECONDS - 1)
    assert served.open()
    served.wait(2)
    assert not served.open()
    cleaner.run(warehouse.metastore)
    assert not any(path.exists() for path in files)
    with pytest.raises(FileNotFoundError):
        scans[1].to_arrow()
    warehouse.drop_table("shop.orders")


@pytest.mark.more
def test_P84_leases_are_few_renewed_and_end(warehouse: Warehouse, served: Served) -> None:
    table = warehouse.create_table("shop.busy", "id int", properties={"acid.format": "parquet"})
    for number in range(24):
        table.insert([{"id": number}])
        for _ in range(2):
            served.loaded("shop.busy")
        assert len(served.open()) <= 6
        served.wait(SECONDS / 8)
    served.wait(SECONDS)
    assert not served.open()
    served.loaded("shop.busy")
    [first] = warehouse.metastore.transactions()
    warehouse.drop_table("shop.busy")
    warehouse.create_table("shop.busy", "id int", properties={"acid.format": "parquet"})
    served.loaded("shop.busy")  # another table of that name
    assert len(served.open()) == 2
    served.loaded("shop.busy")
    assert len(served.open()) == 2 and first["description"] in served.open()
    warehouse.drop_table("shop.busy")


def test_P84_a_lease_ends_with_its_time(warehouse: Warehouse) -> None:
    warehouse.create_table("shop.plain", "id int")
    record, now = warehouse.metastore.table("shop.plain"), [0.0]
    for seconds, held in ((0, [0, 0]), (60, [1, 0])):
        leases, found = LoadLeases(warehouse.metastore, seconds, lambda: now[0]), []
        leases.cover(record, "ann")
        for passed in (59, 2):
            now[0] += passed
            leases.end_old()
            found.append(len(warehouse.metastore.transactions()))
        assert found == held
    warehouse.drop_table("shop.plain")


@pytest.mark.more
def test_P84_a_lease_that_ended_early_is_taken_anew(warehouse: Warehouse, served: Served) -> None:
    table = warehouse.create_table("shop.short", "id int", properties={"acid.format": "parquet"})
    table.insert([{"id": 1}])
    served.loaded("shop.short")
    [row] = warehouse.metastore.transactions()
    warehouse.metastore.resume(row["txnid"], read_only=True).abort()
    served.loaded("shop.short")
    assert len(served.open()) == 1
    warehouse.drop_table("shop.short")
