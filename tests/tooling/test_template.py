"""The project as a template: assets/ may go, new tables come with a test, CI calls make."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from dagster.components.component_scaffolding import scaffold_object
from packaging.specifiers import SpecifierSet
from pydantic import ValidationError

from acid_platform import InvalidDefinition
from acid_platform.layout.names import table_name

ROOT = Path(__file__).resolve().parents[2]
JOBS = ["cleaning_job", "compaction_job", "erase"]
"""The platform's own jobs."""


def python(root: Path, *arguments: str, seconds: float = 250) -> subprocess.CompletedProcess[str]:
    """This interpreter in a copy of the project, which goes before the installed one."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=seconds,
        env={**_environment(), "PYTHONPATH": str(root)},
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    return done


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """The project as git has it, without assets/."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    for name in filter(None, listed.split("\0")):
        if not name.startswith("assets/") and (ROOT / name).is_file():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tmp_path / name)
    (tmp_path / "sitecustomize.py").write_text(ALONE)
    return tmp_path


LOADED = """
import json
import definitions
repository = definitions.defs().get_repository_def()
keys = repository.asset_graph.get_all_asset_keys()
print(json.dumps([sorted(key.to_user_string() for key in keys),
                  sorted(name for name in repository.job_names if not name.startswith("__"))]))
"""
ALONE = """
import os, sys
# The virtual environment also knows the checkout that it was made for.
sys.path[:] = [path for path in sys.path if path in os.environ["PYTHONPATH"].split(os.pathsep)
               or not os.path.isdir(os.path.join(path, "acid_platform"))]
"""


@pytest.mark.slow
def test_without_assets_everything_loads_and_every_test_is_found(bare: Path) -> None:
    shown = python(bare, "-c", LOADED).stdout
    assert json.loads(shown.splitlines()[-1]) == [[], JOBS]
    python(bare, "-m", "pytest", "--collect-only", "-q")


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_without_assets_the_platform_passes_its_tests(bare: Path) -> None:
    """Those that load the project; the library can't: it does not import assets (make layers)."""
    rooms = ("cli", "demo", "docs", "notebooks", "orchestration")
    chosen = [f"tests/{room}" for room in rooms]
    python(bare, "-m", "pytest", "-m", "not slow and not soak", "-q", *chosen, seconds=1100)


def create(root: Path, table: str) -> tuple[Path, Path]:
    """What `make new-table` does, without the seconds that `dg` takes to start: the asset and its
    test."""
    path = root / "assets" / f"{table.replace('.', '/')}.py"
    asset = "acid_platform.orchestration.components.acid_asset"
    scaffold_object(path, asset, json.dumps({"table": table}), "python", root)
    return path, root / "tests" / "assets" / f"test_{table_name(table).replace('.', '_')}.py"


@pytest.mark.slow
def test_new_tables_are_loaded_and_clean(bare: Path) -> None:
    written = [*create(bare, "shop.orders"), *create(bare, "raw.orders"), *create(bare, "orders")]
    shown = python(bare, "-c", LOADED).stdout
    keys = ["default/orders", "raw/orders", "shop/orders"]
    assert json.loads(shown.splitlines()[-1]) == [keys, JOBS]
    python(bare, "-m", "ruff", "check", *map(str, written))
    python(bare, "-m", "ruff", "format", "--check", *map(str, written))


@pytest.mark.slow
def test_the_tests_of_new_tables_pass(bare: Path) -> None:
    create(bare, "orders")
    create(bare, "shop.orders")
    done = python(bare, "-m", "pytest", "tests/assets", "-q")
    assert "2 passed" in done.stdout


@pytest.mark.parametrize("name", ["", "a.b.c", "1st", "import", "../etc", "shop.", "a b"])
def test_an_invalid_name_writes_nothing(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValidationError, match="not a name for a table"):
        create(tmp_path, name)
    assert list(tmp_path.iterdir()) == []


