"""A Spark Connect server for tests, as `make lab-spark-connect` starts it, and a client of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scripts import spark_connect
from tests.metastore.processes import free_port, listens, until

ROOT = Path(__file__).resolve().parents[1]


@contextmanager
def connect_server(log: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Yields its address and its process; the server ends with the block."""
    port = free_port()
    with log.open("wb") as out:
        server = subprocess.Popen(
            [sys.executable, "-m", spark_connect.__name__, "--port", str(port)],
            cwd=ROOT,
            stdout=out,
            stderr=out,
            env={**os.environ, "ACID_SPARK_MEMORY": "1g"},
        )

    def ready() -> bool:
        assert server.poll() is None, log.read_text()
        return listens("127.0.0.1", port)

    try:
        until(ready, 120, 0.25)
        yield f"sc://127.0.0.1:{port}", server
    finally:
        server.kill()
        server.wait()


def told_by_client(remote: str, home: Path) -> dict[str, Any]:
    """What each step of tests/engine/over_connect.py gave, with a new warehouse in `home`."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.engine.over_connect", str(home)],
        cwd=ROOT,
        env={**os.environ, "ACID_SPARK_REMOTE": remote},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told
