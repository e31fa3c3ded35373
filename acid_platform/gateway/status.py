"""What a gateway says of itself to `acid doctor`.

It is a small file beside a metastore in a directory of this machine. A gateway of a shared
metastore tells the metastore's process, which keeps it in memory.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
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
_PREFIX = "gateway-"
_STALE_MS = 30_000


class StatusFile:
    """The file of one gateway's process."""

    def __init__(self, directory: str) -> None:
        self._path = Path(directory, f"{_PREFIX}{os.getpid()}.json")
        for path in self._path.parent.glob(f"{_PREFIX}*.json"):
            with suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
                if not _runs(json.loads(path.read_text())):
                    path.unlink()

    def write(self, report: Row) -> None:
        """Replaces the file. Raises OSError."""
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps(report))
        new.replace(self._path)

    def remove(self) -> None:
        with suppress(OSError):
            self._path.unlink()


class SharedStatus:
    """Tells a shared metastore from a thread of its own, since that may have to wait."""

    def __init__(self, metastore: Metastore) -> None:
        self._metastore = metastore
        self._name = f"{socket.gethostname()} {os.getpid()}"
        self._latest: Row = {}
        self._news, self._ends = threading.Event(), False
        self._thread = threading.Thread(target=self._tell, name="gateway-status", daemon=True)
        self._thread.start()

    def write(self, report: Row) -> None:
        self._latest = report
        self._news.set()

    def remove(self) -> None:
        """Waits at most a second; a metastore that can't be reached forgets it by itself."""
        self._latest, self._ends = {}, True
        self._news.set()
        self._thread.join(1)

    def _tell(self) -> None:
        while not self._ends:
            self._news.wait()
            self._news.clear()
            try:
                self._metastore.call(ops.ReportGateway(self._name, self._latest))
            except AcidError as error:
                _LOG.warning("the metastore was not told how the gateway is: %s", error)
        self._metastore.disconnect()


class GatewayStatus:
    """What one gateway says of itself every few seconds, and where it does."""

    def __init__(self, place: Location, metastore: Metastore) -> None:
        self._target = SharedStatus(metastore) if place.shared else StatusFile(place.metastore)
        self._since = wall_ms()

    def write(self, server: GatewayServer) -> None:
        """Raises OSError."""
        tls = server.entry.tls
        host, port = server.address
        self._target.write(
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
        """Says that the gateway ends."""
        self._target.remove()


def _runs(status: Row) -> bool:
    """Whether the gateway's process lives; one of another machine counts as alive for a while."""
    if status["host"] != socket.gethostname():
        return bool(wall_ms() - status["at"] < _STALE_MS)
    try:
        os.kill(status["pid"], 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def running(place: Location, metastore: Metastore) -> Iterator[Row]:
    """What the gateways of a metastore say that run now. Raises MetastoreUnavailable."""
    if place.shared:
        yield from map(_by_our_clock, metastore.status().get("gateways", ()))
        return
    for path in sorted(Path(place.metastore).glob(f"{_PREFIX}*.json")):
        with suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
            status = json.loads(path.read_text())
            if _runs(status):
                yield status


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
