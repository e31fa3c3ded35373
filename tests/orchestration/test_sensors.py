"""Decisions of the sensors against a real warehouse and metastore; no JVM is started."""

# No `from __future__ import annotations`: Dagster reads the annotations of its functions.

from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster._core.remote_origin import GrpcServerCodeLocationOrigin, RemoteRepositoryOrigin

import definitions
from acid_platform.base.clock import wall_ms
from acid_platform.compaction.states import ErasureState
from acid_platform.metastore.operations.compaction import AnswerErasure, TakeCompaction
from acid_platform.orchestration import (
    SparkResource,
    TableInput,
    acid_asset,
    change_sensor,
    sensors,
)
from acid_platform.orchestration.service_jobs import (
    cleaning_job,
    compaction_job,
    erase,
    worker_prefix,
)
from tests.metastore.processes import until
from tests.orchestration.conftest import Place, quiet

pytestmark = pytest.mark.filterwarnings("ignore:Parameter `owners`")  # Dagster's own copies


ANYWHERE = RemoteRepositoryOrigin(
    GrpcServerCodeLocationOrigin(host="localhost", port=1, location_name="x"), "__repository__"
)
"""Where a run that waits in the queue would be started."""


def tick(place: Place, sensor: dg.SensorDefinition) -> Any:
    context = place.context()
    context.log.setLevel("CRITICAL")
    return sensor(context)


def skipped(place: Place, sensor: dg.SensorDefinition) -> str:
    """Why the sensor requests nothing."""
    return str(tick(place, sensor).skip_reason.skip_message)


def bound(job: str) -> dg.JobDefinition:
    return definitions.defs().resolve_job_def(job)


def keys(result: Any) -> list[str | None]:
    return [one.run_key for one in result.run_requests]


@pytest.mark.more
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
        assert "the queue is empty" in result.skip_reason.skip_message


@pytest.mark.more
def test_one_run_per_table_and_one_key_per_set_of_tasks(place: Place) -> None:
    for name in ("db.a", "db.b"):
        place.table(name)
        place.write(name, 3)
    first = tick(place, sensors.initiator_sensor)
    assert keys(first) == ["db.a:1:1", "db.b:2:1"]
    assert keys(tick(place, sensors.initiator_sensor)) == keys(first)  # Dagster drops both


@pytest.mark.more
def test_no_second_run_while_one_compacts_the_table(place: Place) -> None:
    """It is said whether that one waits in the queue."""
    place.table()
    place.write(times=3)
    [request] = tick(place, sensors.initiator_sensor).run_requests
    run = place.instance.create_run_for_job(
        bound("compaction_job"),
        run_config=request.run_config,
        tags=request.tags,
        remote_job_origin=ANYWHERE.get_job_origin("compaction_job"),
    )
    for event, does in [("ENQUEUED", "waits in the queue"), ("START", "is under way")]:
        happened = dg.DagsterEvent(f"PIPELINE_{event}", run.job_name)
        place.instance.report_dagster_event(happened, run.run_id)
        told = f"run {run.run_id} {does}, which compacts db.t"
        assert skipped(place, sensors.initiator_sensor) == told


def test_runs_of_the_services_come_before_those_of_a_backfill() -> None:
    """Dagster's queue is in the order of this tag of a run; that of an op orders steps alone."""
    for job in (compaction_job, cleaning_job, erase):
        assert job.run_tags["dagster/priority"] == "10"


@pytest.mark.more
def test_runs_that_never_take_their_tasks_are_not_repeated_for_ever(place: Place) -> None:
    place.table()
    place.write(times=3)
    for attempt in range(1, sensors.MOST_ATTEMPTS + 1):
        [request] = tick(place, sensors.initiator_sensor).run_requests
        assert request.run_key == f"db.t:1:{attempt}"
        place.instance.create_run_for_job(
            bound("compaction_job"),
            run_config=request.run_config,
            tags=request.tags,
            status=dg.DagsterRunStatus.FAILURE,
        )
    assert "look at the runs" in skipped(place, sensors.initiator_sensor)


