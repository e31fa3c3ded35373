"""After a power cut at any moment exactly the acknowledged commits are visible and whole (P27).

A recorder, which needs a C compiler and Linux, notes what all processes of a workload do to the
files of a warehouse; `recording` says what of that a power cut leaves; `check` opens the warehouse
there. By hand, with more points: `python -m tests.crash.test_power_cut spark 2000`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.check import Outcomes, Rows, points, run
from tests.crash.recording import Recording, everything, found, nothing

ROOT = Path(__file__).resolve().parents[2]
COMPILER = shutil.which("gcc") or shutil.which("cc")

needs_recorder = pytest.mark.skipif(
    COMPILER is None or sys.platform != "linux",
    reason="the recorder of file operations needs a C compiler (gcc) and Linux",
)


def record(path: Path, kind: str, left_out: str = "") -> tuple[Recording, list[Rows]]:
    """Runs the workload below `path`, which it creates, with a recorder in all its processes."""
    assert COMPILER
    root, log, states = path / "disk", path / "log", path / "states.json"
    root.mkdir(parents=True)
    library = path / "recorder.so"
    subprocess.run(
        [
            COMPILER,
            "-shared",
            "-fPIC",
            "-O1",
            "-Wall",
            "-Werror",
            "-o",
            library,
            Path(__file__).with_name("recorder.c"),
            "-ldl",
            "-lpthread",
        ],
        check=True,
    )
    given = {
        name: value
        for name, value in os.environ.items()
        if name not in ("ACID_WAREHOUSE", "ACID_METASTORE")
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash.workload", root, states, kind, left_out],
        cwd=ROOT,
        env={**given, "LD_PRELOAD": str(library), "CRASH_ROOT": str(root), "CRASH_LOG": str(log)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    recording = Recording(log, str(root))
    # The recorder missed nothing.
    assert _without_text_log(recording.after(recording.length, everything)) == (
        _without_text_log(found(root))
    )
    return recording, json.loads(states.read_text())


def _without_text_log(tree: object) -> object:
    """The tree without server.log, which is still written after the last record."""
    return (
        {name: _without_text_log(entry) for name, entry in tree.items() if name != "server.log"}
        if isinstance(tree, dict)
        else tree
    )


def outcomes(
    path: Path, kind: str, wanted: int, left_out: str = "", stop_at: int = 1 << 30
) -> Outcomes:
    recording, states = record(path, kind, left_out)
    return run(recording, states, path / "disk", points(recording, wanted), stop_at)


@pytest.fixture
def place() -> Iterator[Path]:
    """Short, as the metastore's and hidden from nobody."""
    with tempfile.TemporaryDirectory(prefix="acid-crash-") as path:
        yield Path(path, "p")


@needs_recorder
@pytest.mark.parametrize(
    "kind, wanted",
    [
        ("small", 15),
        pytest.param("small", 50, marks=pytest.mark.more),
        pytest.param("small", 500, marks=pytest.mark.slow),
        pytest.param("spark", 500, marks=[pytest.mark.slow, pytest.mark.spark]),
    ],
)
@pytest.mark.timeout(1800)
def test_P27_every_acknowledged_commit_survives_a_power_cut(
    place: Path, kind: str, wanted: int
) -> None:
    seen = outcomes(place, kind, wanted)
    assert seen.points.total() == wanted and not seen.faults, f"{seen}\n" + "\n".join(seen.faults)


@pytest.mark.more
@needs_recorder
@pytest.mark.parametrize(
    "left_out",
    [
        "files",
        *(pytest.param(cut, marks=pytest.mark.slow) for cut in ("published", "parents", "all")),
    ],
)
@pytest.mark.timeout(600)
def test_P27_a_missing_sync_is_found(place: Path, left_out: str) -> None:
    assert outcomes(place, "small", 200, left_out, stop_at=1).faults


def test_the_model_keeps_what_was_synced_and_drops_the_rest(tmp_path: Path) -> None:
    """A file's own sync keeps its content; its directory's sync keeps its name."""
    log = tmp_path / "log"
    log.write_bytes(
        b"".join(
            f"{line}\n".encode()
            for line in [
                "mkdir 0 0 0 0 /r/d -\n",
                "open 1 1 0 0 /r/d/a -\n",
                "write 1 0 0 3 - -\nabc",
                "sync 1 0 0 0 - -\n",
                "write 1 3 0 3 - -\ndef",
                "open 2 0 0 0 /r/d -\n",
                "sync 2 0 0 0 - -\n",
                "rename 0 0 0 0 /r/d /r/e\n",
                "open 3 0 0 0 /r -\n",
                "sync 3 0 0 0 - -\n",
                "unlink 0 0 0 0 /r/e/a -\n",
            ]
        )
    )
    seen = Recording(log, "/r")
    assert [seen.after(count, nothing) for count in (7, 8, 10, 11)] == [
        {},
        {},
        {"e": {"a": b"abc"}},
        {"e": {"a": b"abc"}},
    ]
    assert [seen.after(count, everything) for count in (4, 7, 8, 11)] == [
        {"d": {"a": b"abc"}},
        {"d": {"a": b"abcdef"}},
        {"e": {"a": b"abcdef"}},
        {"e": {}},
    ]


if __name__ == "__main__":
    where = Path(tempfile.mkdtemp(prefix="acid-crash-"))
    done = outcomes(where / "p", sys.argv[1], int(sys.argv[2]), *sys.argv[3:4])
    print(done, *done.faults[:20], sep="\n  ")
    shutil.rmtree(where)
