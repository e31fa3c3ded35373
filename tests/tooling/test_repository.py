"""The files at the root are right: help, lock, settings, Dagster instance, contracts."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import dagster as dg
import pytest
from click.testing import CliRunner
from dagster._core.workspace.load import location_origins_from_yaml_paths
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from acid_platform.cli.main import main
from scripts import unique_names
from tests import seconds

ROOT = Path(__file__).resolve().parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
PROGRAMS = (ROOT / "tests").glob("*/__main__.py")
NOT_FOR_PEOPLE = {"packages", "help", "lab"}


def make(*arguments: str, cwd: Path = ROOT, **env: str) -> str:
    quiet = {
        k: v
        for k, v in os.environ.items()
        if k not in {"MAKEFLAGS", "MAKELEVEL", "MFLAGS", "ACID_HOME", "ACID_WAREHOUSE"}
    }
    return subprocess.run(
        ["make", *arguments], cwd=cwd, env=quiet | env, check=True, capture_output=True, text=True
    ).stdout


def test_make_alone_lists_every_target_with_a_description() -> None:
    targets = set(re.findall(r"^\.PHONY: (\S+)$", MAKEFILE, re.MULTILINE)) - NOT_FOR_PEOPLE
    for_people, others = (
        set(re.findall(r"^  make (\S+) +\S", text, re.MULTILINE)) for text in (make(), make("lab"))
    )
    assert for_people | others == targets and not for_people & others
    assert {"setup", "demo", "test", "dev", "check"} <= for_people and len(for_people) <= 12


def test_a_project_without_the_demo_offers_none_and_says_how_to_have_it_again(
    tmp_path: Path,
) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    assert not re.search(r"^  make demo ", make(cwd=tmp_path), re.MULTILINE)
    with pytest.raises(subprocess.CalledProcessError) as failed:
        make("demo", cwd=tmp_path)
    assert failed.value.stderr.startswith("demo: it needs assets/flights.py ")
    git = ["git", "-c", "user.name=n", "-c", "user.email=n@example.org"]
    flights = tmp_path / "assets" / "flights.py"
    flights.parent.mkdir()
    flights.touch()
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "with"]):
        subprocess.run([*git, *command], cwd=tmp_path, check=True)
    flights.unlink()
    with pytest.raises(subprocess.CalledProcessError) as failed:
        make("demo", cwd=tmp_path)
    [advice] = re.findall(r"git (checkout \w+ -- \S+)", failed.value.stderr)
    subprocess.run([*git, *advice.split()], cwd=tmp_path, check=True)
    assert flights.exists()


@pytest.mark.more
@pytest.mark.parametrize("program", sorted(path.parent.name for path in PROGRAMS))
def test_what_only_make_runs_finds_all_that_it_imports(program: str) -> None:
    import_module(f"tests.{program}.__main__")


def test_every_rule_is_declared_phony() -> None:
    rules = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
    assert rules == set(re.findall(r"^\.PHONY: (\S+)$", MAKEFILE, re.MULTILINE))


def test_settings_of_make_command_line_before_environment_before_env_file(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / ".env").write_text(
        "# a comment\nACID_WAREHOUSE='from $file # 1'\nACID_HOME=state\nPORT=4000\n"
    )
    assert f'ACID_WAREHOUSE="{tmp_path}/from $file # 1"' in make("-n", "dev", cwd=tmp_path)
    assert f'DAGSTER_HOME="{tmp_path}/state/dagster"' in make("-n", "dev", cwd=tmp_path)
    assert "-p 4000" in make("-n", "dev", cwd=tmp_path)
    (tmp_path / ".env").write_text("ACID_WAREHOUSE=\nACID_HOME=state\nPORT=4000\n")
    assert f'ACID_WAREHOUSE="{tmp_path}/state/warehouse"' in make("-n", "dev", cwd=tmp_path)
    (tmp_path / ".env").write_text("ACID_WAREHOUSE='from $file'\n")
    assert f'ACID_WAREHOUSE="{tmp_path}/env"' in make(
        "-n", "dev", cwd=tmp_path, ACID_WAREHOUSE="env"
    )
    demo = make("-n", "dev", "ACID_HOME=var/demo", cwd=tmp_path, ACID_WAREHOUSE="env")
    assert f'ACID_WAREHOUSE="{tmp_path}/var/demo/warehouse"' in demo
    assert f'DAGSTER_HOME="{tmp_path}/var/demo/dagster"' in demo
    shown = make("-n", "dev", "ACID_WAREHOUSE=s3://bucket/w", cwd=tmp_path, ACID_WAREHOUSE="env")
    assert 'ACID_WAREHOUSE="s3://bucket/w"' in shown


@pytest.mark.more
def test_dagster_keeps_the_settings_of_make_whatever_the_env_file_says(tmp_path: Path) -> None:
    """Dagster itself lets .env in the current directory override the environment."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    recipe = make("-n", "dev", "ACID_WAREHOUSE=mine", cwd=tmp_path)
    [saving] = re.findall(r"export (ACID_ENVIRONMENT=.*?);", recipe)
    shown = subprocess.run(
        ["/bin/sh", "-c", f"export {saving}; ACID_WAREHOUSE=production ACID_METASTORE=there; "
         "export ACID_WAREHOUSE ACID_METASTORE; "
         f"{sys.executable} -c 'import definitions, os; "
         "print([os.environ.get(name) for name in (\"ACID_WAREHOUSE\", \"ACID_METASTORE\")])'"],
        cwd=ROOT, capture_output=True, text=True, check=True,
        env={**os.environ, "ACID_WAREHOUSE": "mine"},
    )  # fmt: skip
    assert shown.stdout.strip() == "['mine', None]"


