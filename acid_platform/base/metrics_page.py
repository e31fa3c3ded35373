"""Numbers as Prometheus reads them: as text, and by HTTP at /metrics."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from acid_platform.base.strangers import Pace, Strangers
from acid_platform.errors import InvalidDefinition

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Metric

    Families = Callable[[], Iterable[Metric]]
    """Reads the numbers now."""

HERE = "127.0.0.1"
MOST, _OF_ONE = 256, 128
"""Connections, of all and of one address: whoever comes then takes the place of the oldest."""
_MOST_ANSWERED = 64
"""Requests that are answered at the same time, and make room for nobody."""
_LONGEST = 8192
"""Bytes of a request."""
_REQUEST_SECONDS, _ANSWER_SECONDS = 5.0, 10.0
_RETRY_SECONDS = 0.1
"""After a connection that could not be accepted, as when no descriptor is left."""
_PAUSE = 0.1
"""Seconds between two looks at the numbers; requests that wait together get the same."""


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


class MetricsPage:
    """Serves the numbers from a thread of its own until `close`, or the end of the process.

    Whoever reaches it may read them, and hold no more than a few of the process's descriptors
    (P75): one thread takes connections at a pace and serves them, and another reads the numbers.
    """

    def __init__(self, listener: socket.socket, registry: CollectorRegistry) -> None:
        self._registry = registry
        host, port = listener.getsockname()[:2]
        self.port = int(port)
        self.address = (
            f"http://[{host}]:{port}/metrics" if ":" in host else (f"http://{host}:{port}/metrics")
        )
        """Where a browser finds the page."""
        self._listener = listener
        self._strangers = Strangers[asyncio.StreamWriter](MOST, _OF_ONE)
        self._answered: set[asyncio.StreamWriter] = set()
        self._reading: asyncio.Task[bytes] | None = None
        self._reader = ThreadPoolExecutor(1, "metrics")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="metrics page", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._reader.shutdown(wait=False)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._listener.setblocking(False)
        self._loop.create_task(self._accept())
        self._loop.run_forever()
        ended = asyncio.all_tasks(self._loop)
        for task in ended:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*ended, return_exceptions=True))
        self._listener.close()
        self._loop.close()

    async def _accept(self) -> None:
        pace, served = Pace(), set[asyncio.Task[None]]()
        while True:
            try:
                accepted, _ = await self._loop.sock_accept(self._listener)
            except OSError:
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            try:
                reader, writer = await asyncio.open_connection(sock=accepted, limit=_LONGEST)
            except OSError:  # it has gone already
                accepted.close()
                continue
            task = self._loop.create_task(self._serve(reader, writer))
            served.add(task)
            task.add_done_callback(served.discard)
            await asyncio.sleep(pace.took())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        crowded_out = self._strangers.come(writer, str(writer.get_extra_info("peername")[0]))
        if crowded_out is not None:
            crowded_out.transport.abort()
        try:
            async with asyncio.timeout(_REQUEST_SECONDS):
                request = await reader.readuntil(b"\r\n\r\n")
            if len(self._answered) < _MOST_ANSWERED:
                self._answered.add(writer)
                self._strangers.leave(writer)
            async with asyncio.timeout(_ANSWER_SECONDS):
                writer.write(await self._answer(request))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # it said nothing, too much, or has gone
        finally:
            self._strangers.leave(writer)
            self._answered.discard(writer)
            writer.transport.abort()

    async def _answer(self, request: bytes) -> bytes:
        method, path, *_ = [*request.split(b"\r\n", 1)[0].split(b" "), b"", b""]
        if method not in (b"GET", b"HEAD") or path.split(b"?")[0] not in (b"/", b"/metrics"):
            return _response("404 Not Found", b"the numbers are at /metrics\n")
        if self._reading is None:
            self._reading = self._loop.create_task(self._read())
        try:
            return _response("200 OK", await asyncio.shield(self._reading))
        except Exception as error:  # whatever the numbers' source raises
            text = f"the numbers can't be read now: {type(error).__name__}: {error}\n"
            return _response("500 Internal Server Error", text.encode())

    async def _read(self) -> bytes:
        """The numbers, for all requests that came before they are read."""
        from prometheus_client import generate_latest

        await asyncio.sleep(0)
        reading = self._loop.run_in_executor(self._reader, generate_latest, self._registry)
        try:
            return await reading
        finally:
            self._loop.call_later(_PAUSE, self._forget)

    def _forget(self) -> None:
        self._reading = None


def _response(status: str, body: bytes) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


def serve_metrics(address: str, registry: CollectorRegistry) -> MetricsPage:
    """Serves /metrics at `host:port`, in a thread that ends with the process; `:port` is for this
    machine alone, port 0 takes a free one.

    Raises InvalidDefinition.
    """
    try:
        parts = urlsplit(f"//{address}")
        host, port = parts.hostname or HERE, parts.port
        if port is None or parts.netloc != address or "@" in address:
            raise ValueError(f"{address!r} is no address; write HOST:PORT or :PORT")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=128)
    except (OSError, ValueError) as error:
        raise InvalidDefinition(f"--metrics {address}: can't listen there: {error}") from error
    return MetricsPage(listener, registry)
