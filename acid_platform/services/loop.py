"""How often the services run when no orchestrator drives them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from acid_platform.base.config import Settings
from acid_platform.errors import SettingRefused, Transient


class ServiceName(Enum):
    INITIATOR = "initiator"
    WORKER = "worker"
    CLEANER = "cleaner"


@dataclass(frozen=True, slots=True)
class CyclePace:
    """Milliseconds between cycles; an idle service doubles the wait each time, up to `longest`.

    An eager service starts the next cycle at once while it finds work (C26).
    """

    wait: int
    longest: int
    eager: bool = False
    threads: int = 1


_SWITCHES = {
    ServiceName.INITIATOR: "hive.compactor.initiator.on",
    ServiceName.CLEANER: "hive.compactor.cleaner.on",
}
_INTERVALS = {
    ServiceName.INITIATOR: "hive.compactor.check.interval",
    ServiceName.CLEANER: "hive.compactor.cleaner.run.interval",
}
_THREADS = "hive.compactor.worker.threads"


def pace_of(service: ServiceName, settings: Settings) -> CyclePace:
    """The pace that the settings ask for. Raises SettingRefused if they switch the service off."""
    if service is ServiceName.WORKER:
        threads = settings.integer(_THREADS)
        if not threads:
            raise SettingRefused(f"{_THREADS} is 0, so no Worker may run; set it to 1 or more")
        return CyclePace(
            settings.integer("hive.compactor.worker.sleep.time"),
            settings.integer("hive.compactor.worker.max.sleep.time"),
            True,
            threads,
        )
    switch = _SWITCHES[service]
    if not settings.flag(switch):
        raise SettingRefused(
            f"{switch} is false, so the {service.value} may not run; set it to true"
        )
    wait = settings.integer(_INTERVALS[service])
    return CyclePace(wait, wait)


def run_until(
    stop: threading.Event,
    cycle: Callable[[], bool],
    pace: CyclePace,
    failed: Callable[[Transient], None],
) -> None:
    """Repeats `cycle`, which returns whether it found work, until `stop` is set.

    A cycle is never interrupted. A Transient error is passed to `failed`, and the next cycle tries
    again; any other error ends the loop.
    """
    wait = pace.wait
    while not stop.is_set():
        busy = False
        try:
            busy = cycle()
        except Transient as error:
            failed(error)
        if busy:
            wait = pace.wait
            if pace.eager:
                continue
        stop.wait(wait / 1000)
        wait = min(2 * wait, pace.longest)
