"""Sensors decide without a JVM; the compaction job plans, merges, validates, publishes."""

# No `from __future__ import annotations`: Dagster reads the annotations of its functions.

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import pytest
from pyspark.sql import SparkSession

from acid_platform.errors import CheckErrored
from acid_platform.metastore.records import WriteReport
from acid_platform.orchestration import sensors
from acid_platform.orchestration.checks import Expectation, errored, evaluate
from acid_platform.orchestration.cleaning import cleaning_job
from acid_platform.orchestration.compaction import IN_MEMORY, compaction_job
from acid_platform.orchestration.materialize import materialize_table
from acid_platform.orchestration.metadata import TableDeclaration
from acid_platform.services import worker
from acid_platform.transactions import Operation
from acid_platform.transactions.locks import LockType
from acid_platform.warehouse import Warehouse
from resources import SparkResource, WarehouseResource
from tests.conftest import temporary_warehouse

EARLY = {"compactorthreshold.hive.compactor.delta.num.threshold": "2"}


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Warehouse]:
    with temporary_warehouse(tmp_path / "wh") as opened:
        yield opened


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as one:
        yield one


def _pretend(warehouse: Warehouse, deltas: int) -> None:
    """Commits reports of deltas that are not on disk: the Initiator lists nothing."""
    warehouse.create_table("db.t", "id int", properties=EARLY)
    for _ in range(deltas):
        with warehouse.metastore.begin() as txn:
            txn.lock("db.t", LockType.SHARED_WRITE, operation=Operation.INSERT)
            name = f"delta_{txn.write_ids['db.t']:07d}_{txn.write_ids['db.t']:07d}_0000"
            txn.commit([WriteReport("db.t", None, Operation.INSERT, name, 1, 100, 1)])


def _tick(sensor: Any, warehouse: Warehouse, instance: dg.DagsterInstance) -> dg.SensorResult:
    context = dg.build_sensor_context(
        instance=instance, resources={"warehouse": WarehouseResource(path=warehouse.path)},
        sensor_name=sensor.name)
    result = sensor(context)
    assert isinstance(result, dg.SensorResult)
    return result


def test_C21_the_initiator_sensor_asks_above_the_threshold_and_not_at_it(
    warehouse: Warehouse, instance: dg.DagsterInstance
) -> None:
    _pretend(warehouse, 2)
    quiet = _tick(sensors.initiator_sensor, warehouse, instance)
    assert not quiet.run_requests and quiet.skip_reason
    _pretend_more = warehouse.metastore.begin()
    _pretend_more.lock("db.t", LockType.SHARED_WRITE, operation=Operation.INSERT)
    _pretend_more.commit([WriteReport(
        "db.t", None, Operation.INSERT, "delta_0000003_0000003_0000", 1, 100, 1)])
    (request,) = _tick(sensors.initiator_sensor, warehouse, instance).run_requests or []
    assert request.tags["acid/table"] == "db.t"
    # The task waits; a second tick asks for the same run, which Dagster knows by its key.
    (again,) = _tick(sensors.initiator_sensor, warehouse, instance).run_requests or []
    assert again.run_key == request.run_key
    warehouse.metastore.set("hive.compactor.initiator.on", "false")
    off = _tick(sensors.initiator_sensor, warehouse, instance)
    assert not off.run_requests and "initiator.on" in str(off.skip_reason)


def test_the_cleaner_sensor_launches_nothing_while_nothing_is_removable(
    warehouse: Warehouse, instance: dg.DagsterInstance
) -> None:
    result = _tick(sensors.cleaner_sensor, warehouse, instance)
    assert not result.run_requests and result.skip_reason


def test_P2_what_a_failed_run_left_open_is_aborted(
    warehouse: Warehouse, instance: dg.DagsterInstance
) -> None:
    @dg.op
    def leaves_a_transaction_open(context: dg.OpExecutionContext) -> None:
        handle = Warehouse.open(warehouse.path, run_id=context.run_id)
        opened.append((handle, handle.transaction()))
        raise ValueError("died")

    @dg.job(executor_def=dg.in_process_executor)
    def dying() -> None:
        leaves_a_transaction_open()

    opened: list[Any] = []
    result = dying.execute_in_process(instance=instance, raise_on_error=False)
    assert not result.success
    (handle, txn), = opened
    other = warehouse.transaction()
    (event,) = result.filter_events(
        lambda one: one.event_type is dg.DagsterEventType.RUN_FAILURE)
    context = dg.build_run_status_sensor_context(
        "abort_failed_runs", event, instance, result.dagster_run,
        resources={"warehouse": WarehouseResource(path=warehouse.path)}).for_run_failure()
    sensors.abort_failed_runs(context)
    assert warehouse.metastore.txn_states([txn.id, other.id]) == {txn.id: "a", other.id: "o"}
    other.abort()
    handle.close()


# --- Great Expectations ----------------------------------------------------------------------


def test_an_expectation_fails_with_examples_and_an_error_is_no_failure() -> None:
    frame = pd.DataFrame({"a": [1, 2, None]})
    good = Expectation("present", "ExpectColumnToExist", {"column": "a"})
    bad = Expectation("whole", "ExpectColumnValuesToNotBeNull", {"column": "a"}, blocking=False)
    first, second = evaluate(frame, [good, bad])
    assert (first.passed, second.passed, second.blocks) == (True, False, False)
    assert second.details["unexpected_count"] == 1
    with pytest.raises(CheckErrored, match="absent"):
        evaluate(frame, [Expectation("absent", "ExpectColumnValuesToNotBeNull", {"column": "b"})])