@pytest.mark.more
@pytest.mark.parametrize(
    ("sensor", "setting"),
    [
        (sensors.initiator_sensor, "hive.compactor.initiator.on"),
        (sensors.cleaner_sensor, "hive.compactor.cleaner.on"),
    ],
)
def test_P9_a_service_that_is_off_stays_off(
    place: Place, sensor: dg.SensorDefinition, setting: str
) -> None:
    place.warehouse.metastore.set(setting, "false")
    assert skipped(place, sensor) == f"{setting} is false"


@pytest.mark.more
def test_C41_the_cleaner_waits_for_who_may_read_and_says_so(place: Place) -> None:
    place.table()
    place.write(times=3)
    assert "there is nothing to remove" in skipped(place, sensors.cleaner_sensor)
    tick(place, sensors.initiator_sensor)
    reader = place.warehouse.metastore.open_snapshot(["db.t"])
    base = place.compacted()
    waits = skipped(place, sensors.cleaner_sensor)
    assert "db.t" in waits and f"transaction {reader.id} of" in waits
    reader.commit()
    [request] = tick(place, sensors.cleaner_sensor).run_requests
    result = cleaning_job.execute_in_process(
        run_config=quiet(),
        instance=place.instance,
        tags=request.tags,
        resources={"warehouse": place.resource},
    )
    assert place.directories() == [base]
    [seen] = result.get_asset_observation_events()
    observed = seen.asset_observation_data.asset_observation
    assert observed.asset_key == dg.AssetKey(["db", "t"])
    assert observed.metadata["removed directories and files"].value == 3
    assert "(within " in str(observed.metadata["removed"].value)
    assert tick(place, sensors.cleaner_sensor).run_requests == []


@pytest.mark.more
def test_no_second_cleaner_while_one_works(place: Place) -> None:
    place.instance.create_run_for_job(bound("cleaning_job"), status=dg.DagsterRunStatus.STARTED)
    assert "is under way" in skipped(place, sensors.cleaner_sensor)


# --- recorded erasure requests ------------------------------------------------------------------


def asked(place: Place, condition: str = "id = 1") -> int:
    return place.warehouse.table("db.t").request_erasure(condition)


def ran(place: Place, request: Any, status: dg.DagsterRunStatus) -> None:
    place.instance.create_run_for_job(
        bound("erase"), run_config=request.run_config, tags=request.tags, status=status
    )


@pytest.mark.more
def test_a_request_gets_one_run_and_the_next_tick_none(place: Place) -> None:
    place.table()
    assert "there are no erasure requests" in skipped(place, sensors.erasure_sensor)
    assert asked(place) == asked(place) == 1
    [request] = tick(place, sensors.erasure_sensor).run_requests
    assert request.tags == {"acid/table": "db.t", "acid/erasure": "1"}
    assert request.run_config["ops"]["delete_rows"]["config"] == {
        "table": "db.t",
        "where": "id = 1",
    }
    assert keys(tick(place, sensors.erasure_sensor)) == [request.run_key]  # Dagster drops it
    ran(place, request, dg.DagsterRunStatus.STARTED)
    assert "is under way" in skipped(place, sensors.erasure_sensor)


def test_a_request_that_is_settled_gets_none(place: Place) -> None:
    place.table()
    place.warehouse.metastore.call(AnswerErasure(asked(place), ErasureState.ERASED, "gone", (), ""))
    place.warehouse.withdraw_erasure(asked(place), "the wrong person")
    assert "there are no erasure requests" in skipped(place, sensors.erasure_sensor)


