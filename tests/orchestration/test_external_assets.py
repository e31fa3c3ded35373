"""Tables and views that others make and fill are external assets; views are virtual."""

# No `from __future__ import annotations`: Dagster reads the annotations of its functions.
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import pytest

from acid_platform.orchestration import (
    SparkResource,
    acid_asset,
    asset_key,
    upstream_changed,
)
from acid_platform.orchestration.components import ExternalAssetsComponent
from acid_platform.orchestration.outside_commits import commit_sensor
from tests.orchestration.conftest import Place, run, succeeded

STAFF, BOSSES, ADULTS = (asset_key(f"hr.{name}") for name in ("staff", "bosses", "adults"))
VIEW = "CREATE VIEW hr.adults (who, years) COMMENT 'of age' AS SELECT name, age FROM hr.staff"


@pytest.fixture
def hr(place: Place) -> Place:
    """A table and views that Trino might have made."""
    for statement in (
        "CREATE DATABASE hr",
        "CREATE TABLE hr.staff (name string COMMENT 'as in the passport', age int)"
        " COMMENT 'everybody' PARTITIONED BY (day date)",
        f"{VIEW} WHERE age > 17",
        "CREATE VIEW hr.bosses AS SELECT upper(who) AS boss FROM hr.adults WHERE years > 50",
    ):
        place.warehouse.sql(statement, engine="local")
    place.warehouse.create_table("shop.orders", "id int")
    return place


def shown(place: Place, *tables: str, **attributes: Any) -> dict[dg.AssetKey, dg.AssetSpec]:
    """By key the assets that a component shows after a refresh of its state."""
    component = ExternalAssetsComponent(tables=tables, warehouse=place.resource.path, **attributes)
    state = Path(place.warehouse.path).parent / "state"
    component.write_state_to_path(state)
    definitions = component.build_defs_from_state(dg.ComponentTree.for_test().load_context, state)
    return {spec.key: spec for spec in specs_of(definitions)}


def specs_of(definitions: dg.Definitions) -> list[dg.AssetSpec]:
    """Without the stubs that Dagster makes of what is upstream."""
    return [asset for asset in definitions.assets or () if isinstance(asset, dg.AssetSpec)]


def rows(place: Place, *ages: int) -> None:
    staff = [{"name": f"n{age}", "age": age, "day": "2024-01-01"} for age in ages]
    place.warehouse.table("hr.staff").insert(staff)


def test_a_table_has_its_columns_and_comments(hr: Place) -> None:
    [staff] = shown(hr, "hr.st*").values()
    assert (staff.key, staff.description, staff.kinds) == (STAFF, "everybody", {"orc"})
    columns = staff.metadata["dagster/column_schema"].columns
    assert [(each.name, each.type, each.description) for each in columns] == [
        ("name", "string", "as in the passport"),
        ("age", "int", None),
        ("day", "date", None),
    ]
    assert not staff.is_virtual and not [*staff.deps]
    assert staff.metadata["dagster/table_name"] == "hr.staff"


def test_what_is_excluded_is_never_shown_and_only_a_star_is_any_text(hr: Place) -> None:
    assert [*shown(hr, "hr.adults", "hr.staff", exclude=["hr.a*"])] == [STAFF]
    hr.warehouse.create_table("hr.odd[s]?", "id int")
    specs = shown(hr, "hr.odd[s]?", "hr.[s]*", "hr.staf?*")
    assert [*specs] == [asset_key("hr.odd[s]?")]
    assert "dagster/column_schema" in specs[asset_key("hr.odd[s]?")].metadata


def test_a_view_is_virtual_and_shows_what_its_columns_are_computed_of(hr: Place) -> None:
    specs = shown(hr, "hr.*", exclude=["hr.staff"])
    assert [*specs] == [ADULTS, BOSSES]
    adults, bosses = specs.values()
    assert adults.is_virtual and adults.kinds == {"view"} and adults.description == "of age"
    assert [dep.asset_key for dep in adults.deps] == [STAFF]
    assert [dep.asset_key for dep in bosses.deps] == [ADULTS]
    assert "staff" in adults.metadata["sql"].value
    assert adults.metadata["dagster/column_lineage"] == dg.TableColumnLineage(
        {
            "who": [dg.TableColumnDep(STAFF, "name")],
            "years": [dg.TableColumnDep(STAFF, "age")],
        }
    )
    table = [record.data for record in adults.metadata["sources of columns"].records]
    assert table == [
        {"column": "who", "computed of": "hr.staff.name"},
        {"column": "years", "computed of": "hr.staff.age"},
    ]
    assert bosses.metadata["dagster/column_lineage"] == dg.TableColumnLineage(
        {"boss": [dg.TableColumnDep(ADULTS, "who")]}
    )


