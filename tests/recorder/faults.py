"""What befalls the processes of a round: SIGKILL and SIGSTOP, by chance."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

from tests.interop.history import Gate

TIMEOUT = 2.0
"""Seconds after which a silent transaction is aborted."""
SETTINGS = {
    "hive.txn.timeout": f"{TIMEOUT:g}s",
    "hive.timedout.txn.reaper.interval": "0.2s",
    "hive.timedout.txn.reaper.start": "0s",
    "acid.metastore.snapshot.bytes": "200000",
    "hive.compactor.abortedtxn.threshold": "0",
}
_PACE = 1.0
"""Seconds between two faults, on average."""
_WEIGHTS = {
    "clients killed": 4,
    "clients stopped": 3,
    "metastores killed": 2,
    "metastores stopped": 2,
    "gateways killed": 1,
}


@dataclass
class Faults:
    """`clients`: the processes by kind. Those of Spark are stopped and not killed, since their JVM
    takes seconds to start."""

    random: Random
    metastore: Callable[[], int | None]
    """The process that serves now."""
    clients: Mapping[int, str]
    gate: Gate | None
    counts: Counter[str] = field(default_factory=Counter)
    _stopped: dict[int, float] = field(default_factory=dict)
    """Processes with the times at which they go on."""
    _next: float = 0.0

    def happen(self) -> None:
        """Lets those go on whose time has come, and now and then does the next thing."""
        now = time.monotonic()
        self.let_go(now)
        if now < self._next:
            return
        self._next = now + _PACE * self.random.uniform(0.5, 1.5)
        (what,) = self.random.choices([*_WEIGHTS], [*_WEIGHTS.values()])
        whose, _, how = what.partition(" ")
        if whose == "gateways":
            if self.gate is None:
                return
            self.let_go()  # it needs the metastore to start
            self.gate.restarted()
        else:
            pid = self.metastore() if whose == "metastores" else self._client(how)
            if pid is None or pid in self._stopped:
                return
            with suppress(ProcessLookupError):
                if how == "killed":
                    os.kill(pid, signal.SIGKILL)
                else:
                    os.kill(pid, signal.SIGSTOP)
                    longest = TIMEOUT if whose == "metastores" else 2 * TIMEOUT
                    self._stopped[pid] = now + self.random.uniform(0.2, longest)
        self.counts[what] += 1

    def _client(self, how: str) -> int | None:
        able = [pid for pid, kind in self.clients.items() if how != "killed" or kind != "spark"]
        return self.random.choice(able) if able else None

    def let_go(self, now: float = float("inf")) -> None:
        """Those that were to be stopped until then go on; by default all."""
        for pid, until in [*self._stopped.items()]:
            if until <= now:
                del self._stopped[pid]
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
