"""A program that materializes assets and compacts a table where neither pyspark nor Great
Expectations can be imported; prints what came of it."""

# No `from __future__ import annotations`: Dagster reads the annotations of its functions.
import json
import sys

for missing in ("pyspark", "py4j", "great_expectations"):
    sys.modules[missing] = None  # type: ignore[assignment]

import dagster as dg  # noqa: E402
import pandas as pd  # noqa: E402
import pyarrow as pa  # noqa: E402

from acid_platform import Warehouse  # noqa: E402
from acid_platform.orchestration import (  # noqa: E402
    AcidOut,
    Expectation,
    TableDeclaration,
    TableInput,
    acid_asset,
    acid_multi_asset,
    table_checks,
)
from acid_platform.orchestration.resources import SparkResource, WarehouseResource  # noqa: E402
from acid_platform.orchestration.service_jobs import compaction_job  # noqa: E402

GIVEN = Expectation("ids_are_given", "ExpectColumnValuesToNotBeNull", {"column": "id"})
FEW = Expectation(
    "ids_are_small", "ExpectColumnValuesToBeBetween", {"column": "id", "max_value": 9}
)
REGIONS = dg.StaticPartitionsDefinition(["eu", "us"])


@acid_asset(table=TableDeclaration("db.a", "id bigint, v string"), expectations=[GIVEN])
def a() -> pd.DataFrame:
    return pd.DataFrame({"id": range(20), "v": "x"})


@acid_asset(
    table=TableDeclaration("db.b", "id bigint", partitioned_by=("region string",)),
    partitions_def=REGIONS,
    partition_expr="region",
    ins={"a": TableInput("db.a", columns=["id"], where="id < 3")},
)
def b(a: pa.Table) -> pa.Table:
    return a


@acid_asset(table="db.c", write_mode="append")
def c(a: pd.DataFrame) -> list[dict[str, object]]:
    return [{"n": len(a), "day": "monday"}]


@acid_multi_asset(
    outs=[
        AcidOut(TableDeclaration("db.d", "id bigint, v string"), "upsert", key=["id"]),
        AcidOut(TableDeclaration("db.e", "id bigint, v string"), "delete+insert", key=["id"]),
    ]
)
def both() -> dict[str, object]:
    rows = pa.table({"id": [1, 2], "v": ["x", None]})
    return {"db.d": rows, "db.e": rows}


@acid_asset(table=TableDeclaration("db.f", "id bigint, v string"), expectations=[FEW])
def f(a: pd.DataFrame) -> pd.DataFrame:
    return a


def main(path: str) -> None:
    resources = {"warehouse": WarehouseResource(path=path), "spark": SparkResource()}
    quiet = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
    told = {}
    for name, asset, partition in (
        ("a", a, None),
        ("b", b, "eu"),
        ("b again", b, "eu"),
        ("c", c, None),
        ("c again", c, None),
        ("both", both, None),
        ("both again", both, None),
        ("f", f, None),
        ("checks", table_checks("of_a", "db.a", [GIVEN, FEW]), None),
    ):
        definitions = dg.Definitions(
            assets=[asset] if isinstance(asset, dg.AssetsDefinition) and name != "checks" else [],
            asset_checks=[asset] if name == "checks" else [],
            resources=resources,
            executor=dg.in_process_executor,
            jobs=[
                dg.define_asset_job(
                    "job",
                    dg.AssetSelection.all_asset_checks()
                    if name == "checks"
                    else dg.AssetSelection.all(),
                )
            ],
        )
        result = definitions.resolve_job_def("job").execute_in_process(
            partition_key=partition, run_config=quiet, raise_on_error=False
        )
        engines = {
            str(event.materialization.metadata["engines"].value).partition(":")[0]
            for event in result.get_asset_materialization_events()
        }
        checks = {one.check_name: one.passed for one in result.get_asset_check_evaluations()}
        errors = [
            event.step_failure_data.error.message  # type: ignore[union-attr]
            for event in result.all_events
            if event.is_step_failure
        ]
        told[name] = [result.success, sorted(engines), checks, errors]
    with Warehouse.open(path) as warehouse:
        warehouse.metastore.request_compaction("db.c", None, "minor")
        table = {"queued": {"config": {"table": "db.c"}}}
        result = compaction_job.execute_in_process(
            run_config={**quiet, "ops": table},
            resources={**resources, "in_memory": dg.mem_io_manager},
            raise_on_error=False,
        )
        told["compacted"] = [result.success, warehouse.metastore.compactions()[0]["state"]]
        rows = {name: warehouse.table(name).to_arrow().to_pylist() for name in warehouse.tables()}
    print(json.dumps([told, rows], default=str))


if __name__ == "__main__":
    main(sys.argv[1])
