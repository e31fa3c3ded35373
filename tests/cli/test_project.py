"""`acid` as a newcomer calls it: in the project's directory, whatever files are there."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import shutil
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from click.testing import CliRunner
from dotenv import dotenv_values

import acid_platform
from acid_platform.base.location import Location
from acid_platform.cli import project as new_project
from acid_platform.cli.main import main
from acid_platform.cli.project import _clean_commit, _requirement, enter_project, read_settings
from acid_platform.errors import InvalidDefinition
from acid_platform.metastore.client.metastore import Metastore
from scripts.setup import Venv, write_command

ROOT = Path(__file__).resolve().parents[2]
QUIET = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(("ACID_", "PYTHON", "PYTEST_"))
}


@pytest.fixture
def acid(tmp_path: Path) -> Path:
    """The command that set-up creates, for this interpreter and this project."""
    venv = Venv(tmp_path / "venv")
    venv.python.parent.mkdir(parents=True)
    venv.python.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" "$@"\n')
    venv.python.chmod(0o755)
    write_command(venv)
    return venv.home / "bin" / "acid"


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    """A directory that is a project; the metastores that a test starts in it end with it."""
    root = tmp_path / "project"
    (root / "assets").mkdir(parents=True)
    (root / "workspace.yaml").write_text("load_from: []\n")
    yield root
    for metastore in root.glob("**/_metastore"):
        with Metastore.connect(metastore, autostart=False) as running:
            running.stop()


def call(
    acid: Path, *arguments: str, cwd: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(acid), *arguments],
        cwd=cwd,
        env={**QUIET, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_the_version_is_that_of_the_project(acid: Path, tmp_path: Path) -> None:
    assert call(acid, "--version", cwd=tmp_path).stdout == f"acid, version {_version()}\n"


def _version() -> str:
    """As setuptools takes it from the package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" in project["project"]["dynamic"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {
        "attr": "acid_platform.__version__"
    }
    return acid_platform.__version__


@pytest.mark.more
def test_nothing_is_imported_from_the_directory_in_which_acid_is_called(
    acid: Path, project: Path
) -> None:
    for name in ("click.py", "dagster.py", "duckdb.py", "acid_platform.py", "pyarrow.py"):
        (project / name).write_text("raise SystemExit('imported from the current directory')\n")
    done = call(acid, "metastore", "start", cwd=project)
    assert done.returncode == 0, done.stderr
    assert call(acid, "show", "tables", cwd=project).stdout == "no tables\n"
    with Metastore.connect(project / "var/warehouse/_metastore") as metastore:
        server = psutil.Process(int(metastore.status()["pid"]))
    assert "-P" in server.cmdline()


@pytest.mark.more
def test_acid_finds_the_warehouse_of_the_project_and_names_others(
    acid: Path, project: Path, tmp_path: Path
) -> None:
    demo = Location.of(project / "var/demo/warehouse")
    Metastore.connect(demo.metastore).close()
    missing = call(acid, "show", "tables", cwd=project / "assets")
    assert missing.returncode == 1
    assert missing.stderr.startswith(f"error: {project}/var/warehouse has no metastore")
    assert missing.stderr.endswith("there is --warehouse ../var/demo/warehouse\n")
    call(acid, "metastore", "start", cwd=project)
    assert call(acid, "show", "tables", cwd=project / "assets").stdout == "no tables\n"
    elsewhere = call(acid, "show", "tables", cwd=tmp_path)
    assert "call `acid` in a project's directory" in elsewhere.stderr


def without_the_rights_of_root() -> None:
    """In a process that is about to start a program: it may read what its user may."""
    for right in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        ctypes.CDLL(None).prctl(24, right, 0, 0, 0)  # PR_CAPBSET_DROP


