"""Files of another user choose nothing that this process does (P68)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from acid_platform.base import local_files
from acid_platform.cli.project import enter_project
from acid_platform.errors import OwnedByOthers
from acid_platform.metastore.endpoint import Endpoint, Home

OTHER = 65534
STATUS = os.stat_result


@pytest.fixture
def given_away(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Makes a path look as if another user owned it: only root could really give it away."""
    theirs: set[str] = set()
    lstat, stat = Path.lstat, Path.stat

    def owned(path: Path, found: STATUS) -> STATUS:
        if str(path) not in theirs:
            return found
        return STATUS([*found[:4], OTHER, *found[5:]])

    monkeypatch.setattr(Path, "lstat", lambda path: owned(path, lstat(path)))
    monkeypatch.setattr(Path, "stat", lambda path, **how: owned(path, stat(path, **how)))
    return lambda path: theirs.add(str(path))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    project = tmp_path / "shared"
    (project / "mine").mkdir(parents=True)
    (project / "workspace.yaml").touch()
    (project / ".env").write_text("JAVA_HOME=/theirs\nACID_ENGINE=spark\n")
    return project


@pytest.mark.parametrize("theirs", [".", "workspace.yaml", ".env"])
def test_P68_settings_in_a_project_of_another_user_are_refused(
    project: Path, given_away: Callable[[Path], None], theirs: str
) -> None:
    given_away(project / theirs)
    environment: dict[str, str] = {}
    with pytest.raises(OwnedByOthers, match=f"with the id {OTHER}: what is there would choose"):
        enter_project(project / "mine", environment)
    assert environment == {}
    elsewhere = {local_files.SAFE: str(project / "mine")}
    with pytest.raises(OwnedByOthers):
        enter_project(project / "mine", elsewhere)
    for safe in ("*", str(project), f"/elsewhere:{project}/mine/.."):
        environment = {local_files.SAFE: safe}
        enter_project(project / "mine", environment)
        assert environment["JAVA_HOME"] == "/theirs"


@pytest.mark.parametrize(
    ("user", "environment", "allowed"),
    [
        (OTHER, {}, True),
        (1, {}, False),
        (0, {}, False),
        (0, {"SUDO_UID": str(OTHER)}, True),
        (0, {"SUDO_UID": "1"}, False),
        (0, {"SUDO_UID": "x"}, False),
        (1, {"SUDO_UID": str(OTHER)}, False),
    ],
)
def test_P68_a_user_obeys_own_files_and_under_sudo_those_of_the_caller(
    tmp_path: Path,
    given_away: Callable[[Path], None],
    monkeypatch: pytest.MonkeyPatch,
    user: int,
    environment: dict[str, str],
    allowed: bool,
) -> None:
    given_away(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    if allowed:
        local_files.require_own(tmp_path, "absent", environment=environment)
    else:
        with pytest.raises(OwnedByOthers):
            local_files.require_own(tmp_path, "absent", environment=environment)


def test_P68_a_link_of_another_user_is_not_followed(
    tmp_path: Path, given_away: Callable[[Path], None]
) -> None:
    (tmp_path / "own").touch()
    (tmp_path / ".env").symlink_to(tmp_path / "own")
    local_files.require_own(tmp_path, ".env")
    given_away(tmp_path / ".env")
    with pytest.raises(OwnedByOthers):
        local_files.require_own(tmp_path, ".env")


def test_P68_a_metastore_of_another_user_is_neither_asked_nor_started(
    tmp_path: Path, given_away: Callable[[Path], None]
) -> None:
    home = Home(tmp_path / "_metastore")
    home.prepare()
    home.authkey()
    given_away(home.path)
    for asked in (home.prepare, home.read_authkey, home.authkey, lambda: Endpoint.read(home)):
        with pytest.raises(OwnedByOthers, match="_metastore belongs to another user"):
            asked()
