"""What a gateway says of itself to `acid doctor`; the metastore's process keeps it in memory."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from acid_platform.base.clock import wall_ms
from acid_platform.base.location import Location
from acid_platform.errors import AcidError
from acid_platform.metastore import operations as ops
from acid_platform.metastore.client.metastore import Metastore
from acid_platform.metastore.operations.base import Row

if TYPE_CHECKING:
    from acid_platform.gateway.gateway_server import GatewayServer

_LOG = logging.getLogger(__name__)
_STALE_MS = 30_000


class GatewayStatus:
    """What one gateway says of itself every few seconds."""

    def __init__(self, place: Location) -> None:
        # A metastore that was stopped is not started for this.
        self._metastore = Metastore.connect(place.metastore, autostart=False)
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


def running(metastore: Metastore) -> Iterator[Row]:
    """What the gateways of a metastore said last, but those that were silent for a minute.

    Raises MetastoreUnavailable.
    """
    return map(_by_our_clock, metastore.status()["gateways"])


def _by_our_clock(status: Row) -> Row:
    """The times of a gateway whose machine may have another clock."""
    ahead = status["at"] - (wall_ms() - status["silent_ms"])
    return {**status, "at": status["at"] - ahead, "since": status["since"] - ahead}


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
