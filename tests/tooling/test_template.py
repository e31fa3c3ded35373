"""The project as a template: assets/ may go, new tables come with a test, CI calls make."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.new_table import NameRefused, create

ROOT = Path(__file__).resolve().parents[2]
JOBS = ["cleaning_job", "compaction_job", "erase"]
"""The platform's own."""


def python(root: Path, *arguments: str, seconds: float = 250) -> subprocess.CompletedProcess[str]:
    """This interpreter in a copy of the project, which goes before the installed one."""
    done = subprocess.run([sys.executable, *arguments], cwd=root, capture_output=True, text=True,
                          timeout=seconds, env={**_environment(), "PYTHONPATH": str(root)})
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    return done


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """The project as git has it, without assets/."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True,
                            check=True).stdout
    for name in filter(None, listed.split("\0")):
        if not name.startswith("assets/") and (ROOT / name).is_file():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tmp_path / name)
    (tmp_path / "sitecustomize.py").write_text(ALONE)
    return tmp_path


LOADED = """
import json
from acid_platform import definitions
repository = definitions.defs().get_repository_def()
keys = repository.asset_graph.get_all_asset_keys()
print(json.dumps([sorted(one.to_user_string() for one in keys),
                  sorted(one for one in repository.job_names if not one.startswith("__"))]))
"""
ALONE = """
import os, sys
# The virtual environment also knows the checkout that it was made for.
sys.path[:] = [one for one in sys.path if one == os.environ["PYTHONPATH"]
               or not os.path.isdir(os.path.join(one, "acid_platform"))]
"""


def test_without_assets_everything_loads_and_every_test_is_found(bare: Path) -> None:
    shown = python(bare, "-c", LOADED).stdout
    assert json.loads(shown.splitlines()[-1]) == [[], JOBS]
    python(bare, "-m", "pytest", "--collect-only", "-q")


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_without_assets_the_platform_passes_its_tests(bare: Path) -> None:
    python(bare, "-m", "pytest", "-m", "not slow", "-q", "--ignore", "tests/tooling", seconds=3500)


def test_a_new_table_is_loaded_and_clean(bare: Path) -> None:
    written = create(bare, "shop.orders")
    assert [str(one.relative_to(bare)) for one in written] == [
        "assets/orders.py", "tests/assets/test_orders.py"]
    shown = python(bare, "-c", LOADED).stdout
    assert json.loads(shown.splitlines()[-1]) == [["shop/orders"], JOBS]
    python(bare, "-m", "ruff", "check", *map(str, written))


@pytest.mark.slow
def test_the_test_of_a_new_table_passes(bare: Path) -> None:
    create(bare, "orders")
    done = python(bare, "-m", "pytest", "tests/assets", "-q")
    assert "1 passed" in done.stdout


@pytest.mark.parametrize("name", ["", "Orders", "a.b.c", "1st", "import", "../etc", "shop.", "a b"])
def test_a_name_that_is_none_writes_nothing(tmp_path: Path, name: str) -> None:
    with pytest.raises(NameRefused, match="no name for a table"):
        create(tmp_path, name)
    assert list(tmp_path.iterdir()) == []


def test_a_table_that_is_there_is_kept(tmp_path: Path) -> None:
    create(tmp_path, "orders")
    mine = tmp_path / "assets" / "orders.py"
    mine.write_text("mine")
    with pytest.raises(NameRefused, match=r"assets/orders\.py exists already"):
        create(tmp_path, "shop.orders")
    assert mine.read_text() == "mine"


@pytest.mark.parametrize("file", [
    ".github/workflows/ci.yml", ".devcontainer/devcontainer.json", "Dockerfile", ".ci/run"])
def test_every_target_that_ci_and_containers_call_is_one_of_make(file: str) -> None:
    targets = set(re.findall(r"^\.PHONY: (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE))
    called = {word for words in re.findall(
        r'\bmake"?,? "?(?:--keep-going )?([a-z][a-z -]*)', (ROOT / file).read_text())
        for word in words.split()}
    assert called and called <= targets
