"""Names mean what Spark's rules say, whatever scopes, aliases, databases and structs surround them.

The oracle is an independent resolver, and DuckDB over plain tables.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from acid_platform import Warehouse, errors
from tests.conftest import temporary_warehouse
from tests.sql.generated_names import TABLES, VIEWS, Generator, declared, rows_of

REFUSALS = (errors.InvalidExpression, errors.UnknownColumn, errors.UnsupportedStatement)


def filled(warehouse: Warehouse) -> None:
    for name in ("a", "b"):
        warehouse.sql(f"CREATE DATABASE {name}")
    for table, columns in TABLES.items():
        if table not in VIEWS:
            warehouse.create_table(table, declared(columns)).insert(rows_of(table))
    warehouse.sql("USE a")
    for view, query in VIEWS.items():
        warehouse.sql(f"CREATE VIEW {view} AS {query}")


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    with temporary_warehouse(tmp_path_factory.mktemp("names") / "wh", engine="local") as opened:
        filled(opened)
        yield opened


@pytest.fixture(scope="module")
def oracle() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        for table in TABLES:
            if table not in VIEWS:
                connection.register("rows", pa.Table.from_pylist(rows_of(table)))
                connection.execute(f'CREATE TABLE "{table}" AS SELECT * FROM rows')
        connection.execute('CREATE VIEW "a.seen" AS SELECT id, v FROM "a.users" WHERE id > 1')
        yield connection


def compared(
    warehouse: Warehouse, oracle: duckdb.DuckDBPyConnection, seed: int, count: int
) -> Counter[str]:
    """How many statements were answered, and refused for each reason."""
    generator, outcomes = Generator(random.Random(seed)), Counter[str]()
    for _ in range(count):
        text, right = generator.pair()
        expected = None if right is None else sorted(oracle.sql(right).fetchall())
        try:
            found = sorted(
                (row["r"],)
                for row in warehouse.sql(text).to_arrow().to_pylist()  # type: ignore[union-attr]
            )
        except errors.NeedsSpark:
            outcomes["needs Spark"] += 1
        except REFUSALS as error:
            if expected is not None:
                outcomes[f"refused: {type(error).__name__}"] += 1
                assert isinstance(error, errors.UnsupportedStatement), (text, error)
            outcomes["wrong and refused"] += expected is None
        else:
            assert found == expected, text
            outcomes["answered"] += 1
    return outcomes


@pytest.mark.more
def test_names_mean_what_an_independent_resolver_says(
    warehouse: Warehouse, oracle: duckdb.DuckDBPyConnection
) -> None:
    outcomes = compared(warehouse, oracle, 1, 150)
    assert outcomes["answered"] > 75, outcomes


def deleted_rows_agree(
    warehouse: Warehouse, oracle: duckdb.DuckDBPyConnection, seed: int, count: int
) -> int:
    """DELETE of the rows of a.users for which a generated EXISTS holds."""
    generator, agreed = Generator(random.Random(seed)), 0
    while agreed < count:
        generator.members = 0
        generator.wrong, generator.ctes = False, {}
        from tests.sql.generated_names import Member

        alias = generator.choose.choice((None, None, "x", "a"))
        target = Member("a.users", alias, "x0", TABLES["a.users"])
        inner = generator._query([[target]], 1)
        if generator.wrong:
            continue
        word = generator.choose.choice(("EXISTS", "NOT EXISTS"))
        text = f"DELETE FROM a.users{f' AS {alias}' if alias else ''} WHERE {word} ({inner[0]})"
        count_right = f'SELECT count(*) FROM "a.users" AS x0 WHERE {word} ({inner[1]})'
        ((expected,),) = oracle.sql(count_right).fetchall()
        warehouse.sql("START TRANSACTION")
        try:
            found = warehouse.sql(text)
        except (errors.NeedsSpark, errors.UnsupportedStatement):
            continue  # which rolled the transaction back
        warehouse.sql("ROLLBACK")
        assert found.rows == expected, text  # type: ignore[union-attr]
        agreed += 1
    return agreed


@pytest.mark.more
def test_a_delete_removes_the_rows_that_an_independent_resolver_says(
    warehouse: Warehouse, oracle: duckdb.DuckDBPyConnection
) -> None:
    assert deleted_rows_agree(warehouse, oracle, 2, 15) == 15


@pytest.mark.slow
def test_names_of_a_thousand_statements(
    warehouse: Warehouse, oracle: duckdb.DuckDBPyConnection
) -> None:
    compared(warehouse, oracle, 3, 1000)
    deleted_rows_agree(warehouse, oracle, 4, 200)


@pytest.mark.slow
@pytest.mark.spark
def test_names_of_a_thousand_statements_in_spark(
    tmp_path: Path, spark: SparkSession, oracle: duckdb.DuckDBPyConnection
) -> None:
    with temporary_warehouse(tmp_path / "wh", spark) as opened:
        filled(opened)
        outcomes = compared(opened, oracle, 5, 1000)
    assert not outcomes["needs Spark"]
