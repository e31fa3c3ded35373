"""A gateway's process: what it is started with, and what it says of itself.

Its settings come from the warehouse's, and from the command's options before them. The metastore's
process keeps what it says to `acid doctor` in memory; its numbers are for Prometheus."""

from __future__ import annotations

import ctypes
import logging
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from acid_platform.base.clock import wall_ms
from acid_platform.base.config import Settings
from acid_platform.base.location import Location
from acid_platform.base.paths import is_uri, local_path
from acid_platform.base.ports import registry_of
from acid_platform.errors import AcidError, InvalidDefinition
from acid_platform.gateway.authorization import LOCATIONS, Authorizer, GrantFile, imported
from acid_platform.gateway.client_connection import Bounds
from acid_platform.gateway.gateway_server import Entry
from acid_platform.gateway.logins import Tls, Users
from acid_platform.metastore import operations as ops
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.endpoint import is_loopback
from acid_platform.metastore.messages import Row

if TYPE_CHECKING:
    from acid_platform.gateway.gateway_server import GatewayServer

PREFIX = "acid.gateway."
AUTHORIZER = "acid.gateway.authorizer"
_FILES = (
    "acid.gateway.tls.certificate",
    "acid.gateway.tls.key",
    "acid.gateway.tls.ca",
    "acid.gateway.users",
    "acid.gateway.grants",
)

_ARENAS, _MMAP_THRESHOLD = -8, -3
"""Options of glibc's `mallopt`: the number of its pools, and from which size on a piece of memory
is mapped by itself."""
_LARGE = 128 << 10


def keep_little_memory() -> None:
    """Lets the process give back the memory of large messages. Call it before threads begin.

    By glibc's defaults some threads have a pool of their own; and once a large piece was freed,
    later ones of its size come out of a pool, which keeps all that lies below its last used byte.
    """
    with suppress(OSError, AttributeError):  # another library of C
        choose = ctypes.CDLL(None).mallopt
        choose(_ARENAS, 1)
        choose(_MMAP_THRESHOLD, _LARGE)


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """Who may come in, who may do what, and how much."""

    entry: Entry
    bounds: Bounds
    authorizer: Authorizer | None
    locations: str
    """Directories outside of the warehouse in which clients may make tables, separated by
    commas."""

    @classmethod
    def of(
        cls, settings: Mapping[str, str], options: Mapping[str, str], host: str
    ) -> GatewaySettings:
        """`options` are named as the settings without `acid.gateway.`; `host` is where the gateway
        listens. Raises InvalidDefinition, SettingRefused."""
        in_force = Settings.of(
            {name: text for name, text in settings.items() if name.startswith(PREFIX)}
            | {PREFIX + name: text for name, text in options.items()}
        )
        text = in_force.text
        for name in _FILES:
            if text(name) and not Path(text(name)).is_absolute():
                raise InvalidDefinition(f"{name}: {text(name)!r} is not an absolute path")
        certificate, key, ca, users, file = map(text, _FILES)
        if bool(certificate) != bool(key) or (ca and not certificate):
            raise InvalidDefinition(
                "acid.gateway.tls.certificate and acid.gateway.tls.key are needed together;"
                " acid.gateway.tls.ca needs both of them"
            )
        if users and not certificate and not is_loopback(host):
            raise InvalidDefinition(
                "acid.gateway.users without acid.gateway.tls.certificate would send passwords in"
                f" clear text over the network to {host}; give a certificate, or listen on"
                " 127.0.0.1"
            )
        entry = Entry(
            Tls(certificate, key, ca) if certificate else None,
            Users(users) if users else None,
        )
        bounds = Bounds(
            connections=in_force.integer("acid.gateway.connections"),
            threads=in_force.integer("acid.gateway.threads"),
            rate=in_force.integer("acid.gateway.rate"),
        )
        stored = settings.get(AUTHORIZER)
        if stored and stored != options.get("authorizer"):
            raise InvalidDefinition(
                f"{AUTHORIZER} is set in the metastore, but it names code, which only who starts"
                f" the gateway may: give --authorizer {stored}, and SET"
                f" {AUTHORIZER}=''"
            )
        authorizer = _authorizer(file, text(AUTHORIZER), entry)
        for location in filter(None, (part.strip() for part in text(LOCATIONS).split(","))):
            if not is_uri(location) and not local_path(location).startswith("/"):
                raise InvalidDefinition(f"{LOCATIONS}: {location!r} is not an absolute path")
        return cls(entry, bounds, authorizer, text(LOCATIONS))