@pytest.mark.more
def test_a_request_that_waits_is_tried_again_when_nobody_is_in_the_way(place: Place) -> None:
    place.table()
    number, metastore = asked(place), place.warehouse.metastore
    for attempt in range(1, sensors.MOST_ATTEMPTS + 3):  # waiting is no failure
        reader = metastore.open_snapshot(["db.t"])
        [request] = tick(place, sensors.erasure_sensor).run_requests
        assert request.run_key.endswith(f":{attempt}")
        ran(place, request, dg.DagsterRunStatus.FAILURE)
        metastore.call(
            AnswerErasure(number, ErasureState.WAITING, "held", tuple(sorted([reader.id])), "")
        )
        waits = skipped(place, sensors.erasure_sensor)
        assert waits == f"request 1 of db.t: waits for transactions [{reader.id}]"
        reader.commit()


@pytest.mark.more
def test_a_request_that_fails_is_repeated_and_then_told(place: Place) -> None:
    place.table()
    asked(place)
    for _ in range(sensors.MOST_ATTEMPTS):
        [request] = tick(place, sensors.erasure_sensor).run_requests
        ran(place, request, dg.DagsterRunStatus.FAILURE)
    assert "look at the runs" in skipped(place, sensors.erasure_sensor)
    asked(place, "id = 2")
    [other] = tick(place, sensors.erasure_sensor).run_requests  # one does not stop the others
    assert other.tags["acid/erasure"] == "2"


# --- what ended runs left open -----------------------------------------------------------------


@dg.op(required_resource_keys={"warehouse"})
def dies(context: dg.OpExecutionContext) -> None:
    opened = context.resources.warehouse.open(context.run_id)
    opened.transaction()
    opened.metastore.call(TakeCompaction(f"{worker_prefix(context.run_id)}-1", "db.t"))
    raise RuntimeError("killed")


@dg.job
def dying_job() -> None:
    dies()


def states(place: Place) -> dict[int, str]:
    return {row["txnid"]: row["state"] for row in place.warehouse.metastore.transactions()}


@pytest.mark.more
@pytest.mark.parametrize(
    ("event", "final_status"),
    [
        (dg.DagsterEventType.PIPELINE_FAILURE, "FAILURE"),
        (dg.DagsterEventType.PIPELINE_CANCELED, "CANCELED"),
    ],
)
def test_P2_what_an_ended_run_left_open_is_aborted(
    place: Place, event: dg.DagsterEventType, final_status: str
) -> None:
    place.table()
    place.write(times=3)
    other = place.warehouse.transaction()
    tick(place, sensors.initiator_sensor)
    result = dying_job.execute_in_process(
        run_config=quiet(),
        instance=place.instance,
        raise_on_error=False,
        resources={"warehouse": place.resource},
    )
    assert sorted(states(place).values()) == ["OPEN", "OPEN"]
    [left_open] = set(states(place)) - {other.id}
    context = dg.build_run_status_sensor_context(
        sensor_name="sensor",
        dagster_instance=place.instance,
        # The event may be seen before the run's record is written.
        dagster_run=result.dagster_run.with_status(dg.DagsterRunStatus.STARTED),
        dagster_event=dg.DagsterEvent(event.value, "dying_job"),
        context=place.context(),
        resources={"warehouse": place.resource},
    )
    if final_status == "FAILURE":
        sensors.abort_failed_runs(context.for_run_failure())
    else:
        sensors.abort_canceled_runs(context)
    assert [one for one, state in states(place).items() if state == "OPEN"] == [other.id]
    reason = place.warehouse.metastore.outcome(left_open)["reason"]
    assert reason == f"run {result.run_id} is {final_status}"
    [row] = place.warehouse.metastore.compactions()
    assert row["state"] == "initiated"  # C25: another run takes it
    other.abort()


# --- runs whose process ended without a word --------------------------------------------------


@pytest.fixture
def impatient(place: Place) -> Place:
    for name, value in {
        "hive.txn.timeout": "1s",
        "acid.heartbeat.interval": "200ms",
        "hive.timedout.txn.reaper.start": "0s",
        "hive.timedout.txn.reaper.interval": "100ms",
    }.items():
        place.warehouse.metastore.set(name, value)
    return place


def started(place: Place) -> dg.DagsterRun:
    run = place.instance.create_run_for_job(dying_job, status=dg.DagsterRunStatus.STARTED)
    place.instance.report_engine_event("begun", run)
    return run


