"""MERGE and TRUNCATE (P6, P20, T38)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from acid_platform import (
    InvalidExpression,
    NoSuchPartition,
    OverwriteThenWrite,
    PartitionColumnUpdate,
    Table,
    UnknownColumn,
    Warehouse,
    WrongType,
)
from acid_platform.engine.merge_clauses import MergeAction, MergeClause, MergeCounts
from tests.conftest import temporary_warehouse

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module", params=["spark", "local"])
def warehouse(
    tmp_path_factory: pytest.TempPathFactory, spark: SparkSession, request: pytest.FixtureRequest
) -> Iterator[Warehouse]:
    where = tmp_path_factory.mktemp("merge")
    with temporary_warehouse(where, spark, request.param) as opened:
        yield opened


@pytest.fixture
def table(warehouse: Warehouse, request: pytest.FixtureRequest) -> Table:
    made = warehouse.create_table(
        f"db.{request.node.name[:40].replace('[', '_').strip(']')}",
        "id int, v string",
        partitioned_by=["m int"],
    )
    made.insert([{"id": i, "v": "a", "m": i % 2} for i in range(10)])
    return made


def rows(table: Table) -> list[tuple[object, ...]]:
    return sorted(map(tuple, table.read().collect()))


def source(*ids: int) -> list[dict[str, object]]:
    return [{"id": i, "v": f"s{i}", "m": i % 2} for i in ids]


def test_P20_update_delete_and_insert_in_one_statement(table: Table) -> None:
    counts = table.merge(
        source(1, 2, 3, 20, 21),
        "t.id = s.id AND t.m = s.m",
        when_matched_update={"v": "s.v"},
        when_matched_delete="s.id = 2",
        when_not_matched_insert="*",
    )
    assert counts == MergeCounts(updated=2, deleted=1, inserted=2)
    changed = {1: "s1", 3: "s3", 20: "s20", 21: "s21"}
    ids = [i for i in (*range(10), 20, 21) if i != 2]
    assert rows(table) == [(i, changed.get(i, "a"), i % 2) for i in ids]
    seen = table.snapshot().directories
    for partition in ("m=0", "m=1"):
        assert [delta.directory for delta in seen[partition].deltas][1:] == [
            "delete_delta_0000002_0000002_0000",
            "delta_0000002_0000002_0000",
        ]
    ids_of_rows = table.read(row_id=True).select("m", "row__id").distinct().count()
    assert ids_of_rows == 11


@pytest.mark.parametrize("warehouse", ["auto"], indirect=True)
def test_a_volatile_source_decides_once(table: Table, spark: SparkSession) -> None:
    frame = spark.range(0, 2000, 1, 4).select(
        F.col("id").cast("int"), F.expr("uuid()").alias("v"), (F.rand() * 2).cast("int").alias("m")
    )
    counts = table.merge(
        frame, "t.id = s.id", when_matched_update={"v": "s.v"}, when_not_matched_insert="*"
    )
    assert counts == MergeCounts(updated=10, inserted=1990)
    assert table.read().select("id").distinct().count() == table.read().count() == 2000


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"when_matched_update": {"m": "1"}}, PartitionColumnUpdate),
        ({"when_matched_update": {"nope": "1"}}, UnknownColumn),
        ({"when_matched_update": {"id": "s.v"}}, WrongType),
        ({"when_matched_update": {"v": "s.nope"}}, UnknownColumn),
        ({"when_matched_delete": "s.nope = 1"}, UnknownColumn),
        ({"when_not_matched_insert": {"nope": "1"}}, UnknownColumn),
        ({}, InvalidExpression),
        ({"clauses": [MergeClause(MergeAction.DELETE)] * 2}, InvalidExpression),  # never reached
    ],
    ids=lambda one: str(one)[:30] if isinstance(one, dict) else "",
)
def test_wrong_clauses_are_told(
    warehouse: Warehouse, changes: dict[str, object], error: type[Exception]
) -> None:
    made = warehouse.create_table(
        "db.wrong", "id int, v string", partitioned_by=["m int"], if_not_exists=True
    )
    with pytest.raises(error):
        made.merge(source(1, 2), "t.id = s.id", **changes)  # type: ignore[arg-type]
    assert made.history() == []


def test_P6_truncate_counts_as_overwrite(table: Table, warehouse: Warehouse) -> None:
    table.truncate("m=1")
    assert {row[2] for row in rows(table)} == {0}
    txn = warehouse.transaction()
    inside = txn.table(table.name)
    inside.truncate("m=0")
    assert inside.read().count() == 0
    with pytest.raises(OverwriteThenWrite):
        inside.insert(source(42))
    txn.abort("enough")
    table.truncate()
    assert rows(table) == [] and table.partitions() == ["m=0", "m=1"]
    base = table.snapshot().directories["m=0"].base
    assert base is not None
    assert {path.name for path in Path(table.location, "m=0", base.directory).iterdir()} == {
        "bucket_00000",
        "_orc_acid_version",
    }
    with pytest.raises(NoSuchPartition, match="m=9"):
        table.truncate("m=9")
