"""The numbers of a gateway, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from acid_platform.base.metrics_page import registry_of

if TYPE_CHECKING:
    from acid_platform.gateway.gateway_server import GatewayServer

_PREFIX = "acid_gateway_"
_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)
_COUNTED = {
    "accepted": "Connections that were accepted.",
    "refused": "Connections above the limit, which were refused.",
    "failed_logins": "Logins that were refused.",
    "calls": "Calls that came, unknown ones included.",
    "slowed": "Calls that waited for the limit of calls per second.",
}


class GatewayMetrics:
    """What its calls do; `Gateway.observe` is `observe`."""

    def __init__(self) -> None:
        own = CollectorRegistry()
        self._own = own
        self._seconds = Histogram(
            f"{_PREFIX}call_seconds",
            "Time of the calls of each name.",
            ["call"],
            registry=own,
            buckets=_BUCKETS,
        )
        self._failed = Counter(
            f"{_PREFIX}failed_calls",
            "Calls that were answered with an error.",
            ["call", "error"],
            registry=own,
        )

    def observe(self, call: str, seconds: float, error: str) -> None:
        """`error`: the class of the error with which the call was answered; empty without one."""
        self._seconds.labels(call).observe(seconds)
        if error:
            self._failed.labels(call, error).inc()

    def registry(self, server: GatewayServer) -> CollectorRegistry:
        """Those of the calls, and those of the server."""

        def families() -> Iterator[Metric]:
            yield from self._own.collect()
            for field in fields(server.counters):
                value = getattr(server.counters, field.name)
                yield CounterMetricFamily(_PREFIX + field.name, _COUNTED[field.name], value)
            for name, text, value in (
                ("connections", "Clients that are connected.", server.connections),
                ("connections_limit", "How many may be.", server.bounds.connections),
                ("threads", "Threads that answer calls.", server.threads),
                ("waiting_bytes", "Bytes of unfinished messages.", server.waiting_bytes),
            ):
                yield GaugeMetricFamily(_PREFIX + name, text, value)

        return registry_of(families)
