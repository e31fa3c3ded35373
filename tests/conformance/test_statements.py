"""Every statement in the files of `statements` and of tests/published answers what its file says,
whatever engine runs it and wherever the tables are (P33)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.configurations import Configuration
from tests.conformance.slt import OURS, PUBLISHED, Case, cases
from tests.conftest import temporary_warehouse
from tests.connect_server import ROOT, connect_server
from tests.gateway.clients import connected
from tests.gateway.conftest import serving
from tests.stores.conftest import a_bucket, a_server, opened

OUR_CASES = [pytest.param(case, id=f"{case.file[:-4]} {case.test}") for case in cases(OURS)]
MORE_CASES = [
    pytest.param(case, id=f"{case.file[:-4]} {case.test}") for case in cases(OURS / "more")
]
"""What Spark and S3 are asked in `make test-all`, and the local engine in `make test`."""
PUBLISHED_CASES = [
    pytest.param(
        case,
        id=f"{case.project} {case.test}",
        # What these ask is much that other tests ask: too long for `make test-all`.
        marks=[pytest.mark.slow] * (case.file in {"delta.slt", "iceberg.slt"}),
    )
    for case in cases(PUBLISHED)
]


def changes(parameter: Any) -> bool:
    """Whether some statement of the case may change a table."""
    [case] = parameter.values
    return any(record.rows is None and not record.error for record in case.records)


@pytest.fixture(
    scope="module",
    params=[
        "local",
        pytest.param("spark", marks=pytest.mark.spark),
        pytest.param("s3", marks=pytest.mark.more),
    ],
)
def configuration(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Configuration]:
    over_connect = request.param == "spark" and "ACID_SPARK_REMOTE" in os.environ
    name = "spark-connect" if over_connect else request.param
    path: Path = tmp_path_factory.mktemp("conformance")
    if name == "s3":
        with a_server("s3") as server, a_bucket(server, path), opened() as warehouse:
            yield Configuration(name, warehouse)
        return
    spark = request.getfixturevalue("spark") if request.param == "spark" else None
    with temporary_warehouse(path / "wh", spark, request.param) as warehouse:
        yield Configuration(name, warehouse)


@pytest.fixture(scope="module")
def through_the_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Configuration]:
    path: Path = tmp_path_factory.mktemp("gateway")
    with (
        temporary_warehouse(path / "wh", engine="local") as warehouse,
        serving(warehouse) as server,
        connected(server.address) as client,
    ):
        warehouse.metastore.set("acid.format.default", "orc")  # the client knows no other
        yield Configuration("gateway", warehouse, client)


@pytest.mark.more
@pytest.mark.parametrize(
    "case",
    [
        *filter(changes, [*OUR_CASES, *MORE_CASES]),
        *(
            pytest.param(*parameter.values, id=parameter.id, marks=pytest.mark.slow)
            for parameter in filter(changes, PUBLISHED_CASES)
        ),
    ],
)
def test_P34_another_engine_reads_what_each_statement_leaves(
    through_the_gateway: Configuration, case: Case
) -> None:
    through_the_gateway.check(case)


@pytest.mark.parametrize("case", OUR_CASES)
def test_P33_our_statements(configuration: Configuration, case: Case) -> None:
    configuration.check(case)


@pytest.mark.parametrize("case", MORE_CASES)
@pytest.mark.parametrize(
    "configuration",
    [
        "local",
        pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.more]),
        pytest.param("s3", marks=pytest.mark.more),
    ],
    indirect=True,
)
def test_P33_more_of_our_statements(configuration: Configuration, case: Case) -> None:
    configuration.check(case)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_P33_our_statements_over_spark_connect(tmp_path: Path) -> None:
    """In a process of its own: one holds either classic sessions or those of Spark Connect."""
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    chosen = "our_statements and spark and not connect"
    with connect_server(tmp_path / "server.log") as (remote, _):
        done = subprocess.run(
            [*run, "-k", chosen, __file__],
            cwd=ROOT,
            env={**os.environ, "ACID_SPARK_REMOTE": remote},
            capture_output=True,
            text=True,
        )
    assert done.returncode == 0, done.stdout


@pytest.mark.more
@pytest.mark.parametrize("case", PUBLISHED_CASES)
@pytest.mark.parametrize("configuration", ["local"], indirect=True)
def test_P33_published_statements(configuration: Configuration, case: Case) -> None:
    configuration.check(case)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("case", PUBLISHED_CASES)
@pytest.mark.parametrize("configuration", ["spark"], indirect=True)
def test_P33_published_statements_in_spark(configuration: Configuration, case: Case) -> None:
    configuration.check(case)