@pytest.mark.more
@pytest.mark.skipif(sys.platform != "linux", reason="drops capabilities of Linux")
@pytest.mark.parametrize(
    "command",
    [
        "show tables",
        "fsck",
        "doctor",
        "metastore start",
        "metastore start --empty",
        "metastore status",
        "metastore stop",
        "metastore rebuild",
    ],
)
def test_a_metastore_that_may_not_be_read_is_not_taken_for_none(
    acid: Path, tmp_path: Path, command: str
) -> None:
    """Such as that of another user."""
    hidden = tmp_path / "wh/_metastore"
    hidden.mkdir(parents=True)
    (hidden / "journal-1.log").touch()
    hidden.chmod(0)
    refused = subprocess.run(
        [str(acid), "--warehouse", str(tmp_path / "wh"), *command.split()],
        env=QUIET,
        text=True,
        capture_output=True,
        check=False,
        preexec_fn=without_the_rights_of_root,
    )
    hidden.chmod(0o700)
    assert refused.returncode == 1
    assert f"{hidden} can't be read: Permission denied" in refused.stderr
    assert [path.name for path in hidden.iterdir()] == ["journal-1.log"]


@pytest.mark.parametrize(
    ("env_file", "environment", "warehouse"),
    [
        ("", {}, "{root}/var/warehouse"),
        ("ACID_HOME=state\n", {}, "{root}/state/warehouse"),
        ("ACID_HOME=state\n", {"ACID_HOME": "/own"}, "/own/warehouse"),
        ("# ACID_WAREHOUSE=no\nACID_WAREHOUSE='in a # blank'\n", {}, "{root}/in a # blank"),
        ("ACID_WAREHOUSE=s3://bucket/w\n", {}, "s3://bucket/w"),
        ("ACID_WAREHOUSE=var/w\n", {"ACID_WAREHOUSE": "mine"}, "mine"),
        ("ACID_WAREHOUSE=\n", {}, "{root}/var/warehouse"),
    ],
)
def test_environment_before_env_file_before_the_usual_place(
    tmp_path: Path, env_file: str, environment: dict[str, str], warehouse: str
) -> None:
    (tmp_path / "workspace.yaml").touch()
    (tmp_path / ".env").write_text(env_file + "ACID_METASTORE=tcp://host:1\nPATH=/nowhere\n")
    enter_project(tmp_path, environment)
    assert environment["ACID_WAREHOUSE"] == warehouse.format(root=tmp_path)
    assert environment["ACID_METASTORE"] == "tcp://host:1"
    assert "PATH" not in environment


def test_an_env_file_is_read_as_dg_and_make_read_it(tmp_path: Path) -> None:
    """`dg` reads it by python-dotenv."""
    lines = """
      export ACID_A = a b  # c
    ACID_B='from $file # 1'
    ACID_C="x"   # y 'z'
    ACID_E=#x
    ACID_F=a#b
    ACID_G=s3://b/w?x=1&y="q"
    ACID_EXTRAS=
    """
    (tmp_path / ".env").write_text(textwrap.dedent(lines))
    values = read_settings(tmp_path / ".env")
    assert values == dotenv_values(tmp_path / ".env")
    shutil.copy(ROOT / "Makefile", tmp_path)
    printed = "".join(f'\n\t@echo "$${name}"' for name in values)
    (tmp_path / "printed.mk").write_text(f"include Makefile\nprinted:{printed}\n")
    make = ["make", "-s", "-f", "printed.mk", "printed"]
    bare = {"PATH": os.environ["PATH"]}
    shown = subprocess.run(make, cwd=tmp_path, env=bare, text=True, capture_output=True, check=True)
    assert shown.stdout.splitlines() == [*values.values()]


def test_bytes_of_an_env_file_that_are_not_utf8_stay(tmp_path: Path) -> None:
    (tmp_path / ".env").write_bytes(b"ACID_WAREHOUSE=stra\xdfe\n")
    assert os.fsencode(read_settings(tmp_path / ".env")["ACID_WAREHOUSE"]) == b"stra\xdfe"


def test_outside_of_a_project_the_environment_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("ACID_WAREHOUSE=var/w\n")
    environment: dict[str, str] = {}
    enter_project(tmp_path, environment)
    assert environment == {}


