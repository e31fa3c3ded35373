"""The asset that `benchmarks.launching` compares with: it does nothing and imports only Dagster."""

# No `from __future__ import annotations`: Dagster reads the annotations of its functions.
import dagster as dg

JOB = "empty_job"


@dg.asset
def empty() -> None:
    pass


defs = dg.Definitions(
    assets=[empty], executor=dg.in_process_executor, jobs=[dg.define_asset_job(JOB, [empty])]
)
