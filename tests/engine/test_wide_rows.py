"""Rows go to Python in large batches, unless one is too wide for that."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from acid_platform import Warehouse
from acid_platform.engine.spark import task_writing
from acid_platform.engine.spark.task_writing import LIMIT, WIDEST
from tests.conftest import a_warehouse

pytestmark = pytest.mark.spark

warehouse = a_warehouse("spark", in_spark=True, scope="function")


@pytest.fixture
def limits(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each job that writes: whether Spark measures its batches."""
    found: list[bool] = []
    mapped = task_writing.mapped_in_arrow

    def spied(*arguments: object) -> object:
        found.append(spark.conf.get(LIMIT) != task_writing._NO_LIMIT)
        return mapped(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(task_writing, "mapped_in_arrow", spied)
    return found


@pytest.mark.slow
def test_a_row_that_is_too_wide_makes_the_job_run_again_in_smaller_batches(
    warehouse: Warehouse, spark: SparkSession, limits: list[bool]
) -> None:
    before = spark.conf.get(LIMIT)
    table = warehouse.create_table("db.t", "id bigint, v string, b binary")
    text = F.expr("repeat('x', CASE WHEN id % 100 = 99 THEN 30000 ELSE 10 END)")
    rows = spark.range(0, 300, 1, 3).select(
        "id", text.alias("v"), F.lit("b").cast("binary").alias("b")
    )
    table.insert(rows.filter("id % 100 <> 99"))
    assert limits == [False]
    table.insert(rows.filter("id % 100 = 99"))
    assert limits == [False, False, True]
    assert table.update({"v": "concat(v, 'y')"}, "id >= 198") == 102
    assert table.delete("id = 0") == 1
    assert limits == [False, False, True, True, False], "a DELETE sends no text"
    found = table.read().selectExpr("id", "length(v) AS n").collect()
    assert {row.id: row.n for row in found} == {
        i: (30_000 if i % 100 == 99 else 10) + (i >= 198) for i in range(1, 300)
    }
    assert spark.conf.get(LIMIT) == before


@pytest.mark.parametrize(
    ("longest", "fits"), [(WIDEST - 1, True), (WIDEST, False)], ids=["fits", "does not"]
)
def test_all_texts_of_a_row_count_together(
    warehouse: Warehouse, spark: SparkSession, limits: list[bool], longest: int, fits: bool
) -> None:
    table = warehouse.create_table("db.t", "v string, n string, c char(1)")
    row = spark.range(1).selectExpr(f"repeat('x', {longest}) AS v", "CAST(NULL AS string) AS n",
                                    "'a' AS c")  # fmt: skip
    table.insert(row)
    assert limits == ([False] if fits else [False, True])
    assert table.count() == 1


def test_spark_measures_batches_with_nested_values(
    warehouse: Warehouse, spark: SparkSession, limits: list[bool]
) -> None:
    table = warehouse.create_table("db.t", "id bigint, v array<int>")
    table.insert(spark.range(3).selectExpr("id", "array(1, 2) AS v"))
    assert limits == [True] and table.count() == 3


def test_the_limit_is_back_when_the_last_of_several_statements_ends(
    warehouse: Warehouse, spark: SparkSession
) -> None:
    before = spark.conf.get(LIMIT)
    inside = Barrier(2)

    def statement(number: int) -> str:
        with task_writing._without_limit(spark):
            inside.wait(30)
            limit = str(spark.conf.get(LIMIT))
        return limit

    with ThreadPoolExecutor(2) as pool:
        assert set(pool.map(statement, range(2))) == {task_writing._NO_LIMIT}
    assert spark.conf.get(LIMIT) == before
    with pytest.raises(ZeroDivisionError), task_writing._without_limit(spark):
        1 / 0  # noqa: B018
    assert spark.conf.get(LIMIT) == before


def test_a_limit_that_somebody_else_has_lifted_is_left_to_them(spark: SparkSession) -> None:
    """Such as a statement that has another Python object for the same session."""
    before = spark.conf.get(LIMIT)
    spark.conf.set(LIMIT, task_writing._NO_LIMIT)
    try:
        with task_writing._without_limit(spark):
            spark.conf.set(LIMIT, str(before))
        assert spark.conf.get(LIMIT) == before
    finally:
        spark.conf.set(LIMIT, str(before))
