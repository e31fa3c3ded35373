"""The decisions of set-up, without installing anything."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from scripts import java, packages, setup, system

ROOT = setup.ROOT


def executable(directory: Path, name: str, body: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / name
    file.write_text(f"#!/bin/sh\n{body}\n")
    file.chmod(0o755)


def bootstrap(path: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs a copy of bootstrap.sh beside no .venv, with nothing but `path` on PATH."""
    script = path / "project" / "scripts" / "bootstrap.sh"
    script.parent.mkdir(parents=True)
    script.write_text((ROOT / "scripts" / "bootstrap.sh").read_text())
    for tool in ("dirname", "uname"):
        executable(path / "bin", tool, f'exec /usr/bin/env -S PATH=/usr/bin:/bin {tool} "$@"')
    return subprocess.run(
        ["/bin/sh", str(script)],
        capture_output=True,
        text=True,
        env={"PATH": str(path / "bin"), **env},
    )


def test_bootstrap_without_a_python_says_in_one_line_what_to_install(tmp_path: Path) -> None:
    executable(tmp_path / "bin", "python3", '[ "$1" = --version ] && echo Python 3.9.18')
    done = bootstrap(tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("setup: Python 3.11 to 3.14 is needed, found Python 3.9.18: ")
    assert done.stderr.endswith("or name one: make setup PYTHON=/path/to/python3.12\n")
    assert done.stderr.count("\n") == 1


def test_bootstrap_takes_the_first_python_that_is_new_enough(tmp_path: Path) -> None:
    executable(tmp_path / "bin", "python3", "exit 1")
    executable(tmp_path / "bin", "python3.12", 'echo "python3.12 $*"')
    assert bootstrap(tmp_path).stdout.splitlines()[-1] == "python3.12 -m scripts.setup"


def test_bootstrap_refuses_a_named_python_that_does_not_run(tmp_path: Path) -> None:
    done = bootstrap(tmp_path, PYTHON="/nowhere/python")
    assert (done.returncode, done.stderr) == (
        1,
        "setup: PYTHON=/nowhere/python does not run or is not Python 3.11 to 3.14: "
        "name another one.\n",
    )


def test_stamp_changes_with_the_lock_and_with_the_directory() -> None:
    first = setup.fingerprint("a==1", Path("/a"))
    assert first == setup.fingerprint("a==1", Path("/a"))
    assert first != setup.fingerprint("a==2", Path("/a"))
    assert first != setup.fingerprint("a==1", Path("/b"))


def test_java_is_looked_for_again_when_it_is_gone_or_JAVA_HOME_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    venv, home = setup.Venv(tmp_path / ".venv"), tmp_path / "a jdk"
    executable(home / "bin", "java", "exit 0")
    venv.home.mkdir()
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(
        java, "find_or_install", lambda env, manager: java.Java(home, "17", 17, "PATH")
    )
    assert not setup.has_java(venv)
    setup.provide_java(venv)
    assert setup.has_java(venv)
    monkeypatch.setenv("JAVA_HOME", "/elsewhere")
    assert not setup.has_java(venv)
    monkeypatch.delenv("JAVA_HOME")
    (home / "bin" / "java").unlink()
    assert not setup.has_java(venv)


def test_the_command_of_an_older_version_is_replaced_and_finds_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    venv = setup.Venv(tmp_path / "a venv")
    executable(venv.python.parent, "python", 'echo "$JAVA_HOME $PYTHONSAFEPATH $*"')
    old = venv.home / "bin" / "acid"
    old.write_text("an older one")
    other = tmp_path / "hard link of another environment"
    other.hardlink_to(old)
    (venv.java_env).write_text("JAVA_HOME='/a jdk'\nJAVA_HOME_WAS=''\n")
    setup.write_command(venv)
    assert other.read_text() == "an older one"
    for given, java_home in (({}, "/a jdk"), ({"JAVA_HOME": "/own"}, "/own")):
        shown = subprocess.run([old, "show", "tables"], env=given, capture_output=True, text=True)
        assert shown.stdout == f"{java_home} 1 -m acid_platform show tables\n"
    made = old.stat().st_mtime_ns
    setup.write_command(venv)
    assert old.stat().st_mtime_ns == made


def test_the_makefile_gets_JAVA_HOME_even_with_a_space_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    venv = setup.Venv(tmp_path)
    monkeypatch.setattr(
        java, "find_or_install", lambda env, manager: java.Java(Path("/a 'jdk'"), "17", 17, "PATH")
    )
    setup.provide_java(venv)
    shown = subprocess.run(
        ["/bin/sh", "-c", f'. "{venv.java_env}"; echo "$JAVA_HOME"'],
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout == "/a 'jdk'\n"


def test_a_directory_that_is_no_environment_is_not_removed(tmp_path: Path) -> None:
    venv = setup.Venv(tmp_path / ".venv")
    (venv.home / "precious").mkdir(parents=True)
    with pytest.raises(system.SetupFailed, match="is not a virtual environment: move it away"):
        setup.make_venv(venv, named=False)
    assert (venv.home / "precious").exists()


def test_a_linked_environment_is_taken_as_it_is_and_never_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, venv = setup.Venv(tmp_path / "other" / ".venv"), setup.Venv(tmp_path / ".venv")
    other.home.mkdir(parents=True)
    venv.home.symlink_to(other.home)
    monkeypatch.setattr(setup.Venv, "version", lambda self: setup.own_version())
    with pytest.raises(system.SetupFailed, match=r"links to .*: call make there"):
        setup.set_up(venv, with_java=False, named=False)
    needed = packages.requirements(ROOT, packages.chosen_extras(ROOT, os.environ))
    other.stamp.write_text(setup.fingerprint(needed, tmp_path / "other"))
    setup.set_up(venv, with_java=False, named=False)


def test_an_interrupted_set_up_is_done_again_from_the_packages_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    venv, calls = setup.Venv(tmp_path), []
    monkeypatch.setattr(setup.Venv, "version", lambda self: setup.own_version())
    monkeypatch.setattr(setup, "make_venv", lambda *a: None)
    monkeypatch.setattr(setup, "link_project", lambda venv: None)

    def interrupted(python: Path, needed: str) -> str:
        calls.append("install")
        if len(calls) == 1:
            raise KeyboardInterrupt
        return "uv"

    monkeypatch.setattr(packages, "install", interrupted)
    venv.stamp.write_text("an older one")
    with pytest.raises(KeyboardInterrupt):
        setup.set_up(venv, with_java=False, named=False)
    assert not venv.stamp.exists()
    setup.set_up(venv, with_java=False, named=False)
    setup.set_up(venv, with_java=False, named=False)
    assert calls == ["install", "install"]


@pytest.mark.parametrize(
    ("user", "tools", "expected"),
    [
        (0, {"apt-get": "exit 0"}, system.PackageManager("apt-get", ())),
        (1000, {"apt-get": "exit 0"}, system.PackageManager("apt-get", None)),
        (1000, {"apt-get": "exit 0", "sudo": "exit 1"}, system.PackageManager("apt-get", None)),
        (1000, {"brew": "exit 0"}, system.PackageManager("brew", ())),
        (0, {"brew": "exit 0"}, system.PackageManager("brew", None)),
        (0, {}, None),
    ],
)
def test_the_package_manager_is_used_only_where_it_asks_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    user: int,
    tools: dict[str, str],
    expected: system.PackageManager | None,
) -> None:
    for name, body in tools.items():
        executable(tmp_path, name, body)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    assert system.package_manager({"PATH": str(tmp_path)}) == expected


def test_passwordless_sudo_is_used_without_a_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executable(tmp_path, "apt-get", "exit 0")
    executable(tmp_path, "sudo", '[ "$*" = "-n true" ]')
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert system.package_manager({"PATH": str(tmp_path)}) == system.PackageManager(
        "apt-get", (str(tmp_path / "sudo"), "-n")
    )


def test_the_next_package_name_is_tried_where_the_first_is_unknown(tmp_path: Path) -> None:
    executable(tmp_path, "sudo", 'shift; exec "$@"')
    executable(tmp_path, "apt-get", 'case "$*" in *update*|*jre-21*) exit 0;; *) exit 100;; esac')
    manager = system.PackageManager(
        "apt-get", (str(tmp_path / "sudo"), "-n", "env", f"PATH={tmp_path}:/usr/bin:/bin")
    )
    assert system.install_one_of(manager, ["jre-17", "jre-21", "jre-25"]) == "jre-21"
    assert system.install_one_of(manager, ["jre-17"]) is None
