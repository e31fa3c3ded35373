"""The numbers of a service that `acid run` runs, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_PREFIX = "acid_service_"


class ServiceMetrics:
    """What the cycles of a service do."""

    def __init__(self, service: str) -> None:
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
