"""A Dagster location with one monthly asset, which a daemon backfills."""

# No `from __future__ import annotations`: Dagster reads the annotations of its functions.
import dagster as dg

from acid_platform.orchestration import Expectation, TableDeclaration, acid_asset
from acid_platform.orchestration.resources import SparkResource, WarehouseResource

TABLE = TableDeclaration("db.t", "n int, run string", ("year int", "month int"))
MONTHS = dg.MonthlyPartitionsDefinition("2023-01-01", end_date="2024-01-01")


@acid_asset(
    table=TABLE,
    partitions_def=MONTHS,
    partition_expr="year=%Y/month=%m",
    expectations=[Expectation("n_is_given", "ExpectColumnValuesToNotBeNull", {"column": "n"})],
)
def sales(context: dg.AssetExecutionContext) -> list[dict[str, object]]:
    """As many rows as the month's number says; each names its run."""
    return [{"n": one, "run": context.run.run_id} for one in range(int(context.partition_key[5:7]))]


defs = dg.Definitions(
    assets=[sales],
    executor=dg.in_process_executor,
    resources={"warehouse": WarehouseResource(), "spark": SparkResource()},
)
