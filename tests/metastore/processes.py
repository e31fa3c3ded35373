"""Functions for tests of real metastore processes."""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from acid_platform.metastore.client import link
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.endpoint import Endpoint, Home


def until(condition: Callable[[], Any], seconds: float = 10, pause: float = 0.01) -> None:
    """Waits until the condition holds, and fails after so many seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(pause)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def listens(host: str, port: int) -> bool:
    with suppress(ConnectionRefusedError):
        socket.create_connection((host, port)).close()
        return True
    return False


def gone(pid: int) -> bool:
    """Whether the process has ended, even if it is a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    try:
        state = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False  # there is no /proc, or the process has just ended: the next call decides
    return state.rpartition(")")[2].split()[0] == "Z"


def serving_process(warehouse: Path) -> int | None:
    """The id of the process that serves a warehouse's metastore, unless it has ended."""
    home = Home(warehouse / "_metastore")
    endpoint = Endpoint.read(home)
    with suppress(FileNotFoundError, ProcessLookupError):
        if endpoint and str(home.path) in Path(f"/proc/{endpoint.pid}/cmdline").read_text():
            return endpoint.pid
    return None


def end(metastore: Metastore) -> None:
    """Stops the metastore; it has closed its files then."""
    assert gone(metastore.stop())


def ask(client: Metastore, op: str, args: dict[str, Any]) -> Any:
    """Sends a message that no client of this version sends."""
    message = json.dumps({"id": secrets.token_hex(8), "op": op, "args": args}).encode()
    return link._value(json.loads(client._link._connection().exchange(message, 10)))
