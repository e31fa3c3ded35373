"""Thirty days, of which the files named in DAYS_WITHOUT_POINT are bad: a backfill of them works on
a branch. Loaded by `test_branch_backfill`."""

# No `from __future__ import annotations`: Dagster reads the annotations of its functions.
import os
from pathlib import Path
from typing import Any

import dagster as dg

from acid_platform.orchestration import TableDeclaration, WarehouseResource, acid_asset, services
from acid_platform.orchestration.resources import SparkResource

BAD = "DAYS_WITHOUT_POINT"
DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-31")


@acid_asset(
    table=TableDeclaration("shop.days", "amount int", partitioned_by=("day string",)),
    partitions_def=DAYS,
    partition_expr="day",
)
def days(context: dg.AssetExecutionContext) -> list[dict[str, Any]]:
    bad = context.partition_key in Path(os.environ[BAD]).read_text().split()
    return [{"amount": 1}, {"amount": 100_000 if bad else 2}]


@dg.asset_check(asset=days)
def no_day_is_too_good(warehouse: dg.ResourceParam[WarehouseResource]) -> dg.AssetCheckResult:
    with warehouse.open() as opened:
        return dg.AssetCheckResult(passed=not opened.table("shop.days").count("amount > 10000"))


defs = dg.Definitions.merge(
    services(),
    dg.Definitions(
        assets=[days],
        asset_checks=[no_day_is_too_good],
        executor=dg.in_process_executor,
        resources={"warehouse": WarehouseResource(), "spark": SparkResource()},
    ),
)