def _authorizer(file: str, function: str, entry: Entry) -> Authorizer | None:
    """Raises InvalidDefinition."""
    if file and function:
        raise InvalidDefinition(
            "give acid.gateway.grants or acid.gateway.authorizer, not both: the function can read a"
            " file too"
        )
    if file and not entry.closed:
        raise InvalidDefinition(
            "acid.gateway.grants needs to know who calls: set acid.gateway.users or"
            " acid.gateway.tls.ca"
        )
    if file:
        return GrantFile(file)
    return imported(function) if function else None


_LOG = logging.getLogger(__name__)
_STALE_MS = 30_000


class GatewayStatus:
    """What one gateway says of itself every few seconds."""

    def __init__(self, location: Location) -> None:
        # A metastore that was stopped is not started for this.
        self._metastore = Metastore.connect(location.metastore, autostart=False)
        self._name = f"{socket.gethostname()} {os.getpid()}"
        self._since = wall_ms()
        self._guard, self._ended = threading.Lock(), False

    def write(self, server: GatewayServer) -> None:
        """Tells the metastore, and may have to wait for it."""
        tls = server.entry.tls
        host, port = server.address
        self._tell(
            {
                "pid": os.getpid(),
                "host": socket.gethostname(),
                "address": f"{host}:{port}",
                "tls": tls is not None,
                "certificate_days": round(tls.days_left(), 1) if tls else None,
                "login": server.entry.closed,
                "connections": server.connections,
                "connections_limit": server.bounds.connections,
                "threads": server.threads,
                "threads_limit": server.bounds.threads,
                "waiting_bytes": server.waiting_bytes,
                "rate": server.bounds.rate,
                **asdict(server.counters),
                "since": self._since,
                "at": wall_ms(),
            }
        )

    def remove(self) -> None:
        """Says that the gateway ends. It waits at most a second: a metastore that can't be reached
        forgets it by itself."""
        self._ended = True
        telling = threading.Thread(target=self._tell, args=({},), daemon=True)
        telling.start()
        telling.join(1)

    def _tell(self, report: Row) -> None:
        with self._guard:
            if report and self._ended:
                return
            try:
                self._metastore.call(ops.ReportGateway(self._name, report))
            except AcidError as error:
                _LOG.warning("the metastore was not told how the gateway is: %s", error)


def running(metastore: Metastore) -> list[Row]:
    """What the gateways of a metastore said last, but those that were silent for a minute; with
    times of our clock, which may differ from that of a gateway's machine.

    Raises MetastoreUnavailable.
    """
    return [
        {**status, "at": status["at"] - ahead, "since": status["since"] - ahead}
        for status in metastore.status()["gateways"]
        for ahead in [status["at"] - (wall_ms() - status["silent_ms"])]
    ]


def examined(status: Row) -> tuple[bool, str]:
    """Whether the gateway is safe and alive, and a line about it."""
    hours = max(1, status["at"] - status["since"]) / 3_600_000
    entry = "TLS, " if status["tls"] else ""
    text = (
        f"process {status['pid']} on {status['host']} listens on {status['address']} ({entry}"
        f"{'with' if status['login'] else 'without'} login):"
        f" {status['connections']} of {status['connections_limit']} connections,"
        f" {status['threads']} of {status['threads_limit']} threads,"
        f" {status['calls']:,} calls in {hours:.1f} h"
        f" ({status['slowed']:,} slowed by the limit of"
        f" {status['rate'] or 'any number of'} calls per second),"
        f" {status['refused']} connections and {status['failed_logins']} logins refused"
    )
    faults = []
    if wall_ms() - status["at"] > _STALE_MS:
        faults.append("it has said nothing for more than 30 s; see its log")
    days = status["certificate_days"]
    if days is not None and days < 14:
        ends = f"ends in {days:g} days" if days > 0 else "has expired"
        faults.append(f"its certificate {ends}; renew it")
    here = status["address"].startswith(("127.", "::1:"))
    if not status["login"] and not here:
        faults.append(
            "whoever reaches it may read, write and drop every table: set acid.gateway.users or"
            " acid.gateway.tls.ca"
        )
    return not faults, "; ".join([text, *faults])


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
