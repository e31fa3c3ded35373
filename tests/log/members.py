"""Metastore processes that share a log, for tests: one leads, the others stand by."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from acid_platform.errors import AcidError
from acid_platform.metastore.log.contract import Leader, Log, open_log
from tests.metastore.processes import listens, until


class Member:
    """One process of `acid metastore serve`."""

    def __init__(self, log: str, output: Path) -> None:
        """`output` gets what the process prints."""
        self.log, self.port = log, _port()
        self._output = output
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> Member:
        environment = {
            **os.environ,
            "ACID_METASTORE": self.log,
            "ACID_WAREHOUSE": str(self._output.with_suffix(".warehouse")),
        }
        with self._output.open("ab") as output:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "acid_platform", "metastore", "serve"),
                    *("--listen", self.address),
                ],
                env=environment,
                stdout=output,
                stderr=output,
            )
        return self

    def output(self) -> str:
        """The last that it printed."""
        return self._output.read_text()[-5000:]

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        if self.process is not None:
            self.process.wait()
        self.process = None

    def stop(self) -> None:
        """Asks it to end, and waits until it has."""
        self._signal(signal.SIGTERM)
        if self.process is not None:
            self.process.wait(30)
        self.process = None

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError):
                self.process.send_signal(number)


def _port() -> int:
    """A free port that no client gets for its own end while the process is down."""
    while listens("127.0.0.1", port := random.randint(15_000, 30_000)):
        pass
    return port


class Members:
    """Several processes, and a look into the log that they share."""

    def __init__(self, log: str, directory: Path, count: int) -> None:
        self.where = log
        self.all = [Member(log, directory / f"member{number}.log") for number in range(count)]
        self._log: Log | None = None

    @property
    def log(self) -> Log:
        self._log = self._log or open_log(self.where)
        return self._log

    def require_all(self) -> None:
        """No process may have ended by itself."""
        for member in self.all:
            assert member.process is not None and member.process.poll() is None, member.output()

    def leader(self) -> Leader | None:
        """Who leads, as the log has it."""
        with suppress(AcidError, OSError):
            leader = self.log.leader() if self.log.exists else None
            return leader if leader is not None and leader.address else None
        return None

    def leading(self) -> Member:
        """The member that leads; waits for one."""
        until(lambda: self.leader() is not None, 30, 0.05)
        leader = self.leader()
        assert leader is not None
        return next(member for member in self.all if member.address == leader.address)

    def start(self) -> Members:
        for member in self.all:
            member.start()
        self.leading()
        return self

    def end(self) -> None:
        for member in self.all:
            member.resume()
            member.kill()
        if self._log is not None:
            self._log.close()

    def __enter__(self) -> Members:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