@pytest.mark.parametrize("target", ["test", "test-all", "test-full", "test-parquet", "lab-bench"])
def test_tests_and_benchmarks_never_see_the_users_warehouse(target: str) -> None:
    shown = make("-n", target)
    assert "unset ACID_WAREHOUSE ACID_METASTORE ACID_BRANCH DAGSTER_HOME;" in shown
    assert "export ACID_WAREHOUSE" not in shown


def test_make_test_fits_its_five_minutes() -> None:
    """By the seconds of the last record: nothing is timed here."""
    recorded = json.loads(seconds.RECORD.read_text())
    assert sum(recorded.values()) <= seconds.BUDGET, "mark tests of files that grew as `more`"
    assert [name for name in recorded if not (ROOT / name).exists()] == ["others"]


def test_the_lock_has_a_hash_for_every_package_and_no_address() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    assert "://" not in lock
    assert "index-url" not in lock
    entries = re.split(r"^(?=[A-Za-z0-9])", lock, flags=re.MULTILINE)[1:]
    assert len(entries) > 100
    unpinned = [
        e.split("\n")[0]
        for e in entries
        if not re.match(r"[\w.\[\],-]+==\S+", e) or "--hash=sha256:" not in e
    ]
    assert unpinned == []


def lock_pins() -> dict[str, set[str]]:
    """Names in the lock, each with its extras."""
    lock = (ROOT / "requirements.lock").read_text()
    pins = re.findall(r"^([a-z0-9.-]+)(?:\[(.*?)\])?==", lock, re.MULTILINE)
    return {name: set(filter(None, extras.split(","))) for name, extras in pins}


def test_the_lock_pins_every_declared_dependency() -> None:
    project = (ROOT / "pyproject.toml").read_text().split("[project.scripts]")[0]
    declared = {
        re.split(r"[\[<>=]", name)[0]
        for name in re.findall(r'^    "([a-z][^"]*)",$', project, re.MULTILINE)
    }
    assert len(declared) > 20
    assert declared - lock_pins().keys() == set()


def test_the_lock_keeps_extras() -> None:
    """pip refuses `gql[requests]` where hashes are required and the lock says only `gql`."""
    pinned = lock_pins()
    lost = []
    for distribution in importlib.metadata.distributions():
        own_extras = pinned.get(canonicalize_name(distribution.metadata["Name"]), set())
        for requirement in map(Requirement, distribution.requires or ()):
            applies = requirement.marker is None or any(
                requirement.marker.evaluate({"extra": extra}) for extra in {"", *own_extras}
            )
            name = canonicalize_name(requirement.name)
            if applies and not requirement.extras <= pinned.get(name, requirement.extras):
                lost.append(f"{distribution.metadata['Name']} needs {requirement}")
    assert lost == []


