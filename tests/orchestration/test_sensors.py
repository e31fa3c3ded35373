"""Decisions of the sensors against a real warehouse and metastore; no JVM is started."""

# No `from __future__ import annotations`: Dagster reads the annotations of its functions.

from typing import Any

import dagster as dg
import pytest

from acid_platform import definitions
from acid_platform.orchestration import sensors
from acid_platform.orchestration.cleaning import cleaning_job
from acid_platform.orchestration.compaction import worker_prefix
from tests.orchestration.conftest import Place, quiet

pytestmark = pytest.mark.filterwarnings("ignore:Parameter `owners`")  # Dagster's own copies


def tick(place: Place, sensor: dg.SensorDefinition) -> Any:
    context = place.context()
    context.log.setLevel("CRITICAL")
    return sensor(context)


def bound(job: str) -> dg.JobDefinition:
    return definitions.defs().resolve_job_def(job)


def keys(result: Any) -> list[str | None]:
    return [one.run_key for one in result.run_requests]


@pytest.mark.parametrize(("deltas", "asked"), [(2, False), (3, True)])
def test_C21_the_initiator_sensor_asks_above_the_threshold(
    place: Place, deltas: int, asked: bool
) -> None:
    place.table()
    place.write(times=deltas)
    result = tick(place, sensors.initiator_sensor)
    assert bool(result.run_requests) is asked
    if asked:
        [request] = result.run_requests
        assert request.tags == {"acid/table": "db.t", "acid/compactions": "1"}
        assert request.run_config == {"ops": {"queued": {"config": {"table": "db.t"}}}}
    else:
        assert "nothing waits" in result.skip_reason.skip_message


def test_one_run_per_table_and_one_key_per_set_of_tasks(place: Place) -> None:
    for name in ("db.a", "db.b"):
        place.table(name)
        place.write(name, 3)
    first = tick(place, sensors.initiator_sensor)
    assert keys(first) == ["db.a:1:1", "db.b:2:1"]
    assert keys(tick(place, sensors.initiator_sensor)) == keys(first)  # Dagster drops both


def test_no_second_run_while_one_compacts_the_table(place: Place) -> None:
    place.table()
    place.write(times=3)
    [request] = tick(place, sensors.initiator_sensor).run_requests
    place.instance.create_run_for_job(
        bound("compaction_job"), run_config=request.run_config, tags=request.tags,
        status=dg.DagsterRunStatus.STARTED)
    assert "already" in tick(place, sensors.initiator_sensor).skip_reason.skip_message


def test_runs_that_never_take_their_tasks_are_not_repeated_for_ever(place: Place) -> None:
    place.table()
    place.write(times=3)
    for attempt in range(1, sensors.MOST_ATTEMPTS + 1):
        [request] = tick(place, sensors.initiator_sensor).run_requests
        assert request.run_key == f"db.t:1:{attempt}"
        place.instance.create_run_for_job(
            bound("compaction_job"), run_config=request.run_config, tags=request.tags,
            status=dg.DagsterRunStatus.FAILURE)
    assert "by hand" in tick(place, sensors.initiator_sensor).skip_reason.skip_message


@pytest.mark.parametrize(("sensor", "setting"), [
    (sensors.initiator_sensor, "hive.compactor.initiator.on"),
    (sensors.cleaner_sensor, "hive.compactor.cleaner.on"),
])
def test_P9_a_service_that_is_off_stays_off(
    place: Place, sensor: dg.SensorDefinition, setting: str
) -> None:
    place.warehouse.metastore.set(setting, "false")
    assert tick(place, sensor).skip_reason.skip_message == f"{setting} is false"


def test_C41_the_cleaner_waits_for_who_may_read_and_says_so(place: Place) -> None:
    place.table()
    place.write(times=3)
    assert "nothing is removable" in tick(place, sensors.cleaner_sensor).skip_reason.skip_message
    tick(place, sensors.initiator_sensor)
    reader = place.warehouse.metastore.open_snapshot(["db.t"])
    base = place.compacted()
    waits = tick(place, sensors.cleaner_sensor).skip_reason.skip_message
    assert "db.t" in waits and f"transaction {reader.id} of" in waits
    reader.commit()
    [request] = tick(place, sensors.cleaner_sensor).run_requests
    result = cleaning_job.execute_in_process(
        run_config=quiet(), instance=place.instance, tags=request.tags,
        resources={"warehouse": place.resource})
    assert place.directories() == [base]
    [seen] = result.get_asset_observation_events()
    observed = seen.asset_observation_data.asset_observation
    assert observed.asset_key == dg.AssetKey(["db", "t"])
    assert observed.metadata["removed directories and files"].value == 3
    assert "C46" in str(observed.metadata["removed"].value)
    assert tick(place, sensors.cleaner_sensor).run_requests == []


def test_no_second_cleaner_while_one_works(place: Place) -> None:
    place.instance.create_run_for_job(bound("cleaning_job"), status=dg.DagsterRunStatus.STARTED)
    assert "at work" in tick(place, sensors.cleaner_sensor).skip_reason.skip_message


# --- what ended runs left open -----------------------------------------------------------------


@dg.op(required_resource_keys={"warehouse"})
def dies(context: dg.OpExecutionContext) -> None:
    opened = context.resources.warehouse.open(context.run_id)
    opened.transaction()
    opened.metastore.take_compaction(f"{worker_prefix(context.run_id)}-1", "db.t")
    raise RuntimeError("killed")


@dg.job
def dying_job() -> None:
    dies()


def states(place: Place) -> dict[int, str]:
    return {row["txnid"]: row["state"] for row in place.warehouse.metastore.transactions()}


@pytest.mark.parametrize("event", [
    dg.DagsterEventType.PIPELINE_FAILURE, dg.DagsterEventType.PIPELINE_CANCELED])
def test_P2_what_an_ended_run_left_open_is_aborted(
    place: Place, event: dg.DagsterEventType
) -> None:
    place.table()
    place.write(times=3)
    other = place.warehouse.transaction()
    tick(place, sensors.initiator_sensor)
    result = dying_job.execute_in_process(
        run_config=quiet(), instance=place.instance, raise_on_error=False,
        resources={"warehouse": place.resource})
    assert sorted(states(place).values()) == ["OPEN", "OPEN"]
    failed = event is dg.DagsterEventType.PIPELINE_FAILURE
    context = dg.build_run_status_sensor_context(
        sensor_name="sensor", dagster_instance=place.instance, dagster_run=result.dagster_run,
        dagster_event=dg.DagsterEvent(event.value, "dying_job"), context=place.context(),
        resources={"warehouse": place.resource})
    if failed:
        sensors.abort_failed_runs(context.for_run_failure())
    else:
        sensors.abort_canceled_runs(context)
    assert [one for one, state in states(place).items() if state == "OPEN"] == [other.id]
    [row] = place.warehouse.metastore.compactions()
    assert row["state"] == "initiated"  # C25: another run takes it
    other.abort()


def test_nothing_left_open_is_a_skip_with_its_reason(place: Place) -> None:
    assert sensors.abort_run(place.warehouse, "no-such-run", "test") == ""
