"""`dg` in a copy of this repository, and in a project of a few files: scaffold, check, launch.

Each call of `dg` takes seconds to start, so a test does several things.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner
from psutil import process_iter

from acid_platform.cli.main import main
from tests.conftest import temporary_warehouse

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
ROOT = Path(__file__).resolve().parents[2]


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
    kinds = ("SqlAssetComponent", "TableAssetComponent", "ExternalAssetsComponent")
    assert {f"{place}.{kind}" for kind in kinds} <= keys


def test_dg_writes_no_table_without_a_name(tmp_path: Path) -> None:
    place = project(tmp_path)
    with pytest.raises(AssertionError, match="is not a name for a table"):
        dg_says(place, "scaffold", "defs", "acid_asset", "etc.py", "--table", "../etc")
    assert not (place / "shop" / "defs" / "etc.py").exists()


def project(place: Path) -> Path:
    written = CliRunner().invoke(main, ["new", str(place / "shop")])
    assert written.exit_code == 0, written.output
    return place / "shop"


def project_tests_say(place: Path) -> str:
    """What the tests of a project print; they leave no metastore running."""
    warehouses = place.parent / "warehouses"
    quiet = ["-q", "-p", "no:cacheprovider", "--basetemp", str(warehouses)]
    tests = subprocess.run(
        [sys.executable, "-m", "pytest", *quiet, "tests"],
        cwd=place,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{place}{os.pathsep}{ROOT}", "ACID_WAREHOUSE": ""},
    )
    commands = [" ".join(process.info["cmdline"] or ()) for process in process_iter(["cmdline"])]
    assert not [command for command in commands if str(warehouses) in command]
    return tests.stdout + tests.stderr


def test_a_new_project_is_checked_and_tested(tmp_path: Path) -> None:
    place = project(tmp_path)
    assert "All definitions loaded successfully" in dg_says(place, "check", "defs")
    assert "1 passed" in project_tests_say(place)
    with (place / "shop" / "defs" / "orders" / "orders.csv").open("a") as orders:
        orders.write("1,Ada,3\n")  # the order 1 twice
    assert "1 failed" in project_tests_say(place)
    declared = tomllib.loads((place / "pyproject.toml").read_text())["project"]
    [platform] = declared["dependencies"]  # no index has it
    assert platform.startswith("acid-platform[dagster] @ ") and ROOT.as_uri() in platform
    again = CliRunner().invoke(main, ["new", str(place)])
    assert again.exit_code == 1 and "is not empty" in again.stderr


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("my-shop", "letters, digits and _"),
        ("class", "Python's"),
        ("json", "Python's"),
        ("var", "folder of this name"),
        ("dagster", "an installed package"),
        ("values", "a word of SQL"),
        ("file/shop", "can't be written: .*Not a directory"),
    ],
)
def test_a_name_that_a_project_cannot_have_is_refused(tmp_path: Path, path: str, why: str) -> None:
    (tmp_path / "file").touch()
    refused = CliRunner().invoke(main, ["new", str(tmp_path / path)])
    assert refused.exit_code == 1 and re.search(why, refused.stderr)
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_what_dg_scaffolds_is_checked_and_launched(tmp_path: Path) -> None:
    place = project(tmp_path)
    dg_says(place, "scaffold", "defs", "acid_asset", "shop/names.py", "--table", "shop.names")
    assert "import" in (place / "tests" / "assets" / "test_shop_names.py").read_text()
    dg_says(place, "scaffold", "defs", "TableAssetComponent", "parts", "--table", "shop.parts")
    dg_says(place, "scaffold", "defs", "SqlAssetComponent", "totals", "--table", "shop.totals")
    sql = place / "shop" / "defs" / "totals" / "totals.sql"
    sql.write_text("SELECT count(*) AS id FROM shop.parts")
    assert "All definitions loaded successfully" in dg_says(place, "check", "defs")
    with temporary_warehouse(tmp_path / "wh") as warehouse:
        warehouse.create_table("hr.staff", "id int")
        dg_says(place, "scaffold", "defs", "ExternalAssetsComponent", "others", "--tables", "hr.*")
        listed = dg_says(place, "list", "defs", "--json", ACID_WAREHOUSE=warehouse.path)
        assert "hr/staff" in [asset["asset_key"] for asset in json.loads(listed)["assets"]]
        dg_says(
            place,
            *("launch", "--assets", "*"),
            ACID_WAREHOUSE=warehouse.path,
            ACID_ENGINE="local",
            DAGSTER_HOME="",
        )
        assert warehouse.table("shop.totals").to_arrow().to_pylist() == [{"id": 2}]
        assert warehouse.table("shop.names").count() == 2
