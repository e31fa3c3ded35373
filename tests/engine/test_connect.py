"""Everything that a classic session does works as a client of `make spark-connect` too."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from scripts import spark_connect
from tests.metastore.processes import until

ROOT = Path(__file__).resolve().parents[2]

EXPECTED: dict[str, Any] = {
    "insert": [[1, "a", 1], [2, "b", 2], [3, "c", 1], [4, "d", 2], [5, "e", 1], [6, "e", 1]],
    "read": [[3], [5], [6]],
    "row_id": 1,
    "update": [3, [[4, "D", 2], [5, "E", 1], [6, "E", 1]]],
    "delete": [1, [[1], [3], [4], [5], [6]]],
    "merge": [1, 1, [[1, "new", 1], [9, "nine", 2]]],
    "overwrite": [[2], [3]],
    "transaction": [3, [[2], [3], [4]]],
    "sql": [[1, 9], [2, 6]],
    "compact": [["ready for cleaning", "ready for cleaning"], True],
    "expiry": "SnapshotExpired",
    "errors": ["UnknownColumn", "WrongType"],
    "abort": "TxnAborted",
    "materialization": [True, True, [[0, "x"], [1, "x"], [2, "x"]]],
    "compaction_job": [True, [[0, "x"], [2, "x"]]],
}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What each step of over_connect.py gave, over a server of our own."""
    root = tmp_path_factory.mktemp("connect")
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    with (root / "server.log").open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", spark_connect.__name__, "--port", str(port)], cwd=ROOT,
            stdout=log, stderr=log, env={**os.environ, "ACID_SPARK_MEMORY": "1g"})

    def listens() -> bool:
        assert server.poll() is None, (root / "server.log").read_text()
        with suppress(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port)).close()
            return True
        return False

    try:
        until(listens, 120, 0.25)
        done = subprocess.run(
            [sys.executable, "-m", "tests.engine.over_connect", str(root / "wh")], cwd=ROOT,
            env={**os.environ, "ACID_SPARK_REMOTE": f"sc://127.0.0.1:{port}"},
            capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        yield json.loads(done.stdout.splitlines()[-1])
    finally:
        server.kill()
        server.wait()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("step", EXPECTED)
def test_over_spark_connect(told: dict[str, Any], step: str) -> None:
    assert told[step] == EXPECTED[step]
