"""First runs of assets that read themselves, or of which no partition is upstream: they get no
rows, of the type that they want."""

# No `from __future__ import annotations`: Dagster reads the annotations of its functions.
from collections.abc import Callable
from typing import Any

import dagster as dg
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from acid_platform.orchestration import (
    TableDeclaration,
    TableInput,
    acid_asset,
)
from tests.orchestration import conftest
from tests.orchestration.conftest import Place

DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-04")
FIRST, SECOND, THIRD = DAYS.get_partition_keys()
BEFORE = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)
COUNTS: dict[type, Callable[[Any], int]] = {
    pd.DataFrame: len,
    pl.DataFrame: len,
    pa.Table: lambda table: table.num_rows,
    pa.RecordBatchReader: lambda batches: batches.read_all().num_rows,
    DataFrame: lambda frame: int(frame.count()),
}


def annotated(body: Callable[..., Any], kind: type, name: str) -> Any:
    body.__annotations__ = {name: kind}
    return body


def by_io_manager(kind: type) -> dg.AssetsDefinition:
    def running(running: Any) -> Any:
        return [{"total": COUNTS[kind](running) + 1}]

    return dg.asset(
        key_prefix="db",
        partitions_def=DAYS,
        metadata={"partition_expr": "day"},
        ins={"running": dg.AssetIn(["db", "running"], partition_mapping=BEFORE)},
    )(annotated(running, kind, "running"))


def in_a_transaction(kind: type, table: TableDeclaration) -> dg.AssetsDefinition:
    def running(running: Any) -> Any:
        return [{"total": COUNTS[kind](running) + 1}]

    return acid_asset(
        table=table,
        partitions_def=DAYS,
        partition_expr="day",
        ins={"running": TableInput("db.running", partition_mapping=BEFORE)},
    )(annotated(running, kind, "running"))


ASSETS: dict[str, Callable[[type], dg.AssetsDefinition]] = {
    "IO manager": by_io_manager,
    "transaction": lambda kind: in_a_transaction(
        kind, TableDeclaration("db.running", partitioned_by=("day string",))
    ),
    "declared": lambda kind: in_a_transaction(
        kind, TableDeclaration("db.running", "total bigint", ("day string",))
    ),
}
KINDS = [
    pytest.param(
        kind,
        id=f"{kind.__module__.partition('.')[0]} {kind.__name__}",
        marks=pytest.mark.spark if kind is DataFrame else (),
    )
    for kind in COUNTS
]


def run(place: Place, asset: Any, partition: str | None = None) -> bool:
    return conftest.run(place, asset, engine="local", partition_key=partition).success


@pytest.mark.more
@pytest.mark.parametrize("made_by", ASSETS)
@pytest.mark.parametrize("kind", KINDS)
def test_an_asset_that_reads_its_partition_of_before_begins_with_no_rows(
    place: Place, kind: type, made_by: str
) -> None:
    asset = ASSETS[made_by](kind)
    assert [run(place, asset, day) for day in (FIRST, SECOND)] == [True, True]
    rows = place.warehouse.table("db.running").to_arrow().to_pylist()
    assert sorted((row["day"], row["total"]) for row in rows) == [(FIRST, 1), (SECOND, 2)]


@pytest.mark.more
@pytest.mark.parametrize("made_by", ASSETS)
def test_it_may_begin_with_any_partition(place: Place, made_by: str) -> None:
    assert run(place, ASSETS[made_by](pa.Table), THIRD)
    assert place.warehouse.table("db.running").count("total = 1") == 1


def test_what_is_downstream_of_no_partition_gets_no_rows(place: Place) -> None:
    """A table that is not there is an error all the same, if rows of it were wanted."""
    none = dg.DynamicPartitionsDefinition(name="none_yet")

    def upstream(definition: Any) -> dg.AssetSpec:
        metadata = {"partition_expr": "day"} if definition else {}
        return dg.AssetSpec(["db", "source"], partitions_def=definition, metadata=metadata)

    def downstream(source: pa.Table) -> list[dict[str, int]]:
        return [{"rows": source.num_rows}]

    made = dg.asset(key_prefix="db", ins={"source": dg.AssetIn(["db", "source"])})(downstream)
    for definition, succeeds in ((none, True), (None, False)):
        done = conftest.run(place, made, upstream(definition), engine="local")
        assert done.success is succeeds
