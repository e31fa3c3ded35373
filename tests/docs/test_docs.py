"""What the documents say is so: printed tables, the example, links, commands and targets."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from pyspark.sql import SparkSession

from acid_platform.cli import main
from acid_platform.config import REGISTRY
from acid_platform.location import Location
from acid_platform.metastore import Metastore
from acid_platform.services import fsck
from scripts import print_tables

ROOT = Path(__file__).resolve().parents[2]
NO_SETTINGS = {
    "acid.layout", "metastore.duckdb", "metastore.log", "metastore.blocks", "hive.acid.key.index"}
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])


def test_P9_the_printed_tables_are_those_of_the_code() -> None:
    for page, render in print_tables.PAGES.items():
        assert page.read_text() == render(), f"{page.name}: run python -m scripts.print_tables"


def test_the_documents_build_without_a_warning(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir",
         str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    text = (tmp_path / "reference.html").read_text()
    assert "adopt_table" in text and "SnapshotExpired" in text
    outside = re.findall(r'(?:src|<link[^>]*href)="(https?://[^"]+)"', text)
    assert outside == []  # readable without a network


@pytest.mark.spark
def test_the_example_of_the_readme_runs_and_prints_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    spark: SparkSession,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ACID_METASTORE", raising=False)
    [example] = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    try:
        exec(compile(example, "README.md", "exec"), {})
    finally:
        with Metastore.connect(Location.of("var/warehouse").metastore) as metastore:
            metastore.stop()
    before, now, *shows = capsys.readouterr().out.splitlines()
    assert before == "[Row(id=1, carrier='UA', month=1), Row(id=2, carrier='AA', month=2)]"
    assert now == "[Row(id=3, carrier='DL', month=2)]"
    assert "compactionid" in shows[0]


@pytest.mark.slow
@pytest.mark.spark
def test_the_tutorial_runs_and_prints_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    spark: SparkSession,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ACID_METASTORE", raising=False)
    text = (ROOT / "docs" / "tutorial.md").read_text()
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(block, "tutorial.md", "exec"), names)
    warehouse = names["wh"]
    assert sorted(warehouse.table("db.people").to_arrow().to_pylist(), key=lambda row: row["id"]) \
        == [{"id": 2, "name": "BO"}, {"id": 3, "name": "Cy"}]
    assert fsck.examine(warehouse.metastore).healthy
    warehouse.metastore.stop()
    now, before = capsys.readouterr().out.splitlines()[:2]
    assert "BO" in now and "Bo" in before
    assert str(names["before"]) in text


@pytest.mark.parametrize("page", PAGES, ids=lambda one: one.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
    missing = [one for one in links if "://" not in one and not (page.parent / one).exists()]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda one: one.name)
def test_settings_targets_and_commands_exist(page: Path) -> None:
    text = page.read_text()
    named = set(re.findall(r"`((?:hive|acid|metastore)\.[a-z.]+[a-z])`", text))
    assert named - set(REGISTRY) - NO_SETTINGS == set()
    targets = set(re.findall(r"(?:`|^)make ([a-z][a-z-]+)", text, re.MULTILINE))
    known = set(re.findall(r"^\.PHONY: (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert targets - known == set()
    for line in _commands(text):
        _require_command(re.findall(r"^acid ([a-z]+)(?: ([a-z]+))?", line))


def _commands(text: str) -> list[str]:
    """Code that starts with `acid`, in line or in a block."""
    inline = re.findall(r"`(?:\.venv/bin/)?(acid [^`]+)`", text)
    blocks = re.findall(r"^(acid .+)$", text, re.MULTILINE)
    return [*inline, *blocks]


def _require_command(found: list[tuple[str, str]]) -> None:
    for name, second in found:
        command = main.commands.get(name)
        assert command is not None, f"acid {name}"
        if isinstance(command, click.Group) and second:
            assert second in command.commands, f"acid {name} {second}"