@pytest.mark.parametrize("info", [
    {"raised_exception": True, "exception_message": "m", "exception_traceback": "t"},
    {"metric": {"raised_exception": True, "exception_message": "m"}},
])
def test_both_shapes_of_a_raised_exception_are_known(info: dict[str, Any]) -> None:
    assert errored(info) == "m"
    assert errored({"raised_exception": False}) is None and errored({}) is None


# --- with Spark --------------------------------------------------------------------------------


@pytest.fixture
def bound(warehouse: Warehouse, spark: SparkSession) -> dict[str, Any]:
    return {"warehouse": WarehouseResource(path=warehouse.path), "spark": SparkResource(),
            IN_MEMORY: dg.mem_io_manager}


def _run(instance: dg.DagsterInstance, bound: dict[str, Any]) -> dg.ExecuteInProcessResult:
    return compaction_job.execute_in_process(
        instance=instance, resources=bound, raise_on_error=False,
        run_config={"ops": {"queued": {"config": {"table": "db.t"}}}})


@pytest.mark.spark
def test_the_job_compacts_and_the_cleaner_removes_what_is_left(
    warehouse: Warehouse, spark: SparkSession, instance: dg.DagsterInstance, bound: dict[str, Any]
) -> None:
    table = warehouse.create_table("db.t", "id int", partitioned_by=["m int"], properties=EARLY)
    with Warehouse.open(warehouse.path, spark=spark) as handle:
        for i in range(3):
            handle.table("db.t").insert([{"id": i, "m": 1}, {"id": i, "m": 2}])
        (request,) = _tick(sensors.initiator_sensor, warehouse, instance).run_requests or []
        result = compaction_job.execute_in_process(
            instance=instance, resources=bound, run_config=request.run_config, tags=request.tags)
        assert result.success
        seen = [one.asset_observation_data.asset_observation.metadata
                for one in result.get_asset_observation_events()]
        assert {one["partition"].value for one in seen} == {"m=1", "m=2"}
        assert not result.get_asset_materialization_events()
        (clean,) = _tick(sensors.cleaner_sensor, warehouse, instance).run_requests or []
        assert clean is not None
        assert cleaning_job.execute_in_process(
            instance=instance, resources={"warehouse": bound["warehouse"]}).success
        left = sorted(one.name[:4] for one in Path(table.location).glob("m=*/*"))
        assert left == ["base", "base"]
        assert handle.table("db.t").read().count() == 6


@pytest.mark.spark
def test_an_output_that_differs_is_not_published(
    warehouse: Warehouse, spark: SparkSession, instance: dg.DagsterInstance, bound: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = warehouse.create_table("db.t", "id int")
    merge = worker.compact.execute

    def loses_a_row(*arguments: Any) -> Any:
        staged = merge(*arguments)
        return dataclasses.replace(
            staged, actual=dataclasses.replace(staged.actual, rows=staged.actual.rows - 1))

    monkeypatch.setattr(worker.compact, "execute", loses_a_row)
    with Warehouse.open(warehouse.path, spark=spark) as handle:
        for i in range(2):
            handle.table("db.t").insert([{"id": i}])
        before = sorted(one.name for one in Path(table.location).iterdir())
        warehouse.metastore.request_compaction("db.t", None, "major")
        assert not _run(instance, bound).success
        assert sorted(one.name for one in Path(table.location).iterdir()) == before
        (row,) = warehouse.metastore.compactions()
        assert row["state"] == "failed" and "rows" in row["errormessage"]
        assert warehouse.metastore.txn_states([row["txnid"]]) == {row["txnid"]: "a"}
        assert handle.table("db.t").read().count() == 2


@pytest.mark.spark
def test_a_blocking_check_leaves_the_table_untouched(
    warehouse: Warehouse, spark: SparkSession, instance: dg.DagsterInstance
) -> None:
    declared = TableDeclaration("db.t", "id int")
    rule = Expectation("small", "ExpectColumnMaxToBeBetween", {"column": "id", "max_value": 5})

    def asset_of(value: int) -> dg.AssetsDefinition:
        @dg.asset(key=declared.key, check_specs=[rule.spec(declared.key)])
        def made(context: dg.AssetExecutionContext) -> Iterator[Any]:
            with Warehouse.open(warehouse.path, spark=spark, run_id=context.run.run_id) as handle:
                yield from materialize_table(
                    context, handle, declared,
                    lambda txn: txn.table("db.t").insert([{"id": value}]),
                    lambda table: evaluate(table.read(), [rule]))

        return made

    good = dg.materialize([asset_of(1)], instance=instance)
    (event,) = good.get_asset_materialization_events()
    assert event.materialization.metadata["write id"].value == 1
    bad = dg.materialize([asset_of(9)], instance=instance, raise_on_error=False)
    assert not bad.success
    (check,) = bad.get_asset_check_evaluations()
    assert not check.passed
    with Warehouse.open(warehouse.path, spark=spark) as handle:
        assert [row.id for row in handle.table("db.t").read().collect()] == [1]
