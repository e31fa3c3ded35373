"""`acid run`: runs a service of the warehouse in this process, once or until a signal."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from acid_platform.base.clock import wall_ms
from acid_platform.base.config import Settings
from acid_platform.cli.console import echo
from acid_platform.errors import LeaseHeld, SettingRefused, Transient
from acid_platform.metastore import operations as ops
from acid_platform.services import cleaner, initiator, removals, worker
from acid_platform.services.explain_services import (
    Section,
    explain_cleaner,
    explain_initiator,
    explain_worker,
)

if TYPE_CHECKING:
    from acid_platform.handles.warehouse import Warehouse


_PREFIX = "acid_service_"


class ServiceMetrics:
    """What the cycles of a service do, for Prometheus."""

    def __init__(self, service: str) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        self.registry = registry = CollectorRegistry()
        self._seconds = Histogram(
            f"{_PREFIX}cycle_seconds",
            "Time of the cycles.",
            ["service"],
            registry=registry,
            buckets=(0.01, 0.1, 1, 10, 60, 600, 3600),
        ).labels(service)
        self._last = Gauge(
            f"{_PREFIX}last_cycle_timestamp_seconds",
            "When the last cycle ended without an error.",
            ["service"],
            registry=registry,
        ).labels(service)
        self.errors = Counter(
            f"{_PREFIX}errors", "Cycles that ended with an error.", ["service"], registry=registry
        ).labels(service)
        self.compactions = Counter(
            f"{_PREFIX}compactions", "Compactions by their outcome.", ["state"], registry=registry
        )
        self.queued = Counter(
            f"{_PREFIX}queued", "Compactions that the Initiator asked for.", registry=registry
        )
        self.removed = Counter(
            f"{_PREFIX}removed", "Directories and files that were removed.", registry=registry
        )

    @contextmanager
    def cycle(self) -> Iterator[None]:
        with self._seconds.time():
            yield
        self._last.set_to_current_time()


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


_SWITCH_AND_INTERVAL = {
    ServiceName.INITIATOR: ("hive.compactor.initiator.on", "hive.compactor.check.interval"),
    ServiceName.CLEANER: ("hive.compactor.cleaner.on", "hive.compactor.cleaner.run.interval"),
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
    switch, interval = _SWITCH_AND_INTERVAL[service]
    if not settings.flag(switch):
        raise SettingRefused(
            f"{switch} is false, so the {service.value} may not run; set it to true"
        )
    wait = settings.integer(interval)
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


class Runner:
    """Runs one service and prints what it does, as lines or as values for `say_json`."""

    def __init__(
        self, warehouse: Warehouse, service: str, say_json: Callable[[Any], None] | None = None
    ) -> None:
        self._warehouse = warehouse
        self._service = ServiceName(service)
        self._say_json = say_json
        self._looked = 0
        """The metastore's `moment` at the start of the Initiator's last cycle, which ran with
        `_settings_then` (C1)."""
        self._settings_then: dict[str, str] = {}
        self._metrics: ServiceMetrics | None = None
        self._cycles = {
            ServiceName.INITIATOR: self._initiate,
            ServiceName.WORKER: self._work,
            ServiceName.CLEANER: self._clean,
        }

    def explain(self) -> list[Section]:
        """What a cycle would do. Changes nothing."""
        metastore = self._warehouse.metastore
        match self._service:
            case ServiceName.INITIATOR:
                return explain_initiator(metastore, wall_ms())
            case ServiceName.WORKER:
                return explain_worker(metastore)
            case ServiceName.CLEANER:
                return explain_cleaner(metastore)

    def once(self) -> None:
        """Runs one cycle; a Worker runs until the queue is empty. Raises SettingRefused."""
        pace_of(self._service, self._settings())
        self._begin()
        cycle = self._cycles[self._service]
        busy = cycle()
        if not busy and self._service is not ServiceName.INITIATOR:
            self._tell(f"nothing for the {self._service.value} to do", state="idle")
        while busy and self._service is ServiceName.WORKER:
            busy = cycle()

    def forever(self, metrics: str = "") -> None:
        """Runs cycles at the configured intervals until SIGINT or SIGTERM, and serves its numbers
        at the address `metrics`, if there is one.

        The first signal ends the loop after the current cycle, the second ends the process. Raises
        SettingRefused, JavaMissing, InvalidDefinition, and an error that ended a cycle unless it is
        Transient.
        """
        pace = pace_of(self._service, self._settings())
        if self._service is ServiceName.WORKER and self._warehouse.engines.preference != "local":
            from acid_platform.engine.spark.session import require_java

            require_java()
        self._begin()
        cycle = self._cycles[self._service]
        if metrics:
            cycle = self._measured(cycle, metrics)
        stop = threading.Event()
        _stop_on_signals(stop)
        self._tell(f"{self._service.value} runs every {pace.wait / 1000:g} s", state="started")
        ended: list[BaseException] = []

        def loop() -> None:
            try:
                run_until(stop, cycle, pace, self._failed)
            except BaseException as error:  # the main thread raises it
                ended.append(error)
                stop.set()

        # Not in the main thread, where PySpark would replace our signal handler.
        threads = [
            threading.Thread(target=loop, name=f"{self._service.value}-{number}")
            for number in range(pace.threads)
        ]
        for thread in threads:
            thread.start()
        for each in threads:
            while each.is_alive():  # a join without a timeout would delay signals
                each.join(0.2)
        if ended:
            raise ended[0]
        self._tell(f"{self._service.value} has stopped", state="stopped")

    def _measured(self, cycle: Callable[[], bool], address: str) -> Callable[[], bool]:
        from acid_platform.base.ports import serve_metrics

        self._metrics = metrics = ServiceMetrics(self._service.value)
        page = serve_metrics(address, metrics.registry).address
        self._tell(f"serves {page}", metrics=page)

        def measured() -> bool:
            with metrics.cycle():
                return cycle()

        return measured

    def _begin(self) -> None:
        if self._service is ServiceName.WORKER:
            requeued = worker.revoke_dead(self._warehouse.metastore)
            if requeued:
                self._tell(
                    f"compactions {requeued} are queued again: their Worker on this host has ended",
                    revoked=requeued,
                )

    # --- cycles: each returns whether it found work --------------------------------------------

    def _initiate(self) -> bool:
        metastore = self._warehouse.metastore
        settings, began = metastore.settings(), metastore.call(ops.GetMoment())
        since = self._looked if settings == self._settings_then else 0
        decisions = initiator.run(metastore, wall_ms(), since)
        self._looked, self._settings_then = began, settings
        for initiated in decisions:
            if initiated.id is not None or initiated.decision.did_not_initiate:
                self._tell(
                    str(initiated),
                    table=initiated.table,
                    partition=initiated.partition,
                    compaction=initiated.id,
                    reason=initiated.decision.reason,
                )
        queued = sum(decided.id is not None for decided in decisions)
        if self._metrics:
            self._metrics.queued.inc(queued)
        if not queued:
            self._tell(
                f"checked {len(decisions)} entities, nothing to compact", entities=len(decisions)
            )
        return queued > 0

    def _work(self) -> bool:
        outcome = worker.work_once(self._warehouse)
        if outcome is None:
            return False
        task = outcome.task
        if self._metrics:
            self._metrics.compactions.labels(str(outcome.state)).inc()
        text = f"compaction {task.id} of {worker.job_entity(task)}: {outcome.state}: "
        by = (f"engine {outcome.engine}, {outcome.engine_reason}",) if outcome.engine else ()
        self._tell(
            text + "; ".join((outcome.reason, *map(str, outcome.deviations), *by)),
            compaction=task.id,
            table=task.table,
            partition=task.partition,
            state=outcome.state,
            reason=outcome.reason,
            engine=outcome.engine,
            engine_reason=outcome.engine_reason,
            outputs=[output.directory for output in outcome.outputs],
            expected={deviation.what: deviation.predicted for deviation in outcome.deviations},
            actual={deviation.what: deviation.actual for deviation in outcome.deviations},
        )
        return True

    def _clean(self) -> bool:
        cleanings = cleaner.run(self._warehouse.metastore)
        for decided in cleanings:
            if self._metrics:
                self._metrics.removed.inc(len(decided.removed))
            for line in decided.removed:
                self._tell(f"removed {line}", table=decided.table, removed=line)
            if left := removals.left_text(decided.left):
                self._tell(
                    f"cleaning of {decided.table} {left}",
                    table=decided.table,
                    left=decided.left,
                )
            if decided.error:
                self._tell(
                    f"cleaning of {decided.table} failed: {decided.error}",
                    table=decided.table,
                    error=decided.error,
                )
        return bool(cleanings)

    def _failed(self, error: Transient) -> None:
        if isinstance(error, LeaseHeld):
            self._tell(f"standing by: {error}", state="standby")
            return
        if self._metrics:
            self._metrics.errors.inc()
        self._tell(f"error, the next cycle tries again: {error}", error=str(error))

    def _tell(self, text: str, **values: Any) -> None:
        if self._say_json:
            self._say_json({"time": wall_ms(), "service": self._service.value, **values})
        else:
            echo(text)

    def _settings(self) -> Settings:
        return Settings.of(self._warehouse.metastore.settings())


def _stop_on_signals(stop: threading.Event) -> None:
    def handle(number: int, _frame: object) -> None:
        stop.set()
        signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handle)
