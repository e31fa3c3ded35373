"""Who serves the metastore in a run: a process that clients start, a fork of the driver, or several
processes that share a log."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Protocol

from acid_platform.errors import AcidError
from acid_platform.metastore.__main__ import serve
from acid_platform.metastore.client import target
from acid_platform.metastore.endpoint import Home
from acid_platform.metastore.log.contract import open_log
from tests.log.leaders import FAULTS
from tests.log.members import Member
from tests.log.postgres_server import PostgresServer
from tests.log.servers import serving
from tests.metastore.processes import serving_process
from tests.stores.server import S3Server

LOGS = ("local", "postgres", "s3")
MEMBERS = 3
_ELECTED_SECONDS = 60.0


class Service(Protocol):
    def pid(self) -> int | None:
        """The process that serves now."""

    def again(self) -> None:
        """Starts what has ended and no client starts."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class StartedByClients:
    warehouse: Path

    def pid(self) -> int | None:
        return serving_process(self.warehouse)

    def again(self) -> None: ...

    def close(self) -> None:
        pid = self.pid()
        if pid is not None:
            os.kill(pid, signal.SIGTERM)


@dataclass
class ForkOfDriver:
    """It has whatever was changed in the driver."""

    warehouse: Path
    _served: int = 0

    def __post_init__(self) -> None:
        target.start = _started_by_driver  # type: ignore[attr-defined]
        self._serve()

    def pid(self) -> int | None:
        return self._served

    def again(self) -> None:
        if os.waitpid(self._served, os.WNOHANG)[0]:
            self._serve()

    def close(self) -> None:
        with suppress(ChildProcessError, ProcessLookupError):
            os.kill(self._served, signal.SIGTERM)
            os.waitpid(self._served, 0)

    def _serve(self) -> None:
        home = Home(self.warehouse / "_metastore")
        self._served = forked(lambda: sys.exit(serve(home, None, None)))


@dataclass
class SharedLog:
    """Processes that share a log on a server of its own, which fails as well.

    `kind`: postgres or s3. The driver opens no log itself, since it forks: a child looks who leads.
    """

    kind: str
    place: Path
    _opened: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        where, self.server = self._opened.enter_context(serving(self.kind))
        self._opened.callback(os.environ.pop, "ACID_METASTORE", None)
        os.environ["ACID_METASTORE"] = self.where = where
        self._faults = cycle(FAULTS)
        self._failing: AbstractContextManager[None] | None = None
        self._members = [
            Member(where, self.place / f"member-{number}.log").start() for number in range(MEMBERS)
        ]
        deadline = time.monotonic() + _ELECTED_SECONDS
        while self.pid() is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no metastore leads: {self._members[0].output()}")
            time.sleep(0.2)

    def pid(self) -> int | None:
        if self._failing is not None:
            return None
        reading, writing = os.pipe()

        def tell() -> None:
            with suppress(AcidError, OSError):
                log = open_log(self.where)
                leader = log.leader() if log.exists else None
                os.write(writing, leader.address.encode() if leader else b"")

        child = forked(tell)
        os.close(writing)
        with os.fdopen(reading, "rb") as told:
            address = told.read().decode()
        os.waitpid(child, 0)
        for member in self._members:
            if member.address == address and member.process is not None:
                return member.process.pid
        return None

    def again(self) -> None:
        for member in self._members:
            if member.process is not None and member.process.poll() is not None:
                member.start()

    def fail(self) -> None:
        """PostgreSQL crashes and is started again; S3 fails in one of several ways until `heal`."""
        if isinstance(self.server, PostgresServer):
            self.server.stop()
            self.server.start()
        elif isinstance(self.server, S3Server) and self._failing is None:
            self._failing = self.server.fails(next(self._faults))
            self._failing.__enter__()

    def heal(self) -> None:
        if self._failing is not None:
            self._failing.__exit__(None, None, None)
            self._failing = None

    def close(self) -> None:
        self.heal()
        for member in self._members:
            member.resume()
            member.kill()
        self._opened.close()


def forked(work: Callable[[], object]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        work()
        code = 0
    except SystemExit as ended:
        code = int(ended.code or 0)
    except BaseException as error:
        with suppress(Exception):
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    os._exit(code)


def _started_by_driver(home: Home, listen: str | None = None, *, alone: bool = True) -> bool:
    """In place of `start` in clients: the driver starts the metastore."""
    time.sleep(0.05)
    return False
