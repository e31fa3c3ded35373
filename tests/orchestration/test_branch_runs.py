"""Runs on branches (P81): nobody sees what they wrote until all of their checks have passed."""

# No `from __future__ import annotations`: Dagster reads the annotations of its functions.

import json
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill

from acid_platform.orchestration import (
    SparkResource,
    TableDeclaration,
    WarehouseResource,
    acid_asset,
    sensors,
    services,
)
from acid_platform.orchestration.branch_merges import merge_branches
from tests.orchestration.conftest import Place, failure, run, stored, succeeded

pytestmark = pytest.mark.filterwarnings("ignore:Parameter `owners`")  # Dagster's own copies

DAYS = dg.StaticPartitionsDefinition(["1", "2", "3"])
OWN = {"acid/branch": "run"}


class State:
    """What the bodies below do next."""

    bad: bool = False
    broken: bool = False


@acid_asset(
    table=TableDeclaration("db.days", "n int", partitioned_by=("day string",)),
    partitions_def=DAYS,
    partition_expr="day",
)
def days() -> list[dict[str, Any]]:
    return [{"n": 1}, {"n": -1 if State.bad else 2}]


@dg.asset_check(asset=days, blocking=False)
def positive(warehouse: dg.ResourceParam[WarehouseResource]) -> dg.AssetCheckResult:
    with warehouse.open() as opened:
        return dg.AssetCheckResult(passed=not opened.table("db.days").count("n < 0"))


@acid_asset(table=TableDeclaration("db.total", "n bigint"), write_mode="overwrite")
def total(days: pa.Table) -> list[dict[str, Any]]:
    if State.broken:
        raise RuntimeError("broken")
    return [{"n": sum(days["n"].to_pylist())}]


ASSETS = [days, positive, total]
REPOSITORY = dg.Definitions(
    assets=[days, total],
    asset_checks=[positive],
    resources={"warehouse": WarehouseResource(), "spark": SparkResource()},
).get_repository_def()


@pytest.fixture(autouse=True)
def _good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ACID_BRANCH", raising=False)
    monkeypatch.setattr(State, "bad", False)
    monkeypatch.setattr(State, "broken", False)


class Sensor:
    """merge_branches with its cursor; `tick` answers why it waits, and keeps the events."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.cursor: str | None = None
        self.events: list[Any] = []

    def tick(self) -> str:
        context = dg.build_sensor_context(
            instance=self.place.instance,
            resources={"warehouse": self.place.resource},
            cursor=self.cursor,
            repository_def=REPOSITORY,
        )
        context.log.setLevel("CRITICAL")
        result: Any = merge_branches(context)
        if result.cursor is not None:
            self.cursor = result.cursor
        self.events = result.asset_events
        return str(result.skip_reason.skip_message)

    def ticks(self, times: int = 2) -> str:
        return [self.tick() for _ in range(times)][-1]


def branches(place: Place) -> list[str]:
    return [row.name for row in place.warehouse.branches.list()]


def said(place: Place, result: dg.ExecuteInProcessResult) -> str:
    """What the pages of the run show."""
    return "\n".join(entry.message for entry in place.instance.all_logs(result.run_id))


def tags_of(place: Place, result: dg.ExecuteInProcessResult) -> dict[str, str]:
    """Those of a run that repeats this one."""
    made = place.instance.get_run_by_id(result.run_id)
    assert made
    return {**made.tags, "dagster/root_run_id": result.run_id}


def test_P81_a_run_is_merged_once_its_checks_have_passed(place: Place) -> None:
    sensor = Sensor(place)
    assert sensor.tick() == "no run has used a branch"
    succeeded(run(place, *ASSETS, partition_key="1", tags=OWN, selection=[days, positive]))
    [name] = branches(place)
    assert stored(place, "db.days") == []
    made = place.instance.get_latest_materialization_event(days.key)
    assert made and made.asset_materialization
    assert made.asset_materialization.metadata["branch"].value == name
    assert "wait for their runs" in sensor.tick()
    assert sensor.tick() == f"branch {name} is merged: db.days"
    assert stored(place, "db.days") == [(1, "1"), (2, "1")]
    [event] = sensor.events
    assert (event.asset_key, event.partition) == (days.key, "1")
    version = made.asset_materialization.tags["dagster/data_version"]
    assert version == f"{name}:{event.tags['dagster/data_version']}"
    assert (sensor.tick(), sensor.events, sensor.cursor) == (
        "0 branches of runs wait for their runs, or you",
        [],
        "{}",
    )


@pytest.mark.more
def test_P81_a_failed_check_keeps_the_branch_until_a_later_run_mends_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check does not block, so the rows are on the branch; a run on it replaces them."""
    sensor = Sensor(place)
    monkeypatch.setattr(State, "bad", True)
    first = run(place, *ASSETS, partition_key="1", tags=OWN)
    succeeded(first)
    [name] = branches(place)
    told = sensor.ticks()
    assert f"branch {name} is kept" in told
    assert f"check positive of db/days failed in run {first.run_id}" in told
    assert f"`acid branch merge {name}`" in told
    assert told in said(place, first)
    assert "wait for their runs, or you" in sensor.tick()  # once is enough
    assert (stored(place, "db.days"), stored(place, "db.total")) == ([], [])

    monkeypatch.setattr(State, "bad", False)
    succeeded(run(place, *ASSETS, partition_key="1", tags=tags_of(place, first)))
    assert branches(place) == [name]
    assert sensor.tick() == f"branch {name} is merged: db.days, db.total"
    assert (stored(place, "db.days"), stored(place, "db.total")) == ([(1, "1"), (2, "1")], [(3,)])
    assert sorted(str(event.asset_key) for event in sensor.events) == [
        str(days.key),
        str(total.key),
    ]


