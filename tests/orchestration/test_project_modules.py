"""What `definitions.py` finds in the modules of a package, as a Dagster user writes them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from acid_platform import InvalidDefinition
from acid_platform.orchestration.project_modules import collected, modules_of

pytestmark = pytest.mark.filterwarnings("ignore:Parameter `owners`")  # Dagster's own copies

ORDERS = """
import dagster as dg

@dg.asset
def orders() -> None: ...

@dg.asset_check(asset=orders)
def orders_are_there() -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=True)

job = dg.define_asset_job("orders_job", [orders])
"""
NIGHTLY = """
import dagster as dg
from shop_assets.sales.orders import job, orders

nightly = dg.ScheduleDefinition(job=job, cron_schedule="0 3 * * *")

@dg.schedule(job=job, cron_schedule="0 4 * * *")
def by_function(): ...

@dg.sensor(job=job)
def by_sensor(): ...

@dg.op
def clean(): ...

@dg.job
def cleaning(): clean()

SEVERAL = [dg.define_asset_job("first", [orders]), dg.define_asset_job("second", [orders])]
"""
LANDING = """
import dagster as dg

class Landing(dg.ConfigurableResource):
    path: str

landing = Landing(path="in")
_hidden = Landing(path="out")
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(tmp_path))
    root = tmp_path / "shop_assets"
    (root / "sales").mkdir(parents=True)
    (root / "__init__.py").write_text("")
    (root / "sales" / "orders.py").write_text(ORDERS)  # a subfolder without __init__.py
    (root / "nightly.py").write_text(NIGHTLY)
    (root / "landing.py").write_text(LANDING)
    yield root
    for name in [name for name in sys.modules if name.partition(".")[0] == "shop_assets"]:
        del sys.modules[name]


def load() -> dg.RepositoryDefinition:
    services = dg.Definitions(resources={"warehouse": object()})
    return collected(modules_of("shop_assets"), services).get_repository_def()


def test_everything_at_the_top_of_a_module_is_found(package: Path) -> None:
    assert package.is_dir()
    names = [module.__name__ for module in modules_of("shop_assets")]
    assert names == [
        "shop_assets",
        "shop_assets.landing",
        "shop_assets.nightly",
        "shop_assets.sales.orders",
    ]
    repository = load()
    assert {schedule.name for schedule in repository.schedule_defs} == {
        "orders_job_schedule",
        "by_function",
    }
    assert [sensor.name for sensor in repository.sensor_defs] == ["by_sensor"]
    jobs = {name for name in repository.job_names if not name.startswith("__")}
    assert jobs == {"orders_job", "cleaning", "first", "second"}
    assert set(repository.asset_graph.get_all_asset_keys()) == {dg.AssetKey("orders")}
    assert len(repository.asset_graph.asset_check_keys) == 1
    resources = set(repository.get_top_level_resources())
    assert {"landing", "warehouse"} <= resources and "_hidden" not in resources


def test_a_package_with_modules_and_folders(package: Path) -> None:
    (package / "deep" / "er").mkdir(parents=True)
    (package / "deep" / "er" / "items.py").write_text(ORDERS.replace("orders", "items"))
    (package / "deep" / "__init__.py").write_text("import dagster as dg\n@dg.asset\ndef d(): ...\n")
    (package / "__pycache__").mkdir(exist_ok=True)
    (package / "__pycache__" / "stale.py").write_text("raise SystemExit")
    keys = load().asset_graph.get_all_asset_keys()
    assert set(keys) == {dg.AssetKey("orders"), dg.AssetKey("items"), dg.AssetKey("d")}


def test_no_package_is_nothing() -> None:
    assert modules_of("no_such_assets") == []
    repository = collected([], dg.Definitions()).get_repository_def()
    assert not list(repository.asset_graph.get_all_asset_keys())


def test_a_broken_module_is_told(package: Path) -> None:
    (package / "broken.py").write_text("import no_such_module\n")
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        modules_of("shop_assets")


@pytest.mark.parametrize(
    "text",
    [
        "import dagster as dg\ndefs = dg.Definitions()\n",
        "import dagster as dg\n\n@dg.definitions\ndef defs():\n    return dg.Definitions()\n",
    ],
)
def test_definitions_that_would_be_lost_are_refused(package: Path, text: str) -> None:
    (package / "own.py").write_text(text)
    with pytest.raises(InvalidDefinition, match=r"shop_assets\.own makes a dg\.Definitions, defs"):
        collected(modules_of("shop_assets"), dg.Definitions())


def test_two_resources_of_one_name_are_refused(package: Path) -> None:
    (package / "other.py").write_text(LANDING)
    with pytest.raises(InvalidDefinition, match="two resources have the name 'landing'"):
        collected(modules_of("shop_assets"), dg.Definitions())


def test_a_resource_that_two_modules_import_is_one(package: Path) -> None:
    (package / "other.py").write_text("from shop_assets.landing import landing\n")
    collected(modules_of("shop_assets"), dg.Definitions())


def test_a_module_may_schedule_a_job_of_the_services(package: Path) -> None:
    (package / "compacting.py").write_text(
        "import dagster as dg\n"
        "from acid_platform.orchestration.compaction_job import compaction_job\n"
        "weekly = dg.ScheduleDefinition(job=compaction_job, cron_schedule='0 5 * * 0')\n"
    )
    from acid_platform.orchestration.compaction_job import IN_MEMORY, compaction_job

    resources = {"warehouse": object(), "spark": object(), IN_MEMORY: dg.mem_io_manager}
    services = dg.Definitions(jobs=[compaction_job], resources=resources)
    repository = collected(modules_of("shop_assets"), services).get_repository_def()
    assert "compaction_job_schedule" in {one.name for one in repository.schedule_defs}
