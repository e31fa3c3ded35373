"""Numbers as Prometheus reads them: as text, and by HTTP at /metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from acid_platform.errors import InvalidDefinition

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

    from prometheus_client import CollectorRegistry, Metric

    Families = Callable[[], Iterable[Metric]]
    """Reads the numbers now."""

HERE = "127.0.0.1"


def registry_of(families: Families) -> CollectorRegistry:
    """A registry that reads the numbers each time."""
    from prometheus_client import CollectorRegistry
    from prometheus_client.registry import Collector

    class Read(Collector):
        def collect(self) -> Iterator[Metric]:
            yield from families()

    registry = CollectorRegistry()
    registry.register(Read())
    return registry


def prometheus_text(families: Families) -> str:
    """The text format of Prometheus."""
    from prometheus_client import generate_latest

    return generate_latest(registry_of(families)).decode()


def serve_metrics(address: str, registry: CollectorRegistry) -> WSGIServer:
    """Serves /metrics at `host:port`, in a thread that ends with the process; `:port` is for this
    machine alone, port 0 takes a free one.

    Raises InvalidDefinition.
    """
    from prometheus_client import start_http_server

    try:
        parts = urlsplit(f"//{address}")
        host, port = parts.hostname or HERE, parts.port
        if port is None or parts.netloc != address or "@" in address:
            raise ValueError(f"{address!r} is no address; write HOST:PORT or :PORT")
        return start_http_server(port, host, registry)[0]
    except (OSError, ValueError) as error:
        raise InvalidDefinition(f"--metrics {address}: can't listen there: {error}") from error


def address_of(server: WSGIServer) -> str:
    """Where a browser finds the page."""
    host, port = server.socket.getsockname()[:2]
    return f"http://[{host}]:{port}/metrics" if ":" in host else f"http://{host}:{port}/metrics"