def status(place: Place, run: dg.DagsterRun) -> dg.DagsterRunStatus:
    found = place.instance.get_run_by_id(run.run_id)
    assert found
    return found.status


@pytest.mark.more
def test_P7_a_run_that_fell_silent_is_failed_and_told_why(impatient: Place) -> None:
    place = impatient
    run, alive = started(place), started(place)
    with place.resource.open(run.run_id) as dead, place.resource.open(alive.run_id) as living:
        txn, other = (one.metastore.begin(info=one.info()) for one in (dead, living))
        lost = sensors.fail_lost_runs
        assert "none of them is lost" in tick(place, lost).skip_message
        txn.forget()  # as if the process had ended: no heartbeat any more
        until(lambda: place.warehouse.metastore.outcome(txn.id)["state"] == "a")
        until(lambda: run.run_id in tick(place, lost).skip_message, 10, 0.1)
        other.heartbeat()
    assert status(place, run) is dg.DagsterRunStatus.FAILURE
    told = [one.message for one in place.instance.all_logs(run.run_id)]
    assert any(
        f"transaction {txn.id} of this run was aborted, no heartbeat for 1 s" in one for one in told
    )
    assert status(place, alive) is dg.DagsterRunStatus.STARTED


@pytest.mark.more
def test_P7_a_run_that_was_heard_of_since_is_not_lost(impatient: Place) -> None:
    place = impatient
    run = started(place)
    with place.resource.open(run.run_id) as opened:
        txn = opened.metastore.begin(info=opened.info())
        txn.forget()
        until(lambda: place.warehouse.metastore.outcome(txn.id)["state"] == "a")
        place.instance.report_engine_event("its transaction was aborted", run)
        [silent] = sensors.silent_runs(place.warehouse.metastore, [run.run_id])
        assert silent.txn_id == txn.id
        until(lambda: wall_ms() > silent.at + 1000)
        assert "none of them is lost" in tick(place, sensors.fail_lost_runs).skip_message
        again = opened.metastore.begin(info=opened.info())  # its next attempt
        assert list(sensors.silent_runs(place.warehouse.metastore, [run.run_id])) == []
        again.commit()
        assert list(sensors.silent_runs(place.warehouse.metastore, [run.run_id])) == []
    assert status(place, run) is dg.DagsterRunStatus.STARTED


def test_nothing_left_open_is_a_skip_with_its_reason(place: Place) -> None:
    assert sensors.abort_run(place.warehouse, "no-such-run", "test") == ""


def test_a_compaction_run_whose_table_was_dropped_succeeds(place: Place) -> None:
    """Its tasks went with the table, so there is nothing to do, and nothing to raise an alarm."""
    place.table("db.gone")
    place.write("db.gone", 3)
    place.warehouse.metastore.request_compaction("db.gone", None, "major")
    place.warehouse.drop_table("db.gone")
    result = compaction_job.execute_in_process(
        run_config=quiet(queued={"config": {"table": "db.gone"}}),
        instance=place.instance,
        resources={
            "warehouse": place.resource,
            "spark": SparkResource(),
            "in_memory": dg.mem_io_manager,
        },
        raise_on_error=False,
    )
    assert result.success


def test_change_sensors_of_other_assets_have_other_names() -> None:
    def copy(name: str) -> dg.AssetsDefinition:
        @acid_asset(table=f"db.{name}", ins={"t": TableInput("db.t", changes=True)})
        def made(t: pa.Table) -> pa.Table:
            return t

        return made

    long = [copy(f"a_rather_long_name_of_a_table_{number}") for number in range(9)]
    pairs = [[copy("a")], [copy("b")], [copy("a"), copy("b")], long, long[:8]]
    sensors = [change_sensor(assets) for assets in pairs]
    assert len({sensor.name for sensor in sensors}) == len(sensors)
    assert change_sensor([copy("a")]).name == sensors[0].name, "it stays the same at each start"
    assert change_sensor([copy("a")], "mine").name == "mine"
