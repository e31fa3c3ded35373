"""The code location: what Dagster is given, with and without the project's own assets."""

from __future__ import annotations

import sys

import dagster as dg
import pytest

from acid_platform import definitions


def test_the_whole_definition_graph() -> None:
    defs = definitions.defs()
    dg.Definitions.validate_loadable(defs)
    graph = defs.resolve_asset_graph()
    assert sorted(key.to_user_string() for key in graph.get_all_asset_keys()) == [
        "nyc/airlines", "nyc/airports", "nyc/delays_by_carrier_month", "nyc/flights", "nyc/planes",
        "nyc/weather",
    ]
    assert graph.get(dg.AssetKey(["nyc", "delays_by_carrier_month"])).parent_keys == {
        dg.AssetKey(["nyc", "flights"])}
    assert len([one for one in graph.asset_check_keys
                if one.asset_key == dg.AssetKey(["nyc", "flights"])]) >= 5
    assert sorted(one.name for one in defs.jobs or []) == [
        "cleaning_job", "compaction_job", "delays_job", "dimensions_job", "week_job"]
    sensors = {one.name: one.default_status for one in defs.sensors or []}
    assert sensors == dict.fromkeys(
        ["initiator_sensor", "cleaner_sensor", "abort_failed_runs", "abort_canceled_runs"],
        dg.DefaultSensorStatus.STOPPED)
    assert defs.executor is dg.in_process_executor


def test_without_assets_the_services_still_load(monkeypatch: pytest.MonkeyPatch) -> None:
    class Absent:
        def find_spec(self, name: str, path: object = None, target: object = None) -> None:
            if name == "assets":
                raise ModuleNotFoundError("No module named 'assets'", name="assets")

    for name in [one for one in sys.modules if one == "assets" or one.startswith("assets.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Absent(), *sys.meta_path])
    defs = definitions.defs()
    assert sorted(one.name for one in defs.jobs or []) == ["cleaning_job", "compaction_job"]
    assert len(list(defs.sensors or [])) == 4