def test_every_name_in_env_example_is_read_somewhere() -> None:
    names = set(
        re.findall(r"^#?([A-Z][A-Z0-9_]*)=", (ROOT / ".env.example").read_text(), re.MULTILINE)
    )
    readers = [
        ROOT / "Makefile",
        *ROOT.glob("scripts/*"),
        *ROOT.glob("acid_platform/**/*.py"),
        *ROOT.glob("resources/*.py"),
    ]
    text = "\n".join(file.read_text() for file in readers if file.is_file())
    assert {"ACID_HOME", "ACID_WAREHOUSE", "PYTHON"} <= names
    assert {name for name in names if not re.search(rf"\b{name}\b", text)} == set()


NEW_PROJECT = ROOT / "acid_platform" / "cli" / "project_files"


@pytest.mark.more
@pytest.mark.parametrize(
    "written",
    [ROOT / "dagster_home" / "dagster.yaml", NEW_PROJECT / "dagster_home" / "dagster.yaml.in"],
)
def test_dagster_accepts_its_configuration(
    written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(written, tmp_path / "dagster.yaml")
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    with dg.DagsterInstance.get() as instance:
        assert not instance.telemetry_enabled
        assert not instance.nux_enabled
        assert instance.run_monitoring_enabled
        concurrency = instance.get_concurrency_config()
        assert concurrency.pool_config.default_pool_limit == 1
        assert concurrency.pool_config.pool_granularity is not None
        assert concurrency.pool_config.pool_granularity.value == "run"
        assert instance.get_runs() == []
    assert (tmp_path / "history" / "runs.db").exists()


def test_the_readme_of_a_new_project_names_what_it_has(tmp_path: Path) -> None:
    place = tmp_path / "shop"
    assert CliRunner().invoke(main, ["new", str(place)]).exit_code == 0
    readme, makefile = ((place / name).read_text() for name in ("README.md", "Makefile"))
    [origin] = location_origins_from_yaml_paths([str(place / "workspace.yaml")])
    names = tomllib.loads((place / "pyproject.toml").read_text())["tool"]["dagster"]
    assert origin.location_name == names["code_location_name"] == "shop"  # as dg dev calls it
    targets = set(re.findall(r"^(\w+):", makefile, re.MULTILINE))
    assert set(re.findall(r"`make (\w+)`", readme)) == targets == {"setup", "dev", "test", "check"}
    places = re.findall(r"^\| `([\w/.]+)` \|", readme, re.MULTILINE)
    assert len(places) == 5 and "@NAME@" not in readme
    made_later = {"var/warehouse/"}
    assert [name for name in places if not (place / name).exists()] == [*made_later]
    subprocess.run(["git", "init", "--quiet"], cwd=place, check=True)
    state = ["dagster_home/storage/x", "var/x", ".venv/x"]
    ignored = ["git", "check-ignore", *state, "dagster_home/dagster.yaml"]
    said = subprocess.run(ignored, cwd=place, capture_output=True, text=True, check=True)
    assert said.stdout.split() == state


def test_the_workspace_names_the_composition_root() -> None:
    [origin] = location_origins_from_yaml_paths([str(ROOT / "workspace.yaml")])
    assert origin.location_name == "acid_platform"
    assert origin.loadable_target_origin.module_name == "definitions"
    assert origin.loadable_target_origin.working_directory == "."


# For each contract an import that it must report and one that it must allow.
LOG_IMPORTS = {
    "metastore/log/bucket.py": "import obstore",
    "metastore/log/postgres.py": "import psycopg",
}
FORBIDDEN_IMPORTS = {
    "layout/a.py": "acid_platform.engine",
    "transactions/a.py": "time",
    "scan/a.py": "duckdb",
    "metastore/a.py": "acid_platform.storage",
    "metastore/rules/a.py": "socket",
    "metastore/client/a.py": "acid_platform.metastore.rules",
    "metastore/client/b.py": "acid_platform.metastore.server",
    "metastore/log/a.py": "acid_platform.metastore.rules",
    "metastore/server/a.py": "psycopg",
    "predicates/a.py": "pyspark.sql",
    "tables/a.py": "acid_platform.services",
    "engine/a.py": "pyspark.sql",
    "engine/b.py": "acid_platform.scan.selection",
    "engine/spark/a.py": "pyorc",
    "engine/local/a.py": "acid_platform.engine.spark",
    "services/a.py": "pyspark.sql",
    "gateway/a.py": "acid_platform.engine",
    "gateway/c.py": "fastavro",
    "cli/a.py": "acid_platform.gateway",
    "cli/b.py": "thriftpy2",
    "services/b.py": "acid_platform.spark_source",
    "engine/c.py": "acid_platform.orchestration",
    "spark_source/a.py": "acid_platform.orchestration",
    "handles/a.py": "acid_platform.sql",
    "sql/a.py": "dagster",
    "write/a.py": "acid_platform.formats.orc.tail",
    "storage/a.py": "great_expectations",
    "orchestration/a.py": "resources",
    "orchestration/c.py": "definitions",
}
ALLOWED_IMPORTS = {
    "layout/b.py": "import acid_platform.errors",
    "metastore/b.py": "import duckdb, time",
    **LOG_IMPORTS,
    # The process that writes snapshots is started as a client starts the metastore.
    "metastore/server/b.py": "import acid_platform.metastore.client, acid_platform.metastore.log",
    "metastore/client/c.py": "import acid_platform.metastore.log",
    "formats/orc/b.py": "import pyorc, acid_platform.formats.orc.tail",
    "write/b.py": "import acid_platform.formats.file_access",
    "engine/spark/b.py": "import pyspark.sql, acid_platform.storage, acid_platform.scan",
    "gateway/b.py": "import thriftpy2, acid_platform.tables",
    "cli/gateway_command.py": "import acid_platform.gateway.b",
    "orchestration/b.py": "import dagster, great_expectations, acid_platform.engine",
}


def lint_imports(directory: Path, imports: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Runs the project's contracts on a skeleton that holds `imports` and nothing else."""
    package = directory / "acid_platform"
    for room in (ROOT / "acid_platform").rglob("__init__.py"):
        copied = package / room.relative_to(ROOT / "acid_platform")
        copied.parent.mkdir(parents=True, exist_ok=True)
        copied.touch()
    for name in ("errors.py", "base/clock.py", "base/local_files.py"):
        (package / name).touch()
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]:
        for container in contract.get("containers", ()):
            for name in re.findall(r"\w+", " ".join(contract["layers"])):
                place = directory.joinpath(*container.split("."), name)
                if not place.exists():
                    place.with_suffix(".py").touch()
        kinds = ("source_modules", "forbidden_modules", "protected_modules")
        for name in (name for kind in kinds for name in contract.get(kind, ())):
            place = directory.joinpath(*name.split("."))
            if name.startswith("acid_platform.") and not place.exists():
                place.with_suffix(".py").touch()
    for name, text in imports.items():
        (package / name).write_text(text + "\n")
    shutil.copy(ROOT / "pyproject.toml", directory)
    return subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-cache", "--no-logo"],
        cwd=directory,
        capture_output=True,
        text=True,
        env={"COLUMNS": "200"},
    )


