"""What INSERT, UPDATE, DELETE and MERGE in Hive's SQL do to rows, alike in both engines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from acid_platform import Warehouse
from acid_platform.engine.merge_clauses import MergeAction, MergeClause, MergeCounts
from acid_platform.handles.row_statements import OverwriteRows
from acid_platform.sql.answers import Done
from tests.conftest import temporary_warehouse

pytestmark = pytest.mark.spark

ROWS = [
    {"id": 1, "v": "a", "s": {"a": 1, "o": {"b": 10, "c": "x"}}},
    {"id": 2, "v": "b", "s": None},
    {"id": 3, "v": "c", "s": {"a": 3, "o": None}},
]
NEWS = [
    {"id": 2, "v": "B", "s": {"a": 20, "o": None}, "op": "u"},
    {"id": 3, "v": "C", "s": None, "op": "d"},
    {"id": 4, "v": "D", "s": {"a": 40, "o": {"b": 4, "c": "d"}}, "op": "i"},
]
COLUMNS = "id int, v string, s struct<a:int,o:struct<b:int,c:string>>"


@pytest.fixture(scope="module", params=["spark", "local"])
def warehouse(
    tmp_path_factory: pytest.TempPathFactory, spark: SparkSession, request: pytest.FixtureRequest
) -> Iterator[Warehouse]:
    where = tmp_path_factory.mktemp("changed")
    with temporary_warehouse(where, spark, request.param) as opened:
        opened.create_table("t", COLUMNS).insert(ROWS)
        opened.create_table("news", f"{COLUMNS}, op string").insert(NEWS)
        opened.create_table("low", "k int, v string").insert([{"k": 0, "v": "z"}])
        parts = opened.create_table("parts", "k int, v string", partitioned_by=["p string"])
        parts.insert([{"k": 7, "v": "old", "p": "x"}, {"k": 8, "v": "old", "p": "y"}])
        yield opened


def test_python_has_the_same_clauses(warehouse: Warehouse) -> None:
    table = warehouse.create_table("python", COLUMNS)
    table.insert(ROWS)
    assert table.update({"s.O.b": "id"}, "s.a = 1") == 1
    counts = table.merge(
        [{name: row[name] for name in ("id", "v", "s")} for row in NEWS],
        "t.id = s.id",
        when_matched_update="*",
        when_not_matched_insert="*",
        clauses=[
            MergeClause(MergeAction.UPDATE, {"s.a": "t.id + 6"}, "t.v = 'a'", by_source=True),
            MergeClause(MergeAction.DELETE, by_source=True),
        ],
    )
    assert counts == MergeCounts(updated=3, inserted=1)
    found = {row["id"]: row["s"] for row in table.to_arrow().to_pylist()}
    assert found == {
        1: {"a": 7, "o": {"b": 1, "c": "x"}},
        **{row["id"]: row["s"] for row in NEWS},
    }


def test_IF_NOT_EXISTS_sees_a_partition_that_another_writer_makes_meanwhile(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = warehouse.create_table("raced", "k int", partitioned_by=["p string"])
    real, others = OverwriteRows.run, [{"k": 1, "p": "x"}]

    def run(statement: OverwriteRows, *arguments: Any) -> int:
        if others:
            table.insert([others.pop()])
        return real(statement, *arguments)

    monkeypatch.setattr(OverwriteRows, "run", run)
    answer = warehouse.sql("INSERT OVERWRITE raced PARTITION (p='x') IF NOT EXISTS SELECT 2")
    assert isinstance(answer, Done) and (answer.rows, str(answer)) == (0, "No rows affected")
    assert table.to_arrow().to_pylist() == [{"k": 1, "p": "x"}]


def test_inserts_of_one_statement_commit_together(warehouse: Warehouse) -> None:
    for name in ("one", "two"):
        warehouse.create_table(name, "k int")
    warehouse.sql("FROM news INSERT INTO one SELECT id INSERT INTO two SELECT id WHERE id > 2")
    (first,), (second,) = (warehouse.table(name).history() for name in ("one", "two"))
    assert first["txn"] == second["txn"]
    explained = warehouse.sql(
        "EXPLAIN FROM news INSERT INTO one SELECT id INSERT INTO two SELECT 1"
    )
    text = "\n".join(explained["Explain"])  # type: ignore[index]
    assert "write default.one" in text and "write default.two" in text
