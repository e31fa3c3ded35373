"""Delete keys above `acid.delete.keys.max`: Spark's tasks read them, the driver loads none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from acid_platform import CorruptFile, Table, UnsupportedLayout, Warehouse
from acid_platform.engine.spark.row_keys import deleted_in_files
from acid_platform.scan import deletes
from acid_platform.scan.deletes import DeleteKeys
from acid_platform.scan.open import DELETE_KEYS
from acid_platform.scan.source_files import SourceFile
from acid_platform.storage.files import Files
from acid_platform.transactions import ValidWriteIdList
from tests.conftest import temporary_warehouse

pytestmark = pytest.mark.spark


@pytest.fixture
def warehouse(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Warehouse]:
    """Its driver may not load a key."""
    load = deletes.kept_keys

    def refuse(
        files: Files, sources: Sequence[SourceFile], write_ids: ValidWriteIdList
    ) -> DeleteKeys:
        assert not sources, "the driver loads deleted keys"
        return load(files, sources, write_ids)

    with temporary_warehouse(tmp_path / "warehouse", spark, "spark") as opened:
        opened.metastore.set(DELETE_KEYS, "0")
        monkeypatch.setattr(deletes, "kept_keys", refuse)
        yield opened


def with_deletes(warehouse: Warehouse) -> Table:
    """Ten rows, of which a transaction that aborts deletes all, and others 3 and 4 to 6."""
    table = warehouse.create_table("db.t", "id int, v string", partitioned_by=["m int"])
    table.insert([{"id": i, "v": "a", "m": i % 2} for i in range(10)])
    with suppress(ZeroDivisionError), warehouse.transaction() as txn:
        txn.table("db.t").delete("id >= 0")
        raise ZeroDivisionError
    table.delete("id = 3")
    table.delete("id between 4 and 6")
    return table


def ids(table: Table) -> list[int]:
    return sorted(row["id"] for row in table.read(columns=["id"]).collect())


def test_a_read_sees_the_events_of_its_snapshot(warehouse: Warehouse) -> None:
    table = with_deletes(warehouse)
    assert ids(table) == [0, 1, 2, 7, 8, 9]
    assert table.read(where="m = 1").count() == 3
    assert table.read(row_id=True).select("row__id").distinct().count() == 6
    table.insert([{"id": 20, "v": "b", "m": 0}])
    assert ids(table) == [0, 1, 2, 7, 8, 9, 20]


def test_statements_change_only_live_rows(warehouse: Warehouse) -> None:
    table = with_deletes(warehouse)
    assert table.update({"v": "'u'"}, "id <= 4") == 3
    assert table.delete("id in (2, 3)") == 1
    source = [{"id": i, "v": "m", "m": i % 2} for i in (1, 3, 9)]
    counts = table.merge(
        source,
        "t.id = s.id AND t.m = s.m",
        when_matched_update={"v": "s.v"},
        when_not_matched_insert="*",
    )
    assert (counts.updated, counts.inserted) == (2, 1)
    found = sorted((row["id"], row["v"]) for row in table.read(["id", "v"]).collect())
    assert found == [(0, "u"), (1, "m"), (3, "m"), (7, "a"), (8, "a"), (9, "m")]


def test_a_transaction_sees_its_own_deletes(warehouse: Warehouse) -> None:
    table = with_deletes(warehouse)
    with warehouse.transaction() as txn:
        txn.table("db.t").delete("id < 2")
        assert sorted(row["id"] for row in txn.table("db.t").read().collect()) == [2, 7, 8, 9]
        assert ids(table) == [0, 1, 2, 7, 8, 9]


def test_files_without_delete_events_are_told(
    warehouse: Warehouse, spark: SparkSession, tmp_path: Path
) -> None:
    table = warehouse.create_table("db.t", "id int")
    table.insert([{"id": i} for i in range(10)])
    (inserts,) = Path(table.location).glob("delta_*/bucket_00000")
    with pytest.raises(UnsupportedLayout, match=r"operation 0 where all must be 2"):
        deleted_in_files(spark, [inserts.as_uri()], [], 0).collect()
    spark.range(3).coalesce(1).write.orc(str(tmp_path / "flat"))
    (flat,) = (tmp_path / "flat").glob("*.orc")
    with pytest.raises(CorruptFile, match=r"flat\S* lacks ACID columns"):
        deleted_in_files(spark, [flat.as_uri()], [], 0).collect()
