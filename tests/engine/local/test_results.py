"""P12, P33: a result of the local engine is lazy, repeatable, and stays at its snapshot."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from acid_platform import CorruptFile, InvalidExpression, NeedsSpark, Warehouse, WrongType
from acid_platform.engine.local.run_query import LocalResult
from tests.conftest import a_warehouse

pytestmark = pytest.mark.spark

warehouse = a_warehouse(in_spark=True)


@pytest.fixture
def table(warehouse: Warehouse, request: pytest.FixtureRequest) -> str:
    name = f"r.{request.node.name}".lower()[:60]
    made = warehouse.create_table(name, "id int, c char(4), m timestamp, l array<int>")
    row = {"id": 1, "c": "ab", "m": datetime.datetime(2020, 1, 2, 3), "l": [1, 2]}
    made.insert([row, {**row, "id": 2}, {**row, "id": 3, "c": None}])
    return name


def select(warehouse: Warehouse, text: str) -> LocalResult:
    result = warehouse.sql(text)
    assert isinstance(result, LocalResult)
    return result


def test_each_computation_sees_the_same_snapshot(warehouse: Warehouse, table: str) -> None:
    result = select(warehouse, f"SELECT id FROM {table} ORDER BY id")
    assert result.collect() == [(1,), (2,), (3,)]
    warehouse.table(table).insert([{"id": 4}])
    assert result.collect() == [(1,), (2,), (3,)]
    assert result.count() == 3
    assert result.to_arrow(2).num_rows == 2
    assert sum(batch.num_rows for batch in result.batches()) == 3
    assert duckdb.sql("FROM result").fetchall() == [(1,), (2,), (3,)]
    assert "FROM" not in result.plan() and "Arrow Scan" in result.plan()


@pytest.mark.parametrize(
    ("expression", "kind", "told"),
    [
        ("1 / (id - 299999)", InvalidExpression, "Division by zero"),
        ("CAST(id * 10000 AS int)", WrongType, "does not fit"),
        ("ceil(if(id = 299999, 9223372036854775807e0, double(id)))", NeedsSpark, "ceil of NaN"),
    ],
)
def test_P33_an_error_in_a_late_batch_is_that_of_an_early_one(
    warehouse: Warehouse, expression: str, kind: type[Exception], told: str
) -> None:
    """Arrow raises an OSError where DuckDB computes batches while they are read."""
    name = f"r.late_{kind.__name__}".lower()
    warehouse.create_table(name, "id bigint").insert(pa.table({"id": range(300_000)}))
    result = select(warehouse, f"SELECT {expression} AS v FROM {name}")
    result = replace(result, instead=None)
    with pytest.raises(kind, match=told):
        result.to_arrow()


def test_columns_have_the_types_of_sparks_result(warehouse: Warehouse, table: str) -> None:
    result = select(warehouse, f"SELECT *, id + 1 FROM {table} WHERE id < 3")
    assert result.columns == ["id", "c", "m", "l", "(id + 1)"]
    assert [str(column) for column in result.declared()] == [
        "id int", "c char(4)", "m timestamp", "l array<int>", "(id + 1) int",
    ]  # fmt: skip
    renamed = result.renamed(["a", "b", "c", "d", "e"])
    assert renamed.to_arrow().column_names == ["a", "b", "c", "d", "e"]
    frame = renamed.to_spark()
    assert [field.dataType.simpleString() for field in frame.schema.fields] == [
        "int", "string", "timestamp", "array<int>", "int",
    ]  # fmt: skip
    assert sorted(row.a for row in frame.collect()) == [1, 2]


def test_explain_names_the_engine_and_the_reason(warehouse: Warehouse, table: str) -> None:
    def explained(query: str) -> str:
        return "\n".join(warehouse.sql(f"EXPLAIN {query}")["Explain"])

    local = explained(f"SELECT count(id) FROM {table} WHERE id > 1")
    assert "engine: local (" in local and "Arrow Scan" in local
    spark = explained(f"SELECT aes_encrypt(c, 'k') AS s FROM {table}")
    assert "engine: spark (AES_ENCRYPT(c" in spark


def test_only_the_local_engine_refuses_what_needs_spark(warehouse: Warehouse, table: str) -> None:
    with (
        Warehouse.open(warehouse.path, engine="local") as local,
        pytest.raises(NeedsSpark, match="AES_ENCRYPT"),
    ):
        local.sql(f"SELECT aes_encrypt(c, 'k') AS s FROM {table}")


def test_P26_a_file_that_is_damaged_is_told(warehouse: Warehouse, table: str) -> None:
    result = select(warehouse, f"SELECT id, c FROM {table}")
    where = warehouse.metastore.table(table).location
    (file,) = Path(where).glob("delta_*/bucket_*")
    good = file.read_bytes()
    file.write_bytes(good[: len(good) // 2])
    with pytest.raises(CorruptFile, match="bucket_"):
        result.to_arrow()
    file.write_bytes(good)
    assert result.count() == 3
