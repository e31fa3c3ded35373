"""What a client of a Spark Connect server does beside SQL, for test_connect.py; in its own process.

One process holds either classic sessions or Connect sessions, and the other tests' is classic.
`python -m tests.engine.over_connect WAREHOUSE` prints, as JSON, what each step gave.
"""

# No `from __future__ import annotations`: Dagster reads the annotations of its functions.
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

import dagster as dg
import pyarrow as pa
from pyspark.sql import functions as F

import definitions
from acid_platform import (
    SnapshotExpired,
    TxnAborted,
    Warehouse,
)
from acid_platform.orchestration import Expectation, TableDeclaration, acid_asset
from acid_platform.orchestration.resources import SparkResource, WarehouseResource
from acid_platform.services import cleaner
from tests.conftest import compact_with

TABLE = TableDeclaration("db.m", "id int, v string")
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


def rows(wh: Warehouse, name: str = "db.t", **read: Any) -> list[list[Any]]:
    return sorted(list(row) for row in wh.table(name).read(**read).collect())


def insert(wh: Warehouse) -> Any:
    table = wh.create_table("db.t", "id int, v string", partitioned_by=["p int"])
    table.insert([{"id": 1, "v": "a", "p": 1}, {"id": 2, "v": "b", "p": 2}])
    table.insert(pa.table({"id": [3, 4], "v": ["c", "d"], "p": [1, 2]}))
    table.insert(
        wh.spark.range(5, 7).select(
            F.col("id").cast("int"), F.lit("e").alias("v"), F.lit(1).alias("p")
        )
    )
    return rows(wh)


def update(wh: Warehouse) -> Any:
    return [wh.table("db.t").update({"v": "upper(v)"}, "id > 3"), rows(wh, where="id > 3")]


def delete(wh: Warehouse) -> Any:
    return [wh.table("db.t").delete("id = 2"), rows(wh, columns=["id"])]


def minor(wh: Warehouse) -> Any:
    before = rows(wh)
    states = [one["state"] for one in wh.table("db.t").compact("minor")]
    return [states, rows(wh) == before]


def major(wh: Warehouse) -> Any:
    wh.table("db.t").update({"v": "concat(v, '!')"})
    before = rows(wh)
    states = [one["state"] for one in wh.table("db.t").compact("major")]
    return [states, rows(wh) == before]


def insert_only(wh: Warehouse) -> Any:
    """Spark itself copies such a table, and merges nothing."""
    properties = {"transactional_properties": "insert_only"}
    table = wh.create_table("db.i", "id int", properties=properties)
    for number in (1, 2):
        table.insert([{"id": number}])
    states = [one["state"] for one in table.compact("major")]
    return [states, rows(wh, "db.i")]


def expiry(wh: Warehouse) -> Any:
    """An old frame whose files are gone raises an error that says so (P12, P18)."""
    frame = wh.table("db.t").read()
    wh.table("db.t").delete("id = 1")
    wh.table("db.t").compact("major")
    wh.release()
    while cleaner.run(wh.metastore):
        pass
    try:
        return frame.collect()
    except SnapshotExpired:
        return "SnapshotExpired"


def abort(wh: Warehouse) -> Any:
    """An aborted transaction can't write (P2, P4)."""
    try:
        with wh.transaction() as txn:
            wh.abort_transactions([txn.id])
            txn.table("db.t").insert(
                wh.spark.range(1).selectExpr("cast(id AS int) AS id", "'x' AS v", "1 AS p")
            )
    except TxnAborted as error:
        return type(error).__name__
    return "committed"


def materialization(wh: Warehouse) -> Any:
    small = Expectation("small", "ExpectColumnValuesToBeBetween", {"column": "id", "max_value": 9})

    @acid_asset(table=TABLE, expectations=[small])
    def build(spark: SparkResource) -> Any:
        return spark.spark_session.range(3).selectExpr("cast(id AS int) AS id", "'x' AS v")

    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize(
            [build],
            instance=instance,
            run_config=QUIET,
            resources={"warehouse": WarehouseResource(path=wh.path), "spark": SparkResource()},
        )
        [check] = result.get_asset_check_evaluations()
    return [result.success, check.passed, rows(wh, TABLE.name)]


def blocked(wh: Warehouse) -> Any:
    """A check that fails keeps the rows invisible."""
    small = Expectation("small", "ExpectColumnValuesToBeBetween", {"column": "id", "max_value": 9})

    @acid_asset(table=TABLE, expectations=[small])
    def build(spark: SparkResource) -> Any:
        return spark.spark_session.range(99, 100).selectExpr("cast(id AS int) AS id", "'y' AS v")

    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize(
            [build],
            instance=instance,
            run_config=QUIET,
            raise_on_error=False,
            resources={"warehouse": WarehouseResource(path=wh.path), "spark": SparkResource()},
        )
        [check] = result.get_asset_check_evaluations()
    return [result.success, check.passed, rows(wh, TABLE.name)]


def compaction_job(wh: Warehouse) -> Any:
    wh.table(TABLE.name).delete("id = 1")
    wh.metastore.request_compaction(TABLE.name, None, "major")
    config = {**QUIET, "ops": {"queued": {"config": {"table": TABLE.name}}}}
    with dg.DagsterInstance.ephemeral() as instance:
        result = (
            definitions.defs()
            .resolve_job_def("compaction_job")
            .execute_in_process(
                run_config=config,
                instance=instance,
                resources={
                    "warehouse": WarehouseResource(path=wh.path),
                    "spark": SparkResource(),
                    "in_memory": dg.mem_io_manager,
                },
            )
        )
    return [result.success, rows(wh, TABLE.name)]


STEPS: tuple[Callable[[Warehouse], Any], ...] = (
    insert,
    update,
    delete,
    minor,
    major,
    insert_only,
    expiry,
    abort,
    materialization,
    blocked,
    compaction_job,
)


def main() -> None:
    told: dict[str, Any] = {}
    os.environ["ACID_ENGINE"] = "spark"  # otherwise the local engine does all that is small
    with Warehouse.open(sys.argv[1]) as warehouse:
        compact_with(warehouse, "spark")
        for step in STEPS:
            try:
                told[step.__name__] = step(warehouse)
            except Exception:
                told[step.__name__] = traceback.format_exc()
        warehouse.release()
        warehouse.metastore.stop()
    print(json.dumps(told))


if __name__ == "__main__":
    main()