def test_a_test_that_exists_is_kept(tmp_path: Path) -> None:
    _, test = create(tmp_path, "shop.orders")
    test.write_text("mine")
    (tmp_path / "assets" / "shop" / "orders.py").unlink()
    with pytest.raises(InvalidDefinition, match="exists already"):
        create(tmp_path, "shop.orders")
    assert test.read_text() == "mine"


# --- what calls make -----------------------------------------------------------------------------


WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def _commands_of_workflows() -> list[str]:
    jobs = [yaml.safe_load(path.read_text())["jobs"] for path in WORKFLOWS]
    steps = [step for each in jobs for job in each.values() for step in job["steps"]]
    return [step["run"] for step in steps if "run" in step]


def test_actions_are_pinned_by_commit_and_get_few_rights() -> None:
    for path in WORKFLOWS:
        uses = re.findall(r"uses: (.*)", path.read_text())
        assert uses and all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}  # v[\d.]+", use) for use in uses)
        assert yaml.safe_load(path.read_text())["permissions"] in ({}, {"contents": "read"})


def _commands_of_pre_commit() -> list[str]:
    [repository] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repository["repo"] == "local"  # nothing else is downloaded
    return [hook["entry"] for hook in repository["hooks"]]


def _commands_of_devcontainer() -> list[str]:
    return [json.loads((ROOT / ".devcontainer/devcontainer.json").read_text())["postCreateCommand"]]


def _instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = filter(None, text.replace("\\\n", " ").splitlines())
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines)]


def _commands_of_dockerfile() -> list[str]:
    given = {word: rest for word, rest in _instructions()}
    return [
        *(rest for word, rest in _instructions() if word == "RUN"),
        " ".join(json.loads(given["CMD"])),
    ]


def _commands_of_ci_run() -> list[str]:
    return (ROOT / ".ci/run").read_text().splitlines()


@pytest.mark.parametrize(
    "commands",
    [
        _commands_of_workflows,
        _commands_of_pre_commit,
        _commands_of_devcontainer,
        _commands_of_dockerfile,
        _commands_of_ci_run,
    ],
)
def test_every_target_that_ci_and_containers_call_is_one_of_make(
    commands: Callable[[], list[str]],
) -> None:
    targets = set(re.findall(r"^\.PHONY: (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE))
    calls = [
        shlex.split(call)[1:]
        for command in commands()
        for call in re.split(r"&&|;|\n", command)
        if call.split()[:1] == ["make"]
    ]
    called = {word for words in calls for word in words if not re.match(r"-|\w+=", word)}
    assert called and called <= targets


def test_the_hooks_are_the_targets_of_make_check() -> None:
    [targets] = re.findall(r"^check: (.*?) ##", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert _commands_of_pre_commit() == [f"make {target}" for target in targets.split()]


def test_pythons_of_ci_and_containers_are_those_that_the_project_takes() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    supported = SpecifierSet(project["requires-python"])
    texts = [
        (ROOT / name).read_text() for name in (".devcontainer/devcontainer.json", "Dockerfile")
    ] + [path.read_text() for path in WORKFLOWS]
    for text in texts:
        named = re.findall(r'python(?:-version)?: ?"?(3\.\d+)|"(3\.\d+)"', text)
        versions = {first or second for first, second in named}
        assert versions and all(supported.contains(version) for version in versions), versions


def test_what_the_dockerfile_copies_and_starts_is_there() -> None:
    instructions = _instructions()
    copied = [
        name
        for word, rest in instructions
        if word == "COPY"
        for name in rest.split()[:-1]
        if not name.startswith("--")
    ]
    assert copied and all((ROOT / name).exists() for name in copied)
    port = re.search(r"^PORT \?= (\d+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert port and ("EXPOSE", port[1]) in instructions
    subprocess.run(["bash", "-n", ROOT / ".ci/run"], check=True)
