"""Every case of the published tests answers what its file says, in both engines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

import pytest
from pyspark.sql import SparkSession

from acid_platform import Warehouse
from acid_platform.sql.answers import Done
from acid_platform.sql.present import hive_text, rows_of
from acid_platform.sql.sql_session import SqlSession
from tests.conftest import temporary_warehouse
from tests.published.slt import Case, Rows, Run, cases, check

IN_THE_FULL_RUN = {"delta.slt", "iceberg.slt"}
"""Files whose cases ask much that other tests ask: too long for `make test-all`."""
CASES = [(case, f"{case.project} {case.test}") for case in cases()]
Sessions = Callable[[], Run]
"""Begins a session in a database of its own."""


def sessions_of(warehouse: Warehouse, engine: str) -> Sessions:
    numbers = count(1)

    def begin() -> Run:
        session = SqlSession(warehouse)
        name = f"case_{next(numbers)}"
        session.run(f"CREATE DATABASE {name}; USE {name}")

        def run(statement: str) -> Rows | int | None:
            [(_, outcome)] = session.steps(statement, engine)
            if isinstance(outcome, Done):
                return outcome.rows
            result = rows_of(outcome)
            rows = result.rows if result else ()
            return [[shown(value) for value in row.values()] for row in rows]

        return run

    return begin


def shown(value: object) -> str:
    return str(hive_text("", value)) or "(empty)"


@pytest.fixture(scope="module")
def locally(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sessions]:
    path = tmp_path_factory.mktemp("published") / "wh"
    with temporary_warehouse(path, engine="local") as warehouse:
        yield sessions_of(warehouse, "local")


@pytest.fixture(scope="module")
def in_spark(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Sessions]:
    path = tmp_path_factory.mktemp("published") / "wh"
    with temporary_warehouse(path, spark, "spark") as warehouse:
        yield sessions_of(warehouse, "spark")


@pytest.mark.more
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=name, marks=[pytest.mark.slow] * (case.file in IN_THE_FULL_RUN))
        for case, name in CASES
    ],
)
def test_without_a_jvm(case: Case, locally: Sessions) -> None:
    check(case, locally(), is_spark=False)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("case", [pytest.param(case, id=name) for case, name in CASES])
def test_with_spark(case: Case, in_spark: Sessions) -> None:
    check(case, in_spark(), is_spark=True)