@pytest.mark.more
def test_a_table_that_is_not_there_yet_is_shown_by_its_name(hr: Place) -> None:
    specs = shown(hr, "Shop.Later", "shop.*")
    assert [key.to_user_string() for key in specs] == ["shop/later", "shop/orders"]
    component = ExternalAssetsComponent(tables=["shop.later", "hr.*"])
    never_refreshed = component.build_defs_from_state(
        dg.ComponentTree.for_test().load_context, None
    )
    [later] = specs_of(never_refreshed)
    assert later.key == asset_key("shop.later")


def test_a_misspelt_warehouse_is_not_made(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    where = tmp_path / "warehose"
    component = ExternalAssetsComponent(tables=["hr.*", "hr.staff"], warehouse=str(where))
    component.write_state_to_path(tmp_path / "state")
    assert f"there is no warehouse at {where} yet" in caplog.text
    assert not where.exists()
    context = dg.ComponentTree.for_test().load_context
    definitions = component.build_defs_from_state(context, tmp_path / "state")
    assert [spec.key for spec in specs_of(definitions)] == [STAFF]


def test_attributes_of_the_yaml_are_added(hr: Place) -> None:
    [staff] = shown(
        hr,
        "hr.staff",
        asset={"group_name": "people", "kinds": {"trino"}, "metadata": {"system": "payroll"}},
    ).values()
    assert (staff.group_name, staff.kinds) == ("people", {"orc", "trino"})
    assert staff.metadata["system"] == "payroll" and "dagster/uri" in staff.metadata


def test_external_tables_of_hive_are_assets_without_a_history(hr: Place, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    hr.warehouse.sql(
        "CREATE EXTERNAL TABLE hr.raw (id int) ROW FORMAT DELIMITED FIELDS TERMINATED BY ','"
        f" LOCATION '{tmp_path / 'in'}'",
        engine="local",
    )
    [raw] = shown(hr, "hr.raw").values()
    assert not raw.is_virtual and raw.kinds == {"text"}
    assert [each.name for each in raw.metadata["dagster/column_schema"].columns] == ["id"]


@pytest.mark.more
def test_a_commit_of_others_starts_what_is_downstream_of_a_view(hr: Place) -> None:
    @acid_asset(
        table="hr.count",
        deps=[BOSSES],
        automation_condition=upstream_changed(),
    )
    def count() -> list[dict[str, int]]:
        return [{"n": 1}]

    definitions = dg.Definitions(
        assets=[count, *shown(hr, "hr.*").values()],
        resources={"warehouse": hr.resource, "spark": SparkResource()},
    )
    instance = hr.instance

    def tick() -> list[dg.AssetKey]:
        """Evaluates the sensor, and then the conditions, as the daemon does."""
        nonlocal sensor, cursor
        result = commit_sensor(
            dg.build_sensor_context(
                instance=instance,
                cursor=sensor,
                definitions=definitions,
                resources={"warehouse": hr.resource},
            )
        )
        assert isinstance(result, dg.SensorResult)
        for event in result.asset_events:
            instance.report_runless_asset_event(event)
        sensor = result.cursor
        decided = dg.evaluate_automation_conditions(definitions, instance, cursor=cursor)
        cursor = decided.cursor
        return [key for key in (count.key,) if decided.get_num_requested(key)]

    sensor: str | None = None
    cursor: Any = None
    rows(hr, 20)
    tick()
    instance.report_runless_asset_event(dg.AssetMaterialization(count.key))
    assert tick() == []
    rows(hr, 60)
    assert tick() == [count.key]
    assert tick() == []


@pytest.mark.more
def test_the_io_manager_loads_a_table_of_others(hr: Place) -> None:
    rows(hr, 20, 60)

    @dg.asset(key_prefix="shop", ins={"people": dg.AssetIn(key=STAFF)})
    def oldest(people: pd.DataFrame) -> pd.DataFrame:
        return people.nlargest(1, "age")[["name", "age"]]

    staff = shown(hr, "hr.staff")[STAFF]
    assert succeeded(run(hr, staff, oldest, engine="local", selection=[oldest]))
    [row] = hr.warehouse.table("shop.oldest").to_arrow().to_pylist()
    assert row == {"name": "n60", "age": 60}