# --- where a new project has the platform from ----------------------------------------------------


def git(place: Path, *arguments: str) -> str:
    who = ["-c", "user.name=n", "-c", "user.email=n@localhost"]
    done = subprocess.run(
        ["git", *who, *arguments], cwd=place, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_a_project_has_the_commit_of_a_clone_or_the_hash_of_a_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    clone = tmp_path / "a clone"
    (clone / "acid_platform").mkdir(parents=True)
    (clone / "pyproject.toml").touch()
    has = "acid-platform[dagster] @ "
    assert _requirement("a clone") == (has + clone.as_uri(), clone)
    assert _clean_commit(clone) == ""
    git(clone, "init", "-q")
    git(clone, "add", ".")
    git(clone, "commit", "-qm", "all")
    commit = git(clone, "rev-parse", "HEAD")
    assert _clean_commit(clone) == commit
    made = CliRunner().invoke(main, ["new", str(tmp_path / "shop"), "--platform", str(clone)])
    assert made.exit_code == 0 and f"{clone.as_uri()}, commit {commit}" in made.output
    (clone / "more").touch()
    assert _clean_commit(clone) == "", "files differ from the commit"
    git(clone, "add", ".")
    git(clone, "commit", "-qm", "more")
    setup = subprocess.run(["make", "setup"], cwd=tmp_path / "shop", capture_output=True, text=True)
    assert setup.returncode and f"is not at commit {commit}" in setup.stdout
    assert not (tmp_path / "shop" / ".venv").exists()
    wheel = tmp_path / "acid_platform-1-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    expected = f"{has}{wheel.as_uri()}#sha256={hashlib.sha256(b'wheel').hexdigest()}"
    assert _requirement("./acid_platform-1-py3-none-any.whl") == (expected, None)
    assert _requirement("acid-platform==1.2") == ("acid-platform[dagster]==1.2", None)
    for named in ("acid-platform", "acid-platform>=1", "nothing.whl", "other==1"):
        with pytest.raises(InvalidDefinition, match="no clone and no wheel"):
            _requirement(named)


@pytest.mark.parametrize("kind", ["wheel", "clone", "commit", "gone", "index"])
def test_a_project_has_the_platform_from_where_this_one_was_installed(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = tmp_path / "acid_platform-1-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    (tmp_path / "clone" / "acid_platform").mkdir(parents=True)
    (tmp_path / "clone" / "pyproject.toml").touch()
    origins = {
        "wheel": {"url": wheel.as_uri(), "archive_info": {}},
        "clone": {"url": (tmp_path / "clone").as_uri(), "dir_info": {"editable": True}},
        "commit": {"url": "https://x.org/a.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
        "gone": {"url": f"{wheel.as_uri()}x", "archive_info": {}},
    }
    recorded = json.dumps(origins[kind]) if kind in origins else None
    installed = SimpleNamespace(read_text=lambda _: recorded)
    monkeypatch.setattr("importlib.metadata.distribution", lambda _: installed)
    monkeypatch.setattr(new_project, "__file__", str(tmp_path / "site" / "a" / "b" / "c.py"))
    expected = {
        "wheel": f"{wheel.as_uri()}#sha256={hashlib.sha256(b'wheel').hexdigest()}",
        "clone": (tmp_path / "clone").as_uri(),
        "commit": "git+https://x.org/a.git@abc",
    }
    if kind in expected:
        assert _requirement(None)[0].endswith(f" @ {expected[kind]}")
    else:
        with pytest.raises(InvalidDefinition, match="not recorded where this platform"):
            _requirement(None)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("acid_platform", "an installed package"),
        ("dagster", "an installed package"),
        ("class", "Python's"),
        ("json", "Python's"),
        ("Shop", "lower-case letters"),
    ],
)
def test_a_project_has_a_name_of_its_own(name: str, why: str, tmp_path: Path) -> None:
    made = CliRunner().invoke(main, ["new", str(tmp_path / name)])
    assert made.exit_code == 1 and why in made.output
    assert not (tmp_path / name).exists()
