"""Ports: who may be connected before it has said who it is (P75), and the page of numbers.

Every port that we listen on asks this module: the metastore's, the gateway's, and the page of
numbers, which Prometheus reads by HTTP at /metrics. A stranger holds a place until a newer one
needs it; whoever has logged in stays.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Generic, TypeVar
from urllib.parse import urlsplit

from acid_platform.errors import InvalidDefinition

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Metric

    Families = Callable[[], Iterable[Metric]]
    "Reads the numbers now."

KEPT_BACK = 128
"""Descriptors that no connection gets: they are for files, the log and the process's own links."""
_MOST_NOTED, _NOTED_SECONDS = 100, 10.0
"""The most refusals that are logged in so many seconds."""

Connection = TypeVar("Connection")


def most_connections() -> int:
    """How many descriptors connections may take, once the limit is as high as we may set it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return 1_000_000 if soft == resource.RLIM_INFINITY else max(1, soft - KEPT_BACK)


def network_of(host: str, bits: int = 64) -> str:
    """What is counted together: an address of IPv4, or the 2^64 addresses that one host may take in
    IPv6; with 48 bits those that one customer of a provider may have."""
    try:
        address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, bits), strict=False))
    return str(address)


class Strangers(Generic[Connection]):
    """The connections of a port that have not said yet who they are, oldest first."""

    def __init__(self, most: int, most_of_one: int) -> None:
        """`most_of_one`: how many one address may have."""
        self._most, self._most_of_one = most, most_of_one
        self._hosts: dict[Connection, str] = {}
        self._of: dict[str, dict[Connection, None]] = {}

    def __len__(self) -> int:
        return len(self._hosts)

    def __iter__(self) -> Iterator[Connection]:
        return iter([*self._hosts])

    def __contains__(self, connection: Connection) -> bool:
        return connection in self._hosts

    def come(self, connection: Connection, host: str) -> Connection | None:
        """Takes a new connection, and returns the one that has to end for it, if any."""
        network = network_of(host)
        present = self._of.setdefault(network, {})
        gone = None
        if len(present) >= self._most_of_one:
            gone = next(iter(present))
        elif len(self._hosts) >= self._most:
            gone = self.oldest()
        self._hosts[connection] = network
        self._of.setdefault(network, {})[connection] = None
        if gone is not None:
            self.leave(gone)
        return gone

    def leave(self, connection: Connection) -> None:
        """The connection has ended, or is no stranger any more."""
        network = self._hosts.pop(connection, None)
        if network is not None:
            of_network = self._of[network]
            del of_network[connection]
            if not of_network:
                del self._of[network]

    def oldest(self) -> Connection | None:
        """The oldest connection of the address that has the most of them."""
        most = max(self._of.values(), key=len, default=None)
        return next(iter(most), None) if most else None


class Pace:
    """How fast connections of strangers are taken: a crowd at once, then some hundreds a second, so
    that a flood takes a small share of the time of the process that others wait for."""

    def __init__(self, a_second: float = 300.0, at_once: int = 200) -> None:
        self._every, self._credit = 1 / a_second, at_once / a_second
        self._due = float("-inf")

    def took(self) -> float:
        """Counts a connection that was taken: the seconds to wait before the next one."""
        now = time.monotonic()
        self._due = max(self._due, now - self._credit) + self._every
        return max(0.0, self._due - now)


class FewLines:
    """Logs refusals, unless strangers fill the log: then the number of others is logged later."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._noted, self._since = 0, float("-inf")

    def note(self, text: str, *arguments: object) -> None:
        now = time.monotonic()
        if now - self._since >= _NOTED_SECONDS:
            if self._noted > _MOST_NOTED:
                self._log.warning("refused %d more connections", self._noted - _MOST_NOTED)
            self._since, self._noted = now, 0
        self._noted += 1
        if self._noted <= _MOST_NOTED:
            self._log.warning(text, *arguments)


HERE = "127.0.0.1"
MOST_READERS, _READERS_OF_ONE = 256, 128
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
        self._strangers = Strangers[asyncio.StreamWriter](MOST_READERS, _READERS_OF_ONE)
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
                accepted, peer = await self._loop.sock_accept(self._listener)
            except OSError:
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            try:
                reader, writer = await asyncio.open_connection(sock=accepted, limit=_LONGEST)
            except OSError:  # it has gone already
                accepted.close()
                continue
            task = self._loop.create_task(self._serve(reader, writer, str(peer[0])))
            served.add(task)
            task.add_done_callback(served.discard)
            await asyncio.sleep(pace.took())

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str
    ) -> None:
        crowded_out = self._strangers.come(writer, host)
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
