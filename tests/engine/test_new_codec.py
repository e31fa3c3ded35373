"""The codec of new tables, and of those that exist (P23)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow.orc as po
import pytest

from acid_platform import InvalidDefinition, Table, Warehouse
from tests.conftest import IN_ORC, temporary_warehouse
from tests.declared import declare

PROPERTY = "orc.compress"


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Warehouse]:
    with temporary_warehouse(tmp_path, engine="local") as opened:
        yield opened


def codecs(table: Table) -> list[str]:
    """Of the table's files, in the order of their directories."""
    return [
        po.ORCFile(str(path)).compression
        for path in sorted(Path(table.location).glob("*/bucket_*"))
    ]


@pytest.mark.more
@pytest.mark.parametrize(
    ("properties", "codec"),
    [
        ({}, "ZSTD"),
        ({PROPERTY: "SNAPPY"}, "SNAPPY"),
        ({"acid.layout": "hive3"}, "ZLIB"),
        ({"acid.layout": "hive3", PROPERTY: "ZSTD"}, "ZSTD"),
    ],
)
def test_P23_a_new_table_has_a_codec_that_its_readers_know(
    warehouse: Warehouse, properties: dict[str, str], codec: str
) -> None:
    table = warehouse.create_table("db.t", "id int", properties={**IN_ORC, **properties})
    table.insert([{"id": 1}, {"id": 2}])
    table.delete("id = 1")
    table.compact("major")
    assert set(codecs(table)) == {codec}
    stated = warehouse.metastore.table("db.t").properties.get(PROPERTY)
    assert stated == (None if codec == "ZLIB" else codec)


def test_a_table_that_states_no_codec_keeps_its_own(warehouse: Warehouse, tmp_path: Path) -> None:
    """As a table that an older version has made."""
    warehouse.metastore.create_database("db")
    made = declare(warehouse.metastore, "db.t", f"{tmp_path}/db.db/t")
    Path(made.location).mkdir(parents=True, exist_ok=True)
    table = warehouse.table("db.t")
    table.insert([{"id": 1}])
    assert codecs(table) == ["ZLIB"]
    warehouse.sql(f"ALTER TABLE db.t SET TBLPROPERTIES ('{PROPERTY}' = 'ZSTD')")
    table.insert([{"id": 2}])
    assert codecs(table) == ["ZLIB", "ZSTD"]
    assert sorted(table.to_arrow().column("id").to_pylist()) == [1, 2]


def test_P23_a_table_for_hive_3_may_not_keep_zstd_unasked(warehouse: Warehouse) -> None:
    table = warehouse.create_table("db.t", "id int", properties=IN_ORC)
    change = "ALTER TABLE db.t SET TBLPROPERTIES ('acid.layout' = 'hive3'{})"
    with pytest.raises(InvalidDefinition, match=r"Hive 3 can't read orc.compress=ZSTD; set"):
        warehouse.sql(change.format(""))
    warehouse.sql(change.format(f", '{PROPERTY}' = 'ZLIB'"))
    table.insert([{"id": 1}])
    assert codecs(table) == ["ZLIB"]
