"""`dg` in a copy of this repository, and in a project of a few files: scaffold, check, launch.

Each call of `dg` takes seconds to start, so a test does several things.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import temporary_warehouse

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
ROOT = Path(__file__).resolve().parents[2]
PROJECT = """
[tool.dg]
directory_type = "project"
[tool.dg.project]
root_module = "shop"
code_location_target_module = "shop.definitions"
registry_modules = ["acid_platform.orchestration.components"]
"""
DEFINITIONS = """
from pathlib import Path

import dagster as dg

from acid_platform.orchestration import SparkResource, WarehouseResource, services


@dg.definitions
def defs() -> dg.Definitions:
    resources = {"warehouse": WarehouseResource(), "spark": SparkResource()}
    own = dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
    return dg.Definitions.merge(services(), dg.Definitions(resources=resources), own)
"""


def dg_says(place: Path, *arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "dagster_dg_cli.cli", *arguments],
        cwd=place,
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": f"{place}{os.pathsep}{ROOT}",
            "DAGSTER_DISABLE_TELEMETRY": "1",
            **environment,
        },
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_dg_checks_and_lists_this_repository() -> None:
    assert "All definitions loaded successfully" in dg_says(ROOT, "check", "defs")
    listed = json.loads(dg_says(ROOT, "list", "defs", "--json"))
    assert {"compaction_job", "cleaning_job", "erase"} <= {job["name"] for job in listed["jobs"]}
    components = dg_says(ROOT, "list", "components", "--json")
    keys = {item["key"] for item in json.loads(components)["items"]}
    place = "acid_platform.orchestration.components"
    assert {f"{place}.SqlAssetComponent", f"{place}.TableAssetComponent"} <= keys


def test_dg_writes_no_table_without_a_name(tmp_path: Path) -> None:
    project(tmp_path)
    with pytest.raises(AssertionError, match="is not a name for a table"):
        dg_says(tmp_path, "scaffold", "defs", "acid_asset", "etc.py", "--table", "../etc")
    assert not (tmp_path / "shop" / "defs" / "etc.py").exists()


def project(place: Path) -> None:
    (place / "pyproject.toml").write_text(PROJECT)
    (place / "shop" / "defs").mkdir(parents=True)
    for package in (place / "shop", place / "shop" / "defs"):
        (package / "__init__.py").write_text("")
    (place / "shop" / "definitions.py").write_text(DEFINITIONS)


def test_what_dg_scaffolds_is_checked_and_launched(tmp_path: Path) -> None:
    project(tmp_path)
    dg_says(tmp_path, "scaffold", "defs", "acid_asset", "shop/names.py", "--table", "shop.names")
    assert "import" in (tmp_path / "tests" / "assets" / "test_shop_names.py").read_text()
    dg_says(tmp_path, "scaffold", "defs", "TableAssetComponent", "orders", "--table", "shop.orders")
    dg_says(tmp_path, "scaffold", "defs", "SqlAssetComponent", "totals", "--table", "shop.totals")
    sql = tmp_path / "shop" / "defs" / "totals" / "totals.sql"
    sql.write_text("SELECT count(*) AS id FROM shop.orders")
    assert "All definitions loaded successfully" in dg_says(tmp_path, "check", "defs")
    with temporary_warehouse(tmp_path / "wh") as warehouse:
        dg_says(
            tmp_path,
            *("launch", "--assets", "*"),
            ACID_WAREHOUSE=warehouse.path,
            ACID_ENGINE="local",
            DAGSTER_HOME="",
        )
        assert warehouse.table("shop.totals").to_arrow().to_pylist() == [{"id": 2}]
        assert warehouse.table("shop.names").count() == 2
