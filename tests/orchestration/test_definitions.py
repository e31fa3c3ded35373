"""The location as Dagster loads it: every name of it, without a JVM or a warehouse."""

from __future__ import annotations

import sys

import dagster as dg
import pytest

from acid_platform import definitions
from tests.conftest import HAS_DEMO

pytestmark = pytest.mark.filterwarnings("ignore:Parameter `owners`")  # Dagster's own copies

with_demo = pytest.mark.skipif(not HAS_DEMO, reason="the demo's assets were removed")

SERVICES = {
    "jobs": {"cleaning_job", "compaction_job"},
    "sensors": {
        "abort_canceled_runs": "STOPPED", "abort_failed_runs": "STOPPED",
        "cleaner_sensor": "STOPPED", "initiator_sensor": "STOPPED",
    },
}


def names(found: dg.Definitions) -> dict[str, object]:
    repository = found.get_repository_def()
    graph = repository.asset_graph
    return {
        "assets": {key.to_user_string(): sorted(one.to_user_string()
                                               for one in graph.get(key).parent_keys)
                   for key in graph.get_all_asset_keys()},
        "checks": {f"{key.asset_key.to_user_string()}:{key.name}"
                   for key in graph.asset_check_keys},
        "jobs": {name for name in repository.job_names if not name.startswith("__")},
        "sensors": {one.name: one.default_status.value for one in repository.sensor_defs},
    }


@with_demo
def test_the_whole_location() -> None:
    dg.Definitions.validate_loadable(definitions.defs())
    assert names(definitions.defs()) == {
        "assets": {
            "nyc/airlines": [], "nyc/airports": [], "nyc/planes": [], "nyc/weather": [],
            "nyc/flights": [], "nyc/delays_by_carrier_month": ["nyc/flights"],
        },
        "checks": {
            "nyc/flights:week_is_complete", "nyc/flights:flights_are_unique",
            "nyc/flights:delays_are_plausible", "nyc/flights:month_is_a_month",
            "nyc/flights:origin_is_new_york", "nyc/flights:distance_is_positive",
            "nyc/flights:most_flights_arrive", "nyc/flights:carrier_is_given",
            "nyc/delays_by_carrier_month:carrier_month_is_unique",
            "nyc/delays_by_carrier_month:late_flights_were_flown",
        },
        "jobs": {*SERVICES["jobs"], "dimensions_job", "week_job", "delays_job"},
        "sensors": SERVICES["sensors"],
    }


@with_demo
def test_checks_that_hold_back_are_blocking() -> None:
    graph = definitions.defs().get_repository_def().asset_graph
    lenient = {key.name for key in graph.asset_check_keys if not graph.get_check_spec(key).blocking}
    assert lenient == {"delays_are_plausible"}


def test_one_process_per_run() -> None:
    repository = definitions.defs().get_repository_def()
    assert {repository.get_job(name).executor_def.name for name in repository.job_names} == {
        "in_process"}


def test_compactions_wait_for_the_pool() -> None:
    job = definitions.defs().resolve_job_def("compaction_job")
    assert set().union(*(node.definition.pools for node in job.graph.nodes)) == {
        "acid_compaction"}


def test_without_assets_the_services_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "assets", None)
    found = names(definitions.defs())
    assert (found["assets"], found["checks"]) == ({}, set())
    assert {key: found[key] for key in SERVICES} == SERVICES


@with_demo
def test_a_broken_import_of_an_asset_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [one for one in sys.modules if one == "assets" or one.startswith("assets.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "assets.flights_source", None)
    with pytest.raises(ModuleNotFoundError, match="flights_source"):
        definitions.defs()