@pytest.mark.more
def test_P81_a_run_that_failed_is_not_merged_until_what_it_left_is_done(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    sensor = Sensor(place)
    monkeypatch.setattr(State, "broken", True)
    first = run(place, *ASSETS, partition_key="1", tags=OWN)
    [name] = branches(place)
    assert "FAILURE without asset db/total" in sensor.ticks()

    def again(*chosen: Any) -> dg.ExecuteInProcessResult:
        key = {"partition_key": "1"} if days in chosen else {}
        return run(place, *ASSETS, tags=tags_of(place, first), selection=chosen, **key)

    succeeded(again(days, positive))  # a part of it, which is not what had failed
    assert "FAILURE without asset db/total" in sensor.tick()
    monkeypatch.setattr(State, "broken", False)
    succeeded(again(total))
    assert "is merged: db.days, db.total" in sensor.tick()
    assert stored(place, "db.total") == [(3,)]
    assert branches(place) == [] and name


@pytest.mark.more
def test_P81_a_branch_without_rows_is_dropped_and_made_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    sensor = Sensor(place)
    monkeypatch.setattr(State, "broken", True)
    place.warehouse.create_table("db.days", "n int", partitioned_by=["day string"])
    first = run(place, total, tags=OWN)
    [name] = branches(place)
    assert f"branch {name} is dropped, it had written nothing" in sensor.ticks()
    assert branches(place) == []
    monkeypatch.setattr(State, "broken", False)
    succeeded(run(place, total, tags=tags_of(place, first)))
    assert branches(place) == [name]
    assert sensor.ticks() == f"branch {name} is merged: db.total"


@pytest.mark.more
def test_P81_two_runs_that_changed_the_same_rows(place: Place) -> None:
    """Each has its branch; the second merge is refused, names what both changed, and may be
    repeated by a new run."""
    sensor = Sensor(place)
    succeeded(run(place, *ASSETS, partition_key="1", selection=[days]))
    results = [run(place, *ASSETS, partition_key="1", tags=OWN, selection=[days]) for _ in range(2)]
    first, second = (f"run/{result.run_id}" for result in results)
    told = sensor.ticks()
    won, lost = (first, second) if f"branch {first} is merged" in told else (second, first)
    assert f"branch {lost} can't be merged" in told
    assert "db.days" in told and f"`acid branch drop {lost}`" in told
    assert branches(place) == [lost] and won != lost
    place.warehouse.branches.drop(lost)
    assert sensor.tick() and sensor.events == []  # it was dropped: nobody sees its rows


@pytest.mark.more
def test_P81_a_backfill_is_merged_as_a_whole(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    sensor = Sensor(place)

    def stands(status: BulkActionStatus) -> None:
        backfill = PartitionBackfill(
            backfill_id="abcdefgh",
            status=status,
            from_failure=False,
            tags=OWN,
            backfill_timestamp=1.0,
            asset_selection=[days.key],
        )
        add = place.instance.update_backfill if sensor.cursor else place.instance.add_backfill
        add(backfill)

    def of_day(day: str) -> dg.ExecuteInProcessResult:
        tags = {**OWN, "dagster/backfill": "abcdefgh"}
        return run(place, *ASSETS, partition_key=day, tags=tags, selection=[days, positive])

    stands(BulkActionStatus.REQUESTED)
    for day in "12":
        succeeded(of_day(day))
    assert branches(place) == ["backfill/abcdefgh"]
    assert "1 branches of runs wait" in sensor.ticks()  # its runs are over, the backfill is not
    monkeypatch.setattr(State, "bad", True)
    succeeded(of_day("3"))
    stands(BulkActionStatus.COMPLETED_SUCCESS)
    assert "check positive of db/days failed" in sensor.tick()
    assert stored(place, "db.days") == []
    monkeypatch.setattr(State, "bad", False)
    succeeded(of_day("3"))
    assert sensor.tick() == "branch backfill/abcdefgh is merged: db.days"
    assert len(stored(place, "db.days")) == 6
    assert sorted(event.partition for event in sensor.events) == ["1", "2", "3"]


@pytest.mark.more
def test_P81_a_run_whose_branch_is_gone_does_not_go_on_on_another(place: Place) -> None:
    """Else a merge would bring a part of what the run did."""
    result = run(place, *ASSETS, partition_key="1", tags=OWN, selection=[days])
    [name] = branches(place)
    place.warehouse.branches.drop(name)
    for _ in range(2):
        lost = run(place, *ASSETS, tags=tags_of(place, result), selection=[total])
        assert f"branch {name}, on which this run began" in failure(lost)
        assert "launch it anew" in failure(lost)
        place.warehouse.branches.create(name, if_not_exists=True)


@pytest.mark.more
def test_P81_a_merge_is_shown_also_if_the_daemon_died_or_a_person_did_it(place: Place) -> None:
    sensor = Sensor(place)
    for day, tags in (("1", OWN), ("2", {"acid/branch": "dev"})):
        succeeded(run(place, *ASSETS, partition_key=day, tags=tags, selection=[days, positive]))
    sensor.tick()
    cursor = sensor.cursor
    assert len(json.loads(cursor or "")) == 2
    sensor.tick()
    assert branches(place) == ["dev"]  # which has a name, so its owner merges it
    place.warehouse.branches.merge("dev")
    sensor.cursor = cursor  # as if it had died before it stored another
    sensor.tick()
    assert sorted(event.partition for event in sensor.events) == ["1", "2"]
    sensor.cursor = "of another sensor"
    assert (sensor.tick(), sensor.events) == ("0 branches of runs wait for their runs, or you", [])


@dg.asset(key_prefix="db")
def plain() -> list[dict[str, Any]]:
    return [{"id": 1}]


@dg.asset(key_prefix="db")
def derived(plain: pa.Table) -> pa.Table:
    return plain


@pytest.mark.more
def test_P81_assets_of_the_io_manager_are_on_the_branch_too(place: Place) -> None:
    succeeded(run(place, plain, derived, tags={"acid/branch": "dev"}))
    assert (stored(place, "db.plain"), stored(place, "db.derived")) == ([], [])
    place.warehouse.branches.merge("dev")
    assert (stored(place, "db.plain"), stored(place, "db.derived")) == ([(1,)], [(1,)])


@pytest.mark.more
def test_P81_a_process_with_a_branch_follows_no_tag(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.warehouse.branches.create("dev")
    monkeypatch.setenv("ACID_BRANCH", "dev")
    result = run(place, *ASSETS, partition_key="1", tags=OWN)
    succeeded(result)
    assert branches(place) == ["dev"]
    assert "so the tag acid/branch is not followed" in said(place, result)
    assert "works on branch dev" in Sensor(place).tick()
    assert stored(place, "db.days") == []


@pytest.mark.more
def test_P81_the_sensors_of_the_services_work_without_a_branch(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even a missing one stops them."""
    monkeypatch.setenv("ACID_BRANCH", "gone")
    place.instance.create_run_for_job(
        dg.GraphDefinition("g").to_job(), status=dg.DagsterRunStatus.STARTED
    )
    for sensor in services().sensors or ():
        if not isinstance(sensor, dg.RunStatusSensorDefinition):
            context = dg.build_sensor_context(
                instance=place.instance,
                resources={"warehouse": place.resource},
                repository_def=REPOSITORY,
            )
            context.log.setLevel("CRITICAL")
            sensor(context)  # type: ignore[operator]
    assert sensors.abort_run(place.warehouse, "a run", "it failed") == ""


@pytest.mark.more
def test_P81_a_branch_is_no_open_transaction_of_its_run(place: Place) -> None:
    """Else a run that died would count as alive, and a failed one as one that left something."""
    result = run(place, *ASSETS, partition_key="1", tags=OWN)
    assert sensors.abort_run(place.warehouse, result.run_id, "it failed") == ""
    with place.resource.open(result.run_id, branch=branches(place)[0]) as opened:
        txn = opened.metastore.begin(info=opened.info())
        assert f"aborted 1 of 1 transactions: [{txn.id}]" in sensors.abort_run(
            place.warehouse, result.run_id, "it failed"
        )