def test_contracts_report_every_import_that_breaks_a_layer(tmp_path: Path) -> None:
    forbidden = {name: f"import {imported}" for name, imported in FORBIDDEN_IMPORTS.items()}
    done = lint_imports(tmp_path, LOG_IMPORTS | forbidden)
    assert done.returncode == 1
    for name, imported in FORBIDDEN_IMPORTS.items():
        module = f"acid_platform.{name.removesuffix('.py').replace('/', '.')}"
        parts = imported.split(".")  # the report names a package of others as a whole
        shown = ".".join(parts[: 3 if parts[0] == "acid_platform" else 1])
        assert f"{module} -> {shown}" in done.stdout
    assert "0 kept" in done.stdout


def test_contracts_allow_the_imports_of_the_design(tmp_path: Path) -> None:
    done = lint_imports(tmp_path, ALLOWED_IMPORTS)
    assert done.returncode == 0, done.stdout


# --- names --------------------------------------------------------------------------------------


def test_a_name_that_occurs_twice_is_found(tmp_path: Path) -> None:
    for place, text in {
        "metastore/shows.py": "class Row: ...",
        "sql/shows.py": "class _Row: ...",
        "engine/spark/merge.py": "class Merge: ...",
        "engine/local/merge.py": 'class Merge:\n    """The same here."""',
    }.items():
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(text)
    modules, classes = unique_names.named(tmp_path)
    (module,) = unique_names.faults(modules, {}, "module")
    assert module.startswith("module shows stands in metastore/shows.py and sql/shows.py")
    assert list(unique_names.faults(modules, {"shows": "why"}, "module")) == []
    (unneeded,) = unique_names.faults(classes, {"Row": "why"}, "class")
    assert unneeded == "class Row stands once: remove it from the exceptions"
    (unfinished,) = unique_names.unfinished(tmp_path)
    assert unfinished.startswith("engine/local/merge.py:2")
