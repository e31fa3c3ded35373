"""A primary and its standby as processes, for tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from acid_platform.metastore import Metastore, address
from acid_platform.metastore.endpoint import Endpoint, Home, take_lock
from acid_platform.metastore.server.seeding import make_standby
from tests.metastore.processes import free_port, until

KEY = "0123456789abcdef-the-key"
LEASE = "2s"
"""Long enough that a busy machine does not make a standby take over by itself."""


class Member:
    """One metastore, which keeps its port over restarts.

    `inside`: the beginning of a command that starts another in a network namespace.
    """

    def __init__(self, path: Path, host: str = "127.0.0.1", inside: tuple[str, ...] = ()) -> None:
        self.home = Home(path)
        self.host, self.inside = host, inside
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def uri(self) -> str:
        return f"tcp://{self.address}"

    def start(self) -> Member:
        command = [sys.executable, "-m", "acid_platform.metastore", "--dir", str(self.home.path)]
        process = self.process = subprocess.Popen(
            [*self.inside, *command, "--listen", self.address],
            env={**os.environ, address.KEY: KEY},
        )

        def published() -> bool:
            assert process.poll() is None, "it ended at its start"
            found = Endpoint.read(self.home)
            return found is not None and found.pid == process.pid

        until(published, 30)
        return self

    def follow(self, primary: Member, automatic: bool = True, replace: bool = False) -> Member:
        """Makes the directory a standby and starts it."""
        self.home.prepare()
        with take_lock(self.home):
            make_standby(self.home, primary.uri, automatic, replace)
        return self.start()

    def local(self) -> Metastore:
        """A client on its machine, which may also talk to a standby."""
        return Metastore.connect(self.home.path, autostart=False)

    def status(self) -> dict[str, Any]:
        with self.local() as client:
            return client.status()

    def is_synchronous(self) -> bool:
        return bool(self.status()["synchronous"])

    def is_primary(self) -> bool:
        return bool(self.status()["role"] == "primary")

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def pause(self) -> None:
        assert self.process
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self.process
        self.process.send_signal(signal.SIGCONT)


def both(*members: Member) -> str:
    """The address that clients of a primary with a standby use."""
    return "tcp://" + ",".join(member.address for member in members)
