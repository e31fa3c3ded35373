"""All names of the location that Dagster loads, without a JVM or a warehouse."""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

import definitions
from acid_platform import InvalidDefinition
from acid_platform.orchestration import (
    SparkResource,
    WarehouseResource,
    acid_asset,
    load_defs,
    service_location,
    services,
)
from tests.conftest import HAS_DEMO

with_demo = pytest.mark.skipif(not HAS_DEMO, reason="the demo's assets were removed")

ASSETS = """
asset nyc/airlines [dimensions: orc, pandas] code 1
asset nyc/airports [dimensions: orc, pandas] code 1
asset nyc/delays_by_carrier_month [flights: orc, pyspark] code 1 < nyc/flights
  check carrier_month_is_unique
  check late_flights_were_flown
asset nyc/flights [flights: orc, pyspark] weekly code 1
  check carrier_is_given
  check delays_are_plausible (warns)
  check distance_is_positive
  check flights_are_unique
  check month_is_a_month
  check most_flights_arrive
  check origin_is_new_york
  check week_is_complete
asset nyc/planes [dimensions: orc, pandas] code 1
asset nyc/weather [dimensions: orc, pandas] code 1
job delays_job (in_process): delays_checks, flights_checks, nyc__delays_by_carrier_month
job dimensions_job (in_process): nyc__airlines, nyc__airports, nyc__planes, nyc__weather
job week_job (in_process): nyc__flights
"""
SERVICES = """
job cleaning_job (in_process): clean
job compaction_job (in_process): merge, plan, publish, queued, validate; pool acid_compaction
job erase (in_process): clean_and_prove, compact_files, delete_rows; pool acid_compaction
sensor abort_canceled_runs STOPPED
sensor abort_failed_runs STOPPED
sensor cleaner_sensor STOPPED every 5 s -> cleaning_job
sensor commit_sensor STOPPED
sensor erasure_sensor STOPPED every 30 s -> erase
sensor fail_lost_runs STOPPED
sensor initiator_sensor STOPPED every 30 s -> compaction_job
sensor merge_branches RUNNING
"""


def lines(*texts: str) -> list[str]:
    return [line for text in texts for line in text.strip().splitlines()]


def described(found: dg.Definitions) -> list[str]:
    """A line for each asset, check, job and sensor."""
    repository = found.get_repository_def()
    jobs = [
        repository.get_job(name)
        for name in sorted(repository.job_names)
        if not name.startswith("__")
    ]
    sensors = sorted(repository.sensor_defs, key=lambda one: one.name)
    return [*_assets(repository), *map(_job, jobs), *map(_sensor, sensors)]


def _assets(repository: dg.RepositoryDefinition) -> Iterator[str]:
    graph = repository.asset_graph
    for key in sorted(graph.get_all_asset_keys()):
        node = graph.get(key)
        parts = type(node.partitions_def).__name__.removesuffix("PartitionsDefinition").lower()
        yield " ".join(
            [
                f"asset {key.to_user_string()} [{node.group_name}:"
                f" {', '.join(sorted(node.kinds))}]",
                *([parts] if node.partitions_def else []),
                f"code {node.code_version}",
                *(f"< {one.to_user_string()}" for one in sorted(node.parent_keys)),
            ]
        )
        for check in sorted(graph.get_check_keys_for_assets({key})):
            yield f"  check {check.name}" + (
                "" if graph.get_check_spec(check).blocking else " (warns)"
            )


def _job(job: dg.JobDefinition) -> str:
    pools = sorted({pool for node in job.graph.nodes for pool in node.definition.pools})
    return (
        f"job {job.name} ({job.executor_def.name}): "
        + ", ".join(sorted(node.name for node in job.graph.nodes))
        + "".join(f"; pool {one}" for one in pools)
    )


def _sensor(sensor: dg.SensorDefinition) -> str:
    told = f"sensor {sensor.name} {sensor.default_status.value}"
    return told + (
        f" every {sensor.minimum_interval_seconds} s -> {sensor.job_name}"
        if sensor.has_jobs
        else ""
    )


@with_demo
def test_the_whole_location() -> None:
    dg.Definitions.validate_loadable(definitions.defs())
    assert sorted(described(definitions.defs()), key=_kind) == sorted(
        lines(ASSETS, SERVICES), key=_kind
    )


def _kind(line: str) -> tuple[str, str]:
    """Assets in order with their checks, then jobs, then sensors by name."""
    kind = line.split()[0]
    return (kind, line) if kind in ("job", "sensor") else ("asset", "")


def test_services_that_are_on_and_apart_have_all_their_sensors_running() -> None:
    """commit_sensor and merge_branches stay where the assets are."""
    wanted = {
        name: dg.DefaultSensorStatus.RUNNING for name in re.findall(r"sensor (\w+)", SERVICES)
    }
    assert _status(services(on=True)) == wanted
    assert _status(services())["initiator_sensor"] is dg.DefaultSensorStatus.STOPPED
    dg.Definitions.validate_loadable(service_location.defs)
    apart = _status(service_location.defs)
    assert {*wanted} - {*apart} == {"commit_sensor", "merge_branches"}
    assert apart.items() <= wanted.items()


def _status(found: dg.Definitions) -> dict[str, dg.DefaultSensorStatus]:
    return {sensor.name: sensor.default_status for sensor in found.sensors or ()}


def test_without_assets_the_services_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "assets", None)
    assert described(definitions.defs()) == lines(SERVICES)


def test_a_project_with_the_services_is_warned_of_nothing(
    recwarn: pytest.WarningsRecorder,
) -> None:
    own = dg.Definitions(resources={"warehouse": WarehouseResource(), "spark": SparkResource()})
    dg.Definitions.validate_loadable(dg.Definitions.merge(services(), own))
    assert not [str(warning.message) for warning in recwarn]


@with_demo
def test_a_broken_import_of_an_asset_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [one for one in sys.modules if one == "assets" or one.startswith("assets.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "assets.flights_source", None)
    with pytest.raises(ModuleNotFoundError, match="flights_source"):
        definitions.defs()


def test_an_error_of_the_definitions_is_shown_once_with_the_line_of_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dagster raises it again from several places, and keeps each as the context of the next."""
    text = "acid_asset(table='shop.bad', write_mode='upsrt')"
    code = compile(text, str(tmp_path / "bad"), "exec")

    def load(**_given: object) -> dg.Definitions:
        try:
            exec(code, {"acid_asset": acid_asset})
        except InvalidDefinition as error:
            raise InvalidDefinition(str(error)) from error
        raise AssertionError

    def directly(**_given: object) -> dg.Definitions:
        exec(code, {"acid_asset": acid_asset})
        raise AssertionError

    for loader in (load, directly):
        monkeypatch.setattr(dg, "load_from_defs_folder", loader)
        with pytest.raises(InvalidDefinition, match="write_mode is 'upsrt'") as told:
            load_defs(tmp_path)
        assert told.value.__cause__ is None and told.value.__context__ is None
        frames = traceback.extract_tb(told.value.__traceback__)
        assert len(frames) == 3 and frames[-1].filename.endswith("bad")
