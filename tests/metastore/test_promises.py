"""Properties of others that promise a protection are refused at every door (P72)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from acid_platform import Warehouse
from acid_platform.errors import InvalidDefinition
from acid_platform.gateway.partition_calls import _placed as placed
from acid_platform.layout.table_properties import refuse_promises
from acid_platform.metastore.operations.tables import AlterTable
from tests.conftest import temporary_warehouse

PROMISES = [
    ("immutable", "true"),
    ("Immutable", "TRUE"),
    ("readonly", "true"),
    ("PROTECT_MODE", "NO_DROP,OFFLINE"),
    *[(name, "true") for name in ("NO_DROP", "no_drop_cascade", "OFFLINE", "READ_ONLY")],
    ("delta.appendOnly", "true"),
    ("partition.retention.period", "7d"),
    ("discover.partitions", "true"),
    ("orc.encrypt", "pii:ssn"),
    ("orc.mask", "nullify:ssn"),
    ("parquet.encryption.column.keys", "k:ssn"),
    ("defaultTableType", "EXTERNAL"),
]
FILES = [
    ("auto.purge", "false"),
    ("external.table.purge", "false"),
    ("gc.enabled", "false"),
    ("EXTERNAL", "TRUE"),
]
"""Promises about files that are removed, which those of an external table never are."""
DOORS = {
    "CREATE TABLE": "CREATE TABLE db.new (id int) TBLPROPERTIES ({})",
    "CREATE TABLE AS": "CREATE TABLE db.new TBLPROPERTIES ({}) AS SELECT 1 AS id",
    "CREATE TEMPORARY TABLE": "CREATE TEMPORARY TABLE new (id int) TBLPROPERTIES ({})",
    "ALTER TABLE": "ALTER TABLE db.t SET TBLPROPERTIES ({})",
    "CREATE EXTERNAL TABLE": "CREATE EXTERNAL TABLE db.new (id int) STORED AS ORC"
    " LOCATION '{place}' TBLPROPERTIES ({})",
    "CREATE VIEW": "CREATE VIEW db.new TBLPROPERTIES ({}) AS SELECT 1 AS id",
    "CREATE DATABASE": "CREATE DATABASE new WITH DBPROPERTIES ({})",
    "ALTER DATABASE": "ALTER DATABASE db SET DBPROPERTIES ({})",
}


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    with temporary_warehouse(tmp_path_factory.mktemp("promises") / "wh", engine="local") as opened:
        opened.create_table("db.t", "id int")
        yield opened


@pytest.mark.parametrize("door", DOORS)
def test_P72_a_promise_that_nobody_keeps_is_refused(
    door: str, warehouse: Warehouse, tmp_path: Path
) -> None:
    before = (warehouse.metastore.databases(), warehouse.tables())
    for name, text in PROMISES + FILES * (door != "CREATE EXTERNAL TABLE"):
        statement = DOORS[door].replace("{place}", str(tmp_path)).format(f"'{name}'='{text}'")
        with pytest.raises(InvalidDefinition, match="nothing here keeps what it promises"):
            warehouse.sql(statement)
    assert (warehouse.metastore.databases(), warehouse.tables()) == before


def test_P72_python_and_what_an_engine_sends_are_refused_too(warehouse: Warehouse) -> None:
    record = warehouse.metastore.table(warehouse.create_table("db.parts", "id int", ["p int"]).name)
    for name, text in PROMISES + FILES:
        with pytest.raises(InvalidDefinition, match="promises"):
            warehouse.create_table("db.new", "id int", properties={name: text})
        with pytest.raises(InvalidDefinition, match="promises"):
            placed(record, SimpleNamespace(values=["1"], sd=None, parameters={name: text}))
        with pytest.raises(InvalidDefinition, match="promises"):
            warehouse.metastore.call(AlterTable("db.t", properties={name: text}))


def test_P72_what_promises_nothing_is_kept(warehouse: Warehouse) -> None:
    harmless = {
        "immutable": "false", "auto.purge": "true", "external.table.purge": "TRUE",
        "discover.partitions": "false", "orc.encrypt": "", "gc.enabled": "true", 

    }  # fmt: skip
    table = warehouse.create_table("db.harmless", "id int", properties=harmless)
    assert harmless.items() <= warehouse.metastore.table(table.name).properties.items()
    refuse_promises("db.e", {"auto.purge": "false", "immutable": None}, external=True)
