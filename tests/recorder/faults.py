"""What befalls the processes of a round, by chance: SIGKILL, SIGSTOP, full disks, clocks that jump,
a log whose server fails."""

from __future__ import annotations

import os
import resource
import runpy
import signal
import struct
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.interop.history import Gate
from tests.recorder.service import Service, SharedLog

TIMEOUT = 2.0
"""Seconds after which a silent transaction is aborted."""
SETTINGS = {
    "hive.txn.timeout": f"{TIMEOUT:g}s",
    "hive.timedout.txn.reaper.interval": "0.2s",
    "hive.timedout.txn.reaper.start": "0s",
    "acid.metastore.snapshot.bytes": "200000",
    "hive.compactor.abortedtxn.threshold": "0",
}
WALL_CLOCK = Path(__file__).with_name("wall_clock")
_PACE = 1.0
"""Seconds between two faults, on average."""
_WEIGHTS = {
    "clients killed": 4,
    "clients stopped": 3,
    "clients' disks full": 2,
    "metastores killed": 2,
    "metastores stopped": 2,
    "metastores' disks full": 1,
    "gateways killed": 1,
    "clocks set": 1,
    "servers of the log failed": 1,
}
_MOST_BYTES = 20_000
"""A file can't grow beyond some number of bytes below this while its disk is full."""
_DAYS = 2
_STREAMS_SHARE = 0.25
"""Of the kills that may hit the client of streams."""


@dataclass(frozen=True)
class Running:
    """A client's process."""

    kind: str
    journal: Path

    def works(self) -> bool:
        """Whether it has had a transaction committed."""
        return self.journal.exists() and '"outcome":"ok"' in self.journal.read_text()


def fill_disk(pid: int, size: int) -> None:
    """No file that the process writes can grow beyond `size` bytes: EFBIG in place of ENOSPC."""
    with suppress(ProcessLookupError):
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))


def free_disk(pid: int) -> None:
    with suppress(ProcessLookupError):
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))


@dataclass(frozen=True)
class Clocks:
    """The wall clocks of this process and of those that it starts after `install`."""

    path: Path

    def install(self) -> None:
        self.path.write_bytes(bytes(16))
        os.environ["ACID_TEST_CLOCK"] = str(self.path)
        os.environ["PYTHONPATH"] = f"{WALL_CLOCK}:{os.environ.get('PYTHONPATH', '')}".rstrip(":")
        runpy.run_path(str(WALL_CLOCK / "sitecustomize.py"))

    def set(self, which: int, milliseconds: int) -> None:
        """`which`: 0 for metastores, 1 for other processes."""
        with self.path.open("r+b") as file:
            file.seek(8 * which)
            file.write(struct.pack("<q", milliseconds))


@dataclass
class Faults:
    """`clients`: the processes; each leads a group, with its JVM. The one whose engine is Spark is
    stopped and not killed, since a JVM takes seconds to start; the one of Spark's streams is killed
    less often, and not before its first commit, or it might never get to one. A client's disk is
    full until it next writes in its journal."""

    random: Random
    service: Service
    clients: Mapping[int, Running]
    gate: Gate | None
    clocks: Clocks | None = None
    counts: Counter[str] = field(default_factory=Counter)
    _pending: list[tuple[float, Callable[[], None]]] = field(default_factory=list)
    """What is undone at what time."""
    _stopped: set[int] = field(default_factory=set)
    _next: float = 0.0

    def happen(self) -> None:
        """Undoes what has lasted long enough, and now and then does the next thing."""
        now = time.monotonic()
        self.undo(now)
        if now < self._next:
            return
        self._next = now + _PACE * self.random.uniform(0.5, 1.5)
        (what,) = self.random.choices([*_WEIGHTS], [*_WEIGHTS.values()])
        if self._done(what):
            self.counts[what] += 1

    def undo(self, now: float = float("inf")) -> None:
        """What was to last until then; by default everything."""
        due = [one for one in self._pending if one[0] <= now]
        self._pending = [one for one in self._pending if one[0] > now]
        for _, undo in due:
            undo()

    def _done(self, what: str) -> bool:
        whose, _, how = what.partition(" ")
        if whose == "gateways":
            if self.gate is None:
                return False
            self.undo()  # it needs the metastore to start
            self.gate.restarted()
        elif whose == "clocks":
            if self.clocks is None:
                return False
            days = self.random.choice((0.0, self.random.uniform(-_DAYS, _DAYS)))
            self.clocks.set(self.random.randrange(2), int(days * 86_400_000))
        elif whose == "servers":
            if not isinstance(self.service, SharedLog):
                return False
            self.service.fail()
            self._later(self.service.heal)
        else:
            return self._befalls(whose.startswith("metastores"), how)
        return True

    def _befalls(self, metastore: bool, how: str) -> bool:
        """Whether there was a process that it could befall."""
        pid = self.service.pid() if metastore else self._client(how)
        if pid is None or pid in self._stopped:
            return False
        with suppress(ProcessLookupError):
            if how == "killed":
                self._signal(pid, signal.SIGKILL)
            elif how == "stopped":
                self._signal(pid, signal.SIGSTOP)
                self._stopped.add(pid)
                self._later(lambda: self._go_on(pid), 1 if metastore else 2)
            else:
                fill_disk(pid, self.random.randrange(_MOST_BYTES))
                if metastore:
                    self._later(lambda: free_disk(pid))
        return True

    def _client(self, how: str) -> int | None:
        streams_too = self.random.random() < _STREAMS_SHARE

        def spared(client: Running) -> bool:
            of_streams = client.kind == "stream"
            return client.kind == "spark" or (of_streams and not (streams_too and client.works()))

        able = [pid for pid, one in self.clients.items() if how == "stopped" or not spared(one)]
        return self.random.choice(able) if able else None

    def _later(self, undo: Callable[[], None], timeouts: float = 1) -> None:
        """Undoes it within so many timeouts of a transaction."""
        seconds = self.random.uniform(0.2, timeouts * TIMEOUT)
        self._pending.append((time.monotonic() + seconds, undo))

    def _go_on(self, pid: int) -> None:
        self._stopped.discard(pid)
        with suppress(ProcessLookupError):
            self._signal(pid, signal.SIGCONT)

    def _signal(self, pid: int, which: signal.Signals) -> None:
        (os.killpg if pid in self.clients else os.kill)(pid, which)
