"""What lies in temporary places is for this user only (P69)."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from acid_platform.base import local_files
from acid_platform.errors import OwnedByOthers
from acid_platform.metastore.rules.state import State
from acid_platform.metastore.server import state_tables
from acid_platform.metastore.server.state_tables import Origin


@pytest.fixture(autouse=True)
def _open_to_all() -> Iterator[None]:
    """Every place is made under a umask that forbids nothing."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: str | Path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def test_P69_places_are_for_their_owner_and_have_names_that_nobody_guesses(tmp_path: Path) -> None:
    with (
        local_files.scratch_directory("a", tmp_path) as first,
        local_files.scratch_directory("a", tmp_path) as second,
    ):
        assert first != second
        assert mode(first) == mode(second) == 0o700
    assert not list(tmp_path.iterdir())
    with local_files.create_private(tmp_path / "key"):
        assert mode(tmp_path / "key") == 0o600
    with pytest.raises(FileExistsError):
        local_files.create_private(tmp_path / "key")
    file, draft = local_files.draft_beside(tmp_path / "key")
    with file:
        assert draft.parent == tmp_path
        assert mode(draft) == 0o600


def test_P69_the_directory_of_a_process_ends_with_it_and_not_with_its_forks(tmp_path: Path) -> None:
    code = (
        "import os, sys, multiprocessing\n"
        "from acid_platform.base.local_files import process_directory\n"
        "def made(): print(process_directory('t'), flush=True)\n"
        "made()\n"
        "child = multiprocessing.get_context('fork').Process(target=made)\n"
        "child.start(); child.join()\n"
        "print(*os.listdir(sys.argv[1]))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    own, forked, left = shown
    assert own != forked
    assert left == Path(own).name
    assert not list(tmp_path.iterdir())


def test_P69_what_a_killed_process_left_is_removed_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "import os, signal, sys\n"
        "from acid_platform.base.local_files import process_directory\n"
        "print(process_directory('t'), flush=True)\n"
        "if os.fork() == 0: sys.stdin.read(); os._exit(0)\n"
        "os.kill(os.getpid(), signal.SIGKILL) if sys.argv[1] == 'killed' else sys.stdin.read()\n"
    )
    monkeypatch.setattr(local_files, "parents", lambda: (str(tmp_path), str(tmp_path)))
    running = {
        name: subprocess.Popen(
            [sys.executable, "-c", code, name],
            env={**os.environ, "TMPDIR": str(tmp_path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("killed", "alive")
    }
    made = {name: Path(process.stdout.readline().strip()) for name, process in running.items()}  # type: ignore[union-attr]
    (tmp_path / "mine").mkdir()
    (tmp_path / "acid-t-held-link").symlink_to(tmp_path / "mine")
    others = [tmp_path / "acid-t-old", tmp_path / "acid-u-held-x", tmp_path / "mine"]
    for directory in (*made.values(), *others):
        directory.mkdir(exist_ok=True)
        os.utime(directory, (0, 0))

    def look() -> set[str]:
        return {path.name for path in tmp_path.iterdir()} - {
            Path(local_files.process_directory("t") or "").name
        }

    running["killed"].wait(10)
    assert made["killed"].name in look()  # its fork has it
    running["killed"].stdin.close()  # type: ignore[union-attr]
    running["killed"].stdout.read()  # type: ignore[union-attr]
    local_files.process_directory("t")
    left = look()
    assert made["killed"].name not in left
    assert {made["alive"].name, *(path.name for path in others), "acid-t-held-link"} <= left
    running["alive"].stdin.close()  # type: ignore[union-attr]
    running["alive"].wait(10)


@pytest.mark.parametrize("found", ["open to others", "a link", "a file"])
def test_P69_a_known_name_that_others_may_use_is_refused(tmp_path: Path, found: str) -> None:
    place = tmp_path / "acid-1000"
    (tmp_path / "elsewhere").mkdir(0o700)
    {
        "open to others": lambda: place.mkdir(0o755),
        "a link": lambda: place.symlink_to(tmp_path / "elsewhere"),
        "a file": lambda: place.touch(0o600),
    }[found]()
    with pytest.raises(OwnedByOthers, match="acid-1000 is no directory of this user alone"):
        local_files.own_directory(place)
    own = tmp_path / "own"
    assert local_files.own_directory(own) == local_files.own_directory(own) == own
    assert mode(own) == 0o700


def test_P69_a_backup_is_written_where_nobody_else_can_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o777)
    seen = []
    write_state = state_tables.write_state

    def watched(path: Path, *others: object) -> None:
        seen.append((mode(path.parent), path.parent == tmp_path))
        write_state(path, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(state_tables, "write_state", watched)
    state_tables.publish_state(tmp_path / "backup", State(), Origin(0, 0, 0, "h"), None)
    assert seen == [(0o700, False)]
    assert mode(tmp_path / "backup") == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["backup"]
