"""The documents are right: printed tables, the example, links, commands and targets."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import click
import dagster as dg
import pyarrow as pa
import pytest
import yaml
from dagster._config import validate_config
from dagster._core.instance.config import dagster_instance_config_schema
from pyspark.sql import SparkSession

from acid_platform import orchestration
from acid_platform.base.config import REGISTRY
from acid_platform.base.location import Location
from acid_platform.cli.main import main
from acid_platform.layout.table_properties import TABLE_PROPERTIES
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.orchestration.resources import SparkResource, WarehouseResource
from scripts import print_tables
from tests.conftest import temporary_warehouse

ROOT = Path(__file__).resolve().parents[2]
NO_SETTINGS = {
    *(one.name for one in TABLE_PROPERTIES),
    "hive.acid.key.index",
    "hive.acid.stats",
    "hive.acid.version",
}
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "llms.txt"])


def test_P9_the_printed_tables_are_those_of_the_code() -> None:
    for page, render in print_tables.PAGES.items():
        assert page.read_text() == render(), f"{page.name}: run python -m scripts.print_tables"


@pytest.mark.slow
def test_the_documents_build_without_a_warning(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mkdocs",
            "build",
            "--strict",
            "--quiet",
            "--site-dir",
            str(tmp_path),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    text = (tmp_path / "reference.html").read_text()
    assert "adopt_table" in text and "SnapshotExpired" in text
    outside = re.findall(r'(?:src|<link[^>]*href)="(https?://[^"]+)"', text)
    assert outside == []  # readable without a network


@pytest.mark.more
def test_the_example_of_the_readme_runs_without_a_jvm_and_prints_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ACID_ENGINE", "local")
    monkeypatch.delenv("ACID_METASTORE", raising=False)
    [example] = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    try:
        exec(compile(example, "README.md", "exec"), {})
    finally:
        with Metastore.connect(Location.of("var/warehouse").metastore) as metastore:
            metastore.stop()
    before, now, *shows = capsys.readouterr().out.splitlines()
    assert before == str(
        [{"id": 1, "carrier": "UA", "month": 1}, {"id": 2, "carrier": "AA", "month": 2}]
    )
    assert now == str([{"id": 3, "carrier": "DL", "month": 2}])
    assert "compactionid" in shows[0]


@pytest.mark.spark
@pytest.mark.slow
def test_the_check_of_the_readmes_asset_can_fail_and_then_blocks(
    tmp_path: Path, spark: SparkSession
) -> None:
    [example] = re.findall(r"```py\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(example, "README.md", "exec"), names)

    def run(path: str) -> tuple[bool, list[bool]]:
        result = dg.materialize(
            [names["late_flights"]],
            raise_on_error=False,
            resources={"warehouse": WarehouseResource(path=path), "spark": SparkResource()},
            run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
        )
        return result.success, [
            evaluation.passed for evaluation in result.get_asset_check_evaluations()
        ]

    with temporary_warehouse(tmp_path / "wh", spark) as warehouse:
        flights = warehouse.create_table("nyc.flights", "month int, carrier string, arr_delay int")
        late = pa.table(
            {
                "month": pa.array([1] * 2000, pa.int32()),
                "carrier": ["UA"] * 2000,
                "arr_delay": pa.array([20] * 2000, pa.int32()),
            }
        )
        flights.insert(late)
        assert run(warehouse.path) == (True, [True])
        flights.insert(late)  # once more by mistake
        assert run(warehouse.path) == (False, [False])
        [row] = warehouse.table("nyc.late_flights").to_arrow().to_pylist()
        assert row == {"month": 1, "carrier": "UA", "count": 2000}


def test_the_reference_has_all_that_a_project_imports_from_orchestration(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "reference.md").read_text()
    listed = set(re.findall(r"^::: \S+\.(\w+)$", text, re.MULTILINE))
    assert set(orchestration.__all__) - listed == set()


def _production() -> str:
    text = (ROOT / "docs" / "run.md").read_text()
    return text.partition("## Dagster in production")[2].partition("\n## ")[0]


def test_dagster_takes_the_configuration_for_production() -> None:
    page = _production()
    examples = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    storage, lineage, location = examples
    [named] = yaml.safe_load(location)
    assert importlib.util.find_spec(named["python_module"]["module_name"])
    for example in (storage, lineage):
        checked = validate_config(dagster_instance_config_schema(), yaml.safe_load(example))
        assert checked.success, checked.errors


@pytest.mark.more
def test_old_runs_are_deleted_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = _production()
    examples = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    [example] = [each for each in examples if "delete_run" in each]
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))

    @dg.op
    def nothing() -> None: ...

    with dg.DagsterInstance.get() as instance:
        for name in ("cleaning_job", "week_job"):
            dg.GraphDefinition(name, node_defs=[nothing]).to_job().execute_in_process(
                instance=instance
            )
        exec(compile(example, "run.md", "exec"), {})
        assert instance.get_runs_count() == 2  # none of them is old
        exec(compile(example.replace("days=30", "days=-1"), "run.md", "exec"), {})
        assert [run.job_name for run in instance.get_runs()] == ["week_job"]


def test_links_lead_somewhere() -> None:
    missing = []
    for page in PAGES:
        for link, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)", page.read_text()):
            target = page.parent / link if link else page
            if "://" in link or link.startswith("mailto:"):
                continue
            if not target.exists() or (anchor and anchor not in _anchors(target)):
                missing.append(f"{page.name}: {link}#{anchor}")
    assert missing == []


@cache
def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_programs_find_every_page_that_people_find() -> None:
    listed = set(re.findall(r"\((docs/[\w/-]+\.md)\)", (ROOT / "llms.txt").read_text()))
    assert listed == {str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")}


def test_files_and_names_that_guide_a_change_are_there() -> None:
    for name in ("CONTRIBUTING.md", "docs/internal/extending.md", "docs/internal/architecture.md"):
        files = set(
            re.findall(r"`((?:acid_platform|tests|docs)/[\w/.]+)`", (ROOT / name).read_text())
        )
        assert files and {file for file in files if not (ROOT / file).exists()} == set(), name


def test_the_rooms_of_the_page_are_the_rooms_of_the_library() -> None:
    text = (ROOT / "docs" / "internal" / "architecture.md").read_text()
    rows = re.findall(r"^\| (`[^|]+) \|", text, re.MULTILINE)
    named = {room for row in rows for room in re.findall(r"`([\w/]+)`", row)}
    library = ROOT / "acid_platform"
    rooms = {path.parent.name for path in library.glob("*/__init__.py")}
    wings = {f"metastore/{path.parent.name}" for path in library.glob("metastore/*/__init__.py")}
    assert rooms - named == set()
    modules = {name for name in named if not (library / name).is_dir()}
    assert {name for name in modules if not (library / f"{name}.py").exists()} == set()
    dotted = set(re.findall(r"`([a-z_]+(?:\.[a-z_]+)+)`", text)) - set(REGISTRY) - NO_SETTINGS
    ours = {name for name in dotted if name.partition(".")[0] in rooms}

    def found(name: str) -> bool:
        """A module, or a name in a module."""
        path = library.joinpath(*name.split("."))
        return path.with_suffix(".py").exists() or path.parent.with_suffix(".py").exists()

    assert {name for name in ours if not found(name)} == set()
    assert len(ours) > 5
    assert wings - named <= {"metastore/operations"}


def test_settings_targets_and_commands_exist() -> None:
    text = "\n".join(page.read_text() for page in PAGES)
    named = set(re.findall(r"`((?:hive|acid|metastore)\.[a-z.]+[a-z])`", text))
    unknown = named - set(REGISTRY) - NO_SETTINGS
    assert {name for name in unknown if not _is_module(name)} == set()
    targets = set(re.findall(r"(?:`|^)make ([a-z][a-z-]+)", text, re.MULTILINE))
    known = set(re.findall(r"^\.PHONY: (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert targets - known == set()
    for line in _commands(text):
        _require_command(re.findall(r"^acid ([a-z]+)(?: ([a-z-]+))?", line))


def _is_module(name: str) -> bool:
    path = (ROOT / "acid_platform").joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").exists()


def _commands(text: str) -> list[str]:
    """Code that starts with `acid`, in line or in a block."""
    inline = re.findall(r"`(?:\.venv/bin/)?(acid [^`]+)`", text)
    blocks = re.findall(r"^(acid .+)$", text, re.MULTILINE)
    return [*inline, *blocks]


def _require_command(found: list[tuple[str, str]]) -> None:
    for name, second in found:
        command = main.commands.get(name)
        assert command is not None, f"acid {name}"
        if isinstance(command, click.Group) and second and not second.startswith("-"):
            assert second in command.commands, f"acid {name} {second}"
