"""TPC-H and TPC-DS, rows and queries that nobody here wrote: without a JVM as Spark answers."""

from __future__ import annotations

import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest

from acid_platform import Warehouse
from benchmarks.tpc.answers import answers, fetch, load
from benchmarks.tpc.measure import crossed, judged, on_parquet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.more
@pytest.mark.timeout(1200)
def test_all_of_tpc_without_a_jvm(tmp_path: Path, spark: SparkSession) -> None:
    """Names, types and rows of every query, at scale 0.1, by plans with no more cross products than
    DuckDB's own."""
    try:
        folder = fetch("0.1")
    except subprocess.CalledProcessError:
        pytest.skip("no index has the packages in benchmarks/tpc/packages.txt")
    found = {}
    with Warehouse.open(tmp_path / "warehouse") as warehouse:
        load(warehouse, folder)
        for answer in answers(folder, spark, ("h", "ds")):
            warehouse.sql(f"USE {answer.benchmark}")
            found[answer.name], result = judged(warehouse, answer)
            if result is not None:
                connection, text = on_parquet(folder, answer)
                with connection, suppress(duckdb.Error):  # of a text that DuckDB itself refuses
                    assert crossed(connection, text, result) <= 0, answer.name
    assert {name: state for name, state in found.items() if state != "right"} == {}
    assert len(found) == 22 + 99
