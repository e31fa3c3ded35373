"""The Java that set-up selects, and its message if there is none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scripts import java
from scripts.system import PackageManager, SetupFailed


def fake_java(home: Path, version: str, exit_code: int = 0) -> Path:
    """A `java` that answers like a real one: settings on stderr."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(
        "#!/bin/sh\n"
        f"cat >&2 <<'END'\nProperty settings:\n    java.home = {home}\n"
        f"    java.version = {version}\nEND\nexit {exit_code}\n"
    )
    executable.chmod(0o755)
    return home


@pytest.mark.parametrize(
    ("version", "major"),
    [("17", 17), ("17.0.15", 17), ("21.0.4", 21), ("25-ea", 25), ("26.0.1", 26)],
)
def test_java_17_and_newer_is_taken(tmp_path: Path, version: str, major: int) -> None:
    home = fake_java(tmp_path / "jdk", version)
    found = java.find({"JAVA_HOME": str(home), "PATH": ""}, places=()).found
    assert found == java.Java(home, version, major, "JAVA_HOME")


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2", "16.0.1"])
def test_older_java_is_refused_with_its_version(tmp_path: Path, version: str) -> None:
    home = fake_java(tmp_path / "jdk", version)
    search = java.find({"JAVA_HOME": str(home), "PATH": ""}, places=())
    assert search.found is None
    assert search.refused == (f"{home}/bin/java (JAVA_HOME) is Java {version}",)


def test_java_that_does_not_run_is_refused(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jdk", "17.0.15", exit_code=1)
    search = java.find({"JAVA_HOME": str(home), "PATH": ""}, places=())
    assert search == java.Search(None, (f"{home}/bin/java (JAVA_HOME) does not run",))


def test_bad_JAVA_HOME_falls_through_to_PATH_then_to_the_usual_places(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "11.0.2")
    on_path = fake_java(tmp_path / "path", "21.0.4")
    usual = fake_java(tmp_path / "usual" / "jdk-17", "17.0.15")
    places = (str(tmp_path / "usual" / "*"),)
    env = {"JAVA_HOME": str(old), "PATH": str(on_path / "bin")}

    first = java.find(env, places)
    assert first.found is not None and (first.found.home, first.found.source) == (on_path, "PATH")
    assert first.refused == (f"{old}/bin/java (JAVA_HOME) is Java 11.0.2",)

    second = java.find({**env, "PATH": ""}, places)
    assert second.found is not None
    assert (second.found.home, second.found.source) == (usual, "usual place")


def test_among_usual_places_tested_versions_come_first(tmp_path: Path) -> None:
    # Numbers in the last four names count: pytest's own directory may be called pytest-21.
    homes = tmp_path / "usr" / "lib" / "jvm"
    for version in ("11", "99", "25", "21"):
        fake_java(homes / f"jdk-{version}-openjdk", version)
    found = java.candidates({"PATH": ""}, (str(homes / "*"),))
    order = [path.parent.parent.name for path, _ in found if path.is_relative_to(tmp_path)]
    assert order == ["jdk-21-openjdk", "jdk-25-openjdk", "jdk-11-openjdk", "jdk-99-openjdk"]


def test_this_machine_has_a_java_that_runs() -> None:
    found = java.find(os.environ).found
    assert found is not None
    assert found.major >= 17
    assert (found.home / "bin" / "java").exists()


@pytest.mark.parametrize(
    ("manager", "advice"),
    [
        (
            PackageManager("apt-get", None),
            "run `sudo apt-get install -y openjdk-17-jre-headless` "
            "(openjdk-21-jre-headless where there is no 17)",
        ),
        (PackageManager("brew", None), "run `brew install openjdk@17`"),
        (None, "install a JDK or JRE 17 with the package manager of this system"),
    ],
)
def test_missing_java_is_one_line_with_what_to_run(
    monkeypatch: pytest.MonkeyPatch, manager: PackageManager | None, advice: str
) -> None:
    monkeypatch.setattr(java, "find", lambda env: java.Search(None, ()))
    with pytest.raises(SetupFailed) as failure:
        java.find_or_install({"PATH": ""}, manager)
    assert str(failure.value) == (
        "Spark needs Java 17 or newer, and there is none (no java on PATH, in JAVA_HOME or in the "
        f"usual places): {advice}, or set JAVA_HOME, then call make again"
    )


def test_installed_java_is_searched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = java.Java(Path("/jdk"), "17", 17, "PATH")
    searches = iter([java.Search(None, ()), java.Search(installed, ())])
    asked: list[tuple[str, ...]] = []

    def install(manager: PackageManager, packages: tuple[str, ...]) -> str:
        asked.append(packages)
        return packages[0]

    monkeypatch.setattr(java, "find", lambda env: next(searches))
    monkeypatch.setattr(java, "install_one_of", install)
    assert java.find_or_install({}, PackageManager("apt-get", ())) is installed
    assert asked == [java.APT_PACKAGES]
