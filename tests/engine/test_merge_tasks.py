"""trinodb/trino #14637: MERGE into a partitioned table drops rows when several tasks write.

The cause was that a bucket file or `_orc_acid_version` could not be written, and the statement
committed without it. So here many tasks write the right rows, and a file that can't be written
fails the statement and leaves nothing visible.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pyspark.sql import DataFrame, SparkSession

from acid_platform import AcidError, Table, Warehouse
from acid_platform.storage import durability
from acid_platform.write import task_files
from acid_platform.write.publishing import Staging
from tests.conftest import temporary_warehouse

pytestmark = pytest.mark.spark

COLUMNS = "customer string, purchases int, zip int, spouse string, region int"
REGIONS = 3
TASKS = 4
Row = tuple[str, int, int, str, int]


@pytest.fixture
def warehouse(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Warehouse]:
    """Writes with many tasks: one for each eight rows that a MERGE inserts."""
    monkeypatch.setattr(task_files, "_ROWS_PER_FILE", 8)
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", str(TASKS))
    with temporary_warehouse(tmp_path / "wh", spark) as opened:
        yield opened
    spark.conf.set("spark.sql.shuffle.partitions", str(before))


def row(k: int, purchases: int, zipped: int, spouse: str) -> Row:
    return f"joe_{k}", purchases, zipped, f"{spouse}_{k}", k % REGIONS


def frame(warehouse: Warehouse, rows: list[Row]) -> DataFrame:
    return warehouse.spark.createDataFrame(rows, COLUMNS).repartition(TASKS)


def stored(table: Table) -> list[Row]:
    found = sorted(tuple(row) for row in table.read().collect())
    assert found == sorted(tuple(row.values()) for row in table.to_arrow().to_pylist())
    return found


def table_of(warehouse: Warehouse, rows: list[Row]) -> Table:
    name = COLUMNS.rpartition(", ")
    table = warehouse.create_table(
        "db.merged",
        name[0],
        partitioned_by=[name[2]],
        properties={"acid.write.distribution": "none"},  # files from each task
    )
    table.insert(frame(warehouse, rows))
    return table


ON = "t.customer = s.customer AND t.region = s.region"
CHANGES = {"purchases": "s.purchases", "zip": "s.zip"}


@pytest.mark.slow
def test_many_tasks_merge_right_rows(warehouse: Warehouse) -> None:
    table = table_of(warehouse, [row(k, 1000, 50_000, "jan") for k in range(48)])
    counts = table.merge(
        frame(warehouse, [row(k, 3000, 83_000, "jill") for k in range(24, 112)]),
        ON,
        when_matched_update=CHANGES,
        when_matched_delete="t.purchases = 1000 AND t.region = 2",
        when_not_matched_insert="*",
    )
    rows = [row(k, 1000, 50_000, "jan") for k in range(24)]
    rows += [row(k, 3000, 83_000, "jan") for k in range(24, 48) if k % REGIONS != 2]
    rows += [row(k, 3000, 83_000, "jill") for k in range(48, 112)]
    assert stored(table) == sorted(rows)
    assert (counts.updated, counts.deleted, counts.inserted) == (16, 8, 64)
    written = {path.name for path in Path(table.location).glob("region=*/delta_0000002_*/bucket_*")}
    assert len(written) > TASKS, "this was to be written by many tasks"
    table.merge(
        frame(warehouse, [row(k, 5000, 85_000, "jen") for k in range(112)]),
        ON,
        when_matched_update={**CHANGES, "spouse": "s.spouse"},
        when_not_matched_insert="*",
    )
    assert stored(table) == sorted(row(k, 5000, 85_000, "jen") for k in range(112))


STEPS = {
    "a version file": (Staging, "mark_version"),
    "a directory of files": (Staging, "ready"),
    "a directory that is put in its place": (durability, "_rename"),
}


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_a_file_that_cannot_be_written_ends_the_merge(warehouse: Warehouse, step: str) -> None:
    before = [row(k, 1000, 50_000, "jan") for k in range(20)]
    source = [row(k, 3000, 83_000, "jill") for k in range(10, 40)]
    table = table_of(warehouse, before)
    place, name = STEPS[step]
    real, calls = getattr(place, name), 0
    fails_at = REGIONS  # other files of the same kind have been written by then

    def failing(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls >= fails_at:
            raise OSError(5, "could only be written to 0 of the 1 minReplication nodes")
        return real(*args)

    def run() -> None:
        table.merge(
            frame(warehouse, source), ON, when_matched_update=CHANGES, when_not_matched_insert="*"
        )

    with (
        mock.patch.object(place, name, failing),
        pytest.raises((AcidError, OSError), match="minReplication"),
    ):
        run()
    assert calls >= fails_at
    assert stored(table) == sorted(before)
    run()
    assert stored(table) == sorted(
        [row(k, 1000, 50_000, "jan") for k in range(10)]
        + [row(k, 3000, 83_000, "jan") for k in range(10, 20)]
        + [row(k, 3000, 83_000, "jill") for k in range(20, 40)]
    )
