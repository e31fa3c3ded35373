"""The asset that `benchmarks.launching` materializes: a thousand rows in one transaction."""

# No `from __future__ import annotations`: Dagster reads the annotations of its functions.
import dagster as dg
import pandas as pd

from acid_platform.orchestration import TableDeclaration, acid_asset
from acid_platform.orchestration.resources import SparkResource, WarehouseResource

JOB = "small_job"


@acid_asset(table=TableDeclaration("bench.small", "id bigint, v string"))
def small() -> pd.DataFrame:
    return pd.DataFrame({"id": range(1000), "v": "x"})


defs = dg.Definitions(
    assets=[small],
    executor=dg.in_process_executor,
    jobs=[dg.define_asset_job(JOB, [small])],
    resources={"warehouse": WarehouseResource(), "spark": SparkResource()},
)
